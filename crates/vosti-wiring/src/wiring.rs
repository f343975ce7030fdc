//! From a program and its bindings to launches: which kernel, over how much work, and which buffer is bound to each parameter,
//! by its role.
//!
//! Read next: [`crate::step`].

use crate::caches;
use crate::error::WiringError;
use crate::outputs::outputs;
use std::collections::HashMap;
use vosti_contract::{Const, Contract, Extent, Role, Shape};
use vosti_core::{GroupDecl, LayerDecl, Meta, Program, RowSet, Tiling, Uses};
use vosti_kernels::{Binding, Draws, Launch, Scratch, Spec, together};
use vosti_tile::Scalar;

/// A specialisation as a device holds it: lifted, compiled or loaded.
pub trait Kernel {
    /// The specialisation.
    fn spec(&self) -> &Spec;

    /// The contract of its kernel.
    fn contract(&self) -> &Contract;

    /// The element type that a parameter points at.
    fn elem(&self, param: usize) -> Scalar;
}

/// The buffer that a parameter is bound to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Bound {
    /// A row buffer of the program.
    Row(usize),
    /// An index into [`Wiring::weights`].
    Weight(usize),
    /// A part of a layer's pages.
    Cache {
        /// The layer.
        layer: usize,
        /// The part's number: those of entries come before those of states.
        part: usize,
    },
    /// An index into [`Wiring::scratch`].
    Scratch(usize),
    /// A part of the step's array.
    Meta(Meta),
}

/// The amount of work from which a launch's number of programs follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Size {
    /// The rows of the step.
    Rows,
    /// The selected rows, whose logits are computed.
    Selected,
    /// The selected rows if the step wants lists of largest logits, otherwise none.
    Listed,
    /// The selected rows if the step draws tokens, otherwise none.
    Drawn,
    /// The query tiles of a tiling: an index into [`Wiring::tilings`].
    Tiles(usize),
}

impl Size {
    /// The amount of work in the largest step, of requests of up to `context` positions.
    pub fn most(self, rows_max: usize, selected_max: usize, context: usize) -> Extent {
        match self {
            Size::Selected | Size::Listed | Size::Drawn => Extent { rows: selected_max, tiles: 0, length: 0 },
            // A tile has at least one row.
            Size::Rows | Size::Tiles(_) => Extent { rows: rows_max, tiles: rows_max, length: context },
        }
    }
}

/// A kernel that may run in the place of a launch's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Way {
    /// An index into [`Wiring::kernels`].
    pub kernel: usize,
    /// The work from which the number of its programs follows.
    pub size: Size,
}

impl Way {
    /// The part of the step's array that this kernel reads where the launch's own reads `meta`: higher query tiles are a tiling of
    /// their own.
    pub fn reads(self, meta: Meta) -> Meta {
        let Size::Tiles(tiling) = self.size else { return meta };
        match meta {
            Meta::TileTable { .. } => Meta::TileTable { tiling },
            Meta::TileRow { .. } => Meta::TileRow { tiling },
            Meta::TileRows { .. } => Meta::TileRows { tiling },
            Meta::TilePos { .. } => Meta::TilePos { tiling },
            other => other,
        }
    }
}

/// A launch of the program, in order.
#[derive(Clone, Debug)]
pub struct Wired {
    /// An index into [`Wiring::kernels`].
    pub kernel: usize,
    /// Kernels of higher row tiles that may run in its place, lowest first. A device need not use them.
    pub higher: Vec<Way>,
    /// Kernels that give the bits of this launch and the next one, with this launch's parameters, lowest row tiles first. A
    /// device may run one in the place of the two.
    pub folded: Vec<Way>,
    /// The work from which the number of its programs follows.
    pub size: Size,
    /// The row at which its row buffers begin. It is above 0 only where scratch has too few rows for a whole step.
    pub first: usize,
    /// In the order of the contract's parameters.
    pub params: Vec<Bound>,
}

impl Wired {
    /// Its own kernel: that of the lowest row tiles.
    pub fn own(&self) -> Way {
        Way { kernel: self.kernel, size: self.size }
    }

