//! From a model's dimensions to a specialisation: the one place where tile constants are chosen.

use crate::error::KernelError;
use crate::inventory::kernel;
use crate::spec::Spec;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::sync::LazyLock;
use vosti_contract::{Const, Constants, ContractError, Dtype, expr};

type Tiles = BTreeMap<String, Tile>;
type Targets = BTreeMap<String, BTreeMap<String, Tiles>>;

/// An expression, or a list of one for each height of row tiles.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
pub(crate) enum Tile {
    One(String),
    Each(Vec<String>),
}

impl Tile {
    fn at(&self, height: usize) -> Option<&String> {
        match self {
            Tile::One(text) => Some(text),
            Tile::Each(texts) => texts.get(height),
        }
    }

    fn heights(&self) -> usize {
        match self {
            Tile::One(_) => 1,
            Tile::Each(texts) => texts.len(),
        }
    }
}

/// `specialisations.toml`.
#[derive(Deserialize)]
struct Table {
    /// Targets that take another target's tiles.
    same: BTreeMap<String, String>,
    /// Targets on which tiles are copied by descriptor where an option says so.
    #[serde(default)]
    by_descriptor: Vec<String>,
    /// Tiles of a target; of a target in `same`, the options that it replaces.
    #[serde(flatten)]
    own: Targets,
}

/// Tile expressions by target and kernel.
// The file is part of this crate, and tests read it, so the panic cannot happen at run time.
static TABLE: LazyLock<Targets> =
    LazyLock::new(|| read(include_str!("../specialisations.toml")).unwrap_or_else(|error| panic!("{error}")));

/// Keys of the table that are no constants of a kernel: how its TTIR is compiled, and how many of the listed heights of row
/// tiles a target has for some dimensions, lowest first (all, if the key is missing).
const OPTIONS: [&str; 5] = ["num_warps", "num_stages", HEIGHTS, FOLDS, DESCRIPTORS];
const HEIGHTS: &str = "heights";
const FOLDS: &str = "folds";
/// Whether tiles are copied by descriptor, on the targets in `by_descriptor`.
const DESCRIPTORS: &str = "descriptors";

fn read(text: &str) -> Result<Targets, KernelError> {
    let Table { same, by_descriptor, mut own } =
        toml::from_str(text).map_err(|error| KernelError::Table(error.to_string()))?;
    for (target, of) in same {
        let mut tiles = kernels_of(&own, &of)?.clone();
        for (kernel, options) in own.remove(&target).unwrap_or_default() {
            let Some(shared) = tiles.get_mut(&kernel) else {
                return Err(KernelError::Untiled { target: of, kernel });
            };
            if let Some(name) = options.keys().find(|name| !OPTIONS.contains(&name.as_str())) {
                return Err(KernelError::Override { target, of, kernel, name: name.clone() });
            }
            shared.extend(options);
        }
        own.insert(target, tiles);
    }
    for (_, tiles) in own.iter_mut().filter(|(target, _)| !by_descriptor.contains(target)) {
        tiles.values_mut().for_each(|options| _ = options.remove(DESCRIPTORS));
    }
    Ok(own)
}

fn kernels_of<'a>(table: &'a Targets, target: &str) -> Result<&'a BTreeMap<String, Tiles>, KernelError> {
    table.get(target).ok_or_else(|| {
        let mut known: Vec<&str> = table.keys().map(String::as_str).collect();
        // sm100 after sm90.
        known.sort_by_key(|target| (target.len(), *target));
        KernelError::Target { target: target.to_string(), known: known.join(", ") }
    })
}

/// How a GPU target compiles a specialisation. The options are no part of the specialisation: its TTIR and proof do not depend
/// on them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CompileOptions {
    /// Warps of a program.
    pub num_warps: u32,
    /// Iterations of a loop whose loads may be in flight at once.
    pub num_stages: u32,
    /// Whether its loop's tiles are copied by descriptor (TMA), not by threads. A caller may say that they are not.
    pub descriptors: bool,
}

