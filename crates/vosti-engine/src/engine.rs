//! The engine: a queue of requests over a core, one step at a time: `plan -> launch -> commit`.
//!
//! Every decision here is policy: the core checks each of them and computes the same bits whatever they are. Nothing here may
//! compute a token or a logits row. Read next: `schedule.rs` (the planning of one step).

use crate::capacity;
use crate::prefix::{Kept, PrefixIndex};
use crate::routing::Routing;
use crate::sampler::{SamplerState, TokenSampler};
use crate::schedule::Decision;
use crate::sequence::{Sequence, Serial};
use crate::{Counters, Drafter, EngineError, Event, FinishReason, FloatDevice, Policy, Request, RequestId, Usage};
use std::collections::{BTreeSet, HashMap};
use vosti_core::{Core, CoreError, GroupDecl, PAGE, Program, Record};

/// A report of one step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StepReport {
    /// Rows run on the device, drafts included. 0 if there was nothing to run.
    pub rows: usize,
    /// Sequences with at least one row.
    pub sequences: usize,
    /// Tokens given out.
    pub tokens: usize,
}

/// The engine's present load, for metrics and for the start-up banner.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// Sequences (choices) that take part in steps and hold pages.
    pub running: usize,
    /// Sequences that wait, without pages.
    pub waiting: usize,
    /// Free pages, by group of layers.
    pub pages_free: Vec<usize>,
    /// Pages in the pool, by group of layers.
    pub pages_total: Vec<usize>,
    /// Pages that sequences use, by group of layers; a shared page counts once. The prefix cache alone holds every other page that
    /// is not free, and it gives such a page up at any time.
    pub pages_used: Vec<usize>,
    /// Blocks registered in the prefix cache.
    pub blocks: usize,
    /// Those of them that no sequence uses.
    pub blocks_unused: usize,
}

/// Serves requests on one device. Single-threaded: `handle::EngineHandle` puts it on a thread.
///
/// ```
/// # use vosti_check::symbolic::{SymbolicDevice, program};
/// # use vosti_engine::{Engine, EngineError, Event, Policy, Request, Sampling};
/// # fn main() -> Result<(), EngineError> {
/// let program = program(&[None], &[0], 24, 1_000);
/// let device = SymbolicDevice::new(&program, &[8], 64, 64, 1);
/// let mut engine = Engine::new(device, program, Policy::default())?;
/// engine.submit(Request::new(vec![1, 2, 3], Sampling::greedy(16)))?;
/// let mut tokens = Vec::new();
/// while !engine.is_idle() {
///     engine.step(&mut |event| {
///         if let Event::Token { token, .. } = event {
///             tokens.push(token);
///         }
///     })?;
/// }
/// assert_eq!(tokens.len(), 16);
/// # Ok(())
/// # }
/// ```
pub struct Engine<D: FloatDevice> {
    pub(crate) core: Core<D, TokenSampler>,
    pub(crate) policy: Policy,
    pub(crate) prefix: PrefixIndex,
    pub(crate) sequences: HashMap<Serial, Sequence>,
    pub(crate) by_core: HashMap<vosti_core::RequestId, Serial>,
    pub(crate) waiting: BTreeSet<Serial>,
    pub(crate) running: BTreeSet<Serial>,
    pub(crate) counters: Counters,
    pub(crate) drafter: Option<Box<dyn Drafter>>,
    pub(crate) routing: Option<Routing<D>>,
    /// The limits of the device, and the longest sequence that its pool holds.
    pub(crate) rows_max: usize,
    pub(crate) selected_max: usize,
    tokens_held: usize,
    ended: Vec<Ended>,
    /// Signs of a livelock since the last progress: a step that had work and ran nothing, or a sequence that ran alone and was
    /// preempted.
    pub(crate) setbacks: u32,
    next_request: u64,
    next_serial: Serial,
}

/// More setbacks than this without progress are a livelock. A few are normal: if eviction is off and a sequence does not fit
/// beside the cache, one step preempts the sequence and the next step empties the cache.
const SETBACKS_MAX: u32 = 16;

