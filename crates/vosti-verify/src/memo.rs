//! Goals that need no second proof, and goals inside of many cases that need none of the cases' assumptions.
//!
//! A proved goal is remembered with its assumptions, and never used where one of them is gone. What was proved of a loop's
//! body rests on the loop's hypotheses too: it is kept in the loop's [`crate::equal::Frame`] and forgotten with it. A failed
//! attempt takes its hypotheses back, and with them every goal that was proved since it began. Read next: [`mod@crate::equal`].

use crate::equal::{At, Goal, Mode};
use crate::prover::Prover;
use crate::term::Term;
use crate::verdict::{Obligation, Proof, Trouble};
use vosti_tile::Line;

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

    /// Whether this goal was proved under the present assumptions.
    pub(crate) fn known(&self, l: &At, r: &At, mode: Mode) -> bool {
        let goal = self.goal(l, r, mode);
        self.proved.contains(&goal) || self.frames.iter().any(|frame| frame.proved.contains(&goal))
    }

    /// Remembers a goal that was proved under the present assumptions and, inside of a loop, its hypotheses.
    pub(crate) fn remember(&mut self, l: &At, r: &At, mode: Mode) {
        let goal = self.goal(l, r, mode);
        if self.attempts > 0 {
            self.journal.push((self.frames.len(), goal.clone()));
        }
        self.frames.last_mut().map_or(&mut self.proved, |frame| &mut frame.proved).insert(goal);
    }

    /// Runs `body` as one side of one choice, or of a choice in each run, under what holds there.
    pub(crate) fn in_case(&mut self, choices: usize, more: &[Term], body: impl FnOnce(&mut Self) -> Proof) -> Proof {
        let outside = self.cases.len();
        self.cases.extend(std::iter::repeat_n(self.context.len(), choices));
        let result = self.under(more, body);
        self.cases.truncate(outside);
        result
    }

    /// A goal that comes again inside of several cases is tried without what was assumed since the first of them. A proof from
    /// fewer assumptions holds in all cases, so values that choices have in common are not compared in each combination.
    pub(crate) fn equal_without_cases(&mut self, l: &At, r: &At, mode: Mode) -> Proof<bool> {
        if self.cases.len() < CHOICES || self.met.insert((l.clone(), r.clone(), mode)) {
            return Ok(false);
        }
        let rest = self.context.split_off(self.cases[0]);
        let cases = std::mem::take(&mut self.cases);
        let result = self.attempt(l, r, mode);
        self.cases = cases;
        self.context.extend(rest);
        result
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
                        None => _ = self.proved.remove(&goal),
                        Some(at) => _ = self.frames.get_mut(at).map(|frame| frame.proved.remove(&goal)),
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
