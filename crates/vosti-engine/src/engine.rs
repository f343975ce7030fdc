//! The engine: a queue of requests over a core, one step at a time. (The body arrives with vosti-core; the signatures
//! are final but for the bound on `D`, which will be `D: vosti_core::Device<Logits = [f32]>`.)

use crate::{Counters, Drafter, EngineError, Event, Policy, Request, RequestId};
use std::marker::PhantomData;

/// What one step did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StepReport {
    /// Rows run on the device, drafts included. 0: nothing to do (or only aborts were reported).
    pub rows: usize,
    pub sequences: usize,
    /// Tokens given out.
    pub tokens: usize,
}

/// Where the engine stands, for metrics and for the start-up banner.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// Sequences (choices) that hold pages, and that wait for them.
    pub running: usize,
    pub waiting: usize,
    /// Per group of layers: pages free, pages in the pool.
    pub pages_free: Vec<usize>,
    pub pages_total: Vec<usize>,
    /// Blocks registered in the prefix cache, and those of them that no sequence uses.
    pub blocks: usize,
    pub blocks_unused: usize,
}

/// Serves requests on one device. Single-threaded: `handle::EngineHandle` puts it on a thread.
///
/// ```ignore
/// let mut engine = Engine::new(device, program, Policy::default())?;
/// let id = engine.submit(Request::new(prompt, Sampling::greedy(16)))?;
/// while !engine.is_idle() {
///     engine.step(&mut |event| match event {
///         Event::Token { token, logits, .. } => { .. }
///         _ => {}
///     })?;
/// }
/// ```
pub struct Engine<D> {
    _device: PhantomData<D>,
}

impl<D> Engine<D> {
    /// Takes the device (its pages all free) and the program it runs. Errors: an ill-formed program, a device that
    /// cannot run one row, a policy with a zero in it.
    /// (`program` will be `vosti_core::Program`.)
    pub fn new<P>(device: D, program: P, policy: Policy) -> Result<Self, EngineError> {
        let _ = (device, program, policy);
        unimplemented!("waits for vosti-core")
    }

    /// Queues a request. Errors, with nothing queued: empty prompt, token outside the vocabulary, a prompt that
    /// can never fit the context or the page pool, too many waiting.
    pub fn submit(&mut self, request: Request) -> Result<RequestId, EngineError> {
        let _ = request;
        unimplemented!("waits for vosti-core")
    }

    /// Plans, runs and commits one step; reports events in a deterministic order. Aborted choices report their
    /// `Finished` in the next step. After `Err` the engine must not be used again.
    pub fn step(&mut self, on_event: &mut dyn FnMut(Event<'_>)) -> Result<StepReport, EngineError> {
        let _ = on_event;
        unimplemented!("waits for vosti-core")
    }

    /// Steps until nothing is left to do.
    pub fn run_until_idle(
        &mut self,
        on_event: &mut dyn FnMut(Event<'_>),
    ) -> Result<(), EngineError> {
        while !self.is_idle() {
            self.step(on_event)?;
        }
        Ok(())
    }

    /// Ends every choice of a request that has not finished; its pages are back at once. False: no such request.
    pub fn abort(&mut self, request: RequestId) -> bool {
        let _ = request;
        unimplemented!("waits for vosti-core")
    }

    /// Takes the pages of every running choice of a request; it recomputes later, with the same bits. For tests
    /// and `vosti check`: the scheduler does this by itself when pages run out.
    pub fn preempt(&mut self, request: RequestId) -> bool {
        let _ = request;
        unimplemented!("waits for vosti-core")
    }

    /// Empties the prefix cache of every block that no sequence uses; gives how many went.
    pub fn evict_all(&mut self) -> usize {
        unimplemented!("waits for vosti-core")
    }

    /// Nothing is waiting, running or left to report.
    pub fn is_idle(&self) -> bool {
        unimplemented!("waits for vosti-core")
    }

    pub fn policy(&self) -> &Policy {
        unimplemented!("waits for vosti-core")
    }

    /// Changes the policy between steps: no bit of any answer changes with it.
    pub fn set_policy(&mut self, policy: Policy) -> Result<(), EngineError> {
        let _ = policy;
        unimplemented!("waits for vosti-core")
    }

    /// Puts in a drafter of your own (wrong drafts on purpose, a draft model, ...), in place of the policy's.
    pub fn set_drafter(&mut self, drafter: Option<Box<dyn Drafter>>) {
        let _ = drafter;
        unimplemented!("waits for vosti-core")
    }

    pub fn counters(&self) -> &Counters {
        unimplemented!("waits for vosti-core")
    }

    pub fn status(&self) -> Status {
        unimplemented!("waits for vosti-core")
    }

    /// Most tokens (prompt and answer) that one sequence can have: the context, or less if the pool is smaller.
    pub fn sequence_tokens_max(&self) -> usize {
        unimplemented!("waits for vosti-core")
    }

    pub fn device(&self) -> &D {
        unimplemented!("waits for vosti-core")
    }
}
