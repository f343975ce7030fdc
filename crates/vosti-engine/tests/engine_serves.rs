//! The guarantees to a user of the engine, claim by claim, on the symbolic device.

use std::collections::BTreeMap;
use vosti_check::symbolic::{SymbolicDevice, answer, program};
use vosti_core::{Device, DeviceError, Dtype, PAGE, PartDecl, Program, StepPlan, Token};
use vosti_engine::{
    Counters, Drafter, Engine, EngineError, Event, FinishReason, Policy, Request, RequestId, Sampling, SamplingParams,
    Speculation, Usage,
};

const WEIGHTS: u64 = 11;

fn one_group(context: u32) -> Program {
    program(&[None], &[0, 0], 24, context)
}

fn engine(program: &Program, pages: &[usize], policy: Policy) -> Engine<SymbolicDevice> {
    let device = SymbolicDevice::new(program, pages, 512, 512, WEIGHTS);
    Engine::new(device, program.clone(), policy).unwrap()
}

fn prompt(len: usize, salt: u32) -> Vec<Token> {
    (0..len as u32).map(|i| (i * i + i / 3 + salt) % 24).collect()
}

/// Per choice: tokens, reason, usage.
type Answers = BTreeMap<(u64, u32), (Vec<Token>, Option<FinishReason>, Usage)>;

fn run(engine: &mut Engine<SymbolicDevice>) -> Answers {
    let mut answers = Answers::new();
    let mut see = |event: Event<'_>| {
        let entry = answers.entry((event.request().0, event.choice())).or_default();
        match event {
            Event::Token { token, .. } => entry.0.push(token),
            Event::Finished { reason, usage, .. } => (entry.1, entry.2) = (Some(reason), usage),
            Event::Started { .. } | Event::Prompt { .. } | Event::Routed { .. } => {}
        }
    };
    engine.run_until_idle(&mut see).unwrap();
    answers
}

#[test]
fn a_prompt_that_can_never_fit_is_refused_with_what_to_do() {
    let program = one_group(200);
    let mut roomy = engine(&program, &[16], Policy::default());
    let refusal = |engine: &mut Engine<SymbolicDevice>, prompt: Vec<Token>| {
        engine.submit(Request::new(prompt, Sampling::greedy(1))).unwrap_err().to_string()
    };
    assert!(refusal(&mut roomy, vec![]).contains("empty"));
    assert!(refusal(&mut roomy, prompt(200, 0)).contains("at most 199"));
    assert!(refusal(&mut roomy, vec![1, 24]).contains("token 24 at position 1"));
    let mut tight = engine(&program, &[2], Policy::default());
    assert_eq!(tight.tokens_held(), 2 * PAGE + 1);
    assert!(refusal(&mut tight, prompt(129, 0)).contains("holds at most 129 of one sequence"));
    assert!(tight.submit(Request::new(prompt(128, 0), Sampling::greedy(1))).is_ok());
}

#[test]
fn a_policy_with_a_zero_and_a_full_queue_are_refused() {
    let program = one_group(200);
    let device = SymbolicDevice::new(&program, &[4], 8, 8, WEIGHTS);
    let zero = Policy { running_max: 0, ..Policy::default() };
    let refused = Engine::new(device, program.clone(), zero).err();
    assert!(matches!(refused, Some(EngineError::PolicyZero { what: "running_max" })));
    let mut engine = engine(&program, &[4], Policy { waiting_max: 2, ..Policy::default() });
    let two = Request { choices: 2, ..Request::new(vec![1], Sampling::greedy(1)) };
    engine.submit(two.clone()).unwrap();
    assert!(matches!(engine.submit(two), Err(EngineError::QueueFull { waiting: 2, limit: 2 })));
}

#[test]
fn a_short_prompt_overtakes_a_long_one_and_does_not_starve_it() {
    let program = one_group(400);
    // One at a time, so that the order of the starts is that of the turns.
    let mut engine = engine(&program, &[16], Policy { running_max: 1, prefix_cache: false, ..Policy::default() });
    let ask = |engine: &mut Engine<SymbolicDevice>, len| {
        engine.submit(Request::new(prompt(len, 0), Sampling::greedy(1))).unwrap();
    };
    ask(&mut engine, 300);
    ask(&mut engine, 10);
    let mut started = Vec::new();
    while started.len() < 100 && !started.contains(&0) {
        let mut see = |event: Event<'_>| {
            if let Event::Started { request, .. } = event {
                started.push(request.0);
            }
        };
        engine.step(&mut see).unwrap();
        ask(&mut engine, 10);
    }
    assert_eq!(started[0], 1, "the short one starts first");
    // Short ones arrive at every step. The 30th would have the turn 10 * 29 + 10, which is that of the long one, and is newer.
    assert_eq!(started.len(), 30, "{started:?}");
}

