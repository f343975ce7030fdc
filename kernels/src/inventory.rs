//! All kernels by name, each with its source, constants and contract; and the TTIR of specialisations.

use crate::error::KernelError;
use crate::spec::Spec;
use include_dir::{Dir, include_dir};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::LazyLock;
use vosti_contract::contract::{function, parse};
use vosti_contract::{Const, Constants, Contract, ContractError, NumberKind, dtype, expr};

static TTIR: Dir = include_dir!("$CARGO_MANIFEST_DIR/ttir");

/// What stands above each text of `ttir/KERNEL.ttir`, before its stem.
pub const TEXT_OF: &str = "// text of ";

static TEXTS: LazyLock<BTreeMap<&str, &str>> = LazyLock::new(|| {
    let files = TTIR.files().filter_map(|file| file.contents_utf8());
    files.flat_map(|file| file.split(TEXT_OF)).filter_map(|part| part.split_once('\n')).collect()
});

macro_rules! sources {
    ($($name:literal),* $(,)?) => { &[$(($name, include_str!(concat!("../", $name, ".py")))),*] };
}

/// The Triton source of each kernel.
const SOURCES: &[(&str, &str)] = sources![
    "add_bias",
    "argmax",
    "attend",
    "attend_combine",
    "combine",
    "combine_bias",
    "combine_scaled",
    "conv_silu",
    "conv_silu_bias",
    "delta_inputs",
    "draw_combine",
    "draw_part",
    "embed",
    "expert_down",
    "expert_glu",
    "expert_int_down",
    "expert_int_glu",
    "gate_heads",
    "gate_rows",
    "gather",
    "linear",
    "linear_add",
    "linear_bias",
    "linear_glu",
    "linear_int",
    "linear_int_add",
    "linear_int_bias",
    "linear_int_glu",
    "linear_int_logits",
    "linear_logits",
    "mamba_inputs",
    "norm_gated",
    "norm_qk",
    "per_layer_gate",
    "quantise",
    "read_state",
    "relu_squared",
    "rmsnorm",
    "rmsnorm_add",
    "rmsnorm_add_scaled",
    "rmsnorm_groups",
    "rope_q",
    "rope_store",
    "round_stream",
    "route",
    "short_conv",
    "skip_gated",
    "spread",
    "store_conv",
    "store_delta",
    "store_gated",
    "store_mamba",
    "topk_combine",
    "topk_part",
];

/// Sources that kernels import.
const SHARED: &[(&str, &str)] = sources![
    "chosen",
    "columns",
    "convolution",
    "drawing",
    "integers",
    "online_softmax",
    "product",
    "rotation",
    "selection",
    "softplus"
];

/// A kernel: one Triton source with its contract.
#[derive(Clone, Debug)]
pub struct Kernel {
    /// The stem of `kernels/NAME.py`.
    pub name: &'static str,
    /// The Python text.
    pub source: &'static str,
    /// The names of its `tl.constexpr` parameters, then of the numbers that are bound later, each in signature order.
    pub constants: Vec<String>,
    /// The TOML above the kernel, parsed.
    pub contract: Contract,
}

impl Kernel {
    /// The sources that its TTIR is made from, as one text: its own, then those of the modules in `kernels/` that it imports.
    pub fn made_from(&self) -> String {
        let imported = SHARED.iter().filter(|(name, _)| self.source.contains(&format!("\nfrom {name} import ")));
        std::iter::once(self.source).chain(imported.map(|(_, text)| *text)).collect()
    }
}

static KERNELS: LazyLock<(Vec<Kernel>, BTreeMap<&str, KernelError>)> = LazyLock::new(|| read_all(SOURCES));

/// The kernels that parse, and an error for each of the others, which [`kernel`] gives to its caller.
fn read_all(sources: &'static [(&'static str, &'static str)]) -> (Vec<Kernel>, BTreeMap<&'static str, KernelError>) {
    let (mut kernels, mut wrong) = (vec![], BTreeMap::new());
    for (name, source) in sources {
        match read(name, source) {
            Ok(kernel) => kernels.push(kernel),
            Err(error) => _ = wrong.insert(*name, error),
        }
    }
    (kernels, wrong)
}

