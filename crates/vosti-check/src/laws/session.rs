//! Requests on a device under test, alone or together, and the rows of logits that they get. Read `laws.rs` first.

use super::{Bench, Broken, Subject, Verdict, broken};
use crate::symbolic::mix;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::rc::Rc;
use vosti_core::{
    Core, CoreError, Device, DeviceError, Draw, PAGE, Program, Reads, RequestId, Sampler, Select, StepPlan, Token,
};
use vosti_engine::FloatDevice;

/// A row of logits, bit by bit.
pub(super) type Row = Vec<u32>;

/// A borrowed device, which outlives the core. It fails the next step on request.
pub(super) struct Lent<'d, D> {
    device: &'d mut D,
    refuse: fn(&mut D, &Program, &StepPlan) -> Result<(), DeviceError>,
    refuses: Rc<Cell<bool>>,
}

impl<D: FloatDevice> Device for Lent<'_, D> {
    type Logits = [f32];
    type Top = [(Token, f32)];

    vosti_engine::forward_device!(device in [Self { device, .. }]: limits, clear, rows);

    fn run(&mut self, program: &Program, plan: &StepPlan) -> Result<(), DeviceError> {
        match self.refuses.take() {
            true => (self.refuse)(self.device, program, plan),
            false => self.device.run(program, plan),
        }
    }
}

/// A sampler that gives tokens in a fixed order and ignores logits, so that the history is known in advance. It claims to read
/// `reads` of each row, so that the device must bring them; a draw is by numbers that differ from token to token.
pub(super) struct Script {
    vocab: u32,
    reads: Reads,
}

/// Numbers by which nothing in particular is drawn.
pub(super) const NO_DRAW: Draw = Draw { scale: 0, part: 0, within: 0 };

/// The numbers of the draw before so many lines, at the scale of `draw`.
fn numbers(draw: Draw, lines: usize) -> Draw {
    let number = |salt| ((mix(salt, lines as u64) >> 40) as f32 / (1 << 24) as f32).to_bits();
    Draw { part: number(1), within: number(2), ..draw }
}

impl Sampler for Script {
    type Logits = [f32];
    type Top = [(Token, f32)];
    type State = Vec<Token>;

    fn vocab(&self) -> u32 {
        self.vocab
    }

    fn sample(&self, lines: &mut Vec<Token>, _: &[f32]) -> (Token, bool) {
        (lines.pop().unwrap_or(0), false)
    }

    fn reads(&self, lines: &Vec<Token>) -> Reads {
        match self.reads {
            Reads::Drawn(draw) => Reads::Drawn(numbers(draw, lines.len())),
            other => other,
        }
    }

    fn guess(&self, lines: &Vec<Token>, ahead: usize) -> Draw {
        let Reads::Drawn(draw) = self.reads else { return NO_DRAW };
        numbers(draw, lines.len().saturating_sub(ahead))
    }

    fn sample_drawn(&self, lines: &mut Vec<Token>, _: Token) -> (Token, bool) {
        self.sample(lines, &[])
    }

    fn sample_best(&self, lines: &mut Vec<Token>, _: Token) -> (Token, bool) {
        self.sample(lines, &[])
    }

    fn sample_top(&self, lines: &mut Vec<Token>, _: &[(Token, f32)]) -> (Token, bool) {
        self.sample(lines, &[])
    }
}

/// Requests on a device, and their results: rows of logits, the best token of every selected row, lists and drawn tokens.
pub(super) struct Session<'d, D: FloatDevice> {
    pub(super) core: Core<Lent<'d, D>, Script>,
    pub(super) refuses: Rc<Cell<bool>>,
    pub(super) rows: BTreeMap<(RequestId, usize), Row>,
    pub(super) bests: BTreeMap<(RequestId, usize), Token>,
    pub(super) lists: BTreeMap<(RequestId, usize), Vec<(Token, f32)>>,
    pub(super) drawn: BTreeMap<(RequestId, usize), (Draw, Token)>,
}

