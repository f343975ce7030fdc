//! From a program and its bindings to launches on this machine's memory: buffers in the layouts that their plans read.
//!
//! `vosti-wiring` decides which buffer each parameter gets, and [`crate::blueprint`] decides how each buffer is laid out.
//! Read next: [`crate::launch`].

use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::sync::Arc;

use vosti_contract::{Contract, Role};
use vosti_core::Program;
use vosti_kernels::{Admitted, Proved, Spec};
use vosti_tile::{Kernel, Scalar};
use vosti_wiring::{Bound, Ints, Metadata, Wired};

use crate::blueprint::{Blueprint, WeightOutline};
use crate::device::{Config, CpuError};
use crate::launch::Panels;
use crate::memory::Arena;
use crate::plan::Plan;
use crate::weights::{Buffer, Weights};
use vosti_simd::Isa;
use vosti_simd::layout::{Layout, PANEL};

/// A lifted specialisation.
pub struct Compiled {
    pub spec: Spec,
    pub proved: Arc<Proved>,
    pub kernel: Kernel,
    /// None: the kernel is interpreted.
    pub plan: Option<Plan>,
}

impl vosti_wiring::Kernel for Compiled {
    fn spec(&self) -> &Spec {
        &self.spec
    }

    fn contract(&self) -> &Contract {
        &self.proved.contract
    }

    fn elem(&self, param: usize) -> Scalar {
        self.kernel.params[param].elem
    }
}

impl Ints for Buffer {
    fn cells(&mut self) -> &mut [i32] {
        self.region.as_mut_slice(self.len)
    }
}

/// Everything that a step needs: kernels, launches and buffers.
pub struct Wiring {
    pub whole: Program,
    pub kernels: Vec<Compiled>,
    pub launches: Vec<Wired>,
    /// Whether workers meet before each launch: it depends on a launch after the last meeting.
    pub waits: Vec<bool>,
    pub rows: Vec<Buffer>,
    pub weights: Vec<Arc<Buffer>>,
    /// The parts of each layer's pages.
    pub caches: Vec<Vec<Buffer>>,
    pub scratch: Vec<Buffer>,
    pub metadata: Metadata<Buffer>,
}

/// Binds a program's launches to buffers, and allocates and fills these.
pub fn wire(
    program: &Program,
    admitted: &Admitted,
    weights: &dyn Weights,
    config: &Config,
    isa: Isa,
) -> Result<Wiring, CpuError> {
    let blueprint = Blueprint::new(program, admitted, config, isa)?;
    let wired = &blueprint.wired;
    let waits = waits(wired);
    let mut arena = Arena::default();
    let image = vosti_wiring::image(program, &wired.tilings, config.rows_max, config.selected_max)?;
    let ints = Buffer::zeroed(&mut arena, Scalar::I32, image.len(), None)?;
    let metadata = Metadata::new(image, ints);
    let rows = wired.rows(config.rows_max, config.selected_max);
    let rows = rows.into_iter().map(|(elem, len)| Buffer::zeroed(&mut arena, elem, len, None));
    let rows = rows.collect::<std::io::Result<_>>()?;
    let scratch = wired.scratches(program.context as usize).into_iter();
    let scratch = scratch.map(|(elem, len)| Buffer::zeroed(&mut arena, elem, len, None));
    let scratch = scratch.collect::<std::io::Result<_>>()?;
    let mut caches: Vec<Vec<Buffer>> = program.layers.iter().map(|_| vec![]).collect();
    for (bound, len) in vosti_wiring::caches(program, &config.pages)? {
        let Bound::Cache { layer, .. } = bound else { continue };
        caches[layer].push(Buffer::zeroed(&mut arena, wired.elem(bound), len, blueprint.layout(bound))?);
    }
    let mut loaded = Vec::new();
    let mut matrices: HashMap<String, Arc<Buffer>> = HashMap::new();
    let mut chunks = Arena::default();
    let encode = blueprint.encodes;
    for (i, name) in wired.weights.iter().enumerate() {
        let WeightOutline { elem, rows, columns, layout, blocks } = blueprint.weight(i, weights, config)?;
        if let (Some((matrix, part)), Some(layout)) = (blocks, layout) {
            let mut pack = || Buffer::blocks(&mut chunks, weights, &part, (rows, layout));
            let kept = match matrices.get(&matrix) {
                Some(kept) => Arc::clone(kept),
                None => match &config.weights {
                    Some(cache) => cache.get((matrix.clone(), Scalar::I8, None, false), 0, pack)?,
                    None => Arc::new(pack()?),
                },
            };
            loaded.push(Arc::new(kept.seen_as(elem, rows * columns, layout)));
            matrices.insert(matrix, kept);
            continue;
        }
        let mut pack = || Buffer::packed(&mut chunks, weights, name, elem, (rows, columns), layout, encode);
        loaded.push(match &config.weights {
            Some(cache) => cache.get((name.clone(), elem, layout, encode.is_some()), rows * columns, pack)?,
            None => Arc::new(pack()?),
        });
    }
    let wired = blueprint.wired;
    let (whole, kernels, launches) = (wired.whole, wired.kernels, wired.launches);
    let wiring = Wiring { whole, kernels, launches, waits, rows, weights: loaded, caches, scratch, metadata };
    wiring.check_premises()?;
    Ok(wiring)
}