#[test]
fn sequences_that_decode_bound_the_rows_of_a_step() {
    let program = one_group(400);
    let mut engine = engine(&program, &[16], Policy { rows_mixed_max: 40, ..Policy::default() });
    engine.submit(Request::new(prompt(100, 0), Sampling::greedy(50))).unwrap();
    assert_eq!(engine.step(&mut |_| ()).unwrap().rows, 100, "nobody decodes");
    engine.submit(Request::new(prompt(100, 1), Sampling::greedy(50))).unwrap();
    let rows: Vec<usize> = (0..4).map(|_| engine.step(&mut |_| ()).unwrap().rows).collect();
    assert_eq!(rows, [40, 40, 23, 2], "100 = 39 + 39 + 22, and a row of the first in each");
}

#[test]
fn foreseen_tokens_take_fewer_steps_and_change_no_token() {
    let program = one_group(400);
    let sampling = || Sampling::greedy(60);
    let engine_of = || engine(&program, &[16], Policy::default());
    let steps = |engine: &Engine<SymbolicDevice>| engine.counters().steps;
    let (mut plain, mut told, mut misled) = (engine_of(), engine_of(), engine_of());
    plain.submit(Request::new(prompt(50, 3), sampling())).unwrap();
    let (right, reason, _) = run(&mut plain)[&(0, 0)].clone();
    told.submit(Request { foreseen: vec![right[..50].to_vec()], ..Request::new(prompt(50, 3), sampling()) }).unwrap();
    let (tokens, ended, _) = run(&mut told)[&(0, 0)].clone();
    assert_eq!((&tokens, ended), (&right, reason));
    assert!(steps(&told) <= steps(&plain) - 45, "{} steps, {} without", steps(&told), steps(&plain));
    let wrong: Vec<_> = right.iter().map(|token| (token + 1) % program.vocab).collect();
    misled.submit(Request { foreseen: vec![wrong], ..Request::new(prompt(50, 3), sampling()) }).unwrap();
    let (tokens, ended, _) = run(&mut misled)[&(0, 0)].clone();
    assert_eq!((tokens, ended), (right, reason));
}

/// A drafter that knows the answers.
struct Knows(Vec<Vec<Token>>);

impl Drafter for Knows {
    fn draft(&mut self, _: u64, history: &[Token], drafts_max: usize) -> Vec<Token> {
        let known = self.0.iter().find(|known| known.starts_with(history)).expect("a history that is known");
        known[history.len()..].iter().copied().take(drafts_max.min(6)).collect()
    }

    fn forget(&mut self, _: u64) {}
}

/// Numbers for draws behind drafts are guessed, and a temperature changes nothing of the guess: every right draft is taken.
#[test]
fn right_drafts_of_what_the_device_draws_are_all_accepted() {
    let program = one_group(400);
    let request = |seed: u64| {
        let params = SamplingParams { temperature: 1.5, tokens_max: 80, seed, ..SamplingParams::default() };
        Request { token_logits: seed == 2, ..Request::new(prompt(50, seed as u32), Sampling::new(params).unwrap()) }
    };
    let right: Vec<Vec<Token>> = (0..3).map(|seed| answer(&program, WEIGHTS, &request(seed), 0).tokens).collect();
    assert!(right[0] != right[1] && right[1] != right[2]);
    let outcome = |knows: bool| {
        let mut engine = engine(&program, &[32], Policy { speculation: Speculation::NGRAM, ..Policy::default() });
        let history = |seed: usize| [prompt(50, seed as u32), right[seed].clone()].concat();
        let drafter = Knows((0..3).map(history).collect());
        engine.set_drafter(knows.then(|| Box::new(drafter) as Box<dyn Drafter>));
        (0..3).for_each(|seed| _ = engine.submit(request(seed)).unwrap());
        let tokens: Vec<Vec<Token>> = run(&mut engine).into_values().map(|(tokens, ..)| tokens).collect();
        assert_eq!(tokens, right);
        *engine.counters()
    };
    let (plain, told) = (outcome(false), outcome(true));
    assert_eq!((plain.drafts_proposed, told.drafts_proposed), (0, told.drafts_accepted));
    assert!(told.drafts_accepted > 180 && told.steps < plain.steps / 4, "{told:?}");
}

