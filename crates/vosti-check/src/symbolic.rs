//! A device without a model: every value is a hash of the values it was computed from.
//!
//! It interprets the program over the real plan: KV values are written to the slots that the page tables name and read back
//! through them. So a stale page, a wrong table, a missing position or a wrong window changes the hash of every later row.
//! `reference.rs` computes the same hashes from a token history alone.
//!
//! Tests use it, among them those of the determinism suite. It refuses plans that a real device could not run.

mod reference;

pub use reference::{Answer, Reference, answer};
use vosti_engine::math::{drawn_by, first_largest, top};

use std::ops::Range;
use vosti_core::{
    BufferDecl, Device, DeviceError, Draw, Dtype, GroupDecl, LayerDecl, Op, PAGE, Program, RowSet, SeqPlan, StepPlan,
    Token, Uses,
};

/// Mixes one more value into a hash.
pub(crate) fn mix(hash: u64, value: u64) -> u64 {
    let x = (hash.rotate_left(23) ^ value).wrapping_add(0x9e37_79b9_7f4a_7c15);
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// What an op reads and writes at one row: buffers, and the cache of the row's sequence by position.
pub(crate) trait Row {
    type Error;

    fn read(&self, buffer: u32) -> u64;

    fn write(&mut self, buffer: u32, value: u64);

    /// What a layer's cache has at these positions, in order.
    fn entries(&self, layer: u32, positions: Range<usize>) -> Result<impl Iterator<Item = u64>, Self::Error>;

    /// Stores the entry of the row's own position, which is given.
    fn store(&mut self, layer: u32, position: usize, entry: u64) -> Result<(), Self::Error>;
}

/// The functions that the symbolic kernels compute. `seed` stands for the weights.
#[derive(Clone, Copy)]
pub(crate) struct Functions {
    pub seed: u64,
}

impl Functions {
    /// Computes an op at a row: each result is a hash of all that it may depend on.
    pub fn compute<R: Row>(self, used: &Uses, token: Token, position: usize, row: &mut R) -> Result<(), R::Error> {
        let mut hash = mix(mix(self.seed, u64::from(used.binding)), position as u64);
        if used.tokens {
            hash = mix(hash, u64::from(token));
        }
        hash = used.inputs.iter().fold(hash, |hash, buffer| mix(hash, row.read(*buffer)));
        if let Some(read) = used.cache_read {
            let first = read.window.map_or(0, |window| (position + 1).saturating_sub(window as usize));
            hash = attend(hash, row.entries(read.layer, first..position + 1)?);
        }
        if let Some(write) = used.cache_written {
            let first = position.saturating_sub(write.back as usize);
            let entry = row.entries(write.layer, first..position)?.fold(hash, mix);
            row.store(write.layer, position, entry)?;
        }
        for (i, buffer) in used.outputs.iter().enumerate() {
            row.write(*buffer, mix(hash, i as u64));
        }
        Ok(())
    }

    /// A row of logits in [-4, 4). Three rows in four lean to one successor of the token, so that text repeats itself
    /// and some drafts come true.
    pub fn logits(self, hash: u64, token: Token, vocab: u32) -> Vec<f32> {
        let value = |i: u32| (mix(hash, u64::from(i)) >> 40) as f32 / (1u32 << 21) as f32 - 4.0;
        let mut row: Vec<f32> = (0..vocab).map(value).collect();
        if !hash.is_multiple_of(4) {
            row[(token as usize * 5 + 3) % vocab as usize] += 7.0;
        }
        row
    }
}

/// A sum over the keys, each scrambled with its place in the logical order. It notices what a chain of `mix` would notice, and is
/// faster.
fn attend(query: u64, keys: impl Iterator<Item = u64>) -> u64 {
    let add = |(sum, place): (u64, u64), key: u64| {
        let scrambled = (key ^ place.wrapping_mul(0x9e37_79b9_7f4a_7c15)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        (sum.wrapping_add(scrambled ^ (scrambled >> 32)), place + 1)
    };
    let (sum, count) = keys.fold((0, 1), add);
    mix(mix(query, sum), count)
}

/// A program with one layer per entry of `layers`, which names its group; `windows` gives the groups. The last layer
/// also attends to the first layer's cache. Stores of odd groups look back over a page, or as far as the group keeps.
pub fn program(windows: &[Option<u32>], layers: &[u32], vocab: u32, context: u32) -> Program {
    let buffer = |width, dtype, rows| BufferDecl { width, dtype, rows };
    let all = || buffer(1, Dtype::Bf16, RowSet::All);
    let mut buffers = vec![all()];
    let mut ops = vec![Op::Embed { k: 0, out: 0 }];
    let mut k = 0;
    let mut x = 0;
    for (layer, &group) in layers.iter().enumerate() {
        let (attended, mixed) = (buffers.len() as u32, buffers.len() as u32 + 1);
        buffers.extend([all(), all()]);
        let layer = layer as u32;
        let window = windows[group as usize];
        let kept = window.map_or(PAGE as u32, |window| window.saturating_sub(1).min(PAGE as u32));
        let back = if group % 2 == 1 { kept } else { 0 };
        ops.push(Op::StoreKv { k: k + 1, ins: vec![x], layer, back });
        ops.push(Op::Attend { k: k + 2, q: x, layer, out: attended, window });
        ops.push(Op::Rowwise { k: k + 3, ins: vec![x, attended], outs: vec![mixed], rows: RowSet::All });
        (x, k) = (mixed, k + 3);
    }
    let shared = buffers.len() as u32;
    buffers.push(all());
    let window = windows[layers[0] as usize];
    ops.push(Op::Attend { k: k + 1, q: x, layer: 0, out: shared, window });
    let logits = buffers.len() as u32;
    buffers.push(buffer(vocab, Dtype::F32, RowSet::Selected));
    ops.push(Op::Rowwise { k: k + 2, ins: vec![x, shared], outs: vec![logits], rows: RowSet::Selected });
    let groups = windows.iter().map(|w| GroupDecl { window: *w, entry: vec![], state: vec![] });
    Program {
        ops,
        buffers,
        groups: groups.collect(),
        layers: layers.iter().map(|group| LayerDecl { group: *group }).collect(),
        logits,
        vocab,
        context,
        kernels: k + 3,
    }
}

/// Logits per list.
const LISTED: usize = 8;

/// The device. Its pages begin with garbage, as memory does, and `clear` zeroes them.
pub struct SymbolicDevice {
    functions: Functions,
    rows_max: usize,
    selected_max: usize,
    pages: Vec<usize>,
    /// Per layer, the KV hash of each slot.
    caches: Vec<Vec<u64>>,
    /// Per buffer, the hash of each row.
    buffers: Vec<Vec<u64>>,
    logits: Vec<Vec<f32>>,
    /// Whether a caller may read the row.
    brought: Vec<bool>,
    lists: Vec<Option<Vec<(Token, f32)>>>,
    /// By what a token of each row may be drawn.
    draws: Vec<Option<Draw>>,
    /// Per layer, the step that wrote the slot last: two writers in one step are an error.
    written: Vec<Vec<u64>>,
    step: u64,
}

impl SymbolicDevice {
    /// `pages` per group; `seed` stands for the weights.
    pub fn new(program: &Program, pages: &[usize], rows_max: usize, selected_max: usize, seed: u64) -> Self {
        let slots = |layer: &LayerDecl| pages[layer.group as usize] * PAGE;
        Self {
            functions: Functions { seed },
            rows_max,
            selected_max,
            pages: pages.to_vec(),
            caches: program.layers.iter().map(|l| vec![u64::MAX; slots(l)]).collect(),
            buffers: vec![Vec::new(); program.buffers.len()],
            logits: Vec::new(),
            brought: Vec::new(),
            lists: Vec::new(),
            draws: Vec::new(),
            written: program.layers.iter().map(|l| vec![0; slots(l)]).collect(),
            step: 0,
        }
    }

    /// The KV hash in a slot of a layer.
    pub fn cached(&self, layer: usize, slot: usize) -> u64 {
        self.caches[layer][slot]
    }

    fn check(&self, program: &Program, plan: &StepPlan) -> Result<(), DeviceError> {
        let mut next = 0;
        for sequence in plan.sequences() {
            if sequence.first_row != next || sequence.rows == 0 {
                return Err(refusal("the rows of a sequence are not packed".into()));
            }
            next += sequence.rows;
            for (group, table) in sequence.tables.iter().enumerate() {
                if let Some(page) = table.iter().find(|p| **p >= self.pages[group] as i32 || **p < -1) {
                    return Err(refusal(format!("page {page} of group {group} does not exist")));
                }
            }
        }
        let positions = plan.positions().iter().all(|p| *p < program.context);
        let tokens = plan.tokens().iter().all(|t| *t < program.vocab);
        if next != plan.rows() || next > self.rows_max || plan.selected().len() > self.selected_max {
            return Err(refusal("the step has more rows than the device takes, or stray ones".into()));
        }
        if !positions || !tokens {
            return Err(refusal("a token or a position is out of range".into()));
        }
        Ok(())
    }
}

/// A row of a step on the device.
struct StepRow<'a> {
    device: &'a mut SymbolicDevice,
    program: &'a Program,
    sequence: &'a SeqPlan,
    /// Its place in buffers of all rows, and in those of the selected.
    row: usize,
    compact: usize,
}

impl StepRow<'_> {
    fn place(&self, buffer: u32) -> usize {
        match self.program.buffers[buffer as usize].rows {
            RowSet::All => self.row,
            RowSet::Selected => self.compact,
        }
    }
}