/// Which launches must wait for earlier ones.
fn waits(wired: &vosti_wiring::Wiring<Compiled>) -> Vec<bool> {
    let (mut read, mut written): (HashSet<Bound>, HashSet<Bound>) = Default::default();
    let mut waits = Vec::with_capacity(wired.launches.len());
    for launch in &wired.launches {
        let contract = &wired.kernels[launch.kernel].proved.contract;
        let writes: Vec<Bound> = launch
            .params
            .iter()
            .zip(&contract.params)
            .filter(|(_, param)| may_write(param.role))
            .map(|(bound, _)| *bound)
            .collect();
        let after_write = launch.params.iter().any(|bound| written.contains(bound));
        let wait = after_write || writes.iter().any(|bound| read.contains(bound));
        if wait {
            read.clear();
            written.clear();
        }
        read.extend(&launch.params);
        written.extend(writes);
        waits.push(wait);
    }
    waits
}

/// Whether a kernel may write to a parameter with this role.
fn may_write(role: Role) -> bool {
    role.is_cache() || matches!(role, Role::Out(_) | Role::Scratch(_))
}

impl Wiring {
    /// The buffer a parameter is bound to.
    pub fn buffer(&self, bound: Bound) -> &Buffer {
        match bound {
            Bound::Row(i) => &self.rows[i],
            Bound::Weight(i) => &self.weights[i],
            Bound::Cache { layer, part } => &self.caches[layer][part],
            Bound::Scratch(i) => &self.scratch[i],
            Bound::Meta(_) => self.metadata.array(),
        }
    }

    /// The elements of its buffer that a parameter has.
    pub fn part(&self, bound: Bound) -> Range<usize> {
        match bound {
            Bound::Meta(meta) => self.metadata.place(meta),
            bound => 0..self.buffer(bound).len,
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
            let panel = match weight.layout {
                Layout::RowPanels { row_len, pair, .. } => PANEL * row_len.next_multiple_of(pair) * weight.elem.bytes(),
                // The mean size of a panel, which is accurate enough for prefetches.
                Layout::StoredPanels { row_len, .. } => {
                    weight.region.len() / weight.layout.panels(weight.len.div_ceil(weight.layout.row(row_len))).max(1)
                }
                _ => return None,
            };
            Some(Panels { base: weight.region.base(), panel, all: weight.region.len() })
        })
    }

    /// Refuses a launch whose parameters break the premises of kernels and proofs ([`broken_premise`]).
    fn check_premises(&self) -> Result<(), CpuError> {
        for launch in &self.launches {
            let compiled = &self.kernels[launch.kernel];
            let mut lies = Vec::with_capacity(launch.params.len());
            for (i, bound) in launch.params.iter().enumerate() {
                let (buffer, part) = (self.buffer(*bound), self.part(*bound));
                let (base, size) = (buffer.region.base() as usize, buffer.elem.bytes());
                let first = base + (part.start + launch.start(*bound, &self.whole)) * size;
                let end =
                    if matches!(bound, Bound::Meta(_)) { base + part.end * size } else { base + buffer.region.len() };
                lies.push(Lies {
                    bytes: first..end,
                    divisibility: compiled.kernel.params[i].divisibility as usize,
                    may_be_written: may_write(compiled.proved.contract.params[i].role),
                    written: compiled.plan.as_ref().is_some_and(|plan| plan.written[i]),
                });
            }
            if let Some((param, what)) = broken_premise(&lies) {
                let (spec, param) = (compiled.spec.to_string(), compiled.kernel.params[param].name.clone());
                return Err(CpuError::Premise { spec, param, what });
            }
        }
        Ok(())
    }
}

/// The memory of a launch's parameter, and whether it is written.
struct Lies {
    bytes: Range<usize>,
    /// The alignment of its address that the kernel's text declares, in bytes.
    divisibility: usize,
    /// Whether its role lets a kernel write it.
    may_be_written: bool,
    /// Whether the kernel's plan writes it.
    written: bool,
}

/// The first parameter of a launch that breaks a premise of kernels and their proofs, with a description. The premises: each
/// address has its declared alignment, a kernel writes no parameter against its role, and a parameter that may be written
/// shares no memory with another one.
fn broken_premise(lies: &[Lies]) -> Option<(usize, &'static str)> {
    for (i, a) in lies.iter().enumerate() {
        if a.divisibility > 1 && !a.bytes.start.is_multiple_of(a.divisibility) {
            return Some((i, "has a declared alignment that its buffer lacks"));
        }
        if a.written && !a.may_be_written {
            return Some((i, "is written by the kernel against its role"));
        }
        let meets = |b: &Lies| a.bytes.start < b.bytes.end && b.bytes.start < a.bytes.end;
        let others = lies.iter().enumerate().filter(|(j, _)| *j != i);
        if a.may_be_written && others.into_iter().any(|(_, b)| meets(b)) {
            return Some((i, "may be written, and shares memory with another parameter of the launch"));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lies(first: usize, end: usize, may_be_written: bool) -> Lies {
        Lies { bytes: first..end, divisibility: 16, may_be_written, written: may_be_written }
    }

    #[test]
    fn what_a_launch_writes_is_no_other_parameters_memory() {
        let input = |first, end| lies(first, end, false);
        assert_eq!(broken_premise(&[input(0, 64), input(0, 64), lies(64, 128, true), lies(128, 192, true)]), None);
        for output in [lies(48, 128, true), lies(0, 64, true), lies(16, 32, true)] {
            assert_eq!(broken_premise(&[input(0, 64), output]).unwrap().0, 1);
        }
        assert_eq!(broken_premise(&[lies(0, 64, true), lies(48, 128, true)]).unwrap().0, 0);
    }

    #[test]
    fn addresses_are_divisible_as_the_kernels_text_declares() {
        assert_eq!(broken_premise(&[lies(32, 64, false), lies(72, 96, false)]).unwrap().0, 1);
        assert_eq!(broken_premise(&[lies(32, 64, false), Lies { divisibility: 8, ..lies(72, 96, false) }]), None);
        assert_eq!(broken_premise(&[Lies { written: true, ..lies(0, 64, false) }]).unwrap().0, 0);
    }
}
