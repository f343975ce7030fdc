//! A tiny device: a slot's KV is a hash of its whole prefix, and logits hash the positions that a row sees, in order. It
//! asserts the guarantees that a device may rely on, and fails when it is told to.
#![allow(dead_code)]

use std::cell::Cell;
use std::collections::HashSet;
use std::rc::Rc;
use vosti_core::*;

pub struct Tiny {
    pub cache: Vec<Vec<u64>>,
    pub logits: Vec<u64>,
    /// Lists and rows that the last step brought: a caller may read no others.
    pub brought: Vec<(bool, bool)>,
    /// The numbers by which the last step drew a token of each selected row.
    pub draws: Vec<Option<Draw>>,
    pub rows_max: usize,
    pub selected_max: usize,
    /// What the next runs end with: true is an error with the cache intact, false one that lost it.
    pub fail: Rc<Cell<Option<bool>>>,
}

pub const VOCAB: u32 = 50;

fn mix(a: u64, b: u64) -> u64 {
    (a ^ b.wrapping_add(0x9e37_79b9_7f4a_7c15)).wrapping_mul(0xbf58_476d_1ce4_e5b9).rotate_left(31)
}

/// The KV of a token after what the position before it holds.
fn kv(before: u64, token: Token, position: usize) -> u64 {
    mix(mix(before, token as u64), position as u64)
}

/// The first position that `p` sees.
fn first_seen(decl: &GroupDecl, p: usize) -> usize {
    decl.window.map_or(0, |w| (p + 1).saturating_sub(w as usize))
}

/// What the device must compute, from a history alone: the KV of each position in each group.
pub fn canonical_kv(groups: &[GroupDecl], history: &[Token]) -> Vec<Vec<u64>> {
    let of_group = |decl: &GroupDecl| {
        let mut out: Vec<u64> = vec![];
        for (p, &token) in history.iter().enumerate() {
            let before = if first_seen(decl, p) < p { out[p - 1] } else { 0 };
            out.push(kv(before, token, p));
        }
        out
    };
    groups.iter().map(of_group).collect()
}

/// And the logits of its last position.
pub fn canonical_logits(groups: &[GroupDecl], history: &[Token]) -> u64 {
    let p = history.len() - 1;
    let kv = canonical_kv(groups, history);
    let seen = groups.iter().zip(&kv).flat_map(|(decl, kv)| &kv[first_seen(decl, p)..=p]);
    seen.fold(1, |h, x| mix(h, *x))
}

impl Tiny {
    pub fn new(groups: usize, pages: usize) -> Self {
        let cache = (0..groups).map(|_| vec![7; pages * PAGE]).collect();
        let (logits, brought, draws) = (vec![], vec![], vec![]);
        Tiny { cache, logits, brought, draws, rows_max: 512, selected_max: 512, fail: Rc::default() }
    }

    /// What a device may rely on, as `plan_ok` says it.
    fn check(&self, program: &Program, plan: &StepPlan) {
        assert!(!plan.sequences().is_empty() && plan.rows() <= self.rows_max, "row capacity");
        assert!(plan.selected().len() <= self.selected_max, "capacity of selected rows");
        assert!(plan.tokens().iter().all(|t| *t < program.vocab), "a token outside the vocabulary");
        assert_eq!(plan.positions().len(), plan.rows());
        let (mut row, mut selected) = (0, 0);
        let (mut requests, mut slots) = (HashSet::new(), HashSet::new());
        for s in plan.sequences() {
            assert!(
                s.first_row == row && s.first_selected == selected && s.rows >= 1 && s.selected <= s.rows,
                "packed"
            );
            assert!(s.first_position + s.rows <= program.context as usize, "beyond the context");
            assert!(requests.insert(s.request.slot), "a request stands twice in the plan");
            assert!([0, s.selected].contains(&s.draws.len()), "one draw for each selected row, or none");
            for i in 0..s.rows {
                let p = s.first_position + i;
                assert_eq!(plan.positions()[row + i] as usize, p, "positions follow each other");
                for (group, table) in s.tables.iter().enumerate() {
                    assert!(slots.insert((group, table[p / PAGE], p % PAGE)), "two rows write one slot");
                }
            }
            for i in 0..s.selected {
                assert_eq!(plan.selected()[selected + i] as usize, row + s.rows - s.selected + i, "the last rows");
            }
            (row, selected) = (row + s.rows, selected + s.selected);
        }
        for s in plan.sequences() {
            for (group, table) in s.tables.iter().enumerate() {
                let earlier = (0..s.first_position).map(|p| (group, table[p / PAGE], p % PAGE));
                let written = earlier.filter(|(_, page, _)| *page >= 0).find(|slot| slots.contains(slot));
                assert_eq!(written, None, "a row writes a slot of an earlier step");
            }
        }
        assert_eq!((row, selected), (plan.rows(), plan.selected().len()), "rows of nobody");
    }

