//! The design of a device before it is built: kernels compiled, parameters bound, the layout of each buffer chosen.
//!
//! Nothing here allocates a buffer or reads a weight, so a device that does not fit can be refused first ([`Needs`]).
//! Read next: [`crate::wiring`], which makes the buffers.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use vosti_contract::Role;
use vosti_core::Program;
use vosti_kernels::{Admitted, Proved, Spec};
use vosti_tile::Scalar;
use vosti_wiring::{Bound, WiringError, image};

use crate::device::{Config, CpuError, Mode, Storage};
use crate::plan::compile;
use crate::weights::Weights;
use crate::wiring::Compiled;
use vosti_simd::Isa;
use vosti_simd::layout::Layout;
use vosti_simd::micro;
use vosti_simd::storage::{ALIGN, Form, list_bytes};

/// Bytes of memory that a device takes besides its pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Needs {
    /// Bytes of weights in the form in which they are kept. The sum counts 13 bits for each panel that may be kept so; a few
    /// may take 16.
    pub weights: u64,
    /// Bytes of row buffers, scratch and a step's metadata.
    pub buffers: u64,
}

/// A program's launches, and the layout that each buffer's first dot wants.
pub struct Blueprint {
    pub wired: vosti_wiring::Wiring<Compiled>,
    pub encodes: Option<micro::EncodeFn>,
    layouts: HashMap<Bound, Layout>,
    /// Tables whose rows are chosen by tokens.
    tables: HashSet<Bound>,
}

/// The type, shape and layout of a weight that is not loaded yet.
pub struct WeightOutline {
    pub elem: Scalar,
    pub rows: usize,
    pub columns: usize,
    pub layout: Option<Layout>,
    /// Its matrix, if that is kept in blocks for products in integers: the matrix's name, and the name of a part of it.
    pub blocks: Option<(String, String)>,
}

impl Blueprint {
    pub fn new(program: &Program, admitted: &Admitted, config: &Config, isa: Isa) -> Result<Self, CpuError> {
        let load = |spec: &Spec| compiled(spec, admitted.kernel(spec)?, config, isa);
        let wired = vosti_wiring::wire(program, &admitted.bindings, admitted.draws.as_ref(), config.rows_max, load)?;
        let (layouts, tables) = (layouts(&wired), tables(&wired));
        Ok(Self { wired, encodes: micro::kernels(isa).encode, layouts, tables })
    }

    /// The layout that a buffer's first dot wants.
    pub fn layout(&self, bound: Bound) -> Option<Layout> {
        self.layouts.get(&bound).copied()
    }

    /// The outline of the `i`-th weight.
    pub fn weight(&self, i: usize, weights: &dyn Weights, config: &Config) -> Result<WeightOutline, CpuError> {
        let name = &self.wired.weights[i];
        let (elem, mut layout) = (self.wired.elem(Bound::Weight(i)), self.layout(Bound::Weight(i)));
        let (mut rows, columns) = vosti_wiring::weights::shape(weights, name)?;
        let blocks = self.blocks(name, weights);
        if let Some((panels, _)) = &blocks {
            layout = Some(*panels);
        } else if let Some(Layout::StoredPanels { part: Some(_), .. }) = layout {
            layout = None;
        } else if config.storage == Storage::AsTheyCome && elem == Scalar::Bf16 {
            layout = match layout {
                Some(Layout::RowPanels { row_len, pair: 2, cut }) if row_len == columns => {
                    Some(Layout::StoredPanels { row_len, cut, part: None })
                }
                // No dot reads it, and a step reads few of its rows.
                None if self.tables.contains(&Bound::Weight(i)) => {
                    Some(Layout::StoredPanels { row_len: columns, cut: 0, part: None })
                }
                other => other,
            };
        }
        let blocks = blocks.map(|(_, names)| names);
        if weights.by_position(name) {
            rows = rows.min(config.positions.unwrap_or(rows));
        }
        Ok(WeightOutline { elem, rows, columns, layout, blocks })
    }

    /// The panels of a weight that is a part of a matrix in blocks, or that matrix in BF16; the names of the matrix and of a part.
    fn blocks(&self, name: &str, weights: &dyn Weights) -> Option<(Layout, (String, String))> {
        let own = weights.part(name);
        let of = |i: usize, other: &String| {
            let Some(Layout::StoredPanels { row_len, cut, .. }) = self.layout(Bound::Weight(i)) else { return None };
            let (matrix, _) = weights.part(other)?;
            let same = own.as_ref().map_or(matrix == name, |(own, _)| *own == matrix);
            let layout = Layout::StoredPanels { row_len, cut, part: own.as_ref().map(|(_, part)| *part) };
            same.then(|| (layout, (matrix, other.clone())))
        };
        self.wired.weights.iter().enumerate().find_map(|(i, other)| of(i, other))
    }

