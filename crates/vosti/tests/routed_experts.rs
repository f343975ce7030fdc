//! The experts that tokens chose, as a request may ask for them: the same whatever else the engine does, and those that a replay
//! of the answer as a prompt gives.

use std::collections::BTreeMap;
use std::path::Path;

use vosti::deployment::{DeployOptions, Deployment, DeviceConfig};
use vosti_engine::{EngineError, Event, Policy, Request, Sampling, Speculation};

type Experts = Vec<Vec<Vec<i32>>>;

fn deployment(name: &str) -> Deployment {
    let config = Path::new(env!("CARGO_MANIFEST_DIR")).join("../vosti-model/tests/tiny").join(name).join("config.json");
    let options = DeployOptions { context: Some(256), threads: Some(2), ..Default::default() };
    Deployment::load(name, &config, &options, &vosti_engine::progress::NoProgress).unwrap()
}

fn asks(prompt: &[u32], tokens: usize) -> Request {
    Request { routed_experts: true, token_logits: false, ..Request::new(prompt.to_vec(), Sampling::greedy(tokens)) }
}

/// The answers and the experts of each request, which arrive one step apart. `preempt` takes the first one's pages a few times.
fn serve(deployment: &Deployment, policy: Policy, requests: Vec<Request>, preempt: bool) -> Vec<(Vec<u32>, Experts)> {
    let config = DeviceConfig { pages: Some(40), rows_max: policy.rows_step_max, ..Default::default() };
    let mut engine = deployment.engine(&config, policy).unwrap();
    let mut got: BTreeMap<u64, (Vec<u32>, Experts)> = BTreeMap::new();
    let mut requests = requests.into_iter();
    let (mut first, mut steps) = (None, 0);
    loop {
        match requests.next() {
            Some(request) => first = first.or(Some(engine.submit(request).unwrap())),
            None if engine.is_idle() => break,
            None => {}
        }
        if preempt && [3, 8, 20].contains(&steps) {
            engine.preempt(first.unwrap());
        }
        steps += 1;
        engine
            .step(&mut |event| {
                let of = got.entry(event.request().0).or_default();
                match event {
                    Event::Routed { position, experts, .. } => {
                        assert_eq!(position, of.1.len(), "each position once, in order");
                        of.1.push(experts.to_vec());
                    }
                    Event::Token { token, .. } => of.0.push(token),
                    _ => {}
                }
            })
            .unwrap();
    }
    got.into_values().collect()
}

#[test]
fn experts_of_a_request_do_not_depend_on_what_else_happens() {
    for (name, layers, experts, chosen) in
        [("qwen3-moe", 2, 6, 2), ("gpt-oss", 3, 6, 2), ("glm4-moe", 2, 10, 2), ("ling", 2, 12, 4)]
    {
        let deployment = deployment(name);
        let vocab = deployment.program().vocab;
        let prompt: Vec<u32> = (0..70).map(|i| (i * 37 + 5) % vocab).collect();
        let alone = serve(&deployment, Policy::default(), vec![asks(&prompt, 12)], false).remove(0);
        let (tokens, routed) = &alone;
        assert_eq!(routed.len(), prompt.len() + tokens.len() - 1, "{name}");
        for position in routed {
            assert_eq!(position.len(), layers, "{name}");
            for layer in position {
                let mut own = layer.clone();
                own.sort_unstable();
                own.dedup();
                assert!(own.len() == chosen && own.iter().all(|e| (0..experts).contains(e)), "{name}: {layer:?}");
            }
        }
        let distinct: std::collections::HashSet<_> = routed.iter().collect();
        assert!(distinct.len() > 8, "{name}: routers that always choose alike show nothing");

        // What was generated, as a prompt.
        let replayed: Vec<u32> = prompt.iter().chain(tokens).copied().collect();
        let again = serve(&deployment, Policy::default(), vec![asks(&replayed, 1)], false).remove(0).1;
        assert_eq!(again[..routed.len()], routed[..], "{name}: prefill and decode");

        let others = |first: Request| -> Vec<Request> {
            let other = |i: u32| Request::new((0..40 + i).map(|j| (j * 11 + i) % vocab).collect(), Sampling::greedy(9));
            [Request { routed_experts: false, ..first.clone() }, first, other(1), asks(&other(2).prompt, 9)].into()
        };
        let small = Policy { rows_step_max: 24, rows_sequence_max: 7, ..Policy::default() };
        for (policy, preempt) in
            [(small, false), (small, true), (Policy { speculation: Speculation::NGRAM, ..Policy::default() }, true)]
        {
            let first = asks(&prompt, 12);
            let got = serve(&deployment, policy, others(first), preempt);
            assert_eq!(got[1], alone, "{name}");
            assert!(got[0].1.is_empty() && got[2].1.is_empty(), "{name}: nobody asked");
        }
        // All drafts are right, or all wrong.
        for foreseen in [tokens.clone(), tokens.iter().map(|t| (t + 1) % vocab).collect()] {
            let request = Request { foreseen: vec![foreseen], ..asks(&prompt, 12) };
            assert_eq!(serve(&deployment, Policy::default(), vec![request], false)[0], alone, "{name}: drafts");
        }
    }
}

#[test]
fn a_model_without_experts_refuses_the_request() {
    let deployment = deployment("llama");
    let config = DeviceConfig { pages: Some(4), rows_max: 16, ..Default::default() };
    let policy = Policy { rows_step_max: 16, ..Policy::default() };
    let error = deployment.engine(&config, policy).unwrap().submit(asks(&[1, 2], 1)).unwrap_err();
    assert!(matches!(error, EngineError::NoRouting) && error.to_string().contains("no mixture of experts"), "{error}");
}
