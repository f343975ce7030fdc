//! From a program and its bindings to launches: which kernel, over how much, each parameter bound to a buffer by role.
//!
//! Read next: [`crate::step`].

use crate::error::WiringError;
use crate::step::Meta;
use std::collections::HashMap;
use vosti_core::{Dtype, Op, PAGE, Program, RowSet};
use vosti_kernels::{Binding, Const, Contract, Extent, Launch, Role, Scratch, Spec};
use vosti_tile::Scalar;

/// A specialisation as a device holds it: lifted, compiled or loaded.
pub trait Kernel {
    fn spec(&self) -> &Spec;

    /// Of this specialisation: with the parameters that it has.
    fn contract(&self) -> &Contract;

    /// The element type that a parameter points at.
    fn elem(&self, param: usize) -> Scalar;
}

/// What a parameter is bound to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Bound {
    /// A row buffer of the program.
    Row(usize),
    /// An index into [`Wiring::weights`].
    Weight(usize),
    /// Keys of a layer.
    CacheK(usize),
    /// Values of a layer.
    CacheV(usize),
    /// An index into [`Wiring::scratch`].
    Scratch(usize),
    Meta(Meta),
}

/// How many programs a launch has depends on this.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Size {
    Rows,
    Selected,
    /// An index into [`Wiring::tilings`].
    Tiles(usize),
}

impl Size {
    /// How much there is to do in the largest step, of requests of up to `context` positions.
    pub fn most(self, rows_max: usize, selected_max: usize, context: usize) -> Extent {
        match self {
            Size::Selected => Extent { rows: selected_max, tiles: 0, length: 0 },
            // A tile has at least one row.
            Size::Rows | Size::Tiles(_) => Extent { rows: rows_max, tiles: rows_max, length: context },
        }
    }
}

/// Query tiles of one height over one group's page tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tiling {
    pub height: usize,
    pub group: usize,
    /// The packed rows whose tiles these are; tiles count them from the first.
    pub first: usize,
    pub end: usize,
}

/// A launch of the program, in order.
#[derive(Clone, Debug)]
pub struct Wired {
    /// An index into [`Wiring::kernels`].
    pub kernel: usize,
    /// Kernels of higher row tiles that may run in its place, lowest first. A device that has no use for them runs the first.
    pub higher: Vec<usize>,
    pub size: Size,
    /// The row at which its row buffers begin: not 0 where scratch has no room for all rows of a step at once.
    pub first: usize,
    /// In the order of the contract's parameters.
    pub params: Vec<Bound>,
}

impl Wired {
    /// Every kernel that may run, lowest row tiles first.
    pub fn kernels(&self) -> impl Iterator<Item = usize> {
        std::iter::once(self.kernel).chain(self.higher.iter().copied())
    }

    /// The element of a buffer at which a parameter of this launch begins.
    pub fn start(&self, bound: Bound, program: &Program) -> usize {
        match bound {
            Bound::Row(i) => self.first * program.buffers[i].width as usize,
            _ => 0,
        }
    }
}

/// Everything a step runs, without the memory it runs on.
#[derive(Debug)]
pub struct Wiring<K> {
    /// Each specialisation once.
    pub kernels: Vec<K>,
    pub launches: Vec<Wired>,
    /// Each name once.
    pub weights: Vec<String>,
    pub tilings: Vec<Tiling>,
    /// Scratch that ops share: which of an op's it is.
    pub scratch: Vec<(usize, Scratch)>,
    /// The element type that the kernels agree on for each buffer.
    elems: HashMap<Bound, Scalar>,
}

struct Builder<K, F> {
    load: F,
    by_spec: HashMap<Spec, usize>,
    by_name: HashMap<String, usize>,
    wiring: Wiring<K>,
}

/// An op as its launches see it.
struct Use<'a> {
    ins: &'a [u32],
    outs: &'a [u32],
    /// Of an op that stores or attends: its layer and the layer's group.
    layer: Option<(usize, usize)>,
    rows: RowSet,
    /// Of its binding.
    scratch: &'a [Scratch],
    /// Of a launch over query tiles: the packed rows that it has.
    first: usize,
    end: usize,
}

