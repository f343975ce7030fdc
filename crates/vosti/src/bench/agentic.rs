//! A trace of agents: sessions begin with a long prompt, part of which is common and cached. Then they take turns: some
//! tokens in, an answer out, a pause while a tool works, and the whole conversation again.

use super::BenchError;
use crate::deployment::{Deployment, DeviceConfig};
use serde::Serialize;
use std::time::{Duration, Instant};
use vosti_core::PAGE;
use vosti_determinism::prompts;
use vosti_engine::{Engine, Event, Request, RequestId, Sampling, Token};
use vosti_progress::Progress;

/// What is played.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Trace {
    pub sessions: usize,
    pub turns: usize,
    /// Tokens of the first prompt, and how many of them all sessions share and the cache has.
    pub prompt: usize,
    pub shared: usize,
    /// Tokens that each later turn brings, and tokens of each answer.
    pub input: usize,
    pub output: usize,
    /// Between an answer and the next turn.
    pub pause_s: f64,
}

impl Trace {
    /// The published set-up.
    pub const PAPER: Trace =
        Trace { sessions: 4, turns: 6, prompt: 16384, shared: 8192, input: 256, output: 768, pause_s: 0.5 };

    /// Reads `SESSIONS,TURNS,PROMPT,SHARED,INPUT,OUTPUT,PAUSE`.
    pub fn parse(text: &str) -> Result<Trace, String> {
        let hint =
            || "write SESSIONS,TURNS,PROMPT,SHARED,INPUT,OUTPUT,PAUSE, e.g. 4,6,16384,8192,256,768,0.5".to_string();
        let parts: Vec<&str> = text.split(',').collect();
        let [counts @ .., pause] = &parts[..] else { return Err(hint()) };
        let counts: Vec<usize> = counts.iter().map(|n| n.parse()).collect::<Result<_, _>>().map_err(|_| hint())?;
        let pause_s: f64 = pause.parse().map_err(|_| hint())?;
        let [sessions, turns, prompt, shared, input, output] = counts[..] else { return Err(hint()) };
        let counted = [sessions, turns, prompt, output].iter().all(|n| *n > 0);
        match counted && shared < prompt && (0.0..=3600.0).contains(&pause_s) {
            true => Ok(Trace { sessions, turns, prompt, shared, input, output, pause_s }),
            false => Err(hint()),
        }
    }

    /// Tokens of a session at its end.
    fn longest(&self) -> usize {
        self.prompt + self.turns * (self.input + self.output)
    }
}

/// What was measured.
#[derive(Clone, Debug, Serialize)]
pub struct Played {
    #[serde(flatten)]
    pub trace: Trace,
    /// From each session's first prompt to its last token, pauses included.
    pub session_s: Vec<f64>,
    /// From a turn's prompt to its first token, in the order of their ends.
    pub first_token_s: Vec<f64>,
    pub tokens: usize,
    /// All sessions' tokens over the time of the longest session.
    pub tokens_per_s: f64,
}

struct Session {
    history: Vec<Token>,
    turn: usize,
    /// When its next turn comes.
    due: Instant,
    running: Option<(RequestId, Instant)>,
    ended: Option<Instant>,
}

/// Plays a trace once, on a fresh engine.
pub fn play(deployment: &Deployment, trace: Trace, progress: &dyn Progress) -> Result<Played, BenchError> {
    let context = deployment.program().context as usize;
    if trace.longest() + 2 > context {
        return Err(BenchError::TooDeep { needed: trace.longest() + 2, context });
    }
    let policy = deployment.policy();
    let pages = (trace.sessions + 1) * trace.longest().div_ceil(PAGE) + trace.sessions;
    let config = DeviceConfig { pages: Some(pages), rows_max: policy.rows_step_max, ..DeviceConfig::default() };
    let mut engine = Engine::new(deployment.device(&config)?, deployment.program().clone(), policy)?;
    let facts = deployment.facts();
    let tokens = |label: &str, len: usize| prompts::prompt(&facts, 1, label, len);
    let shared = tokens("shared", trace.shared);
    if !shared.is_empty() {
        engine.submit(Request::new(shared.clone(), Sampling::greedy(1)))?;
        super::finish(&mut engine, progress)?;
    }
    progress.stage("agents", (trace.sessions * trace.turns) as u64);
    let start = Instant::now();
    let begin = |i: usize| {
        let own = tokens(&format!("session {i}"), trace.prompt - trace.shared);
        Session { history: [&shared[..], &own].concat(), turn: 0, due: start, running: None, ended: None }
    };
    let mut sessions: Vec<Session> = (0..trace.sessions).map(begin).collect();
    let (mut first_token_s, mut given, mut done) = (vec![], 0, 0);
    while sessions.iter().any(|session| session.ended.is_none()) {
        if progress.cancelled() {
            return Err(BenchError::Interrupted);
        }
        let now = Instant::now();
        for (i, session) in sessions.iter_mut().enumerate() {
            if session.ended.is_none() && session.running.is_none() && session.due <= now {
                if session.turn > 0 {
                    session.history.extend(tokens(&format!("session {i} turn {}", session.turn), trace.input));
                }
                let asked = Request::new(session.history.clone(), Sampling::greedy(trace.output));
                let request = Request { token_logits: false, ..asked };
                session.running = Some((engine.submit(request)?, now));
            }
        }
        if engine.is_idle() {
            // Everybody waits for a tool.
            let next = sessions.iter().filter(|s| s.ended.is_none()).map(|s| s.due).min();
            if let Some(due) = next {
                // A pause may be long: whether it shall end is asked in between.
                std::thread::sleep(due.saturating_duration_since(Instant::now()).min(Duration::from_millis(50)));
            }
            continue;
        }
        engine.step(&mut |event| {
            let of = |s: &&mut Session| s.running.is_some_and(|(id, _)| id == event.request());
            let Some(session) = sessions.iter_mut().find(of) else { return };
            let Some((_, since)) = session.running else { return };
            match event {
                Event::Token { index, token, .. } => {
                    session.history.push(token);
                    given += 1;
                    if index == 0 {
                        first_token_s.push(since.elapsed().as_secs_f64());
                    }
                }
                Event::Finished { .. } => {
                    session.running = None;
                    session.turn += 1;
                    done += 1;
                    let end = Instant::now();
                    session.due = end + Duration::from_secs_f64(trace.pause_s);
                    session.ended = (session.turn == trace.turns).then_some(end);
                }
                Event::Started { .. } | Event::Prompt { .. } => {}
            }
        })?;
        progress.done(done);
    }
    let seconds = |s: &Session| s.ended.unwrap_or(start).duration_since(start).as_secs_f64();
    let session_s: Vec<f64> = sessions.iter().map(seconds).collect();
    let longest = session_s.iter().copied().fold(1e-9, f64::max);
    Ok(Played { trace, session_s, first_token_s, tokens: given, tokens_per_s: given as f64 / longest })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trace_is_read_and_nonsense_refused() {
        assert_eq!(Trace::parse("4,6,16384,8192,256,768,0.5"), Ok(Trace::PAPER));
        for wrong in [
            "",
            "4",
            "4,6,16384,8192,256,768",
            "4,6,100,100,1,1,0",
            "0,6,2,1,1,1,0",
            "1,1,2,1,1,1,-1",
            "1,1,2,1,1,1,nan",
        ] {
            assert!(Trace::parse(wrong).is_err(), "{wrong}");
        }
    }
}