    /// Writes garbage: where it may after a failed step, or everywhere.
    fn scribble(&mut self, plan: &StepPlan, everywhere: bool) {
        if everywhere {
            self.cache.iter_mut().for_each(|c| c.fill(13));
            return;
        }
        for s in plan.sequences() {
            for (group, table) in s.tables.iter().enumerate() {
                for p in s.first_position..s.first_position + s.rows {
                    self.cache[group][table[p / PAGE] as usize * PAGE + p % PAGE] = 13;
                }
            }
        }
    }
}

impl Device for Tiny {
    type Logits = u64;
    type Top = u64;

    fn rows_max(&self) -> usize {
        self.rows_max
    }

    fn selected_max(&self) -> usize {
        self.selected_max
    }

    fn pages(&self, group: usize) -> usize {
        self.cache[group].len() / PAGE
    }

    fn top_max(&self) -> usize {
        1
    }

    fn draws(&self) -> bool {
        true
    }

    fn clear(&mut self) {
        self.cache.iter_mut().for_each(|c| c.fill(0));
    }

    fn run(&mut self, program: &Program, plan: &StepPlan) -> Result<(), DeviceError> {
        self.check(program, plan);
        if let Some(intact) = self.fail.take() {
            self.scribble(plan, !intact);
            return Err(DeviceError { message: "told to fail".into(), intact });
        }
        let page = |table: &[i32], p: usize| {
            let page = table[p / PAGE];
            assert!(page >= 0, "position {p} is read or written and has no page");
            page as usize * PAGE + p % PAGE
        };
        for s in plan.sequences() {
            for (group, table) in s.tables.iter().enumerate() {
                for row in s.first_row..s.first_row + s.rows {
                    let p = plan.positions()[row] as usize;
                    let sees_before = first_seen(&program.groups[group], p) < p;
                    let before = if sees_before { self.cache[group][page(table, p - 1)] } else { 0 };
                    self.cache[group][page(table, p)] = kv(before, plan.tokens()[row], p);
                }
            }
        }
        let sequence_of =
            |row: usize| plan.sequences().iter().find(|s| (s.first_row..s.first_row + s.rows).contains(&row)).unwrap();
        let logits = |row: &u32| {
            let s = sequence_of(*row as usize);
            let p = plan.positions()[*row as usize] as usize;
            let mut h = 1;
            for (group, decl) in program.groups.iter().enumerate() {
                for j in first_seen(decl, p)..=p {
                    h = mix(h, self.cache[group][page(&s.tables[group], j)]);
                }
            }
            h
        };
        self.logits = plan.selected().iter().map(logits).collect();
        self.brought = plan.sequences().iter().flat_map(|s| vec![(s.top, s.whole); s.selected]).collect();
        let draws = |s: &SeqPlan| (0..s.selected).map(|i| s.draws.get(i).copied()).collect::<Vec<_>>();
        self.draws = plan.sequences().iter().flat_map(draws).collect();
        Ok(())
    }

    fn logits(&self, selected: usize) -> &u64 {
        assert!(self.brought[selected].1, "a row that was not brought to the host is read");
        &self.logits[selected]
    }

    fn best(&self, selected: usize) -> Token {
        best(self.logits[selected])
    }

    fn top(&self, selected: usize) -> &u64 {
        assert!(self.brought[selected].0, "a list that was not brought to the host is read");
        &self.logits[selected]
    }

    fn drawn(&self, selected: usize, draw: Draw) -> Token {
        assert_eq!(self.draws[selected], Some(draw), "a token is asked for that the plan did not say how to draw");
        drawn(self.logits[selected], draw)
    }
}

/// The best token of a row.
pub fn best(logits: u64) -> Token {
    (logits % VOCAB as u64) as u32
}

/// The token that is drawn of a row by these numbers.
pub fn drawn(logits: u64, draw: Draw) -> Token {
    best([draw.scale, draw.part, draw.within].into_iter().fold(logits, |h, bits| mix(h, bits as u64)))
}

/// A sampler that reads in turn the row (its state is a multiple of three), the best token and the list, but in the states 10 to 19 a
/// drawn token.
pub struct Modulo;

/// By what a token is drawn in a state.
pub fn numbers(state: u64) -> Draw {
    Draw { scale: state as u32, part: 100 + state as u32, within: 200 + state as u32 }
}

/// The one right choice in a state, with the whole row at hand.
pub fn choose(state: &mut u64, logits: u64) -> (Token, bool) {
    let token = match Modulo.reads(state) {
        Reads::Drawn(draw) => drawn(logits, draw),
        _ => best(logits),
    };
    *state -= 1;
    (token, *state == 0)
}

impl Modulo {
    fn take(&self, state: &mut u64, reads: bool, token: Token) -> (Token, bool) {
        assert!(*state > 0 && reads, "sampled after the end, or by the wrong thing");
        *state -= 1;
        (token, *state == 0)
    }
}