    /// Every kernel that may run.
    pub fn ways(&self) -> impl Iterator<Item = Way> {
        std::iter::once(self.own()).chain(self.higher.iter().chain(&self.folded).copied())
    }

    /// The element of a buffer at which a parameter of this launch begins.
    pub fn start(&self, bound: Bound, program: &Program) -> usize {
        match bound {
            Bound::Row(i) => self.first * program.buffers[i].width as usize,
            _ => 0,
        }
    }
}

/// All launches of a step, without memory.
#[derive(Debug)]
pub struct Wiring<K> {
    /// The program, and what draws tokens behind it: the row buffers are numbered by it.
    pub whole: Program,
    /// Each specialisation once.
    pub kernels: Vec<K>,
    /// In the order in which they run.
    pub launches: Vec<Wired>,
    /// The names of the weights, each once.
    pub weights: Vec<String>,
    /// Each row tiling that a kernel asks for, once.
    pub tilings: Vec<Tiling>,
    /// The scratch buffers, which ops share, each with its number among an op's.
    pub scratch: Vec<(usize, Scratch)>,
    /// The element type that the kernels agree on for each buffer.
    elems: HashMap<Bound, Scalar>,
}

/// Refuses a text whose parameters are not the contract's in order, each of its element type, or whose dimensions and numbers
/// are not bound: [`WiringError::Signature`].
pub fn signature(kernel: &vosti_tile::Kernel, contract: &Contract, spec: &Spec) -> Result<(), WiringError> {
    for i in 0..contract.params.len().max(kernel.params.len()) {
        let (wanted, found) = (contract.params.get(i), kernel.params.get(i));
        let wanted = wanted.map(|p| (p.name.clone(), Scalar::from(p.elem(spec.act))));
        let found = found.map(|p| (p.name.clone(), p.elem));
        if wanted != found {
            let words =
                |param: Option<(String, Scalar)>| param.map_or("none".into(), |(name, elem)| format!("{name}: {elem}"));
            return Err(WiringError::Signature { spec: spec.to_string(), found: words(found), wanted: words(wanted) });
        }
    }
    if let Some(scalar) = kernel.scalars.first() {
        let found = format!("{}: {}, which is not bound", scalar.name, scalar.elem);
        return Err(WiringError::Signature { spec: spec.to_string(), found, wanted: "none".into() });
    }
    Ok(())
}

struct Builder<K, F> {
    load: F,
    by_spec: HashMap<Spec, usize>,
    by_name: HashMap<String, usize>,
    wiring: Wiring<K>,
}

/// The part of an op that its launches use.
struct Use<'a> {
    op: &'a Uses,
    /// The layer and its group, of an op that stores or attends.
    layer: Option<(usize, usize)>,
    /// The group's declaration.
    group: Option<&'a GroupDecl>,
    /// The scratch of its binding.
    scratch: &'a [Scratch],
    /// The packed rows `first..end` of a launch over query tiles.
    first: usize,
    end: usize,
    /// Rows that a step has at most.
    rows_max: usize,
    /// The work of an op that does not run in every step.
    sometimes: Option<Size>,
}

