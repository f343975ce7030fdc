//! A device around the symbolic one that breaks one law, or none. It tracks which slots are bad (garbage, not finite,
//! overwritten by another request) and damages the rows of logits that would see them.

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use vosti_core::{Device, DeviceError, Draw, NO_PAGE, PAGE, Program, RequestId, SeqPlan, StepPlan, Token};
use vosti_engine::FloatDevice;
use vosti_engine::math::{drawn_by, first_largest, top};

/// What is broken: faults that a real device could have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Break {
    TakesFewerRows,
    TakesFewerSelected,
    HasFewerPages,
    ClearingChangesWeights,
    /// `clear` changes one limit: of rows, selected rows, logits of a list, pages, or whether tokens are drawn.
    ClearingChangesLimit(usize),
    /// `clear` leaves memory unchanged.
    ClearsNothing,
    WeightsDrift,
    /// `run` changes one limit.
    RunningChangesLimit(usize),
    /// An embedding that reads one row too many.
    SeesTheRowBefore,
    TileByRows,
    GathersInReverse,
    /// Steps without logits are skipped.
    StoresWithLogitsOnly,
    /// A state that a step with drafts leaves behind counts rejected drafts too.
    KeepsRejectedDrafts,
    /// Each store also writes to the page before.
    StoresBesideToo,
    /// Attention walks pages in their order in memory.
    PhysicalOrder,
    /// Values that are not finite are stored unchanged, and masked lanes multiply them by zero.
    StoresInfinity,
    /// A failed step overwrites everything and says that it did not.
    FailsAndForgets,
    PanicsOnManySequences,
    /// A row of logits can be read once.
    LogitsOnce,
    /// Only rows of the first sequence that is shown are brought.
    BringsTheFirstSequence,
    /// A row's program looks at the row below.
    BestOfTheNextRow,
    /// Lists have one logit less than `top_max` says.
    ListsFewer,
    /// Only lists of the first sequence that reads lists are brought.
    ListsTheFirstSequence,
    /// A list is that of the row below.
    ListOfTheNextRow,
    /// The device says that it draws, and refuses to.
    OnlySaysThatItDraws,
    /// The device draws, and says that it does not.
    DrawsUnsaid,
    /// Only tokens of the first sequence that draws some are brought.
    DrawsTheFirstSequence,
    /// A token is drawn of the row below.
    DrawsOfTheNextRow,
    /// A token is drawn by the numbers of the row below.
    DrawsByTheNextNumbers,
}

/// A limit that a device changes: whether it draws.
const DRAWS: usize = 4;

/// A slot: group, page, offset.
type Slot = (usize, i32, usize);

pub struct BrokenDevice<D> {
    new: Box<dyn Fn(u64) -> D>,
    inner: D,
    windows: Vec<Option<u32>>,
    overflowing: u32,
    what: Option<Break>,
    clears: u64,
    runs: u64,
    /// Added to the limits of rows, selected rows, logits of a list, and pages; the last one counts against drawing.
    grown: [usize; DRAWS + 1],
    /// Requests that drafted more than was taken, and the end of each request's last step.
    drafted: HashSet<RequestId>,
    ends: HashMap<RequestId, usize>,
    /// Slots that damage every row that sees them.
    bad: HashSet<Slot>,
    /// Empty where a row was not brought.
    logits: Vec<Vec<f32>>,
    bests: Vec<Token>,
    lists: Vec<Vec<(Token, f32)>>,
    /// The numbers of each row of which a token was drawn, and the token.
    drawn: Vec<Option<(Draw, Token)>>,
    spoiled: Vec<f32>,
    read: RefCell<HashSet<usize>>,
}

impl<D: FloatDevice> BrokenDevice<D> {
    pub fn new(
        new: Box<dyn Fn(u64) -> D>,
        windows: &[Option<u32>],
        overflowing: u32,
        what: Option<Break>,
    ) -> BrokenDevice<D> {
        let mut device = Self {
            inner: new(0),
            new,
            windows: windows.to_vec(),
            overflowing,
            what,
            clears: 0,
            runs: 0,
            grown: [0; DRAWS + 1],
            drafted: HashSet::new(),
            ends: HashMap::new(),
            bad: HashSet::new(),
            logits: Vec::new(),
            bests: Vec::new(),
            lists: Vec::new(),
            drawn: Vec::new(),
            spoiled: Vec::new(),
            read: RefCell::default(),
        };
        device.spoil_everything();
        device
    }

    /// A failed step, its cache intact.
    pub fn refuse(&mut self, _: &Program, _: &StepPlan) -> Result<(), DeviceError> {
        if self.what == Some(Break::FailsAndForgets) {
            self.spoil_everything();
        }
        Err(error("told to fail"))
    }

    fn spoil_everything(&mut self) {
        for group in 0..self.windows.len() {
            let pages = self.inner.pages(group) as i32;
            self.bad.extend((0..pages).flat_map(|page| (0..PAGE).map(move |offset| (group, page, offset))));
        }
    }

    fn is(&self, what: Break) -> bool {
        self.what == Some(what)
    }

