//! The handle: streams, aborts, drains; a client that leaves takes its request with it.

use std::ops::ControlFlow;
use std::sync::mpsc::channel;
use vosti_check::symbolic::{SymbolicDevice, answer, program};
use vosti_core::{Program, Token};
use vosti_engine::handle::EngineHandle;
use vosti_engine::{Engine, EngineError, Event, FinishReason, Policy, Request, Sampling};

const WEIGHTS: u64 = 5;

fn engine(program: &Program) -> Engine<SymbolicDevice> {
    let device = SymbolicDevice::new(program, &[64], 64, 64, WEIGHTS);
    Engine::new(device, program.clone(), Policy::default()).unwrap()
}

fn tiny() -> Program {
    program(&[None], &[0], 20, 4_000)
}

#[test]
fn requests_from_many_threads_get_their_own_answers() {
    let program = tiny();
    let (handle, thread) = EngineHandle::spawn(engine(&program)).unwrap();
    std::thread::scope(|scope| {
        for client in 0..8u32 {
            let (handle, program) = (handle.clone(), &program);
            scope.spawn(move || {
                let request = Request::new(vec![client, 1, 2], Sampling::greedy(30));
                let right = answer(program, WEIGHTS, &request, 0);
                let (send, receive) = channel();
                let sink = move |event: Event<'_>| {
                    if let Event::Token { token, .. } = event {
                        send.send(token).unwrap();
                    }
                    ControlFlow::Continue(())
                };
                handle.submit(request, Box::new(sink)).unwrap();
                // The channel closes when the request has ended and its sink is dropped.
                let tokens: Vec<Token> = receive.iter().collect();
                assert_eq!(tokens, right.tokens);
            });
        }
    });
    let (status, counters) = handle.report().unwrap();
    assert_eq!((status.running, counters.finished), (0, 8));
    handle.drain();
    assert!(thread.join().unwrap().is_ok());
    let refused = handle.submit(Request::new(vec![1], Sampling::greedy(1)), Box::new(|_| ControlFlow::Continue(())));
    assert!(matches!(refused, Err(EngineError::Gone)));
}

#[test]
fn a_client_that_stops_listening_gives_its_pages_back() {
    let (handle, thread) = EngineHandle::spawn(engine(&tiny())).unwrap();
    let (send, receive) = channel();
    let mut seen = 0;
    let sink = move |_: Event<'_>| {
        seen += 1;
        if seen < 5 {
            return ControlFlow::Continue(());
        }
        let _ = send.send(());
        ControlFlow::Break(())
    };
    handle.submit(Request::new(vec![1, 2], Sampling::greedy(3_000)), Box::new(sink)).unwrap();
    receive.recv().unwrap();
    // Taken between steps, so after the abort.
    let (status, counters) = handle.report().unwrap();
    assert_eq!((counters.aborted, status.running), (1, 0));
    drop(handle);
    assert!(thread.join().unwrap().is_ok());
}

#[test]
fn abort_ends_a_request_through_its_sink() {
    let (handle, thread) = EngineHandle::spawn(engine(&tiny())).unwrap();
    let (send, receive) = channel();
    let sink = move |event: Event<'_>| {
        if let Event::Finished { reason, .. } = event {
            send.send(reason).unwrap();
        }
        ControlFlow::Continue(())
    };
    let id = handle.submit(Request::new(vec![1, 2], Sampling::greedy(3_900)), Box::new(sink)).unwrap();
    handle.abort(id);
    assert_eq!(receive.recv().unwrap(), FinishReason::Aborted);
    handle.stop();
    assert!(thread.join().unwrap().is_ok());
}