impl Row for StepRow<'_> {
    type Error = DeviceError;

    fn read(&self, buffer: u32) -> u64 {
        self.device.buffers[buffer as usize][self.place(buffer)]
    }

    fn write(&mut self, buffer: u32, value: u64) {
        let place = self.place(buffer);
        self.device.buffers[buffer as usize][place] = value;
    }

    fn entries(&self, layer: u32, positions: Range<usize>) -> Result<impl Iterator<Item = u64>, DeviceError> {
        let pages = positions.start / PAGE..positions.end.div_ceil(PAGE);
        let firsts = pages.clone().map(|page| slot(self.program, self.sequence, layer, page * PAGE));
        let firsts: Vec<usize> = firsts.collect::<Result<_, _>>()?;
        let cache = &self.device.caches[layer as usize];
        Ok(pages.zip(firsts).flat_map(move |(page, first)| {
            let place = |position: usize| first + position.clamp(page * PAGE, (page + 1) * PAGE) - page * PAGE;
            cache[place(positions.start)..place(positions.end)].iter().copied()
        }))
    }

    fn store(&mut self, layer: u32, position: usize, entry: u64) -> Result<(), DeviceError> {
        let slot = slot(self.program, self.sequence, layer, position)?;
        let layer = layer as usize;
        if std::mem::replace(&mut self.device.written[layer][slot], self.device.step) == self.device.step {
            return Err(refusal(format!("slot {slot} of layer {layer} is written twice")));
        }
        self.device.caches[layer][slot] = entry;
        Ok(())
    }
}