fn read(name: &'static str, source: &'static str) -> Result<Kernel, KernelError> {
    let bad = |why: &str| ContractError::Contract { kernel: name.to_string(), why: why.to_string() };
    let (_, signature) = source.split_once(&format!("def {name}(")).ok_or_else(|| bad("no such function"))?;
    let (signature, _) = signature.split_once("):").ok_or_else(|| bad("the signature does not end"))?;
    let (mut parameters, mut constants) = (vec![], vec![]);
    for parameter in signature.split(',').map(str::trim).filter(|p| !p.is_empty()) {
        match parameter.split_once(':') {
            Some((name, _)) => constants.push(name.trim().to_string()),
            None => parameters.push(parameter.to_string()),
        }
    }
    match function(source).map_err(|why| bad(&why))? {
        of if of == name => {}
        other => return Err(bad(&format!("the contract stands above `{other}`, and the kernel is `{name}`")).into()),
    }
    let contract = parse(name, source, &parameters)?;
    constants.extend(contract.numbers.iter().map(|number| number.name.clone()));
    Ok(Kernel { name, source, constants, contract })
}

/// All kernels that parse, by name.
pub fn kernels() -> &'static [Kernel] {
    &KERNELS.0
}

/// The kernel of this name. An error if there is none, or if its contract does not parse.
pub fn kernel(name: &str) -> Result<&'static Kernel, KernelError> {
    let unknown = || KernelError::Kernel {
        kernel: name.to_string(),
        known: SOURCES.iter().map(|s| s.0).collect::<Vec<_>>().join(", "),
    };
    let (kernels, wrong) = &*KERNELS;
    kernels.iter().find(|k| k.name == name).ok_or_else(|| wrong.get(name).cloned().unwrap_or_else(unknown))
}

/// The contract of a kernel; errors as in [`kernel`].
pub fn contract(kernel_name: &str) -> Result<&'static Contract, KernelError> {
    Ok(&kernel(kernel_name)?.contract)
}

/// The TTIR of a specialisation: the checked-in text of its tile constants, bound to its dimensions and numbers. None if no
/// such text is checked in, or as in [`bind`].
pub fn ttir(spec: &Spec) -> Option<Cow<'static, str>> {
    bind(ttir_by_stem(&spec.text().to_string())?, spec)
}

/// A text with the specialisation's dimensions and numbers in the place of its parameters: the parameters leave the signature,
/// and a constant for each stands at the end of the signature's line, so that every other line keeps its number. The rest of
/// the text stays the same. None if the specialisation lacks a value, or the text a parameter.
pub fn bind<'t>(text: &'t str, spec: &Spec) -> Option<Cow<'t, str>> {
    let numbers = &kernel(&spec.kernel).ok()?.contract.numbers;
    if numbers.is_empty() {
        return Some(Cow::Borrowed(text));
    }
    let start = text.find("tt.func public @")?;
    let end = start + text[start..].find('\n')?;
    let mut signature = text[start..end].to_string();
    let mut constants = String::new();
    for number in numbers {
        let parameter = format!(", %{}: {}", number.name, if number.triton() == "i32" { "i32" } else { "f32" });
        let at = signature.find(&parameter).filter(|at| signature[at + parameter.len()..].starts_with([',', ')']))?;
        signature.replace_range(at..at + parameter.len(), "");
        let value = number.literal(spec.constants.get(&number.name)?)?;
        constants += &format!(" %{} = arith.constant {value}", number.name);
    }
    Some(Cow::Owned([&text[..start], &signature, &constants, &text[end..]].concat()))
}

/// Stems of all checked-in TTIR, sorted.
pub fn ttir_stems() -> Vec<&'static str> {
    TEXTS.keys().copied().collect()
}

/// The checked-in TTIR of a stem.
pub fn ttir_by_stem(stem: &str) -> Option<&'static str> {
    TEXTS.get(stem).copied()
}