/// Wires a program for steps of up to `rows_max` rows. `load` is asked for each specialisation once.
///
/// Launches that hand each other scratch run once for every so many rows as it has room for: a query tile ends there, which
/// no row of it sees.
pub fn wire<K: Kernel, E: From<WiringError>>(
    program: &Program,
    bindings: &[Binding],
    rows_max: usize,
    load: impl FnMut(&Spec) -> Result<K, E>,
) -> Result<Wiring<K>, E> {
    let elems = HashMap::new();
    let wiring = Wiring { kernels: vec![], launches: vec![], weights: vec![], tilings: vec![], scratch: vec![], elems };
    let mut builder = Builder { load, by_spec: HashMap::new(), by_name: HashMap::new(), wiring };
    for op in &program.ops {
        let (k, used) = usage(program, op);
        let unbound = WiringError::Binding { k, bindings: bindings.len() };
        let binding = bindings.get(k as usize).ok_or(unbound)?;
        let room = binding.scratch.iter().map(|scratch| scratch.rows.max(1)).min().unwrap_or(usize::MAX);
        for first in (0..rows_max.max(1)).step_by(room) {
            let used = Use { scratch: &binding.scratch, first, end: first.saturating_add(room), ..used };
            for launch in &binding.launches {
                builder.launch(launch, &used)?;
            }
        }
    }
    builder.wiring.agree()?;
    Ok(builder.wiring)
}

fn usage<'a>(program: &Program, op: &'a Op) -> (u32, Use<'a>) {
    let one = std::slice::from_ref;
    let at = |layer: u32| Some((layer as usize, program.layers[layer as usize].group as usize));
    let base = Use { ins: &[], outs: &[], layer: None, rows: RowSet::All, scratch: &[], first: 0, end: usize::MAX };
    match op {
        Op::Embed { k, out } => (*k, Use { outs: one(out), ..base }),
        Op::Rowwise { k, ins, outs, rows } => (*k, Use { ins, outs, rows: *rows, ..base }),
        Op::StoreKv { k, ins, layer } => (*k, Use { ins, layer: at(*layer), ..base }),
        Op::Attend { k, q, layer, out, .. } => (*k, Use { ins: one(q), outs: one(out), layer: at(*layer), ..base }),
    }
}

