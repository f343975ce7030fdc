//! An engine on its own thread, for servers and command lines.
//!
//! A client gives a request and a sink. The engine's thread calls the sink with each event of the request, logits included,
//! and aborts the request as soon as the sink returns `Break`. The thread parks while there is nothing to do. It takes
//! commands between any two steps, so a long queue never delays them.

use crate::{Counters, Engine, EngineError, Event, FloatDevice, Policy, Request, RequestId, Status};
use std::collections::HashMap;
use std::ops::ControlFlow;
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

/// Takes a request's events. It runs on the engine's thread and must be quick: compute from the logits (log-probabilities, a
/// digest), and send everything else to another thread. `Break` aborts the request and drops the sink.
pub type Sink = Box<dyn FnMut(Event<'_>) -> ControlFlow<()> + Send>;

/// Called on the engine's thread with the outcome of a submission. False if the client has left: the request is then aborted.
type Reply = Box<dyn FnOnce(Result<RequestId, EngineError>) -> bool + Send>;

enum Command {
    Submit {
        request: Box<Request>,
        sink: Sink,
        reply: Reply,
    },
    Abort(RequestId),
    SetPolicy(Policy, Sender<Result<(), EngineError>>),
    Report(Sender<(Status, Counters)>),
    /// Finish what is queued, then end.
    Drain,
    /// End now.
    Stop,
}

/// A handle to an engine's thread; clones share it. The thread ends when the last one is dropped and the work is done.
#[derive(Clone)]
pub struct EngineHandle {
    commands: Sender<Command>,
    seen: Arc<Mutex<(Status, Counters)>>,
}

/// The thread; joining it gives Ok, or the error that ended it.
pub type EngineThread = JoinHandle<Result<(), EngineError>>;

impl EngineHandle {
    /// Moves the engine to a new thread. If the device fails a step with its cache intact, the thread tries again, up to three
    /// times in a row. On any other error the thread ends with it, and drops the sinks without `Finished`.
    pub fn spawn<D>(engine: Engine<D>) -> std::io::Result<(Self, EngineThread)>
    where
        D: FloatDevice + Send + 'static,
    {
        let (commands, inbox) = channel();
        let seen = Arc::new(Mutex::new((engine.status(), *engine.counters())));
        let shown = seen.clone();
        let serve = move || Service { engine, inbox, shown, sinks: HashMap::new(), draining: false }.serve();
        let thread = std::thread::Builder::new().name("vosti-engine".into()).spawn(serve)?;
        Ok((Self { commands, seen }, thread))
    }

    /// Queues a request; waits until the engine accepts or refuses it (at most one step). The sink is dropped after the last
    /// choice's `Finished`. Errors: those of [`Engine::check`], and `Gone` if the thread has ended or drains.
    pub fn submit(&self, request: Request, sink: Sink) -> Result<RequestId, EngineError> {
        let told = |reply: Sender<_>| -> Reply { Box::new(move |outcome| reply.send(outcome).is_ok()) };
        self.ask(|reply| Command::Submit { request: Box::new(request), sink, reply: told(reply) })?
    }

    /// Queues a request without waiting: `reply` is called on the engine's thread, and dropped uncalled if that ends
    /// first. For callers that must not block, such as asynchronous servers.
    pub fn submit_then(
        &self,
        request: Request,
        sink: Sink,
        reply: impl FnOnce(Result<RequestId, EngineError>) + Send + 'static,
    ) -> Result<(), EngineError> {
        let reply: Reply = Box::new(move |outcome| {
            reply(outcome);
            true
        });
        let command = Command::Submit { request: Box::new(request), sink, reply };
        self.commands.send(command).map_err(|_| EngineError::Gone)
    }

    /// Ends a request; its `Finished` events come through its sink.
    pub fn abort(&self, request: RequestId) {
        // If the thread is gone, so is the request.
        let _ = self.commands.send(Command::Abort(request));
    }

    /// Changes the scheduler's settings before the next step. An error says that the engine has ended.
    pub fn set_policy(&self, policy: Policy) -> Result<(), EngineError> {
        self.ask(|reply| Command::SetPolicy(policy, reply))?
    }

    /// The engine's load and its totals before its current step, or since it has nothing to do. It waits for nothing; an engine that
    /// has ended keeps its last ones.
    pub fn seen(&self) -> (Status, Counters) {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The engine's load and its totals, after its current step. Error: the engine has ended.
    pub fn report(&self) -> Result<(Status, Counters), EngineError> {
        self.ask(Command::Report)
    }

    /// Lets queued requests finish and then ends the thread; later submissions are refused with `Gone`.
    pub fn drain(&self) {
        let _ = self.commands.send(Command::Drain);
    }

    /// Ends the thread after the step that is running; sinks are dropped without `Finished`.
    pub fn stop(&self) {
        let _ = self.commands.send(Command::Stop);
    }

    fn ask<T>(&self, command: impl FnOnce(Sender<T>) -> Command) -> Result<T, EngineError> {
        let (reply, answer) = channel();
        self.commands.send(command(reply)).map_err(|_| EngineError::Gone)?;
        answer.recv().map_err(|_| EngineError::Gone)
    }
}

/// How often a failed step is tried again.
const RETRIES: u32 = 3;

/// A request's sink, and how many of its choices have not finished.
struct Listener {
    sink: Sink,
    open: u32,
}

struct Service<D: FloatDevice> {
    engine: Engine<D>,
    inbox: Receiver<Command>,
    /// What [`EngineHandle::seen`] returns.
    shown: Arc<Mutex<(Status, Counters)>>,
    sinks: HashMap<RequestId, Listener>,
    draining: bool,
}

impl<D: FloatDevice> Service<D> {
    fn serve(mut self) -> Result<(), EngineError> {
        let mut failures = 0;
        loop {
            if self.take_commands().is_break() {
                return Ok(());
            }
            if self.engine.is_idle() {
                continue;
            }
            self.show();
            let outcome = self.step();
            failures = if outcome.is_err() { failures + 1 } else { 0 };
            match outcome {
                Ok(gone) => gone.into_iter().for_each(|id| self.leave(id)),
                Err(EngineError::Device(_)) if failures <= RETRIES && !self.engine.core().poisoned() => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Aborts a request that nobody listens to.
    fn leave(&mut self, id: RequestId) {
        self.sinks.remove(&id);
        self.engine.abort(id);
    }

    fn show(&self) {
        *self.shown.lock().unwrap_or_else(PoisonError::into_inner) = (self.engine.status(), *self.engine.counters());
    }

    /// Obeys every waiting command; if there is no work, waits for one. Break: the thread must end.
    fn take_commands(&mut self) -> ControlFlow<()> {
        loop {
            let idle = self.engine.is_idle();
            let command = match self.inbox.try_recv() {
                Ok(command) => command,
                Err(_) if idle && self.draining => return ControlFlow::Break(()),
                Err(TryRecvError::Empty) if idle => {
                    self.show();
                    match self.inbox.recv() {
                        Ok(command) => command,
                        Err(_) => return ControlFlow::Break(()),
                    }
                }
                Err(TryRecvError::Disconnected) if idle => return ControlFlow::Break(()),
                Err(_) => return ControlFlow::Continue(()),
            };
            self.obey(command)?;
        }
    }

    fn obey(&mut self, command: Command) -> ControlFlow<()> {
        match command {
            Command::Submit { request, sink, reply } => {
                let open = request.choices;
                let outcome = if self.draining { Err(EngineError::Gone) } else { self.engine.submit(*request) };
                if let Ok(id) = &outcome {
                    self.sinks.insert(*id, Listener { sink, open });
                }
                // A client that left before it knew the request's id cannot abort the request.
                let id = outcome.as_ref().ok().copied();
                if let (false, Some(id)) = (reply(outcome), id) {
                    self.leave(id);
                }
            }
            Command::Abort(request) => drop(self.engine.abort(request)),
            Command::SetPolicy(policy, reply) => drop(reply.send(self.engine.set_policy(policy))),
            Command::Report(reply) => {
                drop(reply.send((self.engine.status(), *self.engine.counters())));
            }
            Command::Drain => self.draining = true,
            Command::Stop => return ControlFlow::Break(()),
        }
        ControlFlow::Continue(())
    }

    /// One step; gives the requests whose sinks no longer listen.
    fn step(&mut self) -> Result<Vec<RequestId>, EngineError> {
        let sinks = &mut self.sinks;
        let mut gone = Vec::new();
        self.engine.step(&mut |event| {
            let id = event.request();
            let Some(listener) = sinks.get_mut(&id) else {
                return;
            };
            let ended = matches!(event, Event::Finished { .. });
            if (listener.sink)(event).is_break() && !gone.contains(&id) {
                gone.push(id);
            }
            listener.open -= u32::from(ended);
            if listener.open == 0 {
                sinks.remove(&id);
            }
        })?;
        Ok(gone)
    }
}
