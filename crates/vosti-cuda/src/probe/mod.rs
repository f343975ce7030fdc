//! Tests the assumptions of certificates on the device and in the machine code that runs there, and compares that code with a
//! reference.
//!
//! A case is one row in two launches of a kernel that its contract relates. The row's own inputs are the same. Everything
//! that the contract leaves open differs: the number of rows, the row's place in its tile, the other rows and the memory
//! beyond the last row, the pages, the cache entries that the row may not see, and the number of spare programs, which
//! recorded launches have. The row's outputs must have the same bits. Other rows hold NaN, infinities and huge numbers, and
//! caches hold huge finite numbers; chosen rows hold -0 and values that underflow. So lane locality and row uniformity of dot
//! and reduce, masked lanes and padding are tried together, as the kernel uses them. Where kernels of several tile heights
//! may run, the two launches of a case have different heights. The module knows no kernel by name: roles and shapes identify
//! the parameters. Read next: `sides.rs`.

mod data;
mod sides;

use crate::device::{CudaDevice, maps_of};
use crate::driver::Driver;
use crate::error::CudaError;
use data::{Random, differ, get};
use serde::Serialize;
use sides::{Row, Side};
use std::sync::Arc;
use vosti_contract::{Const, Extent, Role, Shape};
use vosti_kernels::{Proved, Spec};
use vosti_tile::Scalar;
use vosti_wiring::{Bound, Size, Wired};

/// The size of a probe.
#[derive(Clone, Copy, Debug)]
pub struct ProbeOptions {
    /// The fewest cases of each kernel.
    pub cases: usize,
    /// Launches of each kernel that are compared with the reference.
    pub references: usize,
    /// The seed of all random choices.
    pub seed: u64,
}

/// A launch that is compared with the reference, with the bytes that the device had.
#[derive(Clone, Debug)]
pub struct Launched<'a> {
    /// The kernel and its specialisation.
    pub spec: &'a Spec,
    /// The parameters, in signature order.
    pub params: Vec<Held<'a>>,
    /// Rows whose outputs are compared. The inputs of other rows are NaN, infinities and huge numbers.
    pub chosen: Vec<usize>,
}

/// The contents of a launch's parameter.
#[derive(Clone, Copy, Debug)]
pub struct Held<'a> {
    /// The name in the kernel's signature.
    pub name: &'a str,
    /// The role in the contract.
    pub role: Role,
    /// The element type of the buffer.
    pub elem: Scalar,
    /// The bytes before the launch.
    pub before: &'a [u8],
    /// The bytes after the launch, if the kernel writes the parameter.
    pub after: Option<&'a [u8]>,
}

/// Executes some programs of a kernel: its specialisation, a buffer for each parameter, the grid.
pub type Reference<'a> = &'a mut dyn FnMut(&Spec, &mut [Vec<u8>], [usize; 3]) -> Result<(), String>;

/// The calls that a probe makes to its caller.
pub struct Hooks<'a> {
    /// Computes the expected outputs of a kernel.
    pub reference: Reference<'a>,
    /// Gets each launch that is compared with the reference.
    pub keep: &'a mut dyn FnMut(&Launched) -> Result<(), String>,
    /// Gets the result of a kernel, and the number of kernels.
    pub done: &'a mut dyn FnMut(Probed, usize),
    /// True ends the probe.
    pub ended: &'a dyn Fn() -> bool,
}

/// The result of probing one kernel.
#[derive(Clone, Debug, Serialize)]
pub struct Probed {
    /// The specialisation's name.
    pub kernel: String,
    /// Cases that ran.
    pub cases: usize,
    /// A description of the first case whose bits differ, or of a stray write.
    pub differs: Option<String>,
    /// The share of finite outputs of chosen rows, from 0 to 1. Equality of other outputs would show little.
    pub finite: f64,
    /// The number of cells compared with the reference, those that are zero there left out.
    pub compared: usize,
    /// The largest error of a cell, relative to the larger of its value and the outputs' root mean square. Two NaNs are equal, and
    /// so are two infinities of one sign; the error of any other cell that is not finite is infinite.
    pub error_max: f64,
}

/// The most launches of a kernel that are tried until one can be compared with the reference.
const ROUNDS_MAX: usize = 256;

/// The largest error that passes: some units in the last place of BF16. Sums in another order have smaller errors.
pub const ERROR_MAX: f64 = 1.0 / 32.0;