pub(super) fn refused<T>(out: Result<T, CoreError>) -> Verdict<T> {
    out.map_err(|error| match error {
        CoreError::Device { error } => Broken(format!("a step failed: {}", error.message)),
        other => Broken(format!("the core refused: {}", other.advice())),
    })
}

impl<'d, D: FloatDevice> Session<'d, D> {
    pub(super) fn new(subject: &Subject<D>, program: &Program, device: &'d mut D) -> Verdict<Self> {
        Self::reading(Reads::Best, subject, program, device)
    }

    /// A session whose sampler reads `reads` of every row.
    pub(super) fn reading(reads: Reads, subject: &Subject<D>, program: &Program, device: &'d mut D) -> Verdict<Self> {
        let refuses = Rc::new(Cell::new(false));
        let lent = Lent { device, refuse: subject.refuse, refuses: refuses.clone() };
        let core = refused(Core::new(lent, Script { vocab: program.vocab, reads }, program.clone()))?;
        Ok(Self {
            core,
            refuses,
            rows: BTreeMap::new(),
            bests: BTreeMap::new(),
            lists: BTreeMap::new(),
            drawn: BTreeMap::new(),
        })
    }

    /// A request with this history, of which the first `prompt` tokens are its prompt.
    pub(super) fn admit(&mut self, history: &[Token], prompt: usize) -> Verdict<RequestId> {
        let lines = history[prompt..].iter().rev().copied().collect();
        refused(self.core.admit(history[..prompt].to_vec(), 0, lines))
    }

    pub(super) fn cached(&self, id: RequestId) -> usize {
        self.core.request(id).map_or(0, |r| r.cached())
    }

    /// Takes the pages that positions below `end` need.
    pub(super) fn cover(&mut self, id: RequestId, end: usize) -> Verdict {
        for group in 0..self.core.program().groups.len() {
            while self.core.request(id).is_some_and(|r| r.table(group).len() * PAGE < end) {
                refused(self.core.take_page(id, group))?;
            }
        }
        Ok(())
    }

    /// Plans and runs a step; keeps its rows of logits and lists if they were asked for, and its best tokens.
    pub(super) fn run(&mut self, parts: &[(RequestId, usize, &[Token], Select)]) -> Verdict {
        for (id, rows, drafts, _) in parts {
            self.cover(*id, self.cached(*id) + rows + drafts.len())?;
        }
        refused(self.core.plan_begin())?;
        for (id, rows, drafts, select) in parts {
            refused(self.core.plan_rows(*id, *rows, drafts, *select))?;
        }
        if let Err(error) = self.core.run() {
            return refused(Err(error));
        }
        for s in self.core.plan().sequences() {
            for i in 0..s.selected {
                let device = self.core.device();
                let place = (s.request, s.first_position + s.rows - s.selected + i);
                if s.whole {
                    let row = device.logits(s.first_selected + i).iter().map(|x| x.to_bits()).collect();
                    self.rows.insert(place, row);
                }
                self.bests.insert(place, device.best(s.first_selected + i));
                if s.top {
                    self.lists.insert(place, device.top(s.first_selected + i).to_vec());
                }
                if let Some(draw) = s.draws.get(i) {
                    self.drawn.insert(place, (*draw, device.drawn(s.first_selected + i, *draw)));
                }
            }
        }
        Ok(())
    }

    /// One step of these rows of each request, every row selected if they fit.
    pub(super) fn step(&mut self, parts: &[(RequestId, usize)]) -> Verdict {
        let rows: usize = parts.iter().map(|(_, rows)| rows).sum();
        let all = rows <= self.core.device().selected_max();
        let select = if all { Select::All } else { Select::Shown };
        let parts: Vec<(RequestId, usize, &[Token], Select)> =
            parts.iter().map(|(id, rows)| (*id, *rows, &[][..], select)).collect();
        self.run(&parts)?;
        refused(self.core.commit()).map(drop)
    }