    /// The step's stores, as far as bad slots go.
    fn store(&mut self, plan: &StepPlan) {
        let mut written: Vec<(Slot, u32)> = Vec::new();
        for s in plan.sequences() {
            for i in 0..s.rows {
                let position = s.first_position + i;
                let slot = |group: usize| (group, s.tables[group][position / PAGE], position % PAGE);
                written.extend((0..s.tables.len()).map(|g| (slot(g), plan.tokens()[s.first_row + i])));
            }
        }
        if self.is(Break::StoresBesideToo) {
            let beside = |((group, page, offset), _): &(Slot, u32)| (*group, page - 1, *offset);
            self.bad.extend(written.iter().map(beside));
        }
        self.bad.retain(|slot| !written.iter().any(|(own, _)| own == slot));
        if self.is(Break::StoresInfinity) {
            let infinite = written.iter().filter(|(_, token)| *token >= self.overflowing);
            self.bad.extend(infinite.map(|(slot, _)| *slot));
        }
    }

    /// Whether the row at this position sees a bad slot; masked lanes of its pages count where zero times them is not zero.
    fn sees_bad(&self, s: &SeqPlan, position: usize) -> bool {
        let masked_too = self.is(Break::StoresInfinity) || self.is(Break::ClearsNothing);
        let of_group = |(group, window): (usize, &Option<u32>)| {
            let first = window.map_or(0, |w| (position + 1).saturating_sub(w as usize));
            let (from, to) =
                if masked_too { (first / PAGE * PAGE, (position / PAGE + 1) * PAGE) } else { (first, position + 1) };
            (from..to).any(|j| self.bad.contains(&(group, s.tables[group][j / PAGE], j % PAGE)))
        };
        self.windows.iter().enumerate().any(of_group)
    }

    /// Damages a row of logits, if it was brought.
    fn damage(&mut self, selected: usize) {
        if let Some(first) = self.logits[selected].first_mut() {
            *first += 1.0;
            let row = &self.logits[selected];
            self.bests[selected] = first_largest(row);
            let listed = self.lists[selected].len();
            self.lists[selected] = top(row, listed);
            self.drawn[selected] = self.drawn[selected].map(|(draw, _)| (draw, drawn_by(row, draw)));
        }
    }

    /// Whether the logits of a sequence's row are damaged.
    fn is_damaged(&self, plan: &StepPlan, s: &SeqPlan, position: usize) -> bool {
        let row = s.first_row + position - s.first_position;
        let scattered = |table: &Vec<i32>| {
            let pages: Vec<i32> = table.iter().copied().filter(|p| *p != NO_PAGE).collect();
            !pages.is_sorted()
        };
        match self.what {
            Some(Break::WeightsDrift) => self.runs > 20,
            Some(Break::SeesTheRowBefore) => row > 0 && plan.tokens()[row - 1].is_multiple_of(2),
            Some(Break::KeepsRejectedDrafts) => self.drafted.contains(&s.request),
            Some(Break::TileByRows) => plan.rows() > 16,
            Some(Break::PhysicalOrder) => s.tables.iter().any(scattered),
            _ => self.sees_bad(s, position),
        }
    }
}

fn error(message: &str) -> DeviceError {
    DeviceError { message: message.into(), intact: true }
}

impl<D: FloatDevice> Device for BrokenDevice<D> {
    type Logits = [f32];
    type Top = [(Token, f32)];

    fn rows_max(&self) -> usize {
        self.inner.rows_max() + self.grown[0]
    }

    fn selected_max(&self) -> usize {
        self.inner.selected_max() + self.grown[1]
    }

    fn top_max(&self) -> usize {
        self.inner.top_max() + self.grown[2]
    }

    fn pages(&self, group: usize) -> usize {
        self.inner.pages(group) + self.grown[3]
    }

    fn draws(&self) -> bool {
        !self.is(Break::DrawsUnsaid) && self.inner.draws() && self.grown[DRAWS] == 0
    }

    fn clear(&mut self) {
        self.clears += 1;
        if let Some(Break::ClearingChangesLimit(limit)) = self.what {
            self.grown[limit] += 1;
        }
        if self.is(Break::ClearingChangesWeights) {
            self.inner = (self.new)(self.clears);
        }
        self.inner.clear();
        if !self.is(Break::ClearsNothing) {
            self.bad.clear();
        }
    }

