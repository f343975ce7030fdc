//! A device without a model: three layers of paged "attention" over hashes, in a few dozen lines.
//!
//! Its KV cache is paged and its sums are floating point, so a [`Fault`] breaks it as the same mistake breaks a real engine.
//! It shows that the suite notices each fault and passes without one. Layer 0 attends to everything up to a position (group 0),
//! layer 1 to a sliding window (group 1). Layer 2 has a state: an entry depends on the earlier entries of its page and on the last
//! entry of the page before (group 2).

use super::faults::Fault;
use super::{CheckError, Facts, Setup, Subject};
use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use vosti_core::{
    BufferDecl, Device, DeviceError, Draw, Dtype, GroupDecl, LayerDecl, Op, PAGE, Program, RequestId, RowSet, SeqPlan,
    StepPlan, Token,
};
use vosti_engine::{Request, Sampling, SamplingParams, math};

const VOCAB: u32 = 500;
const CONTEXT: u32 = 1 << 16;
const WINDOW: u32 = 100;
/// Entries that an entry of the layer with a state depends on, at most: those of a page and the one before.
const BACK: u32 = PAGE as u32;
/// The group of each layer: how many entries its rows see.
const WINDOWS: [Option<u32>; 3] = [None, Some(WINDOW), Some(BACK + 1)];
/// Floats of a KV entry that the sums run over.
const WIDTH: usize = 4;

/// Three layers, each in a cache group of its own. The device ignores the ops; the core checks them.
fn program() -> Program {
    let all = BufferDecl { width: 64, dtype: Dtype::Bf16, rows: RowSet::All };
    let mut ops = vec![Op::Embed { k: 0, out: 0 }];
    for (layer, window) in (0..).zip(WINDOWS) {
        let back = if layer == 2 { BACK } else { 0 };
        ops.push(Op::StoreKv { k: 2 * layer + 1, ins: vec![layer], layer, back });
        ops.push(Op::Attend { k: 2 * layer + 2, q: layer, layer, out: layer + 1, window });
    }
    ops.push(Op::Rowwise { k: 7, ins: vec![3], outs: vec![4], rows: RowSet::Selected });
    let logits = BufferDecl { width: VOCAB, dtype: Dtype::F32, rows: RowSet::Selected };
    let group = |window| GroupDecl { window, entry: vec![], state: vec![] };
    Program {
        ops,
        buffers: vec![all, all, all, all, logits],
        groups: WINDOWS.map(group).into(),
        layers: (0..3).map(|group| LayerDecl { group }).collect(),
        logits: 4,
        vocab: VOCAB,
        context: CONTEXT,
        kernels: 8,
    }
}