#[test]
fn a_full_context_ends_with_length() {
    let program = one_group(100);
    let mut engine = engine(&program, &[8], Policy::default());
    let request = Request::new(prompt(90, 0), Sampling::greedy(usize::MAX));
    let right = answer(&program, WEIGHTS, &request, 0);
    engine.submit(request).unwrap();
    let (tokens, reason, _) = run(&mut engine)[&(0, 0)].clone();
    assert_eq!((tokens.len(), reason), (10, Some(FinishReason::ContextFull)));
    assert_eq!(tokens, right.tokens);
    assert_eq!(FinishReason::ContextFull.as_api(), "length");
}

#[test]
fn an_answer_has_its_whole_length_from_any_pool_or_the_request_is_refused() {
    let program = one_group(4_000);
    let request = Request::new(prompt(40, 1), Sampling::greedy(700));
    let right = answer(&program, WEIGHTS, &request, 0);
    assert_eq!((right.tokens.len(), right.reason), (700, FinishReason::Length));
    for pages in [4, 8, 11, 12, 16, 64] {
        let mut engine = engine(&program, &[pages], Policy::default());
        match engine.submit(request.clone()) {
            Ok(_) => {
                assert!(pages >= 12);
                let (tokens, reason, _) = run(&mut engine)[&(0, 0)].clone();
                assert_eq!((tokens, reason), (right.tokens.clone(), Some(right.reason)), "{pages} pages");
            }
            Err(EngineError::ExceedsPool { prompt: 40, tokens: 740, pool }) => {
                assert!(pages < 12);
                assert_eq!(pool, pages * PAGE + 1);
                assert!(engine.is_idle(), "nothing is queued");
            }
            Err(error) => panic!("{error}"),
        }
    }
}

#[test]
fn an_answer_without_a_limit_needs_a_pool_for_the_context_and_ends_with_it_under_load_too() {
    let program = one_group(190);
    let request = |i: u32| Request::new(prompt(100, i), Sampling::greedy(usize::MAX));
    let mut small = engine(&program, &[2], Policy::default());
    assert!(matches!(small.submit(request(1)), Err(EngineError::ExceedsPool { tokens: 190, pool: 129, .. })));
    for pages in [3, 4, 20] {
        let mut engine = engine(&program, &[pages], Policy { prefix_cache: false, ..Policy::default() });
        for i in 0..4 {
            engine.submit(request(i)).unwrap();
        }
        let answers = run(&mut engine);
        for i in 0..4 {
            let right = answer(&program, WEIGHTS, &request(i), 0);
            let (tokens, reason, _) = &answers[&(u64::from(i), 0)];
            assert_eq!((tokens, *reason), (&right.tokens, Some(FinishReason::ContextFull)));
        }
        assert_eq!(engine.counters().preemptions > 0, pages == 4, "{pages} pages");
    }
}

#[test]
fn choices_share_the_prompts_pages() {
    let program = one_group(1_000);
    let mut engine = engine(&program, &[32], Policy::default());
    let params = SamplingParams { temperature: 1.0, tokens_max: 8, seed: 3, ..SamplingParams::default() };
    let sampling = Sampling::new(params).unwrap();
    let request = Request { choices: 4, ..Request::new(prompt(200, 0), sampling) };
    engine.submit(request.clone()).unwrap();
    let answers = run(&mut engine);
    for choice in 0..4 {
        let (tokens, _, usage) = &answers[&(0, choice)];
        assert_eq!(*tokens, answer(&program, WEIGHTS, &request, choice).tokens);
        assert_eq!(usage.cached_tokens, if choice == 0 { 0 } else { 3 * PAGE });
    }
    assert_ne!(answers[&(0, 0)].0, answers[&(0, 1)].0);
}

#[test]
fn generated_tokens_are_found_in_the_prefix_cache_too() {
    let program = one_group(1_000);
    let mut engine = engine(&program, &[32], Policy::default());
    let first = prompt(100, 0);
    engine.submit(Request::new(first.clone(), Sampling::greedy(100))).unwrap();
    let tokens = run(&mut engine)[&(0, 0)].0.clone();
    let follow_up: Vec<Token> = first.into_iter().chain(tokens).chain([1, 2, 3]).collect();
    engine.submit(Request::new(follow_up, Sampling::greedy(4))).unwrap();
    assert_eq!(run(&mut engine)[&(1, 0)].2.cached_tokens, 3 * PAGE);
}