impl Sampler for Modulo {
    type Logits = u64;
    type Top = u64;
    type State = u64;

    fn vocab(&self) -> u32 {
        VOCAB
    }

    fn sample(&self, state: &mut u64, logits: &u64) -> (Token, bool) {
        self.take(state, self.reads(state) == Reads::Row, best(*logits))
    }

    fn reads(&self, state: &u64) -> Reads {
        match state % 3 {
            _ if (10..20).contains(state) => Reads::Drawn(numbers(*state)),
            0 => Reads::Row,
            1 => Reads::Top,
            _ => Reads::Best,
        }
    }

    /// Wrong about one number in the states 12, 15 and 18.
    fn guess(&self, state: &u64, ahead: usize) -> Draw {
        let state = state.saturating_sub(ahead as u64);
        let Draw { scale, part, within } = numbers(state);
        let wrong = |at: u64| u32::from(state == at);
        Draw { scale: scale + wrong(12), part: part + wrong(15), within: within + wrong(18) }
    }

    fn sample_best(&self, state: &mut u64, best: Token) -> (Token, bool) {
        self.take(state, self.reads(state) == Reads::Best, best)
    }

    fn sample_top(&self, state: &mut u64, top: &u64) -> (Token, bool) {
        self.take(state, self.reads(state) == Reads::Top, best(*top))
    }

    fn sample_drawn(&self, state: &mut u64, drawn: Token) -> (Token, bool) {
        self.take(state, matches!(self.reads(state), Reads::Drawn(_)), drawn)
    }
}

pub fn program(windows: &[Option<u32>]) -> Program {
    let act = |width| BufferDecl { width, dtype: Dtype::Bf16, rows: RowSet::All };
    let mut ops = vec![Op::Embed { k: 0, out: 0 }];
    for (layer, &window) in windows.iter().enumerate() {
        let layer = layer as u32;
        ops.push(Op::Rowwise { k: 0, ins: vec![0], outs: vec![1], rows: RowSet::All });
        // Each slot depends on the one before it, if the group keeps that.
        ops.push(Op::StoreKv { k: 0, ins: vec![1], layer, back: u32::from(window != Some(1)) });
        ops.push(Op::Attend { k: 0, q: 1, layer, out: 2, window });
        ops.push(Op::Rowwise { k: 0, ins: vec![1, 2], outs: vec![0], rows: RowSet::All });
    }
    ops.push(Op::Rowwise { k: 0, ins: vec![0], outs: vec![3], rows: RowSet::Selected });
    Program {
        ops,
        buffers: vec![act(8), act(8), act(8), BufferDecl { width: VOCAB, dtype: Dtype::F32, rows: RowSet::Selected }],
        groups: windows.iter().map(|&window| GroupDecl { window, entry: vec![], state: vec![] }).collect(),
        layers: (0..windows.len()).map(|g| LayerDecl { group: g as u32 }).collect(),
        logits: 3,
        vocab: VOCAB,
        context: 1000,
        kernels: 1,
    }
}

pub type Tested = Core<Tiny, Modulo>;

pub fn core(windows: &[Option<u32>], pages: usize) -> Tested {
    Core::new(Tiny::new(windows.len(), pages), Modulo, program(windows)).unwrap()
}

/// Takes the pages that positions below `end` need.
pub fn cover(core: &mut Tested, id: RequestId, end: usize) {
    for group in 0..core.program().groups.len() {
        while core.request(id).unwrap().table(group).len() * PAGE < end {
            core.take_page(id, group).unwrap();
        }
    }
}

/// One step of one request; the records with their logits.
pub fn step(core: &mut Tested, id: RequestId, rows: usize, drafts: &[Token]) -> Vec<(Record, u64)> {
    let cached = core.request(id).unwrap().cached();
    cover(core, id, cached + rows + drafts.len());
    core.plan_begin().unwrap();
    core.plan_rows(id, rows, drafts, Select::Last).unwrap();
    core.run().unwrap();
    let records = core.commit().unwrap();
    assert!(core.request(id).unwrap().cached() > cached, "a step that caches nothing has no end");
    records.into_iter().map(|r| (r, core.device().logits[r.selected])).collect()
}

/// Runs a request to its end in chunks of `chunk`, and finishes it.
pub fn drain(core: &mut Tested, id: RequestId, chunk: usize) -> Vec<(Token, u64)> {
    let mut out = vec![];
    while !core.complete(id) {
        let r = core.request(id).unwrap();
        let rows = chunk.min(r.history().len() - r.cached());
        out.extend(step(core, id, rows, &[]).into_iter().map(|(r, l)| (r.token, l)));
    }
    core.finish(id).unwrap();
    out
}

pub fn prompt(n: usize) -> Vec<Token> {
    (0..n as u32).map(|i| (i * 7 + i / 13) % VOCAB).collect()
}