    /// Runs the rest of a request up to position `len`, in chunks of these sizes, repeated.
    pub(super) fn finish(&mut self, id: RequestId, len: usize, chunks: &[usize]) -> Verdict {
        let mut sizes = chunks.iter().cycle();
        while self.cached(id) < len {
            let left = self.core.request(id).map_or(0, |r| r.history().len()) - self.cached(id);
            self.step(&[(id, left.min(*sizes.next().unwrap_or(&1)).min(len - self.cached(id)))])?;
        }
        Ok(())
    }

    /// Takes and frees all pages, so that the pool gives them out in a mixed order.
    pub(super) fn shuffle(&mut self) -> Verdict {
        let ids: Vec<RequestId> = (0..3).map(|_| self.admit(&[0], 1)).collect::<Verdict<_>>()?;
        for group in 0..self.core.program().groups.len() {
            for turn in 0.. {
                if self.core.take_page(ids[turn % 3], group).is_err() {
                    break;
                }
            }
        }
        [1, 0, 2].into_iter().try_for_each(|i| refused(self.core.abort(ids[i])))
    }

    /// Compares every row that the request got with `alone`; at least one row must be there.
    pub(super) fn compare(&self, id: RequestId, alone: &[Row], what: &str) -> Verdict {
        let mut given = self.rows.range((id, 0)..=(id, usize::MAX)).peekable();
        if given.peek().is_none() {
            return broken(format!("{what}: no row to compare"));
        }
        match given.find(|((_, position), row)| alone.get(*position) != Some(*row)) {
            Some(((_, position), _)) => broken(format!("{what}: position {position} is not what it is alone")),
            None => Ok(()),
        }
    }
}

/// Tokens that differ by seed, none of them overflowing.
pub(super) fn text<D>(subject: &Subject<D>, len: usize, seed: u64) -> Vec<Token> {
    let vocab = subject.attending.program.vocab.min(subject.rowwise.program.vocab);
    let ordinary = if subject.overflowing.is_empty() { vocab } else { subject.overflowing.start };
    let token = |i: usize| (mix(seed, i as u64) % u64::from(ordinary)) as Token;
    (0..len).map(token).collect()
}

/// The logits at each position of a history: a new device, one request, one step. Rows that are not finite, or all
/// alike, are no evidence.
pub(super) fn alone<D: FloatDevice>(subject: &Subject<D>, bench: &Bench<D>, history: &[Token]) -> Verdict<Vec<Row>> {
    let mut device = (bench.device)()?;
    let mut session = Session::new(subject, &bench.program, &mut device)?;
    let id = session.admit(history, history.len())?;
    session.step(&[(id, history.len())])?;
    let rows: Vec<Row> = std::mem::take(&mut session.rows).into_values().collect();
    let finite = rows.iter().flatten().all(|bits| f32::from_bits(*bits).is_finite());
    if !finite || rows.len() != history.len() || (rows.len() > 1 && rows.iter().all(|row| *row == rows[0])) {
        return broken("alone: the logits are no evidence");
    }
    Ok(rows)
}

/// Fills every page with KV that is not finite before it is stored; with other tokens if the subject has none.
pub(super) fn dirty<D: FloatDevice>(subject: &Subject<D>, session: &mut Session<'_, D>) -> Verdict {
    let groups = 0..session.core.program().groups.len();
    let mut requests = Vec::new();
    while let Some(free) = groups.clone().map(|g| session.core.free_pages(g)).min().filter(|free| *free > 0) {
        let len = (free * PAGE).min(session.core.program().context as usize - 1);
        let bad = |i: usize| subject.overflowing.start + i as Token % subject.overflowing.len().max(1) as Token;
        let history: Vec<Token> =
            if subject.overflowing.is_empty() { text(subject, len, 7) } else { (0..len).map(bad).collect() };
        let id = session.admit(&history, len)?;
        session.finish(id, len, &[150])?;
        requests.push(id);
    }
    requests.into_iter().try_for_each(|id| refused(session.core.abort(id)))
}
