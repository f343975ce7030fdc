//! One run: an engine, its clients, and what they have seen so far.

use crate::checkers;
use crate::scenario::{self, Random, Successors};
use std::collections::{BTreeMap, HashMap};
use vosti_core::Program;
use vosti_engine::faulty::{Fault, FaultyDevice};
use vosti_engine::symbolic::{Answer, Reference, SymbolicDevice, answer};
use vosti_engine::{Counters, Engine, Event, FinishReason, Request, RequestId};

pub type SimEngine = Engine<FaultyDevice<SymbolicDevice>>;

/// No scenario needs nearly as many: more is a livelock.
const STEPS_MAX: u64 = 100_000;

/// What a checker found.
#[derive(Debug, PartialEq)]
pub struct Violation(pub String);

impl std::fmt::Display for Violation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

pub fn violated<T>(what: String) -> Result<T, Violation> {
    Err(Violation(what))
}

/// One choice of a request, as its client sees it.
struct Client {
    request: Request,
    answer: Answer,
    prompt_rows: usize,
    tokens: usize,
    aborted: bool,
    finished: bool,
}

fn same_bits(a: &[f32], b: &[f32]) -> bool {
    a.len() == b.len() && a.iter().zip(b).all(|(x, y)| x.to_bits() == y.to_bits())
}

impl Client {
    /// Checks one event against the one right answer: views are prefixes of it, completed views are all of it.
    fn see(&mut self, event: &Event<'_>) -> Result<(), Violation> {
        if self.finished {
            return violated(format!("an event after the end: {event:?}"));
        }
        let prompt = self.request.prompt.len();
        match *event {
            Event::Prompt { position, logits, .. } => {
                if !self.request.prompt_logits || position != self.prompt_rows || position + 1 >= prompt {
                    return violated(format!("prompt row {position} out of turn, {} were seen", self.prompt_rows));
                }
                self.prompt_rows += 1;
                self.see_logits(position, logits)
            }
            Event::Token { index, position, token, logits, .. } => {
                if index != self.tokens || position != prompt + index - 1 {
                    return violated(format!("token {index} at {position} out of turn, {} were seen", self.tokens));
                }
                self.tokens += 1;
                self.see_logits(position, logits)?;
                match self.answer.tokens.get(index) {
                    Some(right) if *right == token => Ok(()),
                    right => violated(format!("token {index} is {token}, right is {right:?}")),
                }
            }
            Event::Finished { reason, usage, .. } => {
                self.finished = true;
                if usage.generated_tokens != self.tokens || usage.prompt_tokens != prompt {
                    return violated(format!("wrong usage: {usage:?}"));
                }
                self.see_end(reason)
            }
        }
    }

    fn see_logits(&self, position: usize, logits: &[f32]) -> Result<(), Violation> {
        match self.answer.logits.get(position) {
            Some(right) if same_bits(right, logits) => Ok(()),
            _ => violated(format!("the logits at position {position} are not canonical")),
        }
    }

    fn see_end(&self, reason: FinishReason) -> Result<(), Violation> {
        if reason == FinishReason::Aborted && self.aborted {
            return Ok(());
        }
        let all_tokens = self.tokens == self.answer.tokens.len();
        let all_rows = !self.request.prompt_logits || self.prompt_rows + 1 == self.request.prompt.len();
        if reason != self.answer.reason || !all_tokens || !all_rows {
            return violated(format!("ended with {reason:?} after {} tokens, right is {:?}", self.tokens, self.answer));
        }
        Ok(())
    }
}

struct World<'p> {
    random: Random,
    program: &'p Program,
    weights: u64,
    engine: SimEngine,
    clients: BTreeMap<(u64, u32), Client>,
    /// Canonical histories of the live choices, and of the blocks.
    histories: HashMap<(u64, u32), Reference<'p>>,
    blocks: HashMap<u64, Reference<'p>>,
    empty: Reference<'p>,
}

