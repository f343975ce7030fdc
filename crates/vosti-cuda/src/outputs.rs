//! What a step leaves for the sampler: best tokens, lists, drawn tokens and rows of logits, on the device and in host memory.
//!
//! Each step copies its best tokens, and of the rest what its plan asks for. Read next: [`mod@crate::device`].

use crate::driver::{Address, Driver, DriverError};
use crate::error::CudaError;
use crate::host::HostMemory;
use std::ops::Range;
use vosti_core::{Program, StepPlan, Token};
use vosti_kernels::Draws;
use vosti_wiring::{Lists, drawn, fill_numbers, listed, outputs};

/// Numbers of selected rows on the device, and as many in host memory.
struct Rows {
    at: Address,
    host: HostMemory,
    /// Bytes of a row.
    bytes: usize,
}

impl Rows {
    fn part(&mut self, rows: Range<usize>) -> (Address, &mut [u8]) {
        let bytes = rows.start * self.bytes..rows.end * self.bytes;
        (self.at + bytes.start as u64, &mut self.host.bytes_mut()[bytes])
    }
}

struct Listing {
    lists: Lists,
    /// Logits and tokens.
    rows: [Rows; 2],
    /// The list of each selected row of the last step; empty if the plan did not ask for it.
    read: Vec<Vec<(Token, f32)>>,
}

struct Drawing {
    /// What the tokens are drawn by, as [`Draws::numbers`] orders it.
    numbers: [Rows; 3],
    tokens: Rows,
}

/// Which of a selected row's outputs are on the host.
struct Brought {
    list: bool,
    token: bool,
    row: bool,
}

/// The outputs of a device's steps.
pub(crate) struct Outputs {
    vocab: usize,
    logits: Rows,
    best: Rows,
    listing: Option<Listing>,
    drawing: Option<Drawing>,
    /// Per selected row of the last step.
    brought: Vec<Brought>,
}

impl Outputs {
    /// Takes host memory for the outputs of steps with so many selected rows. `address` is where a row buffer is on the device.
    pub(crate) fn new(
        driver: &mut dyn Driver,
        program: &Program,
        draws: Option<&Draws>,
        selected_max: usize,
        address: impl Fn(usize) -> Address,
    ) -> Result<Self, CudaError> {
        let mut rows = |buffer: usize, width: usize| -> Result<Rows, DriverError> {
            let bytes = width * 4;
            Ok(Rows { at: address(buffer), host: driver.host(selected_max * bytes)?, bytes })
        };
        let vocab = program.vocab as usize;
        let logits = rows(program.logits as usize, vocab)?;
        let outputs = outputs(program)?;
        let best = rows(outputs.best, 1)?;
        let mut listing = None;
        if let Some(lists) = outputs.lists {
            let rows = [rows(lists.logits, lists.most)?, rows(lists.tokens, lists.most)?];
            listing = Some(Listing { lists, rows, read: vec![] });
        }
        let mut drawing = None;
        if let Some(draws) = draws {
            let mut number = |buffer: u32| rows(buffer as usize, 1);
            let [scale, part, within] = draws.numbers;
            let numbers = [number(scale)?, number(part)?, number(within)?];
            drawing = Some(Drawing { numbers, tokens: number(draws.tokens)? });
        }
        Ok(Self { vocab, logits, best, listing, drawing, brought: vec![] })
    }

    /// Logits of a list.
    pub(crate) fn top_max(&self) -> usize {
        self.listing.as_ref().map_or(0, |listing| listing.lists.most)
    }

    /// Whether tokens are drawn.
    pub(crate) fn draws(&self) -> bool {
        self.drawing.is_some()
    }

