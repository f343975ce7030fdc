//! Breaks any device on purpose; `vosti check --self-test` and the simulator must notice.
//!
//! Real engines have had each of these faults. No serving path can reach this module: only tests and `--self-test` build a
//! faulty device. Faults inside a kernel (masks, windows, NaN lanes) belong in the device; the faults here fit every device.

use std::collections::HashMap;
use std::ops::RangeBounds;
use std::sync::{Arc, Mutex, PoisonError};
use vosti_core::{Device, DeviceError, Draw, Program, RequestId, StepPlan, Token};
use vosti_engine::{FloatDevice, math};

/// A fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Logits differ in the last bit when a step has more than one sequence: a reduction whose order depends on the
    /// batch.
    ReductionByBatch,
    /// Logits differ in the last bit when a step has more than 16 rows: a tile size chosen from M.
    TileByRows,
    /// Logits of rows computed alone (decode) differ in the last bit from rows of a chunk: two kernels with different
    /// reduction orders.
    DecodeKernelDiffers,
    /// Every second step is skipped if it selects no row (the inside of a prefill): pages keep the keys of an earlier owner.
    StalePages,
    /// Every 7th step computes nothing and gives the logits of the step before, if both select equally many rows.
    StaleLogits,
    /// The rows of logits of a step come in reverse order: a wrong gather.
    RowsSwapped,
    /// Every 5th step adds 0.5 to one logit of each sequence whose rows begin after position 0 (a later chunk, a cache hit, a
    /// decode): a race.
    Race,
    /// Every selected row of a step gets the first one's logits: a wrong batch index.
    BatchIndex,
    /// One logit is NaN if a step mixes sequences of one row and of several.
    NanInMixedSteps,
    /// Logits of a sequence differ in the last bit once positions of it are computed again, as after a rejected draft: a state that
    /// was written in place and cannot go back.
    StateKeepsDrafts,
}

impl Fault {
    /// Every fault.
    pub const ALL: [Self; 10] = [
        Self::ReductionByBatch,
        Self::TileByRows,
        Self::DecodeKernelDiffers,
        Self::StalePages,
        Self::StaleLogits,
        Self::RowsSwapped,
        Self::Race,
        Self::BatchIndex,
        Self::NanInMixedSteps,
        Self::StateKeepsDrafts,
    ];

    /// The fault's name in tables and flags.
    pub fn name(self) -> &'static str {
        match self {
            Self::ReductionByBatch => "reduction-by-batch",
            Self::TileByRows => "tile-by-rows",
            Self::DecodeKernelDiffers => "decode-kernel-differs",
            Self::StalePages => "stale-pages",
            Self::StaleLogits => "stale-logits",
            Self::RowsSwapped => "rows-swapped",
            Self::Race => "race",
            Self::BatchIndex => "batch-index",
            Self::NanInMixedSteps => "nan-in-mixed-steps",
            Self::StateKeepsDrafts => "state-keeps-drafts",
        }
    }
}

/// A device that damages the results of `inner` by `fault`, or passes them on unchanged if `fault` is `None`.
pub struct FaultyDevice<D> {
    inner: D,
    fault: Option<Fault>,
    steps: u64,
    rows: Vec<Copied>,
    /// Per request, the end of its last step, and whether a step went back behind it.
    ends: HashMap<RequestId, (usize, bool)>,
    /// Zeros, given for a row that the inner device did not bring.
    blank: Vec<f32>,
}

/// The host's copy of a selected row: its best token, and its logits, the largest of them and a drawn token if they were brought.
#[derive(Clone)]
struct Copied {
    best: Token,
    top: Option<Vec<(Token, f32)>>,
    drawn: Option<(Draw, Token)>,
    row: Option<Vec<f32>>,
}

impl<D: FloatDevice> FaultyDevice<D> {
    /// Wraps `inner`.
    pub fn new(inner: D, fault: Option<Fault>) -> Self {
        Self { inner, fault, steps: 0, rows: Vec::new(), ends: HashMap::new(), blank: Vec::new() }
    }

    /// The wrapped device.
    pub fn inner(&self) -> &D {
        &self.inner
    }

    /// Whether the fault skips this step.
    fn skips(&self, plan: &StepPlan) -> bool {
        match self.fault {
            Some(Fault::StalePages) => plan.selected().is_empty() && self.steps.is_multiple_of(2),
            Some(Fault::StaleLogits) => self.steps.is_multiple_of(7) && self.rows.len() == plan.selected().len(),
            _ => false,
        }
    }

    /// Damages the copied rows of logits.
    fn damage(&mut self, plan: &StepPlan) {
        let sequences = plan.sequences();
        match self.fault {
            Some(Fault::ReductionByBatch) if sequences.len() > 1 => self.change(0.., nudge),
            Some(Fault::TileByRows) if plan.rows() > 16 => self.change(0.., nudge),
            Some(Fault::DecodeKernelDiffers) => {
                for s in sequences.iter().filter(|s| s.rows == 1 && s.selected == 1) {
                    self.change(s.first_selected..=s.first_selected, nudge);
                }
            }
            Some(Fault::RowsSwapped) => self.rows.reverse(),
            Some(Fault::Race) if self.steps.is_multiple_of(5) => {
                for s in sequences.iter().filter(|s| s.first_position > 0 && s.selected > 0) {
                    self.change(s.first_selected..=s.first_selected, |row| row[0] += 0.5);
                }
            }
            Some(Fault::BatchIndex) => {
                for i in 1..self.rows.len() {
                    self.rows[i] = self.rows[0].clone();
                }
            }
            Some(Fault::NanInMixedSteps) => {
                let mixed = sequences.iter().any(|s| s.rows > 1) && sequences.iter().any(|s| s.rows == 1);
                if mixed {
                    self.change(..1, |row| row[0] = f32::NAN);
                }
            }
            Some(Fault::StateKeepsDrafts) => {
                for s in sequences {
                    let (end, back) = self.ends.get(&s.request).copied().unwrap_or_default();
                    let back = back || s.first_position < end;
                    self.ends.insert(s.request, (s.first_position + s.rows, back));
                    if back {
                        self.change(s.first_selected..s.first_selected + s.selected, nudge);
                    }
                }
            }
            _ => {}
        }
    }
}

