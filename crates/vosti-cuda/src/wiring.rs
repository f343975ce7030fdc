//! From a program and its bindings to launches: which kernel, over how much, each parameter bound to a buffer by role.
//!
//! Roles say what a parameter is; no kernel is known by name. Read next: [`crate::device`].

use crate::driver::Driver;
use crate::error::CudaError;
use crate::image::Image;
use crate::launch::Code;
use crate::step::{Meta, Metadata};
use std::collections::{BTreeMap, HashMap};
use vosti_core::{Op, Program, RowSet};
use vosti_kernels::{Binding, Const, Extent, Launch, Role, Spec};
use vosti_tile::Scalar;

use crate::arch::Arch;

/// What a parameter is bound to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Bound {
    Row(usize),
    Weight(usize),
    CacheK(usize),
    CacheV(usize),
    Meta(Meta),
}

/// How many programs a launch has depends on this.
#[derive(Clone, Copy, Debug)]
pub enum Size {
    Rows,
    Selected,
    Tiles(usize),
}

/// A launch of the program, in order.
#[derive(Debug)]
pub struct Wired {
    pub code: usize,
    pub size: Size,
    pub params: Vec<Bound>,
}

/// Everything a step runs, without the memory it runs on.
pub struct Wiring {
    pub codes: Vec<Code>,
    pub launches: Vec<Wired>,
    pub weights: Vec<String>,
    pub metadata: Metadata,
    /// The element type that the kernels agree on for each buffer.
    pub elems: HashMap<Bound, Scalar>,
}

struct Builder<'a> {
    driver: &'a mut dyn Driver,
    arch: Arch,
    images: &'a BTreeMap<String, Image>,
    by_spec: HashMap<Spec, usize>,
    by_name: HashMap<String, usize>,
    wiring: Wiring,
}

/// An op as its launches see it.
struct Use<'a> {
    ins: &'a [u32],
    outs: &'a [u32],
    /// Of an op that stores or attends: its layer and the layer's group.
    layer: Option<(usize, usize)>,
    rows: RowSet,
}

/// Wires a program, loading each kernel once.
pub fn wire(
    driver: &mut dyn Driver,
    arch: Arch,
    program: &Program,
    bindings: &[Binding],
    images: &BTreeMap<String, Image>,
    metadata: Metadata,
) -> Result<Wiring, CudaError> {
    let wiring = Wiring { codes: vec![], launches: vec![], weights: vec![], metadata, elems: HashMap::new() };
    let mut builder = Builder { driver, arch, images, by_spec: HashMap::new(), by_name: HashMap::new(), wiring };
    for op in &program.ops {
        let (k, used) = usage(program, op);
        let unbound = CudaError::Binding { k, bindings: bindings.len() };
        for launch in &bindings.get(k as usize).ok_or(unbound)?.launches {
            builder.launch(launch, &used)?;
        }
    }
    builder.agree()?;
    Ok(builder.wiring)
}

fn usage<'a>(program: &Program, op: &'a Op) -> (u32, Use<'a>) {
    let one = std::slice::from_ref;
    let at = |layer: u32| Some((layer as usize, program.layers[layer as usize].group as usize));
    let all = RowSet::All;
    match op {
        Op::Embed { k, out } => (*k, Use { ins: &[], outs: one(out), layer: None, rows: all }),
        Op::Rowwise { k, ins, outs, rows } => (*k, Use { ins, outs, layer: None, rows: *rows }),
        Op::StoreKv { k, ins, layer } => (*k, Use { ins, outs: &[], layer: at(*layer), rows: all }),
        Op::Attend { k, q, layer, out, .. } => (*k, Use { ins: one(q), outs: one(out), layer: at(*layer), rows: all }),
    }
}

impl Builder<'_> {
    fn launch(&mut self, launch: &Launch, used: &Use) -> Result<(), CudaError> {
        let code = self.code(&launch.spec)?;
        let roles: Vec<Role> = self.wiring.codes[code].contract.params.iter().map(|param| param.role).collect();
        let mut size = if used.rows == RowSet::Selected { Size::Selected } else { Size::Rows };
        let mut params = Vec::with_capacity(roles.len());
        for role in roles {
            let missing = || CudaError::Role { spec: launch.spec.to_string(), role: format!("{role:?}") };
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
                Role::PageTable => Bound::Meta(Meta::PageTable { group: layer?.1 }),
                Role::CacheK => Bound::CacheK(layer?.0),
                Role::CacheV => Bound::CacheV(layer?.0),
                Role::TileTable | Role::TileRow | Role::TileRows | Role::TilePos => {
                    let height = match launch.spec.constants.get("BQ") {
                        Some(Const::Int(height)) if *height > 0 => *height as usize,
                        _ => return Err(missing()),
                    };
                    let tiling = self.wiring.metadata.tiling(height, layer?.1);
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
        self.wiring.launches.push(Wired { code, size, params });
        Ok(())
    }

    fn code(&mut self, spec: &Spec) -> Result<usize, CudaError> {
        if let Some(found) = self.by_spec.get(spec) {
            return Ok(*found);
        }
        let name = spec.to_string();
        let image = self.images.get(&name).ok_or(CudaError::NotInBundle { spec: name })?;
        self.wiring.codes.push(Code::load(self.driver, image, self.arch)?);
        self.by_spec.insert(spec.clone(), self.wiring.codes.len() - 1);
        Ok(self.wiring.codes.len() - 1)
    }

    fn weight(&mut self, name: &str) -> usize {
        if let Some(found) = self.by_name.get(name) {
            return *found;
        }
        self.wiring.weights.push(name.to_string());
        self.by_name.insert(name.to_string(), self.wiring.weights.len() - 1);
        self.wiring.weights.len() - 1
    }

    /// Every kernel that shares a buffer reads the same type from it.
    fn agree(&mut self) -> Result<(), CudaError> {
        let Wiring { codes, launches, elems, .. } = &mut self.wiring;
        for launch in launches {
            let code = &codes[launch.code];
            for (i, bound) in launch.params.iter().enumerate() {
                let elem = code.premises[i].elem;
                if *elems.entry(*bound).or_insert(elem) != elem {
                    let param = code.contract.params[i].name.clone();
                    return Err(CudaError::Element { spec: code.spec.to_string(), param });
                }
            }
        }
        Ok(())
    }
}

impl Wiring {
    /// How much there is to do for a launch in a step of this size.
    pub fn extent(&self, size: Size, rows: usize, selected: usize) -> Extent {
        match size {
            Size::Rows => Extent { rows, tiles: 0 },
            Size::Selected => Extent { rows: selected, tiles: 0 },
            Size::Tiles(tiling) => Extent { rows, tiles: self.metadata.tiles(tiling) },
        }
    }

    /// As [`Wiring::extent`], of the largest step.
    pub fn extent_max(&self, size: Size, rows_max: usize, selected_max: usize) -> Extent {
        match size {
            Size::Selected => Extent { rows: selected_max, tiles: 0 },
            // A tile has at least one row.
            Size::Rows | Size::Tiles(_) => Extent { rows: rows_max, tiles: rows_max },
        }
    }
}
