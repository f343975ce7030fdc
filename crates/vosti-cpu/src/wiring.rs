//! From a program and its bindings to launches: kernels lifted and compiled once, parameters bound to buffers.
//!
//! Roles say what a parameter is; no kernel is known by name.
//! Read next: [`crate::launch`].

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use vosti_core::{Dtype, Op, Program, RowSet};
use vosti_kernels::{Binding, Const, Contract, Launch, Role, Spec};
use vosti_tile::{Kernel, Scalar};

use crate::device::{Config, CpuError, Mode};
use crate::isa::Isa;
use crate::launch::Panels;
use crate::layout::{Layout, PANEL};
use crate::memory::Arena;
use crate::plan::{Plan, compile};
use crate::step::{Meta, Metadata};
use crate::weights::{Buffer, Weights};

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

/// A lifted specialisation.
pub struct Compiled {
    pub spec: Spec,
    pub contract: Contract,
    pub kernel: Kernel,
    /// None: the kernel is interpreted.
    pub plan: Option<Plan>,
}

/// A launch of the program, in order.
pub struct Wired {
    pub kernel: usize,
    pub size: Size,
    pub params: Vec<Bound>,
    /// Workers meet before it: it depends on a launch since they last met.
    pub waits: bool,
}

/// Everything a step runs on.
pub struct Wiring {
    pub kernels: Vec<Compiled>,
    pub launches: Vec<Wired>,
    pub rows: Vec<Buffer>,
    pub weights: Vec<Arc<Buffer>>,
    pub cache_k: Vec<Buffer>,
    pub cache_v: Vec<Buffer>,
    pub metadata: Metadata,
}

struct Builder<'a> {
    program: &'a Program,
    bindings: &'a [Binding],
    config: &'a Config,
    isa: Isa,
    kernels: Vec<Compiled>,
    by_spec: HashMap<Spec, usize>,
    weight_names: Vec<String>,
    by_name: HashMap<String, usize>,
    launches: Vec<Wired>,
    metadata: Metadata,
    arena: Arena,
}

/// Wires a program.
pub fn wire(
    program: &Program,
    bindings: &[Binding],
    weights: &dyn Weights,
    config: &Config,
    isa: Isa,
) -> Result<Wiring, CpuError> {
    if program.ops.len() > 1 << 20 || config.pages.len() != program.groups.len() {
        return Err(CpuError::Groups { pages: config.pages.len(), groups: program.groups.len() });
    }
    let mut arena = Arena::default();
    let metadata = Metadata::new(&mut arena, program, config.rows_max, config.selected_max)?;
    let mut builder = Builder {
        program,
        bindings,
        config,
        isa,
        kernels: Vec::new(),
        by_spec: HashMap::new(),
        weight_names: Vec::new(),
        by_name: HashMap::new(),
        launches: Vec::new(),
        metadata,
        arena,
    };
    for op in &program.ops {
        builder.op(op)?;
    }
    builder.allocate(weights)
}