/// Wires a program, and what draws tokens behind it, for steps of up to `rows_max` rows. `load` is called once for each
/// specialisation. An error if what draws writes a buffer of the program or a page, a binding is missing, a kernel has a role that
/// its op does not give, or kernels disagree on a buffer's element type.
///
/// Launches with scratch run once for each part of the step for whose rows scratch has room. A query tile ends where a part
/// ends, and that does not change its rows' results.
pub fn wire<K: Kernel, E: From<WiringError>>(
    program: &Program,
    bindings: &[Binding],
    draws: Option<&Draws>,
    rows_max: usize,
    load: impl FnMut(&Spec) -> Result<K, E>,
) -> Result<Wiring<K>, E> {
    let whole = draws.map_or_else(|| program.clone(), |draws| draws.behind(program));
    if draws.is_some_and(|draws| !draws.leave_alone(program)) {
        return Err(WiringError::Draws.into());
    }
    let elems = HashMap::new();
    let wiring = Wiring {
        whole: whole.clone(),
        kernels: vec![],
        launches: vec![],
        weights: vec![],
        tilings: vec![],
        scratch: vec![],
        elems,
    };
    let mut builder = Builder { load, by_spec: HashMap::new(), by_name: HashMap::new(), wiring };
    let listing = outputs(program).ok().and_then(|outputs| outputs.lists).map(|lists| lists.ops);
    let used = together::launched(&whole.ops, bindings).map_err(|index| WiringError::Together { index })?;
    for (i, op) in used.into_iter().enumerate() {
        let Some(op) = op else { continue };
        let layer = op.cache_written.map(|write| write.layer).or(op.cache_read.map(|read| read.layer));
        let layer = layer.map(|layer| layer as usize);
        let layer = layer.map(|layer| (layer, program.layers[layer].group as usize));
        let listing = listing.is_some_and(|ops| ops.contains(&i)).then_some(Size::Listed);
        let sometimes = if i < program.ops.len() { listing } else { Some(Size::Drawn) };
        let unbound = WiringError::Binding { k: op.binding, bindings: bindings.len() };
        let binding = bindings.get(op.binding as usize).ok_or(unbound)?;
        let room = binding.scratch.iter().map(|scratch| scratch.rows.max(1)).min().unwrap_or(usize::MAX);
        for first in (0..rows_max.max(1)).step_by(room) {
            let end = first.saturating_add(room);
            let group = layer.map(|(_, group)| &program.groups[group]);
            let used = Use { op: &op, layer, group, scratch: &binding.scratch, first, end, rows_max, sometimes };
            for (i, launch) in binding.launches.iter().enumerate() {
                builder.launch(launch, if i == 0 { &binding.folded } else { &[] }, &used)?;
            }
        }
    }
    builder.wiring.agree()?;
    Ok(builder.wiring)
}

impl<K: Kernel, F> Builder<K, F> {
    fn launch<E: From<WiringError>>(&mut self, launch: &Launch, folded: &[Spec], used: &Use) -> Result<(), E>
    where
        F: FnMut(&Spec) -> Result<K, E>,
    {
        let kernel = self.kernel(&launch.spec)?;
        let contract = self.wiring.kernels[kernel].contract();
        let shape = contract.shape_of(&launch.spec.constants);
        let declared: Vec<(Role, String)> = contract.params.iter().map(|p| (p.role, p.name.clone())).collect();
        let mut size = used.sometimes.unwrap_or(match used.op.rows {
            RowSet::Selected => Size::Selected,
            RowSet::All => Size::Rows,
        });
        let mut params = Vec::with_capacity(declared.len());
        for (role, name) in declared {
            let missing = || WiringError::Role { spec: launch.spec.to_string(), role: format!("{role:?}") };
            let layer = used.layer.ok_or_else(missing);
            params.push(match role {
                Role::In(i) => Bound::Row(*used.op.inputs.get(i).ok_or_else(missing)? as usize),
                Role::Out(i) => Bound::Row(*used.op.outputs.get(i).ok_or_else(missing)? as usize),
                Role::Weight(_) => Bound::Weight(self.weight(launch.weights.get(&name).ok_or_else(missing)?)),
                Role::Rows if used.op.rows == RowSet::Selected => Bound::Meta(Meta::Selected),
                Role::Rows => Bound::Meta(Meta::Rows),
                Role::Tokens => Bound::Meta(Meta::Tokens),
                Role::Positions => Bound::Meta(Meta::Positions),
                Role::RowIndex => Bound::Meta(Meta::RowIndex),
                Role::Slots => Bound::Meta(Meta::Slots { group: layer?.1 }),
                Role::PageTable => Bound::Meta(Meta::PageTables),
                Role::CacheK | Role::CacheV | Role::Entry(_) | Role::State(_) => {
                    let (part, _) = used.group.and_then(|group| role.part(group)).ok_or_else(missing)?;
                    Bound::Cache { layer: layer?.0, part }
                }
                Role::Scratch(i) => {
                    let none = (shape == Shape::Attend).then_some(Scratch::NONE);
                    let scratch = used.scratch.get(i).copied().or(none).ok_or_else(missing)?;
                    Bound::Scratch(self.scratch((i, scratch)))
                }
                Role::TileTable | Role::TileRow | Role::TileRows | Role::TilePos => {
                    // A store that looks back has all rows of a request in one tile.
                    let height = if shape == Shape::RecurStore { Some(used.rows_max) } else { height(&launch.spec) };
                    let tiling = self.tiling(height.ok_or_else(missing)?, used).ok_or_else(missing)?;
                    size = Size::Tiles(tiling);
                    Bound::Meta(match role {
                        Role::TileTable => Meta::TileTable { tiling },
                        Role::TileRow => Meta::TileRow { tiling },
                        Role::TileRows => Meta::TileRows { tiling },
                        _ => Meta::TilePos { tiling },
                    })
                }
            });
        }
        let mut ways =
            |specs: &[Spec]| specs.iter().map(|spec| self.way(spec, kernel, size, used)).collect::<Result<Vec<_>, E>>();
        let (higher, folded) = (ways(&launch.higher)?, ways(folded)?);
        self.wiring.launches.push(Wired { kernel, higher, folded, size, first: used.first, params });
        Ok(())
    }