/// Specialisations for tests: of each checked-in text, or of each text with four sets of dimensions (small, ragged, 1, and a
/// model's).
pub fn examples() -> Vec<Spec> {
    const SIZES: [[i64; 3]; 4] = [[40, 24, 75], [97, 130, 290], [1, 1, 3], [576, 320, 1000]];
    // Dimensions that stay small: numbers of heads.
    const COUNTS: [[i64; 2]; 4] = [[3, 2], [5, 3], [1, 1], [2, 4]];
    // Eighths of the room that a head, or a half of one, fills; the third set adds one number to half of the room.
    const EIGHTHS: [i64; 4] = [8, 5, 4, 6];
    let mut all = vec![];
    for text in ttir_stems().into_iter().filter_map(parse_stem) {
        let Ok(kernel) = kernel(&text.kernel) else { continue };
        let numbers = &kernel.contract.numbers;
        for which in 0..if numbers.is_empty() { 1 } else { SIZES.len() } {
            let (mut spec, mut flags) = (text.clone(), 0);
            for (i, number) in numbers.iter().enumerate() {
                let room = match number.name.as_str() {
                    "D" => text.constants.get("DP"),
                    "HALF" => text.constants.get("HP"),
                    _ => None,
                };
                let value = match number.kind {
                    NumberKind::Dimension { lo, hi } if let Some(Const::Int(room)) = room => {
                        let more = i64::from(which == 2);
                        Const::Int((room * EIGHTHS[which] / 8 + more).clamp(lo, hi))
                    }
                    // Of two flags among the first three of a kernel, all four pairs occur.
                    NumberKind::Dimension { lo, hi: hi @ 1 } => {
                        let high = [which & 1, which >> 1, (which ^ which >> 1) & 1][flags % 3];
                        flags += 1;
                        Const::Int([lo, hi][high])
                    }
                    // A choice of four takes each value.
                    NumberKind::Dimension { lo: lo @ 0, hi: 3 } => Const::Int(lo + which as i64),
                    // A choice of three takes each value.
                    NumberKind::Dimension { lo: lo @ 0, hi: hi @ 2 } => Const::Int(lo + which as i64 % (hi - lo + 1)),
                    NumberKind::Dimension { lo, hi: hi @ ..=4096 } => Const::Int(COUNTS[which][i % 2].clamp(lo, hi)),
                    NumberKind::Dimension { lo, hi } => Const::Int(SIZES[which][i % 3].clamp(lo, hi)),
                    NumberKind::Float => Const::Float(0.75),
                };
                spec.constants.insert(number.name.clone(), value);
            }
            kernel.contract.conditions.iter().for_each(|condition| meet(&mut spec, condition));
            all.push(spec);
        }
    }
    all
}

/// Makes `A <= B * n` hold: raises the dimension B, or lowers the dimension A if the right side is a constant.
fn meet(spec: &mut Spec, condition: &str) {
    let lookup = |name: &str| match spec.constants.get(name) {
        Some(Const::Int(value)) => Some(*value),
        _ => None,
    };
    let Some((left, right)) = condition.split_once("<=").map(|(left, right)| (left.trim(), right.trim())) else {
        return;
    };
    let (Ok(a), Ok(b)) = (expr::eval(left, &lookup), expr::eval(right, &lookup)) else { return };
    let bound = |name: &str| {
        kernel(&spec.kernel).is_ok_and(|kernel| kernel.contract.numbers.iter().any(|number| number.name == name))
    };
    let (x, y) = right.split_once('*').map_or((right, "1"), |(x, y)| (x.trim(), y.trim()));
    let (raised, times) = if bound(x) { (x, y) } else { (y, x) };
    let times = expr::eval(times, &lookup).map_or(1, |times| times.max(1));
    let (name, value) = if bound(raised) { (raised, (a + times - 1) / times) } else { (left, b) };
    if a > b && bound(name) {
        spec.constants.insert(name.to_string(), Const::Int(value));
    }
}

/// Parses a specialisation's name (`linear-bf16-BK64-BM64-BN64-K576-N960-SWAP0`) or the stem of a text, which has no
/// dimensions. None if it is neither.
pub fn parse_stem(stem: &str) -> Option<Spec> {
    let (name, rest) = stem.split_once('-')?;
    let kernel = kernel(name).ok()?;
    let (act, rest) = rest.split_once('-')?;
    let act = dtype::named(act)?;
    let mut names = kernel.constants.clone();
    names.sort();
    let bound = constants_of(&names, rest).or_else(|| {
        // A text's stem has no dimensions.
        names.retain(|name| kernel.contract.numbers.iter().all(|number| number.name != *name));
        constants_of(&names, rest)
    });
    let spec = Spec { kernel: name.to_string(), act, constants: bound? };
    (spec.to_string() == stem).then_some(spec)
}