#[test]
fn salts_and_prompt_logits_keep_out_of_the_cache() {
    let program = one_group(1_000);
    let mut engine = engine(&program, &[32], Policy::default());
    let request = Request::new(prompt(200, 0), Sampling::greedy(2));
    let others = [
        Request { salt: 1, ..request.clone() },
        Request { prompt_logits: true, ..request.clone() },
        Request { use_prefix_cache: false, ..request.clone() },
    ];
    engine.submit(request).unwrap();
    run(&mut engine);
    for other in others {
        engine.submit(other).unwrap();
        let answers = run(&mut engine);
        assert!(answers.values().all(|(_, _, usage)| usage.cached_tokens == 0));
    }
}

#[test]
fn a_hit_after_eviction_of_window_pages_is_refused_or_right() {
    // The pool of the sliding group holds little more than one window; the other group holds everything.
    let program = program(&[None, Some(70)], &[0, 1], 24, 2_000);
    let mut engine = engine(&program, &[64, 4], Policy::default());
    for i in 0..6 {
        engine.submit(Request::new(prompt(300, i % 2), Sampling::greedy(40))).unwrap();
    }
    let answers = run(&mut engine);
    for i in 0..6 {
        let request = Request::new(prompt(300, i % 2), Sampling::greedy(40));
        let right = answer(&program, WEIGHTS, &request, 0);
        assert_eq!(answers[&(u64::from(i), 0)].0, right.tokens);
    }
    assert!(engine.counters().evictions > 0 && engine.counters().released_behind > 0);
}

/// A page with a state is enough to go on from its end. The pool has few of them.
#[test]
fn states_at_prompts_ends_and_at_every_sixteenth_page_outlive_others() {
    let mut program = program(&[None, Some(PAGE as u32 + 1)], &[0, 1], 24, 4_000);
    program.groups[1].state = vec![PartDecl { heads: 1, width: 1, dtype: Dtype::F32 }];
    let mut engine = engine(&program, &[300, 8], Policy::default());
    let mut cached = |start: usize, salt: u32| {
        let prompt = [prompt(start, 0), prompt(1_700 - start, salt)].concat();
        let request = Request::new(prompt, Sampling::greedy(200));
        let right = answer(&program, WEIGHTS, &request, 0).tokens;
        let id = engine.submit(request).unwrap();
        let answers = run(&mut engine);
        assert_eq!(answers[&(id.0, 0)].0, right);
        answers[&(id.0, 0)].2.cached_tokens
    };
    assert_eq!(cached(1_100, 1), 0);
    // Where the prompt ends, after an answer of four pages.
    assert_eq!(cached(1_100, 1), 26 * PAGE);
    // At the sixteenth page, of a prompt that ends otherwise.
    assert_eq!(cached(1_100, 2), 16 * PAGE);
    assert_eq!(cached(1_000, 3), 0);
    assert!(engine.counters().evictions > 0);
}

#[test]
fn a_sliding_window_runs_far_beyond_its_pool() {
    let program = program(&[Some(100)], &[0], 24, 3_000);
    let mut engine = engine(&program, &[4], Policy::default());
    assert_eq!(engine.tokens_held(), usize::MAX);
    let id = engine.submit(Request::new(prompt(1_000, 0), Sampling::greedy(1_000))).unwrap();
    while engine.counters().tokens < 200 {
        engine.step(&mut |_| {}).unwrap();
    }
    engine.preempt(id);
    let mut tokens = engine.counters().tokens;
    tokens += run(&mut engine)[&(0, 0)].0.len() as u64;
    assert_eq!(tokens, 1_000);
    // Pages behind the window were there to take; nothing had to be thrown out for them.
    assert_eq!(engine.counters().preemptions, 1);
}

#[test]
fn eviction_takes_the_deepest_block_of_the_least_recently_used_chain() {
    let program = one_group(1_000);
    let mut engine = engine(&program, &[8], Policy::default());
    let mut cached = |salt: u32| {
        let request = Request::new(prompt(200, salt), Sampling::greedy(2));
        let id = engine.submit(request).unwrap();
        run(&mut engine)[&(id.0, 0)].2.cached_tokens
    };
    // Three blocks each stay of 1 and 2; 3 needs two more pages than are free, which are 1's last.
    assert_eq!([cached(1), cached(2), cached(3)], [0, 0, 0]);
    assert_eq!(cached(1), PAGE);
    assert_eq!(cached(1), 3 * PAGE);
}