/// How `target` compiles a specialisation. An error if the table has no such target, does not give `spec` for it, or has no
/// options (as for a processor).
pub fn compile_options(target: &str, spec: &Spec) -> Result<CompileOptions, KernelError> {
    let tiles = tiles(target, &spec.kernel)?;
    let height = all_of(target, spec)?.iter().position(|other| other == spec);
    let height = height.ok_or_else(|| KernelError::Foreign { spec: spec.to_string(), target: target.to_string() })?;
    let lookup = |name: &str| spec.constants.get(name).and_then(int);
    let option = |name: &str| {
        let missing = || KernelError::Missing { kernel: spec.kernel.clone(), name: name.to_string() };
        let text = tiles.get(name).and_then(|tile| tile.at(height)).ok_or_else(missing)?;
        let value = expr::eval(text, &lookup)?;
        let why = || format!("{name} cannot be {value}");
        let refused = || KernelError::from(ContractError::Expression { text: text.clone(), why: why() });
        u32::try_from(value).ok().filter(|v| (1..=32).contains(v)).ok_or_else(refused)
    };
    let asks = match tiles.get(DESCRIPTORS).and_then(|tile| tile.at(height)) {
        Some(text) => expr::eval(text, &lookup)? != 0,
        None => false,
    };
    Ok(CompileOptions {
        num_warps: option("num_warps")?,
        num_stages: option("num_stages")?,
        descriptors: asks && spec.act == Dtype::Bf16,
    })
}

/// Whether a target has room for a launch of `spec` that folds its own splits (`folds` in the table): it needs a second sum in
/// registers. False for kernels without splits.
pub fn folds(target: &str, spec: &Spec) -> Result<bool, KernelError> {
    let Some(text) = tiles(target, &spec.kernel)?.get(FOLDS).and_then(|tile| tile.at(0)) else { return Ok(false) };
    let lookup = |name: &str| spec.constants.get(name).and_then(int);
    Ok(expr::eval(text, &lookup)? != 0)
}

/// The text of `attend_combine` behind which a text of `attend` gives the bits that it gives where it folds its own splits, if
/// some target folds there. It is proved.
pub fn second_of(spec: &Spec) -> Option<Spec> {
    let (text, second) = (spec.text(), "attend_combine");
    let target = targets().find(|target| folds(target, &text).is_ok_and(|folds| folds))?;
    let tiles = tiles(target, second).ok()?;
    // The rooms are those of `attend`. A number in the table is the same for both, but for the rows of a tile.
    let constant = |name: &String| {
        let number = tiles.get(name).and_then(|tile| expr::eval(tile.at(0)?, &|_| None).ok()).map(Const::Int);
        let shared = text.constants.get(name).copied();
        let same = name == "BQ" || number.is_none() || number == shared;
        Some((name.clone(), number.or(shared).filter(|_| same)?))
    };
    let contract = crate::contract(second).ok()?;
    let bound = |name: &String| contract.numbers.iter().any(|number| number.name == *name);
    let names = kernel(second).ok()?.constants.iter().filter(|name| !bound(name));
    let constants = names.map(constant).collect::<Option<_>>()?;
    Some(Spec { kernel: second.into(), act: text.act, constants })
}

/// The name of the processor's target.
pub const CPU: &str = "cpu";

/// Targets that have tile constants.
pub fn targets() -> impl Iterator<Item = &'static str> {
    TABLE.keys().map(String::as_str)
}

/// Refuses a target that has no tile constants; the error lists those that have.
pub fn check_target(target: &str) -> Result<(), KernelError> {
    kernels_of(&TABLE, target).map(drop)
}

pub(crate) fn tiles(target: &str, kernel: &str) -> Result<&'static Tiles, KernelError> {
    let untiled = || KernelError::Untiled { target: target.to_string(), kernel: kernel.to_string() };
    kernels_of(&TABLE, target)?.get(kernel).ok_or_else(untiled)
}