    /// What a plan asks for and this device does not make.
    pub(crate) fn refuses(&self, plan: &StepPlan) -> Option<&'static str> {
        match (listed(plan) && self.listing.is_none(), drawn(plan) && self.drawing.is_none()) {
            (true, _) => Some("the program makes no lists of largest logits"),
            (false, true) => Some("the device draws no tokens"),
            (false, false) => None,
        }
    }

    /// Uploads the numbers by which the plan's tokens are drawn.
    pub(crate) fn upload(&mut self, driver: &mut dyn Driver, plan: &StepPlan) -> Result<(), DriverError> {
        let Some(Drawing { numbers, .. }) = self.drawing.as_mut().filter(|_| drawn(plan)) else { return Ok(()) };
        for (i, rows) in numbers.iter_mut().enumerate() {
            fill_numbers(plan, i, rows.host.floats_mut());
            let (at, bytes) = rows.part(0..plan.selected().len());
            driver.upload(at, bytes)?;
        }
        Ok(())
    }

    /// Copies every best token to the host, and the lists, drawn tokens and rows of logits that the plan asks for. It waits for the whole
    /// step, even if nothing is copied, so that metadata may be filled again.
    pub(crate) fn download(&mut self, driver: &mut dyn Driver, plan: &StepPlan) -> Result<(), DriverError> {
        let all = 0..plan.selected().len();
        let mut parts = vec![self.best.part(all.clone())];
        if let Some(Listing { rows, .. }) = self.listing.as_mut().filter(|_| listed(plan)) {
            parts.extend(rows.iter_mut().map(|rows| rows.part(all.clone())));
        }
        if let Some(Drawing { tokens, .. }) = self.drawing.as_mut().filter(|_| drawn(plan)) {
            parts.push(tokens.part(all));
        }
        let (row, at) = (self.logits.bytes, self.logits.at);
        let (mut rest, mut start) = (self.logits.host.bytes_mut(), 0);
        for run in shown(plan) {
            let (part, after) = rest[run.start * row - start..].split_at_mut(run.len() * row);
            parts.push((at + (run.start * row) as u64, part));
            (rest, start) = (after, run.end * row);
        }
        driver.download(&mut parts)?;
        let of = |s: &vosti_core::SeqPlan| Brought { list: s.top, token: !s.draws.is_empty(), row: s.whole };
        self.brought.clear();
        self.brought.extend(plan.sequences().iter().flat_map(|s| (0..s.selected).map(move |_| of(s))));
        if let Some(Listing { lists, rows, read }) = &mut self.listing {
            lists.read(plan, rows.each_ref().map(|rows| rows.host.floats()), self.vocab as u32, read);
        }
        Ok(())
    }

    /// A row of logits.
    pub(crate) fn logits(&self, selected: usize) -> &[f32] {
        assert!(self.brought[selected].row, "row {selected} of logits stayed on the GPU: plan it with `Select::Shown`");
        &self.logits.host.floats()[selected * self.vocab..][..self.vocab]
    }

    /// A row's best token.
    pub(crate) fn best(&self, selected: usize) -> Token {
        // A whole number below the vocabulary, which FP32 holds exactly.
        self.best.host.floats()[selected] as Token
    }

    /// A row's largest logits.
    pub(crate) fn top(&self, selected: usize) -> &[(Token, f32)] {
        let here = self.brought[selected].list;
        assert!(here, "the list of row {selected} stayed on the GPU: its sampler did not ask for it");
        self.listing.as_ref().map_or(&[], |listing| listing.read[selected].as_slice())
    }

    /// The token drawn from a row.
    pub(crate) fn drawn(&self, selected: usize) -> Token {
        assert!(self.brought[selected].token, "no token of row {selected} was drawn: its sampler did not ask for it");
        // As best tokens are.
        self.drawing.as_ref().map_or(0, |drawing| drawing.tokens.host.floats()[selected] as Token)
    }
}

/// The selected rows whose logits the plan asks for, as contiguous ranges.
fn shown(plan: &StepPlan) -> Vec<Range<usize>> {
    let mut runs: Vec<Range<usize>> = vec![];
    for s in plan.sequences().iter().filter(|s| s.whole && s.selected > 0) {
        match runs.last_mut() {
            Some(last) if last.end == s.first_selected => last.end += s.selected,
            _ => runs.push(s.first_selected..s.first_selected + s.selected),
        }
    }
    runs
}
