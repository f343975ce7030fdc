//! One run: an engine, its clients, and the events that they have seen so far.

use crate::checkers;
use crate::scenario::{self, Random, Successors};
use std::collections::{BTreeMap, HashMap};
use vosti_check::faulty::{FailingDevice, Failure, Fault, FaultyDevice, Trigger};
use vosti_check::symbolic::{Answer, Reference, SymbolicDevice, answer};
use vosti_core::{Device, Program};
use vosti_engine::{Counters, Engine, Event, FinishReason, Policy, Request, RequestId, Routing};

pub type SimDevice = FailingDevice<FaultyDevice<SymbolicDevice>>;
pub type SimEngine = Engine<SimDevice>;

/// Far more steps than any scenario needs: a run that takes more is a livelock.
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

/// The client of one choice of a request.
struct Client {
    request: Request,
    answer: Answer,
    prompt_rows: usize,
    routed: usize,
    tokens: usize,
    started: bool,
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
            Event::Started { .. } if self.started => violated("started twice".into()),
            Event::Started { .. } => {
                self.started = true;
                Ok(())
            }
            Event::Prompt { .. } | Event::Routed { .. } | Event::Token { .. } if !self.started => {
                violated("it never started".into())
            }
            Event::Prompt { position, logits, .. } => {
                if !self.request.prompt_logits || position != self.prompt_rows || position + 1 >= prompt {
                    return violated(format!("prompt row {position} out of turn, {} were seen", self.prompt_rows));
                }
                self.prompt_rows += 1;
                self.see_logits(position, logits)
            }
            Event::Routed { position, experts, .. } => {
                if !self.request.routed_experts || position != self.routed {
                    return violated(format!("experts of {position} out of turn, {} were seen", self.routed));
                }
                self.routed += 1;
                let row: Vec<f32> = experts[0].iter().map(|bits| f32::from_bits(*bits as u32)).collect();
                self.see_logits(position, &row)
            }
            Event::Token { index, position, token, logits, .. } => {
                if self.request.routed_experts && self.routed <= position {
                    return violated(format!("token {index} at {position} before the experts of {}", self.routed));
                }
                if index != self.tokens || position != prompt + index - 1 {
                    return violated(format!("token {index} at {position} out of turn, {} were seen", self.tokens));
                }
                self.tokens += 1;
                match logits {
                    Some(_) if !self.request.token_logits => return violated("a row that nobody asked for".into()),
                    None if self.request.token_logits => return violated("a token without its row".into()),
                    Some(logits) => self.see_logits(position, logits)?,
                    None => {}
                }
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
        let positions = self.request.prompt.len() + self.tokens - 1;
        let all_rows = all_rows && (!self.request.routed_experts || self.routed == positions);
        if reason != self.answer.reason || !all_tokens || !all_rows {
            return violated(format!("ended with {reason:?} after {} tokens, right is {:?}", self.tokens, self.answer));
        }
        Ok(())
    }
}

/// The parameters of the device. After a lost cache a new device is made from them.
struct Machine<'p> {
    program: &'p Program,
    pages: Vec<usize>,
    rows_max: usize,
    selected_max: usize,
    weights: u64,
    fault: Option<Fault>,
    trigger: Trigger,
}

impl Machine<'_> {
    fn engine(&self, policy: Policy) -> Result<SimEngine, Violation> {
        let (rows_max, selected_max) = (self.rows_max, self.selected_max);
        let device = SymbolicDevice::new(self.program, &self.pages, rows_max, selected_max, self.weights);
        let device = FailingDevice::new(FaultyDevice::new(device, self.fault), self.trigger.clone());
        let mut engine = Engine::new(device, self.program.clone(), policy).map_err(|e| Violation(e.to_string()))?;
        // A row of logits stands for the choices of a layer's router: the program's last one chooses among selected rows only.
        let read =
            |device: &SimDevice, _: u32, row: usize| device.logits(row).iter().map(|x| x.to_bits() as i32).collect();
        engine.set_routing(Some(Routing { buffers: vec![self.program.logits], read }));
        Ok(engine)
    }
}