impl<K: Kernel, F> Builder<K, F> {
    fn launch<E: From<WiringError>>(&mut self, launch: &Launch, used: &Use) -> Result<(), E>
    where
        F: FnMut(&Spec) -> Result<K, E>,
    {
        let kernel = self.kernel(&launch.spec)?;
        let higher = launch.higher.iter().map(|spec| self.kernel(spec)).collect::<Result<Vec<_>, E>>()?;
        let roles: Vec<Role> = self.wiring.kernels[kernel].contract().params.iter().map(|param| param.role).collect();
        let mut size = if used.rows == RowSet::Selected { Size::Selected } else { Size::Rows };
        let mut params = Vec::with_capacity(roles.len());
        for role in roles {
            let missing = || WiringError::Role { spec: launch.spec.to_string(), role: format!("{role:?}") };
            let layer = used.layer.ok_or_else(missing);
            params.push(match role {
                Role::In(i) => Bound::Row(*used.ins.get(i).ok_or_else(missing)? as usize),
                Role::Out(i) => Bound::Row(*used.outs.get(i).ok_or_else(missing)? as usize),
                Role::Weight(i) => Bound::Weight(self.weight(launch.weights.get(i).ok_or_else(missing)?)),
                Role::Rows if used.rows == RowSet::Selected => Bound::Meta(Meta::Selected),
                Role::Rows => Bound::Meta(Meta::Rows),
                Role::Tokens => Bound::Meta(Meta::Tokens),
                Role::Positions => Bound::Meta(Meta::Positions),
                Role::RowIndex => Bound::Meta(Meta::RowIndex),
                Role::Slots => Bound::Meta(Meta::Slots { group: layer?.1 }),
                Role::PageTable => Bound::Meta(Meta::PageTables),
                Role::CacheK => Bound::CacheK(layer?.0),
                Role::CacheV => Bound::CacheV(layer?.0),
                Role::Scratch(i) => {
                    let scratch = *used.scratch.get(i).ok_or_else(missing)?;
                    Bound::Scratch(self.scratch((i, scratch)))
                }
                Role::TileTable | Role::TileRow | Role::TileRows | Role::TilePos => {
                    let height = height(&launch.spec).ok_or_else(missing)?;
                    let tiling = self.tiling(Tiling { height, group: layer?.1, first: used.first, end: used.end });
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
        if let Some(other) = higher.iter().find(|other| !self.same_parameters(kernel, **other)) {
            return Err(WiringError::Unlike { spec: self.wiring.kernels[*other].spec().to_string() }.into());
        }
        self.wiring.launches.push(Wired { kernel, higher, size, first: used.first, params });
        Ok(())
    }

    /// Both have the same parameters, so that one list of them does for either.
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

    fn tiling(&mut self, tiling: Tiling) -> usize {
        index_of(&mut self.wiring.tilings, tiling)
    }

    /// Ops run one after the other, so those with the same needs share.
    fn scratch(&mut self, scratch: (usize, Scratch)) -> usize {
        index_of(&mut self.wiring.scratch, scratch)
    }
}

/// Where an item is in a list that has each once.
fn index_of<T: PartialEq>(list: &mut Vec<T>, item: T) -> usize {
    list.iter().position(|other| *other == item).unwrap_or_else(|| {
        list.push(item);
        list.len() - 1
    })
}

/// Rows of a query tile.
fn height(spec: &Spec) -> Option<usize> {
    match spec.constants.get("BQ") {
        Some(Const::Int(height)) if *height > 0 => Some(*height as usize),
        _ => None,
    }
}

impl<K: Kernel> Wiring<K> {
    /// Every kernel that shares a buffer reads the same type from it.
    fn agree(&mut self) -> Result<(), WiringError> {
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
    /// A buffer's element type. What no kernel reads has the usual one.
    pub fn elem(&self, bound: Bound) -> Scalar {
        let usual = match bound {
            Bound::Row(_) | Bound::Scratch(_) => Scalar::F32,
            Bound::Weight(_) | Bound::CacheK(_) | Bound::CacheV(_) => Scalar::Bf16,
            Bound::Meta(_) => Scalar::I32,
        };
        self.elems.get(&bound).copied().unwrap_or(usual)
    }

    /// Type and elements of each row buffer of the program.
    pub fn rows(
        &self,
        program: &Program,
        rows_max: usize,
        selected_max: usize,
    ) -> Result<Vec<(Scalar, usize)>, WiringError> {
        let decls = program.buffers.iter().enumerate();
        decls
            .map(|(i, decl)| {
                let many = if decl.rows == RowSet::All { rows_max } else { selected_max };
                let elem = self.elem(Bound::Row(i));
                if decl.dtype == Dtype::F32 && elem != Scalar::F32 {
                    return Err(WiringError::Element { spec: format!("buffer {i}"), param: "rows".into() });
                }
                Ok((elem, many * decl.width as usize))
            })
            .collect()
    }
}

/// The buffer of best tokens: what the one op that reads logits makes of them, a number a row. No other op writes it.
pub fn best(program: &Program) -> Result<usize, WiringError> {
    let reads = |op: &&Op| matches!(op, Op::Rowwise { ins, .. } if ins.contains(&program.logits));
    let writes = |op: &Op, buffer: u32| usage(program, op).1.outs.contains(&buffer);
    let mut readers = program.ops.iter().filter(reads);
    let found = match (readers.next(), readers.next()) {
        (Some(Op::Rowwise { ins, outs, rows: RowSet::Selected, .. }), None) if ins.len() == 1 && outs.len() == 1 => {
            outs[0]
        }
        _ => return Err(WiringError::Best),
    };
    let decl = &program.buffers[found as usize];
    let number = decl.width == 1 && decl.dtype == Dtype::F32 && decl.rows == RowSet::Selected;
    let once = program.ops.iter().filter(|op| writes(op, found)).count() == 1;
    if number && once { Ok(found as usize) } else { Err(WiringError::Best) }
}

impl<K> Wiring<K> {
    /// Type and elements of each scratch, where contexts have up to `context` positions.
    pub fn scratches(&self, context: usize) -> Vec<(Scalar, usize)> {
        let each = self.scratch.iter().enumerate();
        each.map(|(i, (_, scratch))| (self.elem(Bound::Scratch(i)), scratch.len(context))).collect()
    }
}

/// Elements of each layer's keys, and as many of its values, where each group has so many pages.
pub fn caches(program: &Program, pages: &[usize]) -> Result<Vec<usize>, WiringError> {
    if pages.len() != program.groups.len() {
        return Err(WiringError::Groups { pages: pages.len(), groups: program.groups.len() });
    }
    let len = |group: u32| {
        let decl = &program.groups[group as usize];
        pages[group as usize] * PAGE * decl.kv_heads as usize * decl.head_dim as usize
    };
    Ok(program.layers.iter().map(|layer| len(layer.group)).collect())
}