impl Probed {
    /// Whether no case showed a difference.
    pub fn passed(&self) -> bool {
        self.differs.is_none() && self.finite > 0.9 && self.compared > 0 && self.error_max <= ERROR_MAX
    }
}

/// A parameter of the kernel that is probed.
#[derive(Clone, Copy, Debug)]
struct Param {
    role: Role,
    at: u64,
    elem: Scalar,
    bytes: usize,
    /// Elements of a row, if the parameter has rows.
    width: usize,
}

/// A kernel on the device.
struct Lab {
    kernel: usize,
    /// The kernel of the case's other launch: one that this kernel may replace, or itself.
    twin: usize,
    /// The launch in which it runs.
    launch: usize,
    spec: Spec,
    proved: Arc<Proved>,
    /// The contract's shape for this specialisation.
    shape: Shape,
    params: Vec<Param>,
    pointers: Vec<u64>,
    limits: Limits,
}

/// The choices for one side of a case.
#[derive(Clone, Copy, Debug)]
struct Limits {
    rows: usize,
    packed: usize,
    pages: usize,
    vocab: usize,
    context: usize,
    kv_heads: usize,
    head_dim: usize,
    window: Option<usize>,
    /// Rows of a query tile of the kernel, and of its twin.
    tiles: [usize; 2],
    /// Keys of a split, and rows of a split's scratch.
    splits: Option<(usize, usize)>,
}

impl Limits {
    /// The indices of a row's numbers in a parameter's buffer; in scratch, of the splits that a row at `position` sees.
    fn cells(&self, param: &Param, row: usize, position: usize) -> impl Iterator<Item = usize> + use<> {
        let (splits, rows) = match (param.role, self.splits) {
            (Role::Scratch(_), Some((size, rows))) => (position / size + 1, rows),
            _ => (1, 0),
        };
        let width = param.width;
        (0..splits).flat_map(move |split| (0..width).map(move |c| (split * rows + row) * width + c))
    }

    /// Whether the contract of a kernel with this shape fixes a row's cells of a role, given the row's position.
    fn names(&self, shape: Shape, role: Role, position: usize) -> bool {
        shape.early_rows(role).is_none_or(|early| self.splits.is_none_or(|(size, _)| (position < size) == early))
    }
}

impl<D: Driver> CudaDevice<D> {
    /// Probes every kernel of the program, but those of layers with a state. It overwrites the device's caches and buffers.
    pub fn probe(&mut self, options: ProbeOptions, mut hooks: Hooks) -> Result<(), CudaError> {
        let kernels = self.wiring.kernels.len();
        // Give arrays their places in the largest step, because sides may be as large.
        self.step.widen();
        for kernel in 0..kernels {
            let lab = self.lab(kernel);
            // The sides have no pages with a state yet.
            if lab.shape.recurs() {
                continue;
            }
            let mut random = Random::new(options.seed ^ (kernel as u64) << 40);
            match self.probe_one(&lab, options, &mut random, &mut hooks)? {
                Some(probed) => (hooks.done)(probed, kernels),
                None => break,
            }
        }
        Ok(())
    }