impl Builder<'_> {
    fn op(&mut self, op: &Op) -> Result<(), CpuError> {
        let (k, ins, outs, layer, rows) = match op {
            Op::Embed { k, out } => (*k, vec![], vec![*out], None, RowSet::All),
            Op::Rowwise { k, ins, outs, rows } => (*k, ins.clone(), outs.clone(), None, *rows),
            Op::StoreKv { k, ins, layer } => (*k, ins.clone(), vec![], Some(*layer), RowSet::All),
            Op::Attend { k, q, layer, out, .. } => (*k, vec![*q], vec![*out], Some(*layer), RowSet::All),
        };
        let binding = self.bindings.get(k as usize).ok_or(CpuError::Binding { k, bindings: self.bindings.len() })?;
        for launch in &binding.launches {
            self.launch(launch, &ins, &outs, layer, rows)?;
        }
        Ok(())
    }

    fn launch(
        &mut self,
        launch: &Launch,
        ins: &[u32],
        outs: &[u32],
        layer: Option<u32>,
        rows: RowSet,
    ) -> Result<(), CpuError> {
        let index = self.kernel(&launch.spec)?;
        let missing = |role: Role| CpuError::Role { spec: launch.spec.to_string(), role: format!("{role:?}") };
        let group = layer.map(|l| self.program.layers[l as usize].group as usize);
        let contract = self.kernels[index].contract.clone();
        let mut size = if rows == RowSet::Selected { Size::Selected } else { Size::Rows };
        let mut params = Vec::new();
        for param in &contract.params {
            let role = param.role;
            let layer = || layer.map(|l| l as usize).ok_or(missing(role));
            let group = || group.ok_or(missing(role));
            let bound = match role {
                Role::In(i) => Bound::Row(*ins.get(i).ok_or(missing(role))? as usize),
                Role::Out(i) => Bound::Row(*outs.get(i).ok_or(missing(role))? as usize),
                Role::Weight(i) => Bound::Weight(self.weight(launch.weights.get(i).ok_or(missing(role))?)),
                Role::Rows if rows == RowSet::Selected => Bound::Meta(Meta::Selected),
                Role::Rows => Bound::Meta(Meta::Rows),
                Role::Tokens => Bound::Meta(Meta::Tokens),
                Role::Positions => Bound::Meta(Meta::Positions),
                Role::RowIndex => Bound::Meta(Meta::RowIndex),
                Role::Slots => Bound::Meta(Meta::Slots { group: group()? }),
                Role::PageTable => Bound::Meta(Meta::PageTable { group: group()? }),
                Role::CacheK => Bound::CacheK(layer()?),
                Role::CacheV => Bound::CacheV(layer()?),
                Role::TileTable | Role::TileRow | Role::TileRows | Role::TilePos => {
                    let height = match launch.spec.constants.get("BQ") {
                        Some(Const::Int(height)) if *height > 0 => *height as usize,
                        _ => return Err(missing(role)),
                    };
                    let tiling = self.metadata.tiling(&mut self.arena, height, group()?, self.config.rows_max)?;
                    size = Size::Tiles(tiling);
                    Bound::Meta(match role {
                        Role::TileTable => Meta::TileTable { tiling },
                        Role::TileRow => Meta::TileRow { tiling },
                        Role::TileRows => Meta::TileRows { tiling },
                        _ => Meta::TilePos { tiling },
                    })
                }
            };
            params.push(bound);
        }
        self.launches.push(Wired { kernel: index, size, params, waits: true });
        Ok(())
    }

    fn kernel(&mut self, spec: &Spec) -> Result<usize, CpuError> {
        if let Some(found) = self.by_spec.get(spec) {
            return Ok(*found);
        }
        let name = spec.to_string();
        let given = self.config.ttir.as_ref().and_then(|overrides| overrides.get(&name));
        let text = match given {
            Some(text) => text.as_str(),
            None => vosti_kernels::ttir(spec).ok_or_else(|| CpuError::Ttir { spec: name.clone() })?,
        };
        let kernel = vosti_tile::lift(text).map_err(|error| CpuError::Lift { spec: name.clone(), error })?;
        let contract = vosti_kernels::contract(&spec.kernel)?.of(spec);
        let fits = kernel.params.len() == contract.params.len()
            && kernel.params.iter().zip(&contract.params).all(|(a, b)| a.name == b.name);
        if !fits {
            return Err(CpuError::Signature { spec: name });
        }
        let plan = match self.config.mode {
            Mode::Plain => None,
            Mode::Fast => compile(&kernel, self.isa).ok(),
        };
        self.kernels.push(Compiled { spec: spec.clone(), contract, kernel, plan });
        self.by_spec.insert(spec.clone(), self.kernels.len() - 1);
        Ok(self.kernels.len() - 1)
    }

    fn weight(&mut self, name: &str) -> usize {
        if let Some(found) = self.by_name.get(name) {
            return *found;
        }
        self.weight_names.push(name.to_string());
        self.by_name.insert(name.to_string(), self.weight_names.len() - 1);
        self.weight_names.len() - 1
    }

    /// The element type and layout that the launches agree on for a buffer. The first dot decides the layout.
    fn demands(&self) -> Result<HashMap<Bound, (Scalar, Option<Layout>)>, CpuError> {
        let mut demands: HashMap<Bound, (Scalar, Option<Layout>)> = HashMap::new();
        for launch in &self.launches {
            let compiled = &self.kernels[launch.kernel];
            for (i, bound) in launch.params.iter().enumerate() {
                let elem = compiled.kernel.params[i].elem;
                let wanted = compiled.plan.as_ref().and_then(|plan| plan.wanted[i]);
                let demand = demands.entry(*bound).or_insert((elem, None));
                if demand.0 != elem {
                    return Err(CpuError::Element {
                        spec: compiled.spec.to_string(),
                        param: compiled.kernel.params[i].name.clone(),
                    });
                }
                demand.1 = demand.1.or(wanted);
            }
        }
        Ok(demands)
    }

    /// Marks the launches that must wait for earlier ones.
    fn find_waits(&mut self) {
        let (mut read, mut written): (HashSet<Bound>, HashSet<Bound>) = Default::default();
        for launch in &mut self.launches {
            let compiled = &self.kernels[launch.kernel];
            let writes: Vec<Bound> = launch
                .params
                .iter()
                .zip(&compiled.contract.params)
                .filter(|(_, param)| matches!(param.role, Role::Out(_) | Role::CacheK | Role::CacheV))
                .map(|(bound, _)| *bound)
                .collect();
            let after_write = launch.params.iter().any(|bound| written.contains(bound));
            launch.waits = after_write || writes.iter().any(|bound| read.contains(bound));
            if launch.waits {
                read.clear();
                written.clear();
            }
            read.extend(&launch.params);
            written.extend(writes);
        }
    }

    fn allocate(mut self, weights: &dyn Weights) -> Result<Wiring, CpuError> {
        let demands = self.demands()?;
        self.find_waits();
        let demand = |bound: Bound, elem: Scalar| demands.get(&bound).copied().unwrap_or((elem, None));
        let mut rows = Vec::new();
        for (i, decl) in self.program.buffers.iter().enumerate() {
            let many = if decl.rows == RowSet::All { self.config.rows_max } else { self.config.selected_max };
            let (elem, _) = demand(Bound::Row(i), Scalar::F32);
            if decl.dtype == Dtype::F32 && elem != Scalar::F32 {
                return Err(CpuError::Element { spec: format!("buffer {i}"), param: "rows".into() });
            }
            rows.push(Buffer::zeroed(&mut self.arena, elem, many * decl.width as usize, None)?);
        }
        let (mut cache_k, mut cache_v) = (Vec::new(), Vec::new());
        for (i, layer) in self.program.layers.iter().enumerate() {
            let group = &self.program.groups[layer.group as usize];
            let slots = self.config.pages[layer.group as usize] * vosti_core::PAGE;
            let len = slots * group.kv_heads as usize * group.head_dim as usize;
            let (elem, layout) = demand(Bound::CacheK(i), Scalar::Bf16);
            cache_k.push(Buffer::zeroed(&mut self.arena, elem, len, layout)?);
            let (elem, layout) = demand(Bound::CacheV(i), Scalar::Bf16);
            cache_v.push(Buffer::zeroed(&mut self.arena, elem, len, layout)?);
        }
        let mut loaded = Vec::new();
        let mut chunks = Arena::default();
        for (i, name) in self.weight_names.iter().enumerate() {
            let (elem, layout) = demand(Bound::Weight(i), Scalar::Bf16);
            let mut pack = || Buffer::packed(&mut chunks, weights, name, elem, layout);
            loaded.push(match &self.config.weights {
                Some(cache) => cache.get(name, elem, layout, pack)?,
                None => Arc::new(pack()?),
            });
        }
        let wiring = Wiring {
            kernels: self.kernels,
            launches: self.launches,
            rows,
            weights: loaded,
            cache_k,
            cache_v,
            metadata: self.metadata,
        };
        wiring.check_premises()?;
        Ok(wiring)
    }
}

