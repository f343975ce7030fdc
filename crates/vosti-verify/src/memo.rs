//! Goals that need no second proof, and goals inside of many cases that need none of the cases' assumptions.
//!
//! A proved goal is remembered with its assumptions, and used wherever all of them still stand. What was proved of a loop's
//! body rests on the loop's hypotheses too: it is kept in the loop's [`crate::equal::Frame`] and forgotten with it. A failed
//! attempt takes its hypotheses back, and with them every goal that was proved since it began. Read next: [`mod@crate::equal`].

use crate::equal::{At, AxisRelation, Goal, Mode};
use crate::prover::Prover;
use crate::run::Def;
use crate::term::Term;
use crate::verdict::{Obligation, Proof, Trouble};
use std::collections::{HashMap, HashSet};
use vosti_tile::{Line, OpKind};

/// Proved goals: two values and a mode, and the lists of assumptions from each of which they follow.
#[derive(Default)]
pub(crate) struct Goals(HashMap<(At, At, Mode), Vec<Vec<Term>>>);

impl Goals {
    /// Whether the goal was proved from assumptions with which `context` begins.
    fn hold(&self, goal: &(At, At, Mode), context: &[Term]) -> bool {
        self.0.get(goal).is_some_and(|proofs| proofs.iter().any(|assumed| context.starts_with(assumed)))
    }

    fn insert(&mut self, (l, r, mode, context): Goal) {
        self.0.entry((l, r, mode)).or_default().push(context);
    }

    fn remove(&mut self, (l, r, mode, context): Goal) {
        if let Some(proofs) = self.0.get_mut(&(l, r, mode)) {
            proofs.retain(|assumed| *assumed != context);
        }
    }
}

/// Choices that stand inside one another before a goal is tried without their assumptions.
const CHOICES: usize = 4;

impl Prover<'_, '_> {
    /// Counts a step of the proof; it fails where none is left.
    pub(crate) fn work(&mut self) -> Proof {
        match self.t.budget.spend(1) {
            true => Ok(()),
            false => self.fail(Obligation::TooManyCases, Line::default(), "no work is left"),
        }
    }

    fn goal(&self, l: &At, r: &At, mode: Mode) -> Goal {
        (l.clone(), r.clone(), mode, self.context.clone())
    }

    /// Whether this goal was proved under the present assumptions, or under those that stood before some of them.
    pub(crate) fn known(&self, l: &At, r: &At, mode: Mode) -> bool {
        let goal = (l.clone(), r.clone(), mode);
        let hold = |goals: &Goals| goals.hold(&goal, &self.context);
        hold(&self.proved) || self.frames.iter().any(|frame| hold(&frame.proved))
    }

    /// Remembers a goal that was proved under the present assumptions and, inside of a loop, its hypotheses.
    pub(crate) fn remember(&mut self, l: &At, r: &At, mode: Mode) {
        let goal = self.goal(l, r, mode);
        if self.attempts > 0 {
            self.journal.push((self.frames.len(), goal.clone()));
        }
        self.frames.last_mut().map_or(&mut self.proved, |frame| &mut frame.proved).insert(goal);
    }

    /// A lane at which the terms of two sums are compared, for every lane: a variable of which nothing is assumed. It is one that
    /// other sums had, if there is one, so that what is proved of a value at this lane is known where another sum takes it.
    pub(crate) fn summed_lane(&mut self, n: usize, l: &At, r: &At) -> Term {
        let floor = self.frames.last().map_or(0, |frame| frame.floor);
        let mentioned = self.mentioned(l, r);
        let free = |lane: &&Term| lane.0 >= floor && !mentioned.contains(*lane);
        if let Some(lane) = self.summed.get(&n).and_then(|lanes| lanes.iter().find(free)) {
            return *lane;
        }
        let lane = self.lane(n);
        self.summed.entry(n).or_default().push(lane);
        lane
    }

    /// All of which an assumption, a loop's hypothesis or one of these two places speaks.
    fn mentioned(&self, l: &At, r: &At) -> HashSet<Term> {
        let mut roots = self.context.clone();
        for demand in self.frames.iter().flat_map(|frame| &frame.demands) {
            for axis in &demand.axes {
                if let AxisRelation::Pinned(x, y) = axis {
                    roots.extend([*x, *y]);
                }
            }
        }
        for at in [l, r] {
            roots.extend(at.idx.iter().chain(&at.env.pids).copied());
            roots.extend(at.env.loops.iter().map(|(_, done)| *done));
        }
        self.t.reachable(&roots).into_iter().collect()
    }

    /// Runs `body` as one side of one choice, or of a choice in each run, under what holds there.
    pub(crate) fn in_case(&mut self, choices: usize, more: &[Term], body: impl FnOnce(&mut Self) -> Proof) -> Proof {
        let outside = self.cases.len();
        self.cases.extend(std::iter::repeat_n(self.context.len(), choices));
        let result = self.under(more, body);
        self.cases.truncate(outside);
        result
    }

    /// A goal that comes again inside of several cases, and a loop inside of any, is tried without what was assumed since the
    /// first of them. A proof from fewer assumptions holds in all cases, so values that choices have in common are not compared
    /// in each combination.
    pub(crate) fn equal_without_cases(&mut self, l: &At, r: &At, mode: Mode) -> Proof<bool> {
        let again = |p: &mut Self| p.cases.len() >= CHOICES && !p.met.insert((l.clone(), r.clone(), mode));
        if self.cases.is_empty() || !(self.is_loop(l) || again(self)) {
            return Ok(false);
        }
        let rest = self.context.split_off(self.cases[0]);
        let cases = std::mem::take(&mut self.cases);
        let result = self.attempt(l, r, mode);
        self.cases = cases;
        self.context.extend(rest);
        result
    }

    fn is_loop(&self, l: &At) -> bool {
        matches!(self.runs[0].def(l.v), Def::Op(op, _) if matches!(op.kind, OpKind::For { .. }))
    }

    fn attempt(&mut self, l: &At, r: &At, mode: Mode) -> Proof<bool> {
        if self.known(l, r, mode) {
            return Ok(true);
        }
        // The same goal of another pair of loops is another goal.
        let place = (self.goal(l, r, mode), self.frames.last().map_or(0, |frame| frame.floor));
        if self.hopeless.contains(&place) {
            return Ok(false);
        }
        let demands: Vec<usize> = self.frames.iter().map(|frame| frame.demands.len()).collect();
        let (journal, story, assumptions) = (self.journal.len(), self.story.len(), self.assumptions.clone());
        self.attempts += 1;
        let result = self.equal_fresh(l, r, mode);
        self.attempts -= 1;
        match result {
            Ok(()) => {
                self.remember(l, r, mode);
                if self.attempts == 0 {
                    self.journal.clear();
                }
                Ok(true)
            }
            Err(Trouble::Failed(_)) => {
                for (frames, goal) in self.journal.split_off(journal) {
                    match frames.checked_sub(1) {
                        None => self.proved.remove(goal),
                        Some(at) => _ = self.frames.get_mut(at).map(|frame| frame.proved.remove(goal)),
                    }
                }
                self.frames.iter_mut().zip(demands).for_each(|(frame, demands)| frame.demands.truncate(demands));
                self.story.truncate(story);
                self.assumptions = assumptions;
                self.classes.clear(); // they rest on assumptions that are no longer listed
                self.hopeless.insert(place);
                Ok(false)
            }
            Err(other) => Err(other),
        }
    }
}