/// What happened in a run.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Outcome {
    pub counters: Counters,
    /// Steps that failed with the cache intact, and caches lost.
    pub failures: u64,
    pub losses: u64,
    /// Requests that the pool could not hold to their ends.
    pub refused: u64,
}

impl Outcome {
    pub fn add(&mut self, one: &Self) {
        let (total, counters) = (&mut self.counters, &one.counters);
        total.steps += counters.steps;
        total.tokens += counters.tokens;
        total.partial_chunks += counters.partial_chunks;
        total.prefix_hits += counters.prefix_hits;
        total.published += counters.published;
        total.evictions += counters.evictions;
        total.preemptions += counters.preemptions;
        total.released_behind += counters.released_behind;
        total.drafts_proposed += counters.drafts_proposed;
        total.drafts_accepted += counters.drafts_accepted;
        total.aborted += counters.aborted;
        total.finished += counters.finished;
        self.failures += one.failures;
        self.losses += one.losses;
        self.refused += one.refused;
    }
}

struct World<'p> {
    random: Random,
    program: &'p Program,
    machine: Machine<'p>,
    engine: SimEngine,
    outcome: Outcome,
    clients: BTreeMap<(u64, u32), Client>,
    /// Canonical histories of the live choices, and of the blocks.
    histories: HashMap<(u64, u32), Reference<'p>>,
    blocks: HashMap<u64, Reference<'p>>,
    empty: Reference<'p>,
}

/// Runs the scenario of a seed to its end.
pub fn simulate(seed: u64, fault: Option<Fault>) -> Result<Outcome, Violation> {
    let mut random = Random::new(seed);
    let program = scenario::program(&mut random);
    let weights = random.next();
    let pages = scenario::pages(&mut random, &program);
    let (rows_max, selected_max) = (random.pick(&[8, 64, 300]), random.pick(&[1, 3, 64, 300]));
    let trigger = Trigger::default();
    let machine = Machine { program: &program, pages, rows_max, selected_max, weights, fault, trigger };
    let mut world = World {
        engine: machine.engine(scenario::policy(&mut random))?,
        random,
        program: &program,
        machine,
        outcome: Outcome::default(),
        clients: BTreeMap::new(),
        histories: HashMap::new(),
        blocks: HashMap::new(),
        empty: Reference::new(&program, weights),
    };
    if world.random.one_in(3) {
        world.engine.set_drafter(Some(Box::new(Successors(program.vocab))));
    }
    world.run()?;
    Ok(world.outcome)
}