    /// A kernel that may run in the place of a launch's own, over tiles of its own height if the launch is over tiles. An error
    /// unless both have the same parameters.
    fn way<E: From<WiringError>>(&mut self, spec: &Spec, own: usize, size: Size, used: &Use) -> Result<Way, E>
    where
        F: FnMut(&Spec) -> Result<K, E>,
    {
        let kernel = self.kernel(spec)?;
        let tiled = |height: usize| self.tiling(height, used).map(Size::Tiles);
        let size = match size {
            Size::Tiles(_) => height(spec).and_then(tiled),
            other => Some(other),
        };
        match size.filter(|_| self.same_parameters(own, kernel)) {
            Some(size) => Ok(Way { kernel, size }),
            None => Err(WiringError::Unlike { spec: spec.to_string() }.into()),
        }
    }

    /// Whether both have the same parameters, so that one list of buffers fits either.
    fn same_parameters(&self, a: usize, b: usize) -> bool {
        let [a, b] = [a, b].map(|kernel| &self.wiring.kernels[kernel]);
        let params = a.contract().params.len();
        a.contract().params == b.contract().params && (0..params).all(|i| a.elem(i) == b.elem(i))
    }

    fn kernel<E>(&mut self, spec: &Spec) -> Result<usize, E>
    where
        F: FnMut(&Spec) -> Result<K, E>,
    {
        if let Some(found) = self.by_spec.get(spec) {
            return Ok(*found);
        }
        self.wiring.kernels.push((self.load)(spec)?);
        self.by_spec.insert(spec.clone(), self.wiring.kernels.len() - 1);
        Ok(self.wiring.kernels.len() - 1)
    }

    fn weight(&mut self, name: &str) -> usize {
        if let Some(found) = self.by_name.get(name) {
            return *found;
        }
        self.wiring.weights.push(name.to_string());
        self.by_name.insert(name.to_string(), self.wiring.weights.len() - 1);
        self.wiring.weights.len() - 1
    }

    /// The tiling of so many rows a tile over the use's layer; `None` if it has no layer.
    fn tiling(&mut self, height: usize, used: &Use) -> Option<usize> {
        let (_, group) = used.layer?;
        Some(index_of(&mut self.wiring.tilings, Tiling { height, group, first: used.first, end: used.end }))
    }

    /// Ops run one after the other, so ops with equal scratch share it.
    fn scratch(&mut self, scratch: (usize, Scratch)) -> usize {
        index_of(&mut self.wiring.scratch, scratch)
    }
}