#[test]
fn speculation_gives_the_same_tokens_in_fewer_steps() {
    let program = one_group(1_000);
    let outcome = |speculation: Speculation| -> (Vec<Token>, Counters) {
        let mut engine = engine(&program, &[32], Policy { speculation, ..Policy::default() });
        engine.submit(Request::new(prompt(50, 0), Sampling::greedy(300))).unwrap();
        (run(&mut engine)[&(0, 0)].0.clone(), *engine.counters())
    };
    let (plain, without) = outcome(Speculation::Off);
    let (drafted, with) = outcome(Speculation::NGRAM);
    assert_eq!(plain, drafted);
    assert!(with.drafts_accepted > 0 && with.steps < without.steps, "{with:?}");
    assert_eq!(with.steps + with.drafts_accepted, without.steps);
}

#[test]
fn pressure_preempts_and_changes_nothing() {
    let program = one_group(1_000);
    let mut engine = engine(&program, &[9], Policy::default());
    let request = |i: u32| Request::new(prompt(60, i), Sampling::greedy(200));
    for i in 0..10 {
        engine.submit(request(i)).unwrap();
    }
    let answers = run(&mut engine);
    for i in 0..10 {
        let right = answer(&program, WEIGHTS, &request(i), 0);
        assert_eq!(answers[&(u64::from(i), 0)].0, right.tokens);
    }
    assert!(engine.counters().preemptions > 0 && engine.counters().evictions > 0);
}

/// The second start finds generated tokens too. If it counted them, hits would exceed the prompt tokens that are looked up.
#[test]
fn cached_tokens_are_counted_at_a_first_start_only() {
    let program = one_group(1_000);
    let mut engine = engine(&program, &[32], Policy::default());
    let request = Request::new(prompt(130, 0), Sampling::greedy(200));
    for (queries, hits, starts_with_hits) in [(130, 0, 1), (260, 128, 3)] {
        let id = engine.submit(request.clone()).unwrap();
        let end = engine.counters().tokens + 150;
        while engine.counters().tokens < end {
            engine.step(&mut |_| {}).unwrap();
        }
        assert!(engine.preempt(id));
        run(&mut engine);
        let c = engine.counters();
        assert_eq!((c.prefix_query_tokens, c.prefix_hit_tokens, c.prefix_hits), (queries, hits, starts_with_hits));
    }
    assert_eq!(engine.counters().preemptions, 2);
}

#[test]
fn abort_gives_pages_back_at_once_and_reports_once() {
    let program = one_group(1_000);
    let mut engine = engine(&program, &[8], Policy { prefix_cache: false, ..Policy::default() });
    let id = engine.submit(Request::new(prompt(200, 0), Sampling::greedy(50))).unwrap();
    engine.step(&mut |_| {}).unwrap();
    assert!(engine.status().pages_free[0] < 8);
    assert!(engine.abort(id));
    assert_eq!(engine.status().pages_free[0], 8);
    assert!(!engine.abort(id) && !engine.abort(RequestId(99)));
    let mut ends = Vec::new();
    let mut see = |event: Event<'_>| match event {
        Event::Finished { request, reason, .. } => ends.push((request, reason)),
        _ => panic!("an event after the abort that is not its report"),
    };
    engine.run_until_idle(&mut see).unwrap();
    assert!(!engine.abort(id));
    engine.step(&mut see).unwrap();
    assert_eq!(ends, [(id, FinishReason::Aborted)]);
}

/// Fails every third step, with its cache intact.
struct Flaky(SymbolicDevice, u32);

impl Device for Flaky {
    type Logits = [f32];
    type Top = [(Token, f32)];

    vosti_engine::forward_device!(device in [Self(device, _)]: limits, clear, rows);

    fn run(&mut self, program: &Program, plan: &StepPlan) -> Result<(), DeviceError> {
        self.1 += 1;
        if self.1.is_multiple_of(3) {
            return Err(DeviceError { message: "the wire came off; put it back".into(), intact: true });
        }
        self.0.run(program, plan)
    }
}

#[test]
fn a_step_that_the_device_failed_can_be_tried_again() {
    let program = one_group(1_000);
    let device = Flaky(SymbolicDevice::new(&program, &[32], 64, 64, WEIGHTS), 0);
    let mut engine = Engine::new(device, program.clone(), Policy::default()).unwrap();
    let request = Request::new(prompt(150, 0), Sampling::greedy(20));
    engine.submit(request.clone()).unwrap();
    let (mut tokens, mut failures) = (Vec::new(), 0);
    while !engine.is_idle() {
        let stepped = engine.step(&mut |event| {
            if let Event::Token { token, .. } = event {
                tokens.push(token);
            }
        });
        failures += u32::from(matches!(stepped, Err(EngineError::Device(_))));
    }
    assert_eq!(tokens, answer(&program, WEIGHTS, &request, 0).tokens);
    assert!(failures > 5);
}