impl<D> FaultyDevice<D> {
    /// Changes the logits of these rows, and their tokens and lists to match. Of a row without logits it changes the list,
    /// if there is one.
    fn change(&mut self, rows: impl RangeBounds<usize>, with: impl Fn(&mut [f32])) {
        for (_, Copied { best, top, drawn, row }) in self.rows.iter_mut().enumerate().filter(|(i, _)| rows.contains(i))
        {
            if let Some(row) = row {
                with(row);
                *best = math::first_largest(row);
                *top = top.take().map(|top| math::top(row, top.len()));
                *drawn = drawn.map(|(draw, _)| (draw, math::drawn_by(row, draw)));
            } else if let Some(top) = top {
                let mut logits: Vec<f32> = top.iter().map(|(_, logit)| *logit).collect();
                with(&mut logits);
                top.iter_mut().zip(logits).for_each(|((_, old), new)| *old = new);
            }
        }
    }
}

/// Flips the last bit of the largest logit.
fn nudge(row: &mut [f32]) {
    let largest = math::max(row);
    if let Some(x) = row.iter_mut().find(|x| **x == largest) {
        *x = f32::from_bits(x.to_bits() ^ 1);
    }
}

impl<D: FloatDevice> Device for FaultyDevice<D> {
    type Logits = [f32];
    type Top = [(Token, f32)];

    vosti_engine::forward_device!(device in [Self { inner: device, .. }]: limits, clear);

    fn run(&mut self, program: &Program, plan: &StepPlan) -> Result<(), DeviceError> {
        self.steps += 1;
        if self.skips(plan) {
            return Ok(());
        }
        self.inner.run(program, plan)?;
        let rows = |s: &'_ vosti_core::SeqPlan| {
            (0..s.selected).map(|i| (s.top, s.draws.get(i).copied(), s.whole)).collect::<Vec<_>>()
        };
        let wanted = plan.sequences().iter().flat_map(rows);
        let copied = |(i, (top, draw, whole)): (usize, (bool, Option<Draw>, bool))| Copied {
            best: self.inner.best(i),
            top: top.then(|| self.inner.top(i).to_vec()),
            drawn: draw.map(|draw| (draw, self.inner.drawn(i, draw))),
            row: whole.then(|| self.inner.logits(i).to_vec()),
        };
        self.rows = wanted.enumerate().map(copied).collect();
        self.blank = vec![0.0; program.vocab as usize];
        self.damage(plan);
        Ok(())
    }

    fn logits(&self, selected: usize) -> &[f32] {
        self.rows[selected].row.as_ref().unwrap_or(&self.blank)
    }

    fn best(&self, selected: usize) -> Token {
        self.rows[selected].best
    }

    fn top(&self, selected: usize) -> &[(Token, f32)] {
        self.rows[selected].top.as_deref().unwrap_or_default()
    }

    fn drawn(&self, selected: usize, _: Draw) -> Token {
        self.rows[selected].drawn.map_or(0, |(_, token)| token)
    }
}

/// A failure that a device reports as an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// Before anything ran.
    Early,
    /// After everything ran: the step's own slots are written, all others are unchanged.
    Late,
    /// The cache is lost.
    CacheLost,
}

/// Sets how the next step of a `FailingDevice` fails; clones control the same device.
#[derive(Clone, Debug, Default)]
pub struct Trigger(Arc<Mutex<Option<Failure>>>);

impl Trigger {
    /// The next step fails with `failure`; `None`: it does not fail.
    pub fn set(&self, failure: Option<Failure>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = failure;
    }

    /// Removes a failure that has not happened yet.
    pub fn take(&self) -> Option<Failure> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// A device that runs `inner` and fails when its trigger says so. The contract of `Device` permits failures (not faults): after
/// one, nothing may be lost or wrong.
pub struct FailingDevice<D> {
    inner: D,
    trigger: Trigger,
}

impl<D: Device> FailingDevice<D> {
    /// A device whose steps fail when `trigger` says so.
    pub fn new(inner: D, trigger: Trigger) -> Self {
        Self { inner, trigger }
    }

    /// The wrapped device.
    pub fn inner(&self) -> &D {
        &self.inner
    }
}

impl<D: Device> Device for FailingDevice<D> {
    type Logits = D::Logits;
    type Top = D::Top;

    vosti_engine::forward_device!(device in [Self { inner: device, .. }]: limits, clear, rows);

    fn run(&mut self, program: &Program, plan: &StepPlan) -> Result<(), DeviceError> {
        let error = |intact| Err(DeviceError { message: "told to fail; try again".into(), intact });
        match self.trigger.take() {
            None => self.inner.run(program, plan),
            Some(Failure::Early) => error(true),
            Some(Failure::Late) => self.inner.run(program, plan).and_then(|()| error(true)),
            Some(Failure::CacheLost) => {
                self.inner.clear();
                error(false)
            }
        }
    }
}