/// The index of an item in a list that has each item once; a new item is added.
fn index_of<T: PartialEq>(list: &mut Vec<T>, item: T) -> usize {
    list.iter().position(|other| *other == item).unwrap_or_else(|| {
        list.push(item);
        list.len() - 1
    })
}

/// The most rows of a query tile: the constant HEIGHT.
fn height(spec: &Spec) -> Option<usize> {
    match spec.constants.get("HEIGHT") {
        Some(Const::Int(height)) if *height > 0 => Some(*height as usize),
        _ => None,
    }
}

impl<K: Kernel> Wiring<K> {
    /// Records each buffer's element type: the program's for rows and caches, the kernels' for the others. An error if a kernel
    /// has another type for a buffer.
    fn agree(&mut self) -> Result<(), WiringError> {
        let program = &self.whole;
        let rows = program.buffers.iter().enumerate().map(|(i, decl)| (Bound::Row(i), decl.dtype));
        let parts = |layer: &LayerDecl| caches::parts(&program.groups[layer.group as usize]);
        let layers = program.layers.iter().map(parts).enumerate();
        let part = |layer, (part, (dtype, _))| (Bound::Cache { layer, part }, dtype);
        let caches = layers.flat_map(|(i, parts)| parts.enumerate().map(move |of| part(i, of)));
        self.elems.extend(rows.chain(caches).map(|(bound, dtype)| (bound, Scalar::from(dtype))));
        for launch in &self.launches {
            let kernel = &self.kernels[launch.kernel];
            for (i, bound) in launch.params.iter().enumerate() {
                let elem = kernel.elem(i);
                if *self.elems.entry(*bound).or_insert(elem) != elem {
                    let param = kernel.contract().params[i].name.clone();
                    return Err(WiringError::Element { spec: kernel.spec().to_string(), param });
                }
            }
        }
        Ok(())
    }
}

impl<K> Wiring<K> {
    /// A buffer's element type. Weights, scratch and metadata that no kernel uses have a default: BF16, FP32, I32.
    pub fn elem(&self, bound: Bound) -> Scalar {
        let usual = match bound {
            Bound::Weight(_) => Scalar::Bf16,
            Bound::Row(_) | Bound::Cache { .. } | Bound::Scratch(_) => Scalar::F32,
            Bound::Meta(_) => Scalar::I32,
        };
        self.elems.get(&bound).copied().unwrap_or(usual)
    }

    /// Element type and number of elements of each row buffer.
    pub fn rows(&self, rows_max: usize, selected_max: usize) -> Vec<(Scalar, usize)> {
        let decls = self.whole.buffers.iter().enumerate();
        decls
            .map(|(i, decl)| {
                let many = if decl.rows == RowSet::All { rows_max } else { selected_max };
                (self.elem(Bound::Row(i)), many * decl.width as usize)
            })
            .collect()
    }
}

impl<K> Wiring<K> {
    /// Element type and number of elements of each scratch, where contexts have up to `context` positions.
    pub fn scratches(&self, context: usize) -> Vec<(Scalar, usize)> {
        let each = self.scratch.iter().enumerate();
        each.map(|(i, (_, scratch))| (self.elem(Bound::Scratch(i)), scratch.len(context))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_whose_parameters_are_not_the_contracts_is_refused_by_name() {
        let spec = vosti_kernels::examples().into_iter().find(|spec| spec.kernel == "embed").unwrap();
        let (stem, text) = (spec.to_string(), vosti_kernels::ttir(&spec).unwrap());
        let contract = vosti_kernels::contract("embed").unwrap();
        let check = |text: &str| signature(&vosti_tile::lift(text).unwrap(), contract, &spec);
        check(&text).unwrap();
        let wide = vosti_test_tools::filetests::one("any_embed_tokens_in_64_bits").ttir;
        let wide = vosti_kernels::bind(&wide, &spec).unwrap();
        for (text, says) in [(wide.to_string(), "`tokens: i64`"), (text.replace("%rows", "%many"), "`many: i32`")] {
            let error = check(&text).unwrap_err().to_string();
            assert!(error.contains(&stem) && error.contains(says), "{error}");
        }
    }
}