    /// The first launch of a kernel, ready to be changed.
    fn lab(&mut self, kernel: usize) -> Lab {
        // Each kernel was loaded for a launch.
        let of = |launch: &Wired| launch.ways().find(|way| way.kernel == kernel);
        let found = self.wiring.launches.iter().enumerate().find_map(|(i, launch)| Some((i, of(launch)?)));
        let (first, way) = found.unwrap_or_else(|| (0, self.wiring.launches[0].own()));
        self.point(first, way);
        let (launch, code) = (&self.wiring.launches[first], &self.wiring.kernels[kernel]);
        // A launch that folds its own splits writes rows that the first of two leaves to the second.
        let twin = launch.folded.first().copied().filter(|_| launch.folded.contains(&way)).unwrap_or(launch.own());
        let group = launch.params.iter().find_map(|bound| match bound {
            Bound::Cache { layer, .. } => Some(self.program.layers[*layer].group as usize),
            _ => None,
        });
        let decl = group.map(|group| &self.program.groups[group]);
        let keys = decl.and_then(|decl| decl.entry.first());
        let params =
            launch.params.iter().zip(&code.proved.contract.params).enumerate().map(|(i, (bound, param))| Param {
                role: param.role,
                at: self.pointers[first][i],
                elem: code.premises[i].elem,
                bytes: self.sizes.get(bound).map_or(0, |bytes| *bytes as usize),
                width: match bound {
                    Bound::Row(i) => self.wiring.whole.buffers[*i].width as usize,
                    Bound::Scratch(i) => self.wiring.scratch[*i].1.width,
                    _ => 1,
                },
            });
        let int = |name: &str| match code.spec.constants.get(name) {
            Some(Const::Int(value)) => usize::try_from(*value).ok().filter(|value| *value > 0),
            _ => None,
        };
        let shape = code.proved.contract.shape_of(&code.spec.constants);
        let splits = int("SPLIT").zip(int("ROWS")).filter(|_| shape.splits());
        // Without a cache, page tables are not used.
        let any = self.pages.iter().copied().max().unwrap_or(0);

        Lab {
            kernel,
            twin: twin.kernel,
            launch: first,
            spec: code.spec.clone(),
            proved: code.proved.clone(),
            shape,
            params: params.collect(),
            pointers: self.pointers[first].clone(),
            limits: Limits {
                rows: match launch.size {
                    Size::Selected | Size::Listed | Size::Drawn => self.selected_max,
                    Size::Rows => self.rows_max,
                    Size::Tiles(tiling) => self.rows_max.min(self.wiring.tilings[tiling].end),
                },
                packed: self.rows_max,
                pages: group.map_or(any, |group| self.pages[group]),
                vocab: self.program.vocab as usize,
                context: self.program.context as usize,
                kv_heads: keys.map_or(1, |keys| keys.heads as usize),
                head_dim: keys.map_or(1, |keys| keys.width as usize),
                window: decl.and_then(|decl| decl.window).map(|window| window as usize),
                tiles: [way, twin].map(|way| match way.size {
                    Size::Tiles(tiling) => self.wiring.tilings[tiling].height,
                    _ => 1,
                }),
                splits,
            },
        }
    }

    /// Probes one kernel; `None` if a hook ended the probe.
    fn probe_one(
        &mut self,
        lab: &Lab,
        options: ProbeOptions,
        random: &mut Random,
        hooks: &mut Hooks,
    ) -> Result<Option<Probed>, CudaError> {
        let mut probed =
            Probed { kernel: lab.spec.to_string(), cases: 0, differs: None, finite: 0.0, compared: 0, error_max: 0.0 };
        let (mut finite, mut numbers, mut round) = (0usize, 0usize, 0);
        // Few of the rows of a step may be the kernel's: those of `attend_combine` see more than one split.
        let compares = |probed: &Probed, round| options.references > 0 && probed.compared == 0 && round < ROUNDS_MAX;
        while (probed.cases < options.cases || compares(&probed, round)) && probed.differs.is_none() {
            if (hooks.ended)() {
                return Ok(None);
            }
            let (mut left, mut right, pairs) = sides::related(lab, random);
            // Compare more launches if the reference's programs had no chosen row.
            let compared = round < options.references || compares(&probed, round);
            if compared {
                left.flush(lab);
                right.flush(lab);
            }
            let before = compared.then(|| left.buffers.clone());
            let a = self.run_side(lab, lab.kernel, left)?;
            if let Some(before) = before {
                let failed = |why: String| CudaError::Launch { spec: lab.spec.to_string(), why };
                let before = self.with_weights(lab, before)?;
                let chosen = pairs.iter().map(|(l, _)| l.row).collect();
                (hooks.keep)(&launched(lab, &before, &a, chosen)).map_err(failed)?;
                let chosen: Vec<Row> = pairs.iter().map(|(l, _)| *l).collect();
                compare(lab, before, &a, &chosen, hooks, &mut probed)?;
            }
            let b = self.run_side(lab, lab.twin, right)?;
            for (l, r) in &pairs {
                for (i, param) in lab.params.iter().enumerate().filter(|(_, p)| lab.shape.writes(p.role)) {
                    let (x, y) = (l.bytes(lab, i, &a.buffers[i]), r.bytes(lab, i, &b.buffers[i]));
                    numbers += x.len() / param.elem.bytes();
                    finite += (0..x.len() / param.elem.bytes()).filter(|e| get(&x, param.elem, *e).is_finite()).count();
                    if let Some(lane) = differ(&x, &y, param.elem) {
                        let name = &lab.proved.contract.params[i].name;
                        let (x, y) = (get(&x, param.elem, lane), get(&y, param.elem, lane));
                        probed.differs = Some(format!("`{name}` lane {lane}: {x:e} in {l}, {y:e} in {r}"));
                    }
                }
                probed.cases += 1;
            }
            for side in [&a, &b] {
                if let Some(stray) = side.stray(lab) {
                    probed.differs.get_or_insert(stray);
                }
            }
            round += 1;
        }
        probed.finite = finite as f64 / numbers.max(1) as f64;
        Ok(Some(probed))
    }