/// Runs the scenario of a seed to its end.
pub fn simulate(seed: u64, fault: Option<Fault>) -> Result<Counters, Violation> {
    let mut random = Random(seed);
    let program = scenario::program(&mut random);
    let weights = random.next();
    let most = random.pick(&[6, 9, 9, 24]);
    let pages: Vec<usize> = program.groups.iter().map(|_| random.range(2, most)).collect();
    let (rows_max, selected_max) = (random.pick(&[8, 64, 300]), random.pick(&[1, 3, 64, 300]));
    let device = SymbolicDevice::new(&program, &pages, rows_max, selected_max, weights);
    let device = FaultyDevice::new(device, fault);
    let engine = Engine::new(device, program.clone(), scenario::policy(&mut random));
    let mut world = World {
        random,
        program: &program,
        weights,
        engine: engine.map_err(|e| Violation(e.to_string()))?,
        clients: BTreeMap::new(),
        histories: HashMap::new(),
        blocks: HashMap::new(),
        empty: Reference::new(&program, weights),
    };
    if world.random.one_in(3) {
        world.engine.set_drafter(Some(Box::new(Successors(program.vocab))));
    }
    world.run()?;
    Ok(*world.engine.counters())
}

impl World<'_> {
    fn run(&mut self) -> Result<(), Violation> {
        let mut to_arrive = self.random.range(1, 12);
        let mut quiet_steps = 0;
        while to_arrive > 0 || !self.engine.is_idle() {
            while to_arrive > 0 && (self.engine.is_idle() || self.random.one_in(4)) {
                self.arrive()?;
                to_arrive -= 1;
            }
            self.disturb()?;
            let preempted = self.engine.counters().preemptions;
            let rows = self.step()?;
            let quiet = rows == 0 && self.engine.counters().preemptions == preempted;
            quiet_steps = if quiet { quiet_steps + 1 } else { 0 };
            if self.engine.counters().steps > STEPS_MAX {
                return violated(format!("still not at the end: {:?}", self.engine.status()));
            }
            if quiet_steps > 2 && !self.engine.is_idle() {
                return violated(format!("no progress: {:?}", self.engine.status()));
            }
        }
        if let Some(open) = self.clients.iter().find(|(_, c)| !c.finished) {
            return violated(format!("{:?} never ended", open.0));
        }
        checkers::nothing_is_left(&mut self.engine)
    }

    fn arrive(&mut self) -> Result<(), Violation> {
        let tokens_max = self.engine.sequence_tokens_max();
        let request = scenario::request(&mut self.random, self.program.vocab, tokens_max);
        let id = self.engine.submit(request.clone()).map_err(|e| Violation(e.to_string()))?;
        for choice in 0..request.choices {
            let client = Client {
                answer: answer(self.program, self.weights, &request, choice, tokens_max),
                request: request.clone(),
                prompt_rows: 0,
                tokens: 0,
                aborted: false,
                finished: false,
            };
            self.clients.insert((id.0, choice), client);
            self.histories.insert((id.0, choice), self.empty.clone());
        }
        Ok(())
    }

    /// What clients and operators do between steps.
    fn disturb(&mut self) -> Result<(), Violation> {
        let requests = self.clients.keys().next_back().map_or(0, |k| k.0 + 1);
        if requests > 0 && self.random.one_in(150) {
            let id = RequestId(self.random.next() % requests);
            if self.engine.abort(id) {
                let of = self.clients.range_mut((id.0, 0)..=(id.0, u32::MAX));
                of.for_each(|(_, client)| client.aborted = true);
            }
        }
        if requests > 0 && self.random.one_in(100) {
            self.engine.preempt(RequestId(self.random.next() % requests));
        }
        if self.random.one_in(300) {
            self.engine.evict_all();
        }
        if self.random.one_in(60) {
            let policy = scenario::policy(&mut self.random);
            self.engine.set_policy(policy).map_err(|e| Violation(e.to_string()))?;
        }
        Ok(())
    }

    /// One step, every event checked as it comes, every invariant after it. Gives the rows.
    fn step(&mut self) -> Result<usize, Violation> {
        let mut seen = Ok(());
        let clients = &mut self.clients;
        let stepped = self.engine.step(&mut |event| {
            let key = (event.request().0, event.choice());
            if seen.is_ok() {
                seen = match clients.get_mut(&key) {
                    Some(client) => client.see(&event).map_err(|v| Violation(format!("{key:?}: {v}"))),
                    None => violated(format!("an event for nobody: {event:?}")),
                };
            }
        });
        seen?;
        let report = stepped.map_err(|e| Violation(e.to_string()))?;
        let thorough = self.random.one_in(8);
        checkers::pages_have_one_owner(&self.engine)?;
        checkers::tables_follow_chains(&self.engine)?;
        checkers::blocks_are_canonical(&self.engine, &self.empty, &mut self.blocks, thorough)?;
        if thorough {
            checkers::cached_positions_are_canonical(&self.engine, &mut self.histories)?;
        }
        Ok(report.rows)
    }
}