/// The slot of a position in a layer's group.
fn slot(program: &Program, sequence: &SeqPlan, layer: u32, position: usize) -> Result<usize, DeviceError> {
    let group = program.layers[layer as usize].group as usize;
    let page = sequence.tables[group].get(position / PAGE).copied().unwrap_or(-1);
    let page = usize::try_from(page);
    let page = page.map_err(|_| refusal(format!("position {position} has no page in group {group}")))?;
    Ok(page * PAGE + position % PAGE)
}

fn refusal(message: String) -> DeviceError {
    DeviceError { message: format!("symbolic device: {message}"), intact: true }
}

impl Device for SymbolicDevice {
    type Logits = [f32];
    type Top = [(Token, f32)];

    fn rows_max(&self) -> usize {
        self.rows_max
    }

    fn selected_max(&self) -> usize {
        self.selected_max
    }

    fn pages(&self, group: usize) -> usize {
        self.pages.get(group).copied().unwrap_or(0)
    }

    fn top_max(&self) -> usize {
        LISTED
    }

    fn draws(&self) -> bool {
        true
    }

    fn clear(&mut self) {
        self.caches.iter_mut().for_each(|cache| cache.fill(0));
    }

    fn run(&mut self, program: &Program, plan: &StepPlan) -> Result<(), DeviceError> {
        self.check(program, plan)?;
        self.step += 1;
        for buffer in &mut self.buffers {
            buffer.clear();
            buffer.resize(plan.rows(), 0);
        }
        let sequences = plan.sequences().iter().flat_map(|s| std::iter::repeat_n(s, s.rows));
        let sequences: Vec<&SeqPlan> = sequences.collect();
        let all: Vec<u32> = (0..plan.rows() as u32).collect();
        for op in &program.ops {
            let used = op.uses();
            let rows = match used.rows {
                RowSet::All => &all,
                RowSet::Selected => plan.selected(),
            };
            // Rows run in order, so the entries of a sequence's earlier rows are there.
            for (compact, row) in rows.iter().enumerate() {
                let row = *row as usize;
                let (token, position) = (plan.tokens()[row], plan.positions()[row] as usize);
                let functions = self.functions;
                let mut row = StepRow { device: self, program, sequence: sequences[row], row, compact };
                functions.compute(&used, token, position, &mut row)?;
            }
        }
        let logits = &self.buffers[program.logits as usize];
        let rows = plan.selected().iter().zip(logits);
        let row = |(row, hash): (&u32, &u64)| self.functions.logits(*hash, plan.tokens()[*row as usize], program.vocab);
        self.logits = rows.map(row).collect();
        self.brought = plan.sequences().iter().flat_map(|s| std::iter::repeat_n(s.whole, s.selected)).collect();
        let listed = plan.sequences().iter().flat_map(|s| std::iter::repeat_n(s.top, s.selected));
        let list = |(row, listed): (&Vec<f32>, bool)| listed.then(|| top(row, LISTED));
        self.lists = self.logits.iter().zip(listed).map(list).collect();
        self.draws = plan.sequences().iter().flat_map(|s| (0..s.selected).map(|i| s.draws.get(i).copied())).collect();
        Ok(())
    }

    fn logits(&self, selected: usize) -> &[f32] {
        assert!(self.brought[selected], "row {selected} was not asked for: plan it with `Select::Shown`");
        &self.logits[selected]
    }

    fn best(&self, selected: usize) -> Token {
        first_largest(&self.logits[selected])
    }

    fn top(&self, selected: usize) -> &[(Token, f32)] {
        let list = self.lists[selected].as_deref();
        list.unwrap_or_else(|| panic!("the list of row {selected} was not asked for"))
    }

    fn drawn(&self, selected: usize, draw: Draw) -> Token {
        let asked = self.draws[selected] == Some(draw);
        assert!(asked, "a token of row {selected} was not asked for by these numbers");
        drawn_by(&self.logits[selected], draw)
    }
}