/// A page in so many keeps its state longer than the others.
const LANDMARK: usize = 16;

/// A choice whose `Finished` is to be reported.
struct Ended {
    request: RequestId,
    choice: u32,
    reason: FinishReason,
    usage: Usage,
}

/// One step.
impl<D: FloatDevice> Engine<D> {
    /// Plans, runs and commits one step; reports events in a deterministic order. Aborted choices report their
    /// `Finished` in the next step. After `EngineError::Device` no token was computed and the caller may step again, unless
    /// the device lost its cache: then every later call fails. `EngineError::Stuck`: there is work, but no progress.
    pub fn step(&mut self, on_event: &mut dyn FnMut(Event<'_>)) -> Result<StepReport, EngineError> {
        self.report_ended(on_event);
        if self.core.poisoned() {
            return Err(refused("step", CoreError::Poisoned));
        }
        let decisions = self.plan()?;
        self.check_progress(decisions.is_empty())?;
        if decisions.is_empty() {
            return Ok(StepReport::default());
        }
        self.report_started(&decisions, on_event);
        self.launch(&decisions)?;
        let tokens = self.commit(&decisions, on_event)?;
        self.report_ended(on_event);
        let rows = decisions.iter().map(|d| d.rows + d.drafts.len()).sum();
        Ok(StepReport { rows, sequences: decisions.len(), tokens })
    }

    /// Turns a livelock into an error. Planning should never cause one: every accepted request fits the pool alone.
    fn check_progress(&mut self, runs_nothing: bool) -> Result<(), EngineError> {
        self.setbacks += u32::from(runs_nothing && !self.sequences.is_empty());
        if self.setbacks <= SETBACKS_MAX {
            return Ok(());
        }
        let Status { running, waiting, pages_free, .. } = self.status();
        Err(EngineError::Stuck { setbacks: self.setbacks, running, waiting, pages_free })
    }

    /// Hands the decisions to the core and runs the device.
    fn launch(&mut self, decisions: &[Decision]) -> Result<(), EngineError> {
        self.core.plan_begin().map_err(|e| refused("plan_begin", e))?;
        for d in decisions {
            let put_in = self.core.plan_rows(d.core, d.rows, &d.drafts, d.select);
            if let Err(error) = put_in {
                let _ = self.core.plan_cancel();
                return Err(refused("plan_rows", error));
            }
        }
        self.core.run().map_err(|e| refused("run", e))?;
        self.count_launch(decisions);
        Ok(())
    }

    /// Samples and reports tokens, publishes full pages, and ends complete sequences. Returns the number of tokens.
    fn commit(&mut self, decisions: &[Decision], on_event: &mut dyn FnMut(Event<'_>)) -> Result<usize, EngineError> {
        self.report_prompt_logits(decisions, on_event);
        let routed = self.routed_places(decisions);
        let records = self.core.commit().map_err(|e| refused("commit", e))?;
        self.report_routed(&routed, on_event);
        for record in &records {
            self.report_token(record, on_event);
        }
        for d in decisions {
            self.settle(d.serial)?;
        }
        let emitting = decisions.iter().filter(|d| d.reaches_end).count();
        self.counters.tokens += records.len() as u64;
        self.counters.drafts_accepted += (records.len() - emitting) as u64;
        Ok(records.len())
    }

    /// Reports the rows of prompt positions that are not reported yet, to requests that asked for them.
    fn report_prompt_logits(&mut self, decisions: &[Decision], on_event: &mut dyn FnMut(Event<'_>)) {
        for (n, (d, planned)) in decisions.iter().zip(self.core.plan().sequences()).enumerate() {
            let Some(sequence) = self.sequences.get_mut(&d.serial) else {
                continue;
            };
            let end = planned.first_position + planned.rows;
            let first_selected = end - planned.selected;
            while sequence.prompt_next >= first_selected && sequence.prompt_next < end.min(sequence.prompt_len - 1) {
                let position = sequence.prompt_next;
                // The core shows the row only if planning asked for it (`Select::All`).
                if let Some(logits) = self.core.step_row(n, position - first_selected) {
                    on_event(Event::Prompt { request: sequence.request, choice: sequence.choice, position, logits });
                }
                sequence.prompt_next += 1;
            }
        }
    }

    fn report_token(&mut self, record: &Record, on_event: &mut dyn FnMut(Event<'_>)) {
        let serial = self.by_core[&record.request];
        let Some(sequence) = self.sequences.get_mut(&serial) else {
            return;
        };
        on_event(Event::Token {
            request: sequence.request,
            choice: sequence.choice,
            index: sequence.generated,
            position: record.position - 1,
            token: record.token,
            logits: if sequence.token_logits { self.core.row(record) } else { None },
        });
        sequence.generated += 1;
    }

    /// After a commit: publishes the sequence's full pages and ends it if nothing more can come.
    fn settle(&mut self, serial: Serial) -> Result<(), EngineError> {
        let id = self.sequences[&serial].core;
        self.publish(serial)?;
        let (Some(request), Some(sequence)) = (self.core.request(id), self.sequences.get_mut(&serial)) else {
            return Ok(());
        };
        if request.cached() > sequence.reached {
            sequence.reached = request.cached();
            self.setbacks = 0;
        }
        let reason = match request.state().finish() {
            Some(reason) => reason,
            None if self.core.complete(id) => FinishReason::ContextFull,
            None => return Ok(()),
        };
        self.end(serial, reason)
    }

    /// Registers the full pages that the sequence has computed.
    fn publish(&mut self, serial: Serial) -> Result<(), EngineError> {
        let id = self.sequences[&serial].core;
        while self.policy.prefix_cache {
            let parent = self.core.request(id).and_then(|r| r.chain().last().copied());
            let Some(block) = self.core.publish(id).map_err(|e| refused("publish", e))? else {
                break;
            };
            if let Some(content) = self.core.block(block) {
                // A prompt's last full page, and every so many pages, for prompts that begin alike and end differently.
                let pages = content.depth() + 1;
                let landmark = pages.is_multiple_of(LANDMARK) || pages == self.sequences[&serial].prompt_len / PAGE;
                self.prefix.published(block, parent, content, landmark);
            }
            self.counters.published += 1;
            // A page that went behind the window in this step is in no table.
            for (group, behind) in self.sequences[&serial].behind.iter().enumerate() {
                if self.core.block(block).is_some_and(|b| b.depth() < *behind) {
                    self.prefix.page_idle(block, group);
                }
            }
        }
        Ok(())
    }

    /// Removes a sequence and frees its pages.
    fn end(&mut self, serial: Serial, reason: FinishReason) -> Result<(), EngineError> {
        let Some(id) = self.sequences.get(&serial).map(|s| s.core) else {
            return Ok(());
        };
        let chain = self.core.request(id).map_or(Vec::new(), |r| r.chain().to_vec());
        // The core may refuse this call, so it comes before every change.
        match reason {
            FinishReason::Aborted => self.core.abort(id).map_err(|e| refused("abort", e))?,
            _ => self.core.finish(id).map_err(|e| refused("finish", e))?,
        }
        let Some(sequence) = self.sequences.remove(&serial) else {
            return Ok(());
        };
        self.prefix.released(&chain);
        if let Some(drafter) = &mut self.drafter {
            drafter.forget(serial);
        }
        self.by_core.remove(&id);
        self.waiting.remove(&serial);
        self.running.remove(&serial);
        match reason {
            FinishReason::Aborted => self.counters.aborted += 1,
            _ => self.counters.finished += 1,
        }
        let usage = Usage {
            prompt_tokens: sequence.prompt_len,
            cached_tokens: sequence.cached_tokens.unwrap_or(0),
            generated_tokens: sequence.generated,
        };
        let Sequence { request, choice, .. } = sequence;
        self.ended.push(Ended { request, choice, reason, usage });
        Ok(())
    }

    fn report_started(&mut self, decisions: &[Decision], on_event: &mut dyn FnMut(Event<'_>)) {
        for d in decisions {
            let Some(sequence) = self.sequences.get_mut(&d.serial).filter(|sequence| !sequence.started) else {
                continue;
            };
            sequence.started = true;
            on_event(Event::Started { request: sequence.request, choice: sequence.choice });
        }
    }

    fn report_ended(&mut self, on_event: &mut dyn FnMut(Event<'_>)) {
        for Ended { request, choice, reason, usage } in self.ended.drain(..) {
            on_event(Event::Finished { request, choice, reason, usage });
        }
    }

    fn count_launch(&mut self, decisions: &[Decision]) {
        let c = &mut self.counters;
        let rows: usize = decisions.iter().map(|d| d.rows + d.drafts.len()).sum();
        let partial = decisions.iter().filter(|d| !d.reaches_end);
        let prefill = |d: &Decision| if d.reaches_end { d.rows - 1 } else { d.rows };
        c.steps += 1;
        c.rows += rows as u64;
        c.rows_step_max = c.rows_step_max.max(rows as u64);
        c.sequences_step_max = c.sequences_step_max.max(decisions.len() as u64);
        c.partial_chunks += partial.count() as u64;
        c.prefill_rows += decisions.iter().map(|d| prefill(d) as u64).sum::<u64>();
        c.drafts_proposed += decisions.iter().map(|d| d.drafts.len() as u64).sum::<u64>();
    }
}

/// Requests.
impl<D: FloatDevice> Engine<D> {
    /// An engine for one device, whose pages are all free, and one program. Errors: an ill-formed program, a device that
    /// cannot run one row, a policy with a limit of 0.
    pub fn new(device: D, program: Program, policy: Policy) -> Result<Self, EngineError> {
        policy.check()?;
        let (rows_max, selected_max) = (device.rows_max(), device.selected_max());
        if rows_max == 0 || selected_max == 0 {
            return Err(EngineError::Device("it takes no rows; give it at least one".into()));
        }
        let sampler = TokenSampler::new(program.vocab);
        let core = Core::new(device, sampler, program).map_err(|e| refused("new", e))?;
        let groups = &core.program().groups;
        let pages: Vec<usize> = (0..groups.len()).map(|group| core.pages(group)).collect();
        let kept = |(group, pages): (&GroupDecl, &usize)| match group.window {
            None => Kept::All,
            Some(_) if group.state.is_empty() => Kept::Window,
            Some(_) => Kept::State { landmarks: pages / 2 },
        };
        let kept: Vec<Kept> = groups.iter().zip(&pages).map(kept).collect();
        let tokens_held = capacity::tokens_in(core.program(), &pages);
        Ok(Self {
            prefix: PrefixIndex::new(kept),
            drafter: crate::drafts::drafter(policy.speculation),
            routing: None,
            core,
            policy,
            sequences: HashMap::new(),
            by_core: HashMap::new(),
            waiting: BTreeSet::new(),
            running: BTreeSet::new(),
            counters: Counters::default(),
            rows_max,
            selected_max,
            tokens_held,
            ended: Vec::new(),
            setbacks: 0,
            next_request: 0,
            next_serial: 0,
        })
    }

    /// Queues a request, or refuses it as [`Engine::check`] does, with nothing queued.
    pub fn submit(&mut self, request: Request) -> Result<RequestId, EngineError> {
        self.check(&request)?;
        let id = RequestId(self.next_request);
        let leader = self.next_serial;
        for choice in 0..request.choices {
            let foreseen = request.foreseen.get(choice as usize).cloned().unwrap_or_default();
            let state = SamplerState::new(&request.sampling, &request.prompt, choice);
            let device = self.core.device();
            let state = state.on_device(device.top_max(), device.draws());
            let admitted = self.core.admit(request.prompt.clone(), request.salt, state);
            let core = admitted.map_err(|e| refused("admit", e))?;
            let serial = self.next_serial;
            let sequence = Sequence {
                core,
                request: id,
                choice,
                leader,
                turn: self.counters.rows + (request.prompt.len() + foreseen.len()) as u64,
                prompt_len: request.prompt.len(),
                use_prefix_cache: request.use_prefix_cache && !request.prompt_logits && !request.routed_experts,
                token_logits: request.token_logits,
                prompt_next: if request.prompt_logits { 0 } else { usize::MAX },
                routed_next: if request.routed_experts { 0 } else { usize::MAX },
                cached_tokens: None,
                started: false,
                behind: vec![0; self.core.program().groups.len()],
                generated: 0,
                foreseen,
                reached: 0,
            };
            self.sequences.insert(serial, sequence);
            self.by_core.insert(core, serial);
            self.waiting.insert(serial);
            self.next_serial += 1;
        }
        self.next_request += 1;
        self.counters.requests += 1;
        Ok(id)
    }

    /// Whether `submit` would accept the request. Errors: an empty prompt, a token outside the vocabulary, a prompt that
    /// fills the context, a length that the pool could not hold to its end, no choices, routed experts where
    /// there are none, too many requests waiting.
    pub fn check(&self, request: &Request) -> Result<(), EngineError> {
        let program = self.core.program();
        let (prompt, context) = (request.prompt.len(), program.context as usize);
        let waiting = self.waiting.len();
        if prompt == 0 {
            return Err(EngineError::EmptyPrompt);
        }
        if request.choices == 0 {
            return Err(EngineError::NoChoices);
        }
        if request.routed_experts && self.routing.is_none() {
            return Err(EngineError::NoRouting);
        }
        if prompt >= context {
            return Err(EngineError::PromptExceedsContext { prompt, context });
        }
        // The pool must hold the longest answer that the request allows.
        let tokens = prompt.saturating_add(request.sampling.tokens_max).min(context);
        if tokens > self.tokens_held {
            return Err(EngineError::ExceedsPool { prompt, tokens, pool: self.tokens_held });
        }
        let vocab = program.vocab;
        if let Some(position) = request.prompt.iter().position(|t| *t >= vocab) {
            let token = request.prompt[position];
            return Err(EngineError::TokenOutsideVocabulary { token, position, vocab });
        }
        if waiting + request.choices as usize > self.policy.waiting_max {
            return Err(EngineError::QueueFull { waiting, limit: self.policy.waiting_max });
        }
        Ok(())
    }

    /// Steps until nothing is left to do.
    pub fn run_until_idle(&mut self, on_event: &mut dyn FnMut(Event<'_>)) -> Result<(), EngineError> {
        while !self.is_idle() {
            self.step(on_event)?;
        }
        Ok(())
    }

    /// Ends every unfinished choice of a request and frees its pages at once; the `Finished` events come with the next
    /// step. False if no choice of this request is live.
    pub fn abort(&mut self, request: RequestId) -> bool {
        let found = self.serials(request);
        // Between steps the core refuses an abort only if it is poisoned; then every step returns that error.
        found.iter().for_each(|serial| drop(self.end(*serial, FinishReason::Aborted)));
        !found.is_empty()
    }

    /// Preempts every running choice of a request: the choice loses its pages and recomputes later, with the same bits. For
    /// tests and `vosti check`; the scheduler preempts by itself when pages run out. False if no choice was running.
    pub fn preempt(&mut self, request: RequestId) -> bool {
        let mut found = self.serials(request);
        found.retain(|serial| self.running.contains(serial));
        found.iter().for_each(|serial| drop(self.preempt_sequence(*serial)));
        !found.is_empty()
    }

    /// The live choices of a request, in order.
    fn serials(&self, request: RequestId) -> Vec<Serial> {
        let of = self.sequences.iter().filter(|(_, s)| s.request == request);
        let mut serials: Vec<Serial> = of.map(|(serial, _)| *serial).collect();
        serials.sort_unstable();
        serials
    }

    /// Evicts every block that no sequence uses from the prefix cache; returns their number.
    pub fn evict_all(&mut self) -> usize {
        let before = self.prefix.len();
        while self.evict_leaf() {}
        before - self.prefix.len()
    }
}

/// Views and settings.
impl<D: FloatDevice> Engine<D> {
    /// Whether nothing is waiting, running or left to report.
    pub fn is_idle(&self) -> bool {
        self.sequences.is_empty() && self.ended.is_empty()
    }

    /// The scheduler's settings.
    pub fn policy(&self) -> &Policy {
        &self.policy
    }

    /// Changes the policy between steps; no bit of any answer depends on it. A drafter from `set_drafter` stays if the
    /// policy's speculation does not change. Error: a limit of 0.
    pub fn set_policy(&mut self, policy: Policy) -> Result<(), EngineError> {
        policy.check()?;
        if policy.speculation != self.policy.speculation {
            self.drafter = crate::drafts::drafter(policy.speculation);
        }
        self.policy = policy;
        Ok(())
    }

    /// Uses this drafter (a draft model, wrong drafts on purpose) in place of the policy's; `None` drafts nothing.
    pub fn set_drafter(&mut self, drafter: Option<Box<dyn Drafter>>) {
        self.drafter = drafter;
    }

    /// Counts of events since the engine was made.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// The engine's present load: requests, pages, cached blocks.
    pub fn status(&self) -> Status {
        let groups = 0..self.core.program().groups.len();
        Status {
            running: self.running.len(),
            waiting: self.waiting.len(),
            pages_free: groups.clone().map(|g| self.core.free_pages(g)).collect(),
            pages_total: groups.clone().map(|g| self.core.pages(g)).collect(),
            pages_used: groups.map(|g| self.pages_used(g)).collect(),
            blocks: self.prefix.len(),
            blocks_unused: self.prefix.unused(),
        }
    }

    /// Pages of a group that are in some sequence's table.
    fn pages_used(&self, group: usize) -> usize {
        let mut used = vec![false; self.core.pages(group)];
        let requests = self.sequences.values().filter_map(|sequence| self.core.request(sequence.core));
        for page in requests.flat_map(|request| request.table(group)) {
            // A table has -1 where it has no page.
            if let Some(page) = usize::try_from(*page).ok().and_then(|page| used.get_mut(page)) {
                *page = true;
            }
        }
        used.into_iter().filter(|used| *used).count()
    }

    /// The longest sequence (prompt and answer) that the pool holds, in tokens. The engine refuses a request that may get
    /// longer. An accepted request gets the same answer from every pool.
    pub fn tokens_held(&self) -> usize {
        self.tokens_held
    }

    /// The blocks of the prefix cache, oldest first.
    pub fn cached_blocks(&self) -> Vec<vosti_core::BlockId> {
        self.prefix.blocks()
    }

    /// The core's request of each live choice, in order of arrival.
    pub fn core_requests(&self) -> Vec<(RequestId, u32, vosti_core::RequestId)> {
        let mut live: Vec<(&Serial, &Sequence)> = self.sequences.iter().collect();
        live.sort_unstable_by_key(|(serial, _)| **serial);
        live.into_iter().map(|(_, s)| (s.request, s.choice, s.core)).collect()
    }

    /// The core's views, for tests and inspection.
    pub fn core(&self) -> &Core<D, TokenSampler> {
        &self.core
    }

    /// The device that the core runs on.
    pub fn device(&self) -> &D {
        self.core.device()
    }

    /// The program of every request.
    pub fn program(&self) -> &Program {
        self.core.program()
    }
}

/// The engine's error for an error of the core: `Device` for an error that the device or the program causes, else `Core`, a bug.
pub(crate) fn refused(operation: &'static str, error: CoreError) -> EngineError {
    match error {
        CoreError::Device { error } => EngineError::Device(error.message),
        CoreError::Program { .. }
        | CoreError::DeviceTooLarge
        | CoreError::VocabularyMismatch { .. }
        | CoreError::Poisoned => EngineError::Device(error.advice().into()),
        other => EngineError::Core { operation, detail: format!("{other:?}: {}", other.advice()) },
    }
}

#[cfg(test)]
mod tests;