    /// Uploads a side's buffers, launches the kernel, and downloads the buffers that it writes.
    fn run_side(&mut self, lab: &Lab, kernel: usize, mut side: Side) -> Result<Side, CudaError> {
        for (param, bytes) in lab.params.iter().zip(&side.buffers).filter(|(_, bytes)| !bytes.is_empty()) {
            self.driver.upload(param.at, bytes)?;
        }
        let maps = maps_of(&self.maps, lab.launch, kernel);
        self.wiring.kernels[kernel].launch(&mut self.driver, side.extent(side.spare), &lab.pointers, maps)?;
        for (param, bytes) in lab.params.iter().zip(&mut side.buffers) {
            if lab.shape.writes(param.role) {
                self.driver.download(&mut [(param.at, &mut bytes[..])])?;
            }
        }
        // Uploads must end before their buffers are dropped, even if nothing is downloaded.
        self.driver.synchronise()?;
        Ok(side)
    }

    /// The parameters' contents before a launch, with the weights read from the device.
    fn with_weights(&mut self, lab: &Lab, mut before: Vec<Vec<u8>>) -> Result<Vec<Vec<u8>>, CudaError> {
        for (param, bytes) in lab.params.iter().zip(&mut before) {
            if matches!(param.role, Role::Weight(_)) {
                bytes.resize(param.bytes, 0);
                self.driver.download(&mut [(param.at, &mut bytes[..])])?;
            }
        }
        Ok(before)
    }
}

fn launched<'a>(lab: &'a Lab, before: &'a [Vec<u8>], after: &'a Side, chosen: Vec<usize>) -> Launched<'a> {
    let params = lab.params.iter().enumerate().map(|(i, param)| Held {
        name: &lab.proved.contract.params[i].name,
        role: param.role,
        elem: param.elem,
        before: &before[i],
        after: lab.shape.writes(param.role).then_some(&after.buffers[i][..]),
    });
    Launched { spec: &lab.spec, params: params.collect(), chosen }
}

/// Compares the outputs of a launch in its chosen rows with the reference's. Other rows have huge numbers, beside which an error
/// would not show.
fn compare(
    lab: &Lab,
    before: Vec<Vec<u8>>,
    found: &Side,
    chosen: &[Row],
    hooks: &mut Hooks,
    probed: &mut Probed,
) -> Result<(), CudaError> {
    let failed = |why: String| CudaError::Launch { spec: lab.spec.to_string(), why };
    let mut wanted = before.clone();
    let grid = lab.proved.grid.at(found.extent(0))?;
    (hooks.reference)(&lab.spec, &mut wanted, grid).map_err(failed)?;
    for (i, param) in lab.params.iter().enumerate().filter(|(_, p)| lab.shape.writes(p.role)) {
        let (was, want, has) = (&before[i], &wanted[i], &found.buffers[i]);
        let size = param.elem.bytes();
        let changed = |e: &usize| want[e * size..][..size] != was[e * size..][..size];
        let cells: Vec<usize> = chosen.iter().flat_map(|row| row.cells(lab, i)).filter(changed).collect();
        let value = |bytes: &[u8], cell: usize| f64::from(get(bytes, param.elem, cell));
        let squares: f64 = cells.iter().map(|c| value(want, *c)).filter(|x| x.is_finite()).map(|x| x * x).sum();
        let scale = (squares / cells.len().max(1) as f64).sqrt().max(1e-30);
        let pairs: Vec<(f64, f64)> = cells.iter().map(|cell| (value(want, *cell), value(has, *cell))).collect();
        probed.error_max = probed.error_max.max(error_of(&pairs, scale));
        // A zero that is a tenth off is a zero.
        probed.compared += cells.iter().filter(|cell| value(want, **cell) != 0.0).count();
    }
    Ok(())
}

/// The share of choices that may be others than the reference's: one of so many.
const CHOICES: usize = 100;