/// The specialisation of `kernel_name` for `target` (`cpu`, `cuda-sm90`). `dims` has the model's dimensions: every
/// constant of the kernel that `specialisations.toml` does not compute. If there are several heights of row tiles, the
/// lowest. An error that names a constant if one is missing or too many.
pub fn specialise(target: &str, kernel_name: &str, act: Dtype, dims: &[(&str, Const)]) -> Result<Spec, KernelError> {
    let spec = all(target, kernel_name, act, dims, &Constants::new())?.swap_remove(0);
    match kernel(kernel_name)?.constants.iter().find(|c| !spec.constants.contains_key(*c)) {
        Some(name) => Err(KernelError::Missing { kernel: kernel_name.to_string(), name: name.clone() }),
        None => Ok(spec),
    }
}

/// The specialisations with higher row tiles that may run in the place of `spec`, lowest first; empty if [`specialise`] does
/// not give `spec`. Each is proved to give its bits ([`stands_for`]).
pub fn higher(target: &str, spec: &Spec) -> Result<Vec<Spec>, KernelError> {
    let mut all = all_of(target, spec)?;
    let rest = all.split_off(1);
    Ok(if all[0] == *spec { rest } else { vec![] })
}

/// The specialisations in whose place `spec` may run on some target, and whose bits it must therefore be proved to give. If
/// `spec` is a text ([`Spec::text`]), these are texts too.
pub fn stands_for(spec: &Spec) -> Vec<Spec> {
    let mut found = vec![];
    for target in targets() {
        let first = all_of(target, spec).map(|mut all| all.swap_remove(0));
        let stands = |first: &Spec| higher(target, first).is_ok_and(|higher| higher.contains(spec));
        found.extend(first.ok().filter(stands));
    }
    found.sort();
    found.dedup();
    found
}

/// All heights of the specialisation, or of the text, of which `spec` may be one.
fn all_of(target: &str, spec: &Spec) -> Result<Vec<Spec>, KernelError> {
    let tiles = tiles(target, &spec.kernel)?;
    let own = spec.constants.iter().filter(|(name, _)| !tiles.contains_key(*name));
    let dims: Vec<(&str, Const)> = own.map(|(name, value)| (name.as_str(), *value)).collect();
    all(target, &spec.kernel, spec.act, &dims, &filling(spec)?)
}

/// The dimensions that fill a text's tiles: A, if the contract has a condition `A <= B` with a constant B of the text. So a text,
/// which has no dimensions, has the tiles of its largest ones.
fn filling(spec: &Spec) -> Result<Constants, KernelError> {
    let contract = &kernel(&spec.kernel)?.contract;
    let pairs = contract.conditions.iter().filter_map(|condition| condition.split_once("<="));
    let pairs = pairs.map(|(dim, room)| (dim.trim(), spec.constants.get(room.trim())));
    let bound = |name: &str| contract.numbers.iter().any(|number| number.name == name);
    Ok(pairs.filter(|(dim, _)| bound(dim)).filter_map(|(dim, room)| Some((dim.to_string(), *room?))).collect())
}

/// The specialisations for a model's dimensions, by the height of their row tiles; at least one. If `dims` has none of the
/// numbers that are bound later, these are texts, and `filling` has the numbers that expressions may read.
fn all(
    target: &str,
    kernel_name: &str,
    act: Dtype,
    dims: &[(&str, Const)],
    filling: &Constants,
) -> Result<Vec<Spec>, KernelError> {
    kernel(kernel_name)?;
    let lookup = |name: &str| {
        let given = dims.iter().find(|(given, _)| *given == name).map(|(_, value)| value);
        given.or(filling.get(name)).and_then(int)
    };
    let heights = heights_of(kernel_name, tiles(target, kernel_name)?, &lookup)?;
    (0..heights).map(|height| at(target, kernel_name, act, dims, &lookup, height)).collect()
}