impl Wiring {
    /// The buffer a parameter is bound to.
    pub fn buffer(&self, bound: Bound) -> &Buffer {
        match bound {
            Bound::Row(i) => &self.rows[i],
            Bound::Weight(i) => &self.weights[i],
            Bound::CacheK(i) => &self.cache_k[i],
            Bound::CacheV(i) => &self.cache_v[i],
            Bound::Meta(meta) => self.metadata.buffer(meta),
        }
    }

    /// The weight in panels that a launch reads in place, if there is one.
    pub fn panels(&self, launch: &Wired) -> Option<Panels> {
        let plan = self.kernels[launch.kernel].plan.as_ref()?;
        launch.params.iter().zip(&plan.read_in_place).find_map(|(bound, in_place)| {
            let weight = match bound {
                Bound::Weight(i) if *in_place => &self.weights[*i],
                _ => return None,
            };
            let Layout::RowPanels { row_len, .. } = weight.layout else { return None };
            let panel = PANEL * row_len * weight.elem.bytes();
            Some(Panels { base: weight.region.base(), panel, all: weight.region.len() })
        })
    }

    /// What the kernels assume: addresses divisible as declared, and nothing read in place that the launch writes.
    fn check_premises(&self) -> Result<(), CpuError> {
        for launch in &self.launches {
            let compiled = &self.kernels[launch.kernel];
            let premise = |param: usize, what: &'static str| CpuError::Premise {
                spec: compiled.spec.to_string(),
                param: compiled.kernel.params[param].name.clone(),
                what,
            };
            for (i, bound) in launch.params.iter().enumerate() {
                let address = self.buffer(*bound).region.base() as usize;
                if !address.is_multiple_of(compiled.kernel.params[i].divisibility.max(1) as usize) {
                    return Err(premise(i, "has a declared alignment that its buffer lacks"));
                }
                let Some(plan) = &compiled.plan else { continue };
                let may_write = matches!(compiled.contract.params[i].role, Role::Out(_) | Role::CacheK | Role::CacheV);
                if plan.written[i] && !may_write {
                    return Err(premise(i, "is written by the kernel against its role"));
                }
                let written = launch.params.iter().zip(&plan.written).any(|(other, w)| *w && other == bound);
                if plan.read_in_place[i] && written {
                    return Err(premise(i, "is read in place by a kernel that writes the same buffer"));
                }
            }
        }
        Ok(())
    }
}
