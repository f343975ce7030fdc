//! The promise, Definition 1: any two executions that share W (weights, deployment and sampler) answer two requests with the
//! same prompt and the same initial sampler state alike. Everything else may differ: the machine, the number of pages, the
//! policy, the other requests, their order, failures, restarts in between.
//!
//! This file knows no engine: no page, batch or schedule. A trace is the finite sequence of events in one execution that its
//! clients can see. `next.rs` defines executions and sharing W (`Execution`, `share_w`), and `proof/trace.rs` proves
//! `deterministic` for the traces of every two executions that share it (`theorem_deterministic`).

use vstd::prelude::*;

verus! {

/// One record: the logits that left the engine, and the token chosen from them.
pub ghost struct Entry<L> {
    pub logits: L,
    pub token: u32,
}

/// What a client can see of one step of the engine. `request` is an identity that is never reused.
pub ghost enum Event<L, S> {
    /// A request came, with this prompt and this initial sampler state.
    Admitted { request: u64, prompt: Seq<u32>, initial: S },
    /// A request got a record. One step may give several, to one request or to many.
    Emitted { request: u64, entry: Entry<L> },
    /// A request ended on its own: its sampler said so, or the context was full. (An abort is no completion.)
    Completed { request: u64 },
}

/// What one request has seen.
pub ghost struct Seen<L, S> {
    pub prompt: Seq<u32>,
    pub initial: S,
    pub entries: Seq<Entry<L>>,
    pub completed: bool,
}

/// The views after one more event.
pub open spec fn after<L, S>(views: Map<u64, Seen<L, S>>, event: Event<L, S>) -> Map<u64, Seen<L, S>> {
    match event {
        Event::Admitted { request, prompt, initial } => views.insert(
            request,
            Seen { prompt, initial, entries: Seq::empty(), completed: false },
        ),
        Event::Emitted { request, entry } => if views.contains_key(request) {
            views.insert(request, Seen { entries: views[request].entries.push(entry), ..views[request] })
        } else {
            views
        },
        Event::Completed { request } => if views.contains_key(request) {
            views.insert(request, Seen { completed: true, ..views[request] })
        } else {
            views
        },
    }
}

/// Every request's view of a trace.
pub open spec fn views<L, S>(trace: Seq<Event<L, S>>) -> Map<u64, Seen<L, S>>
    decreases trace.len(),
{
    if trace.len() == 0 {
        Map::empty()
    } else {
        after(views(trace.drop_last()), trace.last())
    }
}

/// The event can come after these views: an identity is new when it is admitted, and only a request that has been
/// admitted and has not completed gets records or completes.
pub open spec fn follows<L, S>(views: Map<u64, Seen<L, S>>, event: Event<L, S>) -> bool {
    match event {
        Event::Admitted { request, .. } => !views.contains_key(request),
        Event::Emitted { request, .. } => views.contains_key(request) && !views[request].completed,
        Event::Completed { request } => views.contains_key(request) && !views[request].completed,
    }
}

/// Every event can come where it comes.
pub open spec fn orderly<L, S>(trace: Seq<Event<L, S>>) -> bool
    decreases trace.len(),
{
    trace.len() > 0 ==> orderly(trace.drop_last()) && follows(views(trace.drop_last()), trace.last())
}

/// One sequence of records begins with the other.
pub open spec fn comparable<L>(a: Seq<Entry<L>>, b: Seq<Entry<L>>) -> bool {
    a.is_prefix_of(b) || b.is_prefix_of(a)
}

/// Two requests that ask the same are answered the same as far as both have come, and a completed one has all that the other has.
pub open spec fn answered_alike<L, S>(a: Seen<L, S>, b: Seen<L, S>) -> bool {
    a.prompt == b.prompt && a.initial == b.initial ==> {
        &&& comparable(a.entries, b.entries)
        &&& a.completed ==> b.entries.is_prefix_of(a.entries)
        &&& b.completed ==> a.entries.is_prefix_of(b.entries)
    }
}

/// Definition 1, of the traces of two executions that share W: both are orderly, and any request of the one and any
/// request of the other that ask the same are answered the same. The two may be one: then it speaks of two requests of one
/// execution.
pub open spec fn deterministic<L, S>(one: Seq<Event<L, S>>, other: Seq<Event<L, S>>) -> bool {
    &&& orderly(one) && orderly(other)
    &&& forall|a: u64, b: u64| #![trigger views(one)[a], views(other)[b]]
            views(one).contains_key(a) && views(other).contains_key(b) ==> answered_alike(views(one)[a], views(other)[b])
}

} // verus!