    fn run(&mut self, program: &Program, plan: &StepPlan) -> Result<(), DeviceError> {
        self.runs += 1;
        if let Some(Break::RunningChangesLimit(limit)) = self.what {
            self.grown[limit] += 1;
        }
        let last_page = |s: &SeqPlan| s.tables.iter().enumerate().any(|(g, t)| t.contains(&(self.pages(g) as i32 - 1)));
        match self.what {
            Some(Break::TakesFewerRows) if plan.rows() == self.rows_max() => return Err(error("too many rows")),
            Some(Break::TakesFewerSelected) if plan.selected().len() == self.selected_max() => {
                return Err(error("too many selected rows"));
            }
            Some(Break::HasFewerPages) if plan.sequences().iter().any(last_page) => return Err(error("no such page")),
            Some(Break::OnlySaysThatItDraws) if plan.sequences().iter().any(|s| !s.draws.is_empty()) => {
                return Err(error("nothing here draws"));
            }
            Some(Break::PanicsOnManySequences) => assert!(plan.sequences().len() < 8, "too many sequences"),
            Some(Break::StoresWithLogitsOnly) if plan.selected().is_empty() => return Ok(()),
            _ => {}
        }
        self.inner.run(program, plan)?;
        self.store(plan);
        for s in plan.sequences() {
            let end = self.ends.insert(s.request, s.first_position + s.rows);
            if end.is_some_and(|end| s.first_position < end) {
                self.drafted.insert(s.request);
            }
        }
        let whole = plan.sequences().iter().flat_map(|s| std::iter::repeat_n(s.whole, s.selected));
        let row = |(i, whole)| if whole { self.inner.logits(i).to_vec() } else { Vec::new() };
        self.logits = whole.enumerate().map(row).collect();
        self.bests = (0..plan.selected().len()).map(|i| self.inner.best(i)).collect();
        let listed = plan.sequences().iter().flat_map(|s| std::iter::repeat_n(s.top, s.selected));
        let list = |(i, listed)| if listed { self.inner.top(i).to_vec() } else { Vec::new() };
        self.lists = listed.enumerate().map(list).collect();
        let numbers = |s: &SeqPlan| (0..s.selected).map(|i| s.draws.get(i).copied()).collect::<Vec<_>>();
        let numbers: Vec<Option<Draw>> = plan.sequences().iter().flat_map(numbers).collect();
        let token = |(i, draw): (usize, Option<Draw>)| draw.map(|draw| (draw, self.inner.drawn(i, draw)));
        self.drawn = numbers.into_iter().enumerate().map(token).collect();
        self.spoiled = vec![0.0; program.vocab as usize];
        for s in plan.sequences() {
            for i in 0..s.selected {
                if self.is_damaged(plan, s, s.first_position + s.rows - s.selected + i) {
                    self.damage(s.first_selected + i);
                }
            }
        }
        if self.is(Break::GathersInReverse) {
            self.logits.reverse();
            self.bests.reverse();
            self.lists.reverse();
            self.drawn.reverse();
        }
        if self.is(Break::BestOfTheNextRow) && self.bests.len() > 1 {
            self.bests.rotate_left(1);
        }
        if self.is(Break::ListsFewer) {
            self.lists.iter_mut().for_each(|list| _ = list.pop());
        }
        if self.is(Break::ListOfTheNextRow) && self.lists.len() > 1 {
            self.lists.rotate_left(1);
        }
        let tokens = self.drawn.clone();
        let pairs = || tokens.iter().zip(tokens.iter().skip(1)).enumerate();
        for (i, (own, next)) in pairs().filter_map(|(i, (own, next))| Some((i, ((*own)?, (*next)?)))) {
            if self.is(Break::DrawsOfTheNextRow) {
                self.drawn[i] = Some((own.0, next.1));
            }
            if self.is(Break::DrawsByTheNextNumbers) && !self.logits[i].is_empty() {
                self.drawn[i] = Some((own.0, drawn_by(&self.logits[i], next.0)));
            }
        }
        if self.is(Break::DrawsTheFirstSequence) {
            let first =
                plan.sequences().iter().find(|s| !s.draws.is_empty()).map_or(0, |s| s.first_selected + s.selected);
            self.drawn.iter_mut().skip(first).flatten().for_each(|(_, token)| *token = 0);
        }
        if self.is(Break::ListsTheFirstSequence) {
            let first =
                plan.sequences().iter().find(|s| s.top).map(|s| s.first_selected..s.first_selected + s.selected);
            let others = |i: &usize| first.as_ref().is_some_and(|first| !first.contains(i));
            (0..self.lists.len()).filter(others).for_each(|i| self.lists[i].clear());
        }
        if self.is(Break::BringsTheFirstSequence) {
            let first =
                plan.sequences().iter().find(|s| s.whole).map(|s| s.first_selected..s.first_selected + s.selected);
            let others = |i: &usize| first.as_ref().is_some_and(|first| !first.contains(i));
            (0..self.logits.len()).filter(others).for_each(|i| self.logits[i].clear());
        }
        self.read.borrow_mut().clear();
        Ok(())
    }

    fn logits(&self, selected: usize) -> &[f32] {
        let first = self.read.borrow_mut().insert(selected);
        let row = &self.logits[selected];
        if row.is_empty() || self.is(Break::LogitsOnce) && !first { &self.spoiled } else { row }
    }

    fn best(&self, selected: usize) -> Token {
        self.bests[selected]
    }

    fn top(&self, selected: usize) -> &[(Token, f32)] {
        &self.lists[selected]
    }

    fn drawn(&self, selected: usize, _: Draw) -> Token {
        self.drawn[selected].map_or(0, |(_, token)| token)
    }
}