    /// The memory that the device will take besides its pool.
    pub fn needs(&self, program: &Program, weights: &dyn Weights, config: &Config) -> Result<Needs, CpuError> {
        let mut needs = Needs::default();
        let mut matrices = HashSet::new();
        for i in 0..self.wired.weights.len() {
            let outline = self.weight(i, weights, config)?;
            if outline.blocks.as_ref().is_some_and(|(matrix, _)| !matrices.insert(matrix.clone())) {
                continue;
            }
            let len = outline.rows * outline.columns;
            needs.weights += match Layout::chosen(outline.layout, len) {
                layout @ Layout::StoredPanels { row_len, .. } => {
                    self.stored(weights, i, outline.rows, layout, row_len)?
                }
                layout => layout.bytes(len, outline.elem.bytes()) as u64,
            };
        }
        let ints = image(program, &self.wired.tilings, config.rows_max, config.selected_max)?.len();
        let rows = self.wired.rows(config.rows_max, config.selected_max);
        let scratch = self.wired.scratches(program.context as usize);
        let all = rows.into_iter().chain(scratch).chain([(Scalar::I32, ints)]);
        needs.buffers = all.map(|(elem, len)| (len * elem.bytes()) as u64).sum();
        Ok(needs)
    }

    /// Bytes of a weight's panels, each in the form that it comes in.
    fn stored(
        &self,
        weights: &dyn Weights,
        i: usize,
        rows: usize,
        layout: Layout,
        row_len: usize,
    ) -> Result<u64, CpuError> {
        let name = &self.wired.weights[i];
        let format = |rows| {
            let failed = |error| WiringError::Weight { name: name.into(), error };
            weights.format(name, rows).map_err(failed)
        };
        let bytes = |format| {
            let form = match format {
                Some(format) => Form::Blocks(format),
                None if self.encodes.is_some() => Form::Exponents,
                None => Form::Bf16,
            };
            form.bytes(row_len).next_multiple_of(ALIGN) as u64
        };
        let panels = layout.panels(rows);
        let list = list_bytes(panels) as u64;
        // Most weights have one format. Only stacked weights may have several: their panels are asked for one by one.
        if let Some(format) = format(0..rows)? {
            return Ok(list + panels as u64 * bytes(Some(format)));
        }
        let mut all = list;
        for panel in 0..panels {
            all += bytes(format(layout.panel_rows(panel, rows))?);
        }
        Ok(all)
    }
}

fn compiled(spec: &Spec, proved: &Arc<Proved>, config: &Config, isa: Isa) -> Result<Compiled, CpuError> {
    let kernel = vosti_tile::lift(&proved.text).map_err(|error| CpuError::Lift { spec: spec.to_string(), error })?;
    // Folding makes the plan that of a kernel whose dimensions are constants.
    let kernel = vosti_tile::fold(&kernel);
    vosti_wiring::signature(&kernel, &proved.contract, spec)?;
    let plan = match config.mode {
        Mode::Plain => None,
        Mode::Fast => compile(&kernel, isa).ok(),
    };
    Ok(Compiled { spec: spec.clone(), proved: proved.clone(), kernel, plan })
}

/// The weights that compiled launches read by tokens.
fn tables(wired: &vosti_wiring::Wiring<Compiled>) -> HashSet<Bound> {
    let mut tables = HashSet::new();
    for launch in &wired.launches {
        let Compiled { proved, plan, .. } = &wired.kernels[launch.kernel];
        let params = &proved.contract.params;
        if plan.is_some() && params.iter().any(|param| param.role == Role::Tokens) {
            let bound = launch.params.iter().zip(params);
            tables.extend(bound.filter(|(_, param)| matches!(param.role, Role::Weight(_))).map(|(bound, _)| *bound));
        }
    }
    tables
}

/// The layout that each buffer's first dot wants.
fn layouts(wired: &vosti_wiring::Wiring<Compiled>) -> HashMap<Bound, Layout> {
    let mut layouts = HashMap::new();
    for launch in &wired.launches {
        let Some(plan) = &wired.kernels[launch.kernel].plan else { continue };
        for (bound, wanted) in launch.params.iter().zip(&plan.wanted) {
            if let Some(layout) = wanted {
                layouts.entry(*bound).or_insert(*layout);
            }
        }
    }
    layouts
}