fn int(value: &Const) -> Option<i64> {
    match value {
        Const::Int(value) => Some(*value),
        Const::Float(_) => None,
    }
}

/// The value of a name in an expression.
type Lookup<'a> = &'a dyn Fn(&str) -> Option<i64>;

/// How many heights of row tiles a target has for some dimensions: all that are listed, or the first `heights` of them.
fn heights_of(kernel: &str, tiles: &Tiles, lookup: Lookup) -> Result<usize, KernelError> {
    let most = tiles.values().map(Tile::heights).max().unwrap_or(1);
    let Some(text) = tiles.get(HEIGHTS).and_then(|tile| tile.at(0)) else { return Ok(most) };
    let value = expr::eval(text, lookup)?;
    let why = || format!("{kernel} has {most} heights");
    let refused = || KernelError::from(ContractError::Expression { text: text.clone(), why: why() });
    usize::try_from(value).ok().filter(|value| (1..=most).contains(value)).ok_or_else(refused)
}

fn at(
    target: &str,
    kernel_name: &str,
    act: Dtype,
    dims: &[(&str, Const)],
    lookup: Lookup,
    height: usize,
) -> Result<Spec, KernelError> {
    let kernel = kernel(kernel_name)?;
    let tiles = tiles(target, kernel_name)?;
    let mut constants = BTreeMap::new();
    for (name, value) in dims {
        if !kernel.constants.iter().any(|c| c == name) || tiles.contains_key(*name) {
            let given = |c: &&String| !tiles.contains_key(*c);
            let takes = kernel.constants.iter().filter(given).cloned().collect::<Vec<_>>().join(", ");
            return Err(KernelError::Unknown { kernel: kernel_name.to_string(), name: name.to_string(), takes });
        }
        constants.insert(name.to_string(), *value);
    }
    let bound = |name: &String| kernel.contract.numbers.iter().any(|number| number.name == *name);
    let text = !constants.keys().any(bound);
    let later = |name: &String| text && bound(name);
    for (name, tile) in tiles.iter().filter(|(name, _)| !OPTIONS.contains(&name.as_str()) && !later(name)) {
        // A list that is too short leaves the constant out, and the check below refuses that.
        let Some(text) = tile.at(height) else { continue };
        constants.insert(name.clone(), Const::Int(expr::eval(text, lookup)?));
    }
    match kernel.constants.iter().find(|c| !constants.contains_key(*c) && !later(c)) {
        Some(name) => Err(KernelError::Missing { kernel: kernel_name.to_string(), name: name.clone() }),
        None => Ok(Spec { kernel: kernel_name.to_string(), act, constants }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scores;

    #[test]
    fn tile_constants_come_from_the_target_and_the_dimensions() {
        let dims = [("K", Const::Int(576)), ("N", Const::Int(960))];
        let spec = specialise("cpu", "linear", Dtype::Bf16, &dims).unwrap();
        assert_eq!(spec.to_string(), "linear-bf16-BK64-BM64-BN64-K576-N960-SWAP0");
    }

    #[test]
    fn tiles_of_several_heights_differ_in_nothing_that_sums() {
        let dims = [("K", Const::Int(576)), ("N", Const::Int(960))];
        let first = specialise("cuda-sm90", "linear", Dtype::Bf16, &dims).unwrap();
        let higher = higher("cuda-sm90", &first).unwrap();
        let height = |spec: &Spec| spec.constants["BM"];
        assert_eq!([&first, &higher[0], &higher[1], &higher[2]].map(height), [16, 64, 128, 256].map(Const::Int));
        assert_eq!(super::higher("cuda-sm80", &first).unwrap(), higher[..2]);
        assert_eq!(stands_for(&first), []);
        for spec in &higher {
            assert_eq!(stands_for(spec), std::slice::from_ref(&first));
            assert_eq!(spec.constants["BK"], first.constants["BK"]);
            assert_eq!(super::higher("cuda-sm90", spec).unwrap(), []);
        }
        let warps = |spec| compile_options("cuda-sm90", spec).unwrap().num_warps;
        assert!(warps(&first) < warps(&higher[1]));
        let cpu = specialise("cpu", "linear", Dtype::Bf16, &dims).unwrap();
        assert_eq!(super::higher("cpu", &cpu).unwrap(), []);
        let error = compile_options("cuda-sm90", &cpu).unwrap_err().to_string();
        assert!(error.contains("cuda-sm90") && error.contains("SWAP0"), "{error}");
    }

    #[test]
    fn compile_options_follow_the_dimensions_and_are_no_constants() {
        let of = |target, d: i64| {
            let dims =
                [("KV_HEADS", 2), ("GROUP", 4), ("D", d), ("PAGE", 64), ("SINKS", 0)].map(|(n, v)| (n, v.into()));
            let dims = [&dims[..], &crate::window(Some(9)), &scores(1.0, 0.0)].concat();
            specialise(target, "attend", Dtype::Bf16, &dims).unwrap()
        };
        let attend = |d| of("cuda-sm90", d);
        assert!(!attend(128).to_string().contains("num_"));
        let options = |d| compile_options("cuda-sm90", &attend(d)).unwrap();
        assert_eq!(options(128), CompileOptions { num_warps: 4, num_stages: 5, descriptors: false });
        assert_eq!(options(512), CompileOptions { num_warps: 8, num_stages: 1, descriptors: false });
        let error = |spec| compile_options("cpu", &spec).unwrap_err().to_string();
        let (own, foreign) = (error(of("cpu", 128)), error(attend(128)));
        assert!(own.contains("num_warps") && own.contains("specialisations.toml"), "{own}");
        assert!(foreign.contains("does not give `attend-") && foreign.contains("`cpu`"), "{foreign}");
    }

    #[test]
    fn gpu_targets_have_one_table_and_so_one_text_and_one_proof() {
        let dims = [("K", Const::Int(576)), ("N", Const::Int(960))];
        let of = |target: &str| specialise(target, "linear", Dtype::Bf16, &dims).unwrap();
        for target in ["cuda-sm80", "cuda-sm86", "cuda-sm89", "cuda-sm100", "cuda-sm120"] {
            assert_eq!(of(target), of("cuda-sm90"));
            let options = |target| compile_options(target, &of(target)).unwrap();
            assert_eq!(options(target), options("cuda-sm90"));
        }
    }

    #[test]
    fn high_products_of_whole_lines_are_copied_by_descriptor_on_sm90_and_sm100() {
        let asks = |target: &str, kernel: &str, act: Dtype, k: i64| -> Vec<bool> {
            let mut dims = vec![("K", Const::Int(k)), ("N", Const::Int(960))];
            dims.extend((kernel == "linear_glu").then_some(("ACT", Const::Int(0))));
            let first = specialise(target, kernel, act, &dims).unwrap();
            let all = std::iter::once(first.clone()).chain(higher(target, &first).unwrap());
            all.map(|spec| compile_options(target, &spec).unwrap().descriptors).collect()
        };
        assert_eq!(asks("cuda-sm90", "linear", Dtype::Bf16, 576), [false, false, true, true]);
        assert_eq!(asks("cuda-sm90", "linear_glu", Dtype::Bf16, 576), [false, false, true]);
        // A row's bytes are no multiple of 16; numbers are of 32 bits; other targets.
        assert_eq!(asks("cuda-sm90", "linear", Dtype::Bf16, 580), [false; 4]);
        assert_eq!(asks("cuda-sm90", "linear", Dtype::F32, 576), [false; 4]);
        assert_eq!(asks("cuda-sm80", "linear", Dtype::Bf16, 576), [false; 3]);
        assert_eq!(asks("cuda-sm100", "linear", Dtype::Bf16, 576), [false, false, true, true]);
        assert_eq!(asks("cuda-sm120", "linear", Dtype::Bf16, 576), [false; 3]);
    }

    #[test]
    fn a_target_that_is_anothers_replaces_how_it_compiles_and_nothing_else() {
        let of = |own: &str| {
            let shared = "[a]\nlinear = { BM = \"64\", num_warps = \"4\", num_stages = \"4\" }";
            read(&format!("[same]\nb = \"a\"\n{shared}\n{own}"))
        };
        let table = of("[b]\nlinear = { num_stages = \"1\" }").unwrap();
        let linear = |target: &str| {
            ["BM", "num_warps", "num_stages"].map(|name| table[target]["linear"][name].at(0).unwrap().as_str())
        };
        assert_eq!((linear("a"), linear("b")), (["64", "4", "4"], ["64", "4", "1"]));
        let cases = [
            (
                "[b]\nlinear = { BM = \"32\" }",
                "of `b` takes its tiles from `a`: num_warps, num_stages and heights, not BM",
            ),
            ("[b]\nlinear = { num_ctas = \"2\" }", "not num_ctas"),
            ("[b]\nembed = { num_warps = \"2\" }", "target `a` tiles kernel `embed`"),
            ("[b]\nlinear = \"1\"", "specialisations.toml: "),
        ];
        for (own, says) in cases {
            let error = of(own).unwrap_err().to_string();
            assert!(error.contains(says), "{error}");
        }
        let error = read("[same]\nb = \"a\"\n[c]").unwrap_err().to_string();
        assert!(error.contains("no target `a`") && error.contains("there are c"), "{error}");
    }

    #[test]
    fn a_page_is_loaded_ahead_where_two_fit_and_the_text_is_shared() {
        let targets = ["cuda-sm80", "cuda-sm86", "cuda-sm89", "cuda-sm90", "cuda-sm100", "cuda-sm120"];
        for (window, target) in [None, Some(512)].into_iter().flat_map(|w| targets.map(|t| (w, t))) {
            let of = |d: i64| {
                let dims =
                    [("KV_HEADS", 8), ("GROUP", 2), ("D", d), ("PAGE", 64), ("SINKS", 0)].map(|(n, v)| (n, v.into()));
                let dims = [&dims[..], &crate::window(window), &scores(1.0, 0.0)].concat();
                let spec = |target| specialise(target, "attend", Dtype::Bf16, &dims).unwrap();
                assert_eq!(spec(target), spec("cuda-sm90"));
                compile_options(target, &spec(target)).unwrap().num_stages
            };
            let large = if ["cuda-sm90", "cuda-sm100"].contains(&target) { 5 } else { 1 };
            assert_eq!([of(64), of(80), of(128), of(256), of(512)], [5, 5, 5, large, 1], "{window:?} {target}");
        }
    }

    #[test]
    fn a_target_may_leave_out_the_highest_row_tiles() {
        let dims = [("K", 4096.into()), ("N", 14336.into()), ("ACT", 0.into())];
        let heights = |target: &str, kernel: &str| {
            let dims = &dims[..if kernel == "linear_glu" { 3 } else { 2 }];
            higher(target, &specialise(target, kernel, Dtype::Bf16, dims).unwrap()).unwrap().len()
        };
        assert_eq!((heights("cuda-sm90", "linear_glu"), heights("cuda-sm120", "linear_glu")), (2, 1));
        assert_eq!((heights("cuda-sm90", "linear"), heights("cuda-sm120", "linear")), (3, 2));
        for (heights, says) in [("0", "has 2 heights"), ("3", "has 2 heights"), ("K", "K")] {
            let table = format!(
                "[same]\nb = \"a\"\n[a]\nlinear = {{ BM = [\"1\", \"2\"] }}\n[b]\nlinear = {{ heights = \"{heights}\" }}"
            );
            let tiles = &read(&table).unwrap()["b"]["linear"];
            let error = heights_of("linear", tiles, &|_| None).unwrap_err().to_string();
            assert!(error.contains(says), "{error}");
        }
    }

    /// Both launches of attention.
    fn halves(target: &str, heads: i64, kv_heads: i64, d: i64) -> [Spec; 2] {
        let [own, group, d, page, sinks] =
            [("KV_HEADS", kv_heads), ("GROUP", heads / kv_heads), ("D", d), ("PAGE", 64), ("SINKS", 0)]
                .map(|(name, value)| (name, Const::Int(value)));
        let part = [&[own, group, d, page, sinks], &crate::window(None)[..], &scores(1.0, 0.0)].concat();
        [("attend", &part[..]), ("attend_combine", &[own, group, d, sinks])]
            .map(|(kernel, dims)| specialise(target, kernel, Dtype::Bf16, dims).unwrap())
    }

    #[test]
    fn heads_of_512_have_half_the_query_tile_on_gpus_and_the_second_launch_tiles_of_its_own() {
        let rows = |target: &str, heads: i64, kv_heads: i64, d: i64| {
            let [part, combine] = halves(target, heads, kv_heads, d);
            match target {
                CPU => assert_eq!(part.constants["HEIGHT"], combine.constants["HEIGHT"]),
                _ => {
                    assert_eq!(part.constants["BQ"], part.constants["HEIGHT"]);
                    assert_eq!(["BQ", "HEIGHT"].map(|name| combine.constants[name]), [Const::Int(1); 2]);
                }
            }
            part.constants["HEIGHT"]
        };
        for target in ["cuda-sm80", "cuda-sm90"] {
            assert_eq!(rows(target, 16, 8, 256), Const::Int(32));
            assert_eq!((rows(target, 16, 1, 512), rows(target, 32, 4, 512)), (Const::Int(2), Const::Int(4)));
            // A quarter if one or two query heads share a key's head; a group of one is padded to two.
            assert_eq!([rows(target, 8, 4, 512), rows(target, 4, 4, 512)], [Const::Int(8); 2]);
        }
        assert_eq!(rows("cpu", 16, 1, 512), Const::Int(4));
    }

    #[test]
    fn splits_are_whole_pages_and_follow_the_size_of_a_head_alone() {
        let splits = |target: &str, heads: i64, d: i64| {
            let [part, combine] = halves(target, heads, heads / 2, d);
            for name in ["SPLIT", "ROWS", "KV_HEADS", "D"] {
                assert_eq!(part.constants[name], combine.constants[name], "{target} {name}");
            }
            let Const::Int(split) = part.constants["SPLIT"] else { panic!("{part}") };
            assert_eq!(split % 64, 0);
            split
        };
        let models = [(2, 16), (32, 16), (4, 32), (10, 64), (32, 80), (32, 128)];
        assert_eq!(models.map(|(heads, d)| splits("cpu", heads, d)), [64, 64, 256, 1024, 1024, 1024]);
        assert_eq!(models.map(|(heads, d)| splits("cuda-sm90", heads, d)), [512; 6]);
    }

    #[test]
    fn a_wrong_request_is_refused_by_name() {
        let k = ("K", Const::Int(576));
        let cases = [
            (specialise("cpu", "linear", Dtype::Bf16, &[k]), "needs the constant N"),
            (specialise("cpu", "linear", Dtype::Bf16, &[k, ("BM", Const::Int(8))]), "no constant BM"),
            (specialise("tpu", "linear", Dtype::Bf16, &[k]), "no target `tpu`"),
            (specialise("cpu", "gemm", Dtype::Bf16, &[k]), "no kernel `gemm`"),
        ];
        for (result, part) in cases {
            let error = result.unwrap_err().to_string();
            assert!(error.contains(part), "{error}");
        }
    }
}