impl World<'_> {
    fn run(&mut self) -> Result<(), Violation> {
        let mut to_arrive = self.random.range(1, 12);
        let mut steps = 0;
        while to_arrive > 0 || !self.engine.is_idle() {
            while to_arrive > 0 && (self.engine.is_idle() || self.random.one_in(4)) {
                let request = self.next_request()?;
                self.arrive(request)?;
                to_arrive -= 1;
            }
            self.disturb()?;
            // The engine itself says when it makes no progress.
            self.step()?;
            steps += 1;
            if steps > STEPS_MAX {
                return violated(format!("still not at the end: {:?}", self.engine.status()));
            }
        }
        if let Some(open) = self.clients.iter().find(|(_, c)| !c.finished) {
            return violated(format!("{:?} never ended", open.0));
        }
        self.outcome.add(&Outcome { counters: *self.engine.counters(), ..Outcome::default() });
        checkers::nothing_is_left(&mut self.engine)
    }

    /// A request that the pool holds. If the scenario's request is too long, the engine must refuse it; it is then shortened.
    fn next_request(&mut self) -> Result<Request, Violation> {
        let request = scenario::request(&mut self.random, self.program);
        let checked = self.engine.check(&request);
        checkers::refused_exactly_if_the_pool_is_too_small(&self.engine, &request, &checked)?;
        if checked.is_ok() {
            return Ok(request);
        }
        self.outcome.refused += 1;
        Ok(scenario::shortened(request, self.engine.tokens_held()))
    }

    /// A new engine after a loss: with a new pool if that holds every open request, else with the pool of the last engine.
    fn another_engine(&mut self, open: &BTreeMap<u64, Request>) -> Result<SimEngine, Violation> {
        let policy = *self.engine.policy();
        let before = std::mem::replace(&mut self.machine.pages, scenario::pages(&mut self.random, self.program));
        let engine = self.machine.engine(policy)?;
        if open.values().all(|request| engine.check(request).is_ok()) {
            return Ok(engine);
        }
        self.machine.pages = before;
        self.machine.engine(policy)
    }

    fn arrive(&mut self, request: Request) -> Result<(), Violation> {
        let id = self.engine.submit(request.clone()).map_err(|e| Violation(e.to_string()))?;
        for choice in 0..request.choices {
            let client = Client {
                answer: answer(self.program, self.machine.weights, &request, choice),
                request: request.clone(),
                started: false,
                prompt_rows: 0,
                routed: 0,
                tokens: 0,
                aborted: false,
                finished: false,
            };
            self.clients.insert((id.0, choice), client);
            self.histories.insert((id.0, choice), self.empty.clone());
        }
        Ok(())
    }

    /// Actions of clients and operators between steps.
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

    /// How the device is to fail in the next step, if at all.
    fn failure(&mut self) -> Option<Failure> {
        match self.random.range(0, 1_999) {
            0 => Some(Failure::CacheLost),
            1..=30 => Some(Failure::Early),
            31..=60 => Some(Failure::Late),
            _ => None,
        }
    }

    /// One step, every event checked as it comes, every invariant after it, whether the device failed or not.
    fn step(&mut self) -> Result<(), Violation> {
        let failure = self.failure();
        self.machine.trigger.set(failure);
        let mut seen = Ok(());
        let mut records = 0;
        let clients = &mut self.clients;
        let stepped = self.engine.step(&mut |event| {
            let key = (event.request().0, event.choice());
            records += u32::from(!matches!(event, Event::Started { .. } | Event::Finished { .. }));
            if seen.is_ok() {
                seen = match clients.get_mut(&key) {
                    Some(client) => client.see(&event).map_err(|v| Violation(format!("{key:?}: {v}"))),
                    None => violated(format!("an event for nobody: {event:?}")),
                };
            }
        });
        // If the step ran nothing, the failure did not happen and is removed.
        let met = failure.filter(|_| self.machine.trigger.take().is_none());
        seen?;
        checkers::failures_are_told(met, &stepped, records)?;
        match met {
            None => {}
            Some(Failure::Early | Failure::Late) => self.outcome.failures += 1,
            Some(Failure::CacheLost) => return self.start_again(),
        }
        self.check()
    }

    fn check(&mut self) -> Result<(), Violation> {
        let thorough = self.random.one_in(8);
        checkers::pages_have_one_owner(&self.engine)?;
        checkers::reported_pages_add_up(&self.engine)?;
        checkers::tables_follow_chains(&self.engine)?;
        checkers::blocks_are_canonical(&self.engine, &self.empty, &mut self.blocks, thorough)?;
        if thorough {
            checkers::cached_positions_are_canonical(&self.engine, &mut self.histories)?;
        }
        Ok(())
    }

    /// After a lost cache: the engine must refuse everything. A new engine answers all open requests from the beginning.
    fn start_again(&mut self) -> Result<(), Violation> {
        self.outcome.losses += 1;
        checkers::a_lost_cache_refuses_everything(&mut self.engine)?;
        self.outcome.add(&Outcome { counters: *self.engine.counters(), ..Outcome::default() });
        let mut open: BTreeMap<u64, Request> = BTreeMap::new();
        for ((id, _), client) in std::mem::take(&mut self.clients) {
            if !client.finished && !client.aborted {
                open.insert(id, client.request);
            }
        }
        self.histories.clear();
        self.blocks.clear();
        self.engine = self.another_engine(&open)?;
        open.into_values().try_for_each(|request| self.arrive(request))
    }
}