/// The largest error of an output's cells. Cells that are all whole numbers are choices: where sums lie near a number that a token is drawn
/// by, rounding decides, so a few may be other whole numbers. A kernel that chooses wrongly does so in more of them.
fn error_of(pairs: &[(f64, f64)], scale: f64) -> f64 {
    let choices = pairs.iter().all(|(want, _)| want.fract() == 0.0);
    let other = |(want, has): &&(f64, f64)| choices && want != has && has.fract() == 0.0;
    let few = pairs.iter().filter(other).count() * CHOICES < pairs.len();
    let counted = pairs.iter().filter(|pair| !(few && other(pair)));
    counted.map(|(want, has)| error(*want, *has, scale)).fold(0.0, f64::max)
}

/// The error of `has` relative to the larger of `want` and `scale`. Never NaN.
fn error(want: f64, has: f64, scale: f64) -> f64 {
    match (want.is_finite(), has.is_finite()) {
        (true, true) => (want - has).abs() / want.abs().max(scale),
        (false, false) if want == has || want.is_nan() && has.is_nan() => 0.0,
        _ => f64::INFINITY,
    }
}

impl Row {
    /// The bytes of a row in a parameter's buffer.
    fn bytes(&self, lab: &Lab, param: usize, buffer: &[u8]) -> Vec<u8> {
        let size = lab.params[param].elem.bytes();
        self.cells(lab, param).into_iter().flat_map(|cell| &buffer[cell * size..][..size]).copied().collect()
    }

    /// The indices of the row's numbers in a parameter's buffer.
    fn cells(&self, lab: &Lab, param: usize) -> Vec<usize> {
        let role = lab.params[param].role;
        let limits = &lab.limits;
        match role {
            Role::CacheK | Role::CacheV => {
                let (page, at) = (self.slot / vosti_core::PAGE, self.slot % vosti_core::PAGE);
                let head = |head: usize| ((page * limits.kv_heads + head) * vosti_core::PAGE + at) * limits.head_dim;
                (0..limits.kv_heads).flat_map(|h| head(h)..head(h) + limits.head_dim).collect()
            }
            role if !limits.names(lab.shape, role, self.position) => vec![],
            _ => limits.cells(&lab.params[param], self.row, self.position).collect(),
        }
    }
}

impl Side {
    /// The extent of its launch, with `spare` more rows and tiles, and then with its longest length.
    fn extent(&self, spare: usize) -> Extent {
        let length = if spare == 0 { self.length() } else { self.length().max(self.longest) };
        Extent { rows: self.rows + spare, tiles: self.tiles + spare, length }
    }
}

#[cfg(test)]
mod tests {
    use super::{error, error_of};

    #[test]
    fn a_few_choices_may_be_others_and_no_numbers_may() {
        let tokens = |many: usize| (0..many).map(|i| (i as f64, i as f64));
        let with = |many: usize, pairs: &[(f64, f64)]| {
            error_of(&tokens(many).chain(pairs.iter().copied()).collect::<Vec<_>>(), 1.0)
        };
        assert_eq!(with(500, &[(7.0, 8.0), (9.0, 3.0)]), 0.0);
        // A share that rounding does not explain, a number that is no choice, and cells that are none.
        assert!(with(150, &[(7.0, 8.0), (9.0, 3.0)]) > 0.1);
        assert!(with(500, &[(7.0, 7.5)]) > 0.05 && with(500, &[(7.0, f64::NAN)]) > 0.05);
        assert!(with(500, &[(7.0, 8.0), (0.5, 0.5)]) > 0.1);
    }

    #[test]
    fn a_value_that_is_not_finite_equals_only_one_of_its_kind() {
        let all = [0.0, 3.0, f64::NAN, f64::INFINITY, f64::NEG_INFINITY];
        for (i, want) in all.iter().enumerate() {
            for (j, has) in all.iter().enumerate() {
                let found = error(*want, *has, 1.0);
                match (i == j, i < 2 && j < 2) {
                    (true, _) => assert_eq!(found, 0.0, "{want} and {has}"),
                    (false, true) => assert!(found.is_finite() && found > 0.0, "{want} and {has}: {found}"),
                    (false, false) => assert_eq!(found, f64::INFINITY, "{want} and {has}"),
                }
            }
        }
        assert_eq!(error(4.0, 5.0, 2.0), 0.25);
    }
}