/// A hash of two numbers (SplitMix64's finaliser).
fn mix(a: u64, b: u64) -> u64 {
    let mut z = a.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ b.wrapping_add(0xD1B5_4A32_D192_ED03);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// A float in [-1, 1) from a hash.
fn float(hash: u64) -> f32 {
    (hash >> 40) as f32 / (1u64 << 23) as f32 - 1.0
}

/// The device.
pub struct ToyDevice {
    fault: Option<Fault>,
    rows_max: usize,
    pages: usize,
    /// Per group, one entry per slot.
    cache: [Vec<u64>; 3],
    /// Slots ever written, for the fault that does not write them again.
    used: BTreeSet<(usize, usize)>,
    /// What slots of the layer with a state hold, for the fault that keeps entries of rejected drafts.
    held: BTreeMap<usize, (RequestId, usize)>,
    logits: Vec<Vec<f32>>,
    /// By what a token of each row is drawn.
    draws: Vec<Option<Draw>>,
}

impl Device for ToyDevice {
    type Logits = [f32];
    type Top = [(Token, f32)];

    fn rows_max(&self) -> usize {
        self.rows_max
    }

    fn selected_max(&self) -> usize {
        self.rows_max
    }

    fn pages(&self, group: usize) -> usize {
        if group < WINDOWS.len() { self.pages } else { 0 }
    }

    fn top_max(&self) -> usize {
        0
    }

    fn draws(&self) -> bool {
        true
    }

    fn clear(&mut self) {
        self.cache.iter_mut().for_each(|group| group.fill(0));
    }

    fn run(&mut self, _program: &Program, plan: &StepPlan) -> Result<(), DeviceError> {
        let mut x: Vec<u64> = plan.tokens().iter().map(|token| mix(1, u64::from(*token))).collect();
        if self.fault == Some(Fault::RowMixing) {
            // The last row of a tile of four reads its neighbour.
            (1..x.len()).filter(|row| row % 4 == 3).for_each(|row| x[row] = mix(x[row], x[row - 1] & 1));
        }
        for group in 0..WINDOWS.len() {
            for (s, sequence) in plan.sequences().iter().enumerate() {
                self.store(group, &plan.sequences()[s.saturating_sub(1)..=s], &x);
                let tables = match self.fault {
                    Some(Fault::WrongPageTable) if s % 2 == 1 => &plan.sequences()[s - 1].tables,
                    _ => &sequence.tables,
                };
                self.attend(group, plan, sequence, &tables[group], &mut x);
            }
        }
        self.logits = plan.selected().iter().map(|row| self.head(x[*row as usize], plan.rows())).collect();
        if self.fault == Some(Fault::SelectedRowOff) && self.logits.len() > 1 {
            self.logits.rotate_left(1);
        }
        self.draws = plan.sequences().iter().flat_map(|s| (0..s.selected).map(|i| s.draws.get(i).copied())).collect();
        Ok(())
    }

    fn logits(&self, selected: usize) -> &[f32] {
        &self.logits[selected]
    }

    fn best(&self, selected: usize) -> Token {
        math::first_largest(&self.logits[selected])
    }

    fn top(&self, _: usize) -> &[(Token, f32)] {
        &[]
    }

    fn drawn(&self, selected: usize, draw: Draw) -> Token {
        let before = self.draws[..selected].last().copied().flatten();
        let draw = before.filter(|_| self.fault == Some(Fault::NumbersOfTheNeighbour)).unwrap_or(draw);
        math::drawn_by(&self.logits[selected], draw)
    }
}

impl ToyDevice {
    /// Stores the rows of the last of these sequences; a fault looks at the one before it.
    fn store(&mut self, group: usize, sequences: &[SeqPlan], x: &[u64]) {
        let sequence = &sequences[sequences.len() - 1];
        for i in 0..sequence.rows {
            let position = sequence.first_position + i;
            let Some(slot) = slot(&sequence.tables[group], position) else { continue };
            let stale = self.fault == Some(Fault::StalePage) && !self.used.insert((group, slot));
            // The fault: if a step begins at a page's first position, the position counts as cached.
            let believed =
                self.fault == Some(Fault::CachedTooLong) && i == 0 && position > 0 && position.is_multiple_of(PAGE);
            let place = if self.fault == Some(Fault::WrongPosition) { i } else { position };
            let mut entry = mix(x[sequence.first_row + i], place as u64);
            let mut drafted = false;
            if group == 2 {
                entry = self.recurrent(sequences, i, entry);
                let held = self.held.insert(slot, (sequence.request, position));
                drafted = self.fault == Some(Fault::DraftStays) && held == Some((sequence.request, position));
            }
            if !stale && !believed && !drafted {
                self.cache[group][slot] = entry;
            }
        }
    }

    /// The entry of a layer with a state: it depends on the earlier entries of its page and, as the state there, on the last entry of the
    /// page before.
    fn recurrent(&self, sequences: &[SeqPlan], i: usize, own: u64) -> u64 {
        let sequence = &sequences[sequences.len() - 1];
        let position = sequence.first_position + i;
        let begins = i == 0 && position.is_multiple_of(PAGE);
        let start = match self.fault {
            Some(Fault::ChunksOfTheStep) => (position / PAGE * PAGE).max(sequence.first_position),
            _ => position / PAGE * PAGE,
        };
        let state = match self.fault {
            Some(Fault::StateOnePageOld) if begins => start.checked_sub(1 + PAGE),
            Some(Fault::StateOfAnUnfinishedPage) if begins => start.checked_sub(2),
            _ => start.checked_sub(1),
        };
        let of = if self.fault == Some(Fault::StateOfTheNeighbour) { &sequences[0] } else { sequence };
        let state = state.and_then(|j| slot(&of.tables[2], j));
        let earlier = (start..position).filter_map(|j| slot(&sequence.tables[2], j));
        state.into_iter().chain(earlier).fold(own, |entry, slot| mix(entry, self.cache[2][slot]))
    }

    fn attend(&self, group: usize, plan: &StepPlan, sequence: &SeqPlan, table: &[i32], x: &mut [u64]) {
        for i in 0..sequence.rows {
            let position = sequence.first_position + i;
            let window = WINDOWS[group].map_or(usize::MAX, |window| window as usize);
            let mut first = (position + 1).saturating_sub(window);
            if self.fault == Some(Fault::WindowByTile) {
                // The window of the tile's first row, for every row of the tile.
                first = (position + 1 - i % 16).saturating_sub(window);
            }
            let end = match self.fault {
                // The fault: keys up to the end of the page enter the sum.
                Some(Fault::UnguardedTile) => (position / PAGE + 1) * PAGE,
                _ => position + 1,
            };
            let keys = (first..end).filter_map(|j| slot(table, j).map(|slot| self.cache[group][slot]));
            let mut keys: Vec<u64> = keys.collect();
            if self.fault == Some(Fault::ReductionOrder) && plan.sequences().len() > 1 {
                keys.reverse();
            }
            if self.fault == Some(Fault::SplitByLength) && sequence.rows == 1 {
                let half = keys.len() / 2;
                keys.rotate_left(half);
            }
            let mut sums = [0f32; WIDTH];
            for key in keys {
                sums.iter_mut().enumerate().for_each(|(lane, sum)| *sum += float(mix(key, lane as u64)));
            }
            let row = sequence.first_row + i;
            x[row] = sums.iter().fold(mix(x[row], position as u64), |h, sum| mix(h, u64::from(sum.to_bits())));
        }
    }

    fn head(&self, x: u64, rows: usize) -> Vec<f32> {
        let scale = if self.fault == Some(Fault::BatchScale) && rows > 64 { 4.0000005 } else { 4.0 };
        let logits = (0..u64::from(VOCAB)).map(|v| match self.fault {
            Some(Fault::ConstantLogits) => 1.0,
            Some(Fault::NotANumber) => f32::NAN,
            _ => float(mix(x, v)) * scale,
        });
        logits.collect()
    }
}

fn slot(table: &[i32], position: usize) -> Option<usize> {
    let page = usize::try_from(*table.get(position / PAGE)?).ok()?;
    Some(page * PAGE + position % PAGE)
}

/// Engines on the toy device, whole or broken.
pub struct Toy {
    facts: Facts,
    program: Program,
    fault: Option<Fault>,
    submitted: Cell<u64>,
    /// Tokens in the pool of the device that was made last.
    pool_tokens: Cell<usize>,
}

impl Toy {
    /// The toy subject, broken by `fault` if there is one.
    pub fn new(fault: Option<Fault>) -> Self {
        let facts = Facts {
            model: "toy device".into(),
            fingerprint: fault.map_or("whole".into(), |fault| format!("broken: {}", fault.name())),
            vocab: VOCAB,
            bos: Some(1),
            special: vec![0, 1, 2],
            context: CONTEXT as usize,
            window: Some(WINDOW as usize),
            states: false,
        };
        Toy { facts, program: program(), fault, submitted: Cell::new(0), pool_tokens: Cell::new(0) }
    }
}

impl Subject for Toy {
    type Device = ToyDevice;

    fn facts(&self) -> &Facts {
        &self.facts
    }

    fn program(&self) -> &Program {
        &self.program
    }

    fn device(&self, setup: &Setup) -> Result<ToyDevice, CheckError> {
        let pages = setup.pool_tokens.div_ceil(PAGE).max(1);
        self.pool_tokens.set(pages * PAGE);
        let cache = || vec![0; pages * PAGE];
        Ok(ToyDevice {
            fault: self.fault,
            rows_max: setup.rows_max,
            pages,
            cache: [cache(), cache(), cache()],
            used: BTreeSet::new(),
            held: BTreeMap::new(),
            logits: Vec::new(),
            draws: Vec::new(),
        })
    }

    fn tamper(&self, request: &mut Request) {
        self.submitted.set(self.submitted.get() + 1);
        let mut params = SamplingParams::clone(&request.sampling);
        match self.fault {
            Some(Fault::SamplerAdvanced) => params.seed = params.seed.wrapping_add(self.submitted.get()),
            Some(Fault::EndsWithPool) => {
                // The last token takes no slot.
                let left = (self.pool_tokens.get() + 1).saturating_sub(request.prompt.len());
                params.tokens_max = params.tokens_max.min(left.max(1));
            }
            _ => return,
        }
        request.sampling = Sampling::new(params).expect("another seed and fewer tokens are as valid");
    }
}