/// `BK64-BM64`, read by the constants' names in order.
fn constants_of(names: &[String], mut rest: &str) -> Option<Constants> {
    let mut constants = BTreeMap::new();
    for (i, name) in names.iter().enumerate() {
        let value = rest.strip_prefix(name.as_str())?;
        // A value may hold a dash (1e-5): it ends where the next name starts.
        let end = names.get(i + 1).map_or(Some(value.len()), |next| value.find(&format!("-{next}")))?;
        let text = &value[..end];
        let constant = text.parse().map(Const::Int).or_else(|_| text.parse().map(Const::Float)).ok()?;
        constants.insert(name.clone(), constant);
        rest = value[end..].strip_prefix('-').unwrap_or("");
    }
    Some(constants)
}

/// The hash that identifies a TTIR: BLAKE3 of its lines without comments, which are the header and the
/// table of Python lines.
pub fn ttir_hash(text: &str) -> blake3::Hash {
    let mut hasher = blake3::Hasher::new();
    for line in text.lines().filter(|line| !line.starts_with("//")) {
        hasher.update(line.as_bytes());
        hasher.update(b"\n");
    }
    hasher.finalize()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kernel_that_does_not_parse_says_why_and_leaves_the_others() {
        const WRONG: &str = "# /// contract\n# shape = \"rowwise\n# ///\ndef w(x):\n    pass\n";
        let (kernels, wrong) = read_all(&[("embed", include_str!("../embed.py")), ("w", WRONG)]);
        assert_eq!(kernels.iter().map(|k| k.name).collect::<Vec<_>>(), ["embed"]);
        let message = wrong["w"].to_string();
        assert!(message.contains("kernel `w`") && message.contains("line 2"), "{message}");
    }

    #[test]
    fn every_kernel_parses_and_is_tiled_for_every_target() {
        assert_eq!(kernels().len(), SOURCES.len(), "{:?}", KERNELS.1);
        for kernel in kernels() {
            assert!(!kernel.contract.params.is_empty());
            for target in crate::specialise::targets() {
                assert!(crate::specialise::tiles(target, kernel.name).is_ok(), "{target} {}", kernel.name);
            }
        }
    }

    #[test]
    fn every_python_file_is_listed() {
        let folder = std::fs::read_dir(env!("CARGO_MANIFEST_DIR")).unwrap();
        for entry in folder {
            let name = entry.unwrap().file_name().into_string().unwrap();
            if let Some(stem) = name.strip_suffix(".py").filter(|s| !["ttir", "compile"].contains(s)) {
                let listed = kernel(stem).is_ok() || SHARED.iter().any(|(name, _)| *name == stem);
                assert!(listed, "add {stem} to SOURCES");
            }
        }
    }

    #[test]
    fn every_stem_names_one_specialisation() {
        for stem in ttir_stems() {
            let spec = parse_stem(stem).unwrap_or_else(|| panic!("{stem}"));
            assert_eq!(spec.to_string(), stem);
        }
        for broken in ["", "linear", "linear-bf16-K3", "nothing-bf16-K3", "linear-f16-BK64-BM64-BN64-K576-N960-SWAP0"] {
            assert_eq!(parse_stem(broken), None);
        }
    }

    #[test]
    fn the_hash_ignores_comments_and_nothing_else() {
        assert_eq!(ttir_hash("// a\nmodule {\n}\n// lines 1=2\n"), ttir_hash("module {\n}\n"));
        assert_ne!(ttir_hash("module {\n}\n"), ttir_hash("module {\n }\n"));
    }

    #[test]
    fn checked_in_ttir_names_no_place() {
        for stem in ttir_stems() {
            let text = ttir_by_stem(stem).unwrap();
            assert!(!text.contains("loc(") && !text.contains(".py\""), "{stem}");
        }
    }
}
