//! The meaning of each sampling parameter, claim by claim.

use super::*;
use std::sync::Arc;
use vosti_core::Sampler;

const ROW: [f32; 6] = [1.0, 4.0, 2.0, 4.0, -1.0, 3.0];

fn state(params: SamplingParams) -> SamplerState {
    SamplerState::new(&Sampling::new(params).unwrap(), &[0, 2], 0)
}

fn first(params: SamplingParams) -> Token {
    TokenSampler::new(6).sample(&mut state(params), &ROW).0
}

/// How often each token is drawn over many seeds.
fn histogram(params: SamplingParams, draws: u64) -> Vec<f64> {
    let mut counts = vec![0u64; ROW.len()];
    for seed in 0..draws {
        counts[first(SamplingParams { seed, ..params.clone() }) as usize] += 1;
    }
    counts.iter().map(|c| *c as f64 / draws as f64).collect()
}

fn warm() -> SamplingParams {
    SamplingParams { temperature: 1.0, ..SamplingParams::default() }
}

#[test]
fn greedy_takes_the_largest_and_the_lower_id_of_two() {
    assert_eq!(first(SamplingParams::default()), 1);
}

#[test]
fn a_draw_depends_on_seed_choice_and_position_only() {
    let sampler = TokenSampler::new(6);
    let sampling = Sampling::new(warm()).unwrap();
    let run = |choice: u32, noise: usize| -> Vec<Token> {
        let mut state = SamplerState::new(&sampling, &[0], choice);
        let mut other = SamplerState::new(&sampling, &[0], 99);
        (0..32)
            .map(|_| {
                for _ in 0..noise {
                    sampler.sample(&mut other, &ROW);
                }
                sampler.sample(&mut state, &ROW).0
            })
            .collect()
    };
    assert_eq!(run(0, 0), run(0, 3));
    assert_ne!(run(0, 0), run(1, 0));
}

#[test]
fn draws_follow_the_softmax() {
    let drawn = histogram(warm(), 20_000);
    let top = math::max(&ROW);
    let sum = math::sum_exp(&ROW, top);
    for (logit, share) in ROW.iter().zip(drawn) {
        let expected = f64::from(math::exp_negative(logit - top)) / sum;
        assert!((share - expected).abs() < 0.015, "{share} for {expected}");
    }
}

#[test]
fn top_k_keeps_k_with_ties_by_id() {
    let drawn = histogram(SamplingParams { top_k: 1, ..warm() }, 200);
    assert_eq!(drawn[1], 1.0);
    let drawn = histogram(SamplingParams { top_k: 3, ..warm() }, 2_000);
    assert!(drawn[1] > 0.0 && drawn[3] > 0.0 && drawn[5] > 0.0);
    assert_eq!(drawn[0] + drawn[2] + drawn[4], 0.0);
}

#[test]
fn top_p_keeps_the_smallest_set_that_reaches_it() {
    // Shares are about 0.39, 0.39, 0.14, 0.05, 0.02.
    let drawn = histogram(SamplingParams { top_p: 0.5, ..warm() }, 2_000);
    assert!(drawn[1] > 0.4 && drawn[3] > 0.4);
    assert_eq!(drawn[5] + drawn[0] + drawn[2] + drawn[4], 0.0);
    let drawn = histogram(SamplingParams { top_p: 0.3, ..warm() }, 200);
    assert_eq!(drawn[1], 1.0);
}

#[test]
fn typical_p_drops_a_token_that_is_much_likelier_than_the_others_let_expect() {
    // One token has 0.35, five have 0.13: a surprise of 1.05 or 2.04, and 1.69 is expected.
    let row: Vec<f32> = [0.35f32, 0.13, 0.13, 0.13, 0.13, 0.13].map(libm::logf).into();
    let drawn = |params: SamplingParams| -> Vec<Token> {
        let draw = |seed| TokenSampler::new(6).sample(&mut state(SamplingParams { seed, ..params.clone() }), &row).0;
        (0..400).map(draw).collect()
    };
    let typical = drawn(SamplingParams { typical_p: 0.6, ..warm() });
    assert!(!typical.contains(&0) && (1..6).all(|token| typical.contains(&token)));
    let few = drawn(SamplingParams { typical_p: 0.2, ..warm() });
    assert!(few.iter().all(|token| [1, 2].contains(token)) && few.contains(&2), "ties go to the lower tokens");
    // The same from a list, and then top-p counts among what is left.
    assert_eq!(drawn(SamplingParams { typical_p: 0.6, top_k: 6, ..warm() }), typical);
    let both = drawn(SamplingParams { typical_p: 0.6, top_p: 0.3, ..warm() });
    assert!(both.iter().all(|token| [1, 2].contains(token)));
}

#[test]
fn min_p_drops_what_is_much_less_likely_than_the_best() {
    let drawn = histogram(SamplingParams { min_p: 0.3, ..warm() }, 2_000);
    assert!(drawn[1] > 0.0 && drawn[3] > 0.0 && drawn[5] > 0.0);
    assert_eq!(drawn[0] + drawn[2] + drawn[4], 0.0);
}

#[test]
fn temperature_sharpens_and_flattens() {
    let cold = histogram(SamplingParams { temperature: 0.1, ..warm() }, 1_000);
    let hot = histogram(SamplingParams { temperature: 20.0, ..warm() }, 5_000);
    assert!(cold[1] + cold[3] > 0.99);
    assert!(hot[4] > 0.1);
}

#[test]
fn bias_forces_and_forbids_tokens() {
    let bias = |logit_bias: Vec<(Token, f32)>| SamplingParams { logit_bias, ..SamplingParams::default() };
    assert_eq!(first(bias(vec![(4, 100.0)])), 4);
    assert_eq!(first(bias(vec![(1, -100.0), (3, -100.0)])), 5);
}

#[test]
fn repetition_penalty_sees_prompt_and_answer() {
    let sampler = TokenSampler::new(6);
    let params = SamplingParams { repetition_penalty: 2.0, ..SamplingParams::default() };
    let mut state = state(params);
    let tokens: Vec<Token> = (0..4).map(|_| sampler.sample(&mut state, &ROW).0).collect();
    // 1 and 3 halve to 2.0, then 5 halves to 1.5; 2 is in the prompt (1.0): 1 is next again.
    assert_eq!(tokens, [1, 3, 5, 1]);
}

#[test]
fn presence_and_frequency_count_the_answer_only() {
    let sampler = TokenSampler::new(6);
    let params = SamplingParams { frequency_penalty: 0.6, ..SamplingParams::default() };
    let mut counted = state(params);
    let tokens: Vec<Token> = (0..6).map(|_| sampler.sample(&mut counted, &ROW).0).collect();
    assert_eq!(tokens, [1, 3, 1, 3, 5, 1]);
    let params = SamplingParams { presence_penalty: 2.0, ..SamplingParams::default() };
    let mut present = state(params);
    let tokens: Vec<Token> = (0..4).map(|_| sampler.sample(&mut present, &ROW).0).collect();
    assert_eq!(tokens, [1, 3, 5, 1]);
}

#[test]
fn sequences_end_at_stop_tokens_and_at_tokens_max() {
    let sampler = TokenSampler::new(6);
    let mut stopped = state(SamplingParams { stop_tokens: vec![9, 1], ..SamplingParams::default() });
    assert_eq!(sampler.sample(&mut stopped, &ROW), (1, true));
    assert_eq!(stopped.finish(), Some(FinishReason::StopToken(1)));
    let mut limited = state(SamplingParams { tokens_max: 2, ..SamplingParams::default() });
    assert_eq!(sampler.sample(&mut limited, &ROW), (1, false));
    assert_eq!(sampler.sample(&mut limited, &ROW), (1, true));
    assert_eq!(limited.finish(), Some(FinishReason::Length));
}

#[test]
fn sequences_end_at_a_stop_string_over_several_tokens() {
    let sampler = TokenSampler::new(6);
    let text = |token: Token, out: &mut Vec<u8>| out.extend_from_slice(format!("<{token}>").as_bytes());
    let mut state = state(SamplingParams {
        stop_strings: vec!["zz".into(), "1><1>".into()],
        text: Some(Arc::new(text)),
        ..SamplingParams::default()
    });
    assert_eq!(sampler.sample(&mut state, &ROW), (1, false));
    assert_eq!(sampler.sample(&mut state, &ROW), (1, true));
    assert_eq!(state.finish(), Some(FinishReason::StopString(1)));
}

/// Allows even tokens, two of them.
struct Even(u32);

impl Constraint for Even {
    fn mask(&mut self, logits: &mut [f32]) {
        logits.iter_mut().skip(1).step_by(2).for_each(|x| *x = f32::NEG_INFINITY);
    }
    fn accept(&mut self, _: Token) -> bool {
        self.0 += 1;
        self.0 == 2
    }
}

#[test]
fn a_constraint_masks_and_ends() {
    let sampler = TokenSampler::new(6);
    let make = || Box::new(Even(0)) as Box<dyn Constraint>;
    let mut state = state(SamplingParams { constraint: Some(Arc::new(make)), ..warm() });
    let (token, done) = sampler.sample(&mut state, &ROW);
    assert!(token % 2 == 0 && !done);
    assert!(sampler.sample(&mut state, &ROW).1);
    assert_eq!(state.finish(), Some(FinishReason::Constraint));
}

#[test]
fn strange_rows_give_a_token_and_no_panic() {
    let sampler = TokenSampler::new(3);
    let hot = SamplingParams { top_k: 2, top_p: 0.9, ..warm() };
    for row in [[f32::NAN; 3], [f32::NEG_INFINITY; 3], [f32::INFINITY; 3], [0.0, f32::NAN, f32::INFINITY]] {
        for params in [SamplingParams::default(), hot.clone()] {
            let sampling = Sampling::new(params).unwrap();
            let (token, _) = sampler.sample(&mut SamplerState::new(&sampling, &[0], 0), &row);
            assert!(token < 3);
        }
    }
}

/// The prompt's token 5, the tokens with a bias and the stop token have no logit in a row of two, nor has the answer's token 4.
#[test]
fn a_row_narrower_than_the_vocabulary_gives_a_token_and_no_panic() {
    let penalties = SamplingParams {
        repetition_penalty: 1.3,
        presence_penalty: 0.5,
        frequency_penalty: 0.4,
        logit_bias: vec![(5, 1.0)],
        stop_tokens: vec![5],
        tokens_min: 3,
        tokens_max: 8,
        ..SamplingParams::default()
    };
    for params in [penalties.clone(), SamplingParams { temperature: 1.0, ..penalties }] {
        let mut state = SamplerState::new(&Sampling::new(params).unwrap(), &[0, 5], 0);
        let sampler = TokenSampler::new(6);
        assert_eq!(sampler.sample(&mut state, &[0.0, 0.0, 0.0, 0.0, 90.0, 0.0]).0, 4);
        assert!(sampler.sample(&mut state, &[1.0, 2.0]).0 < 2);
        assert_eq!(sampler.sample(&mut state, &[]).0, 0);
    }
}

#[test]
fn no_stop_token_comes_before_the_least_length_unless_nothing_else_is_left() {
    let sampler = TokenSampler::new(6);
    // Token 1 is the largest, and stops.
    let params = SamplingParams { stop_tokens: vec![1], tokens_min: 2, ..SamplingParams::default() };
    let mut long = state(params.clone());
    assert_eq!(sampler.sample(&mut long, &ROW), (3, false));
    assert_eq!(sampler.sample(&mut long, &ROW), (3, false));
    assert_eq!(sampler.sample(&mut long, &ROW), (1, true));
    assert_eq!(long.finish(), Some(FinishReason::StopToken(1)));
    let only = [f32::NEG_INFINITY, 0.0, f32::NEG_INFINITY, f32::NEG_INFINITY, f32::NEG_INFINITY, f32::NEG_INFINITY];
    assert_eq!(sampler.sample(&mut state(params), &only), (1, true));
}

#[test]
fn the_processed_row_is_the_distribution_that_is_drawn_from() {
    let row: Vec<f32> = (0..40).map(|i| ((i * 7 % 40) as f32) * 0.2).collect();
    let base = SamplingParams { temperature: 0.7, ..SamplingParams::default() };
    for params in [
        base.clone(),
        SamplingParams { top_k: 5, ..base.clone() },
        SamplingParams { top_p: 0.6, ..base.clone() },
        SamplingParams { top_k: 9, top_p: 0.8, min_p: 0.05, ..base.clone() },
        SamplingParams {
            repetition_penalty: 1.5,
            presence_penalty: 0.5,
            logit_bias: vec![(3, 4.0)],
            min_p: 0.1,
            ..base
        },
    ] {
        let sampling = Sampling::new(SamplingParams { seed: 3, tokens_max: 4_000, ..params }).unwrap();
        let sampler = TokenSampler::new(40);
        let (mut drawing, mut shown) =
            (SamplerState::new(&sampling, &[1, 2], 0), SamplerState::new(&sampling, &[1, 2], 0));
        let (mut expected, mut seen) = ([0.0f64; 40], [0.0f64; 40]);
        for _ in 0..2_000 {
            let processed = shown.processed(&row);
            let of =
                |token: usize| libm::exp(f64::from(crate::logprobs::logprobs(&processed, token as Token, 0).logprob));
            (0..40).for_each(|token| expected[token] += of(token));
            let (token, _) = vosti_core::Sampler::sample(&sampler, &mut drawing, &row);
            assert!(processed[token as usize] > f32::NEG_INFINITY, "{sampling:?} draws what it drops");
            seen[token as usize] += 1.0;
            shown.accept(token);
        }
        assert!((expected.iter().sum::<f64>() - 2_000.0).abs() < 1e-2);
        for (expected, seen) in expected.iter().zip(seen) {
            assert!((expected - seen).abs() < 6.0 * expected.sqrt() + 3.0, "{expected} for {seen}: {sampling:?}");
        }
    }
}

/// A state on a device that makes lists of eight and draws.
fn drawing(params: SamplingParams) -> SamplerState {
    state(params).on_device(8, true)
}

#[test]
fn a_choice_reads_a_drawn_token_if_only_a_temperature_shapes_its_row() {
    let drawn = |params: SamplingParams| matches!(drawing(params).reads(), Reads::Drawn(_));
    for temperature in [1e-6, 0.3, 1.0, 100.0] {
        assert!(drawn(SamplingParams { temperature, seed: 8, stop_tokens: vec![1], ..warm() }));
    }
    let make = || Box::new(Even(0)) as Box<dyn Constraint>;
    for other in [
        SamplingParams { temperature: 0.0, ..warm() },
        SamplingParams { min_p: 0.1, ..warm() },
        SamplingParams { top_p: 0.9, ..warm() },
        SamplingParams { typical_p: 0.9, ..warm() },
        SamplingParams { top_k: 1, ..warm() },
        SamplingParams { top_k: 9, ..warm() },
        SamplingParams { repetition_penalty: 1.1, ..warm() },
        SamplingParams { presence_penalty: 0.1, ..warm() },
        SamplingParams { frequency_penalty: 0.1, ..warm() },
        SamplingParams { logit_bias: vec![(1, 1.0)], ..warm() },
        SamplingParams { tokens_min: 1, ..warm() },
        SamplingParams { constraint: Some(Arc::new(make)), ..warm() },
    ] {
        assert!(!drawn(other.clone()), "{other:?}");
    }
    assert_eq!(state(warm()).on_device(8, false).reads(), Reads::Row, "the device draws nothing");
}

#[test]
fn a_draws_numbers_are_the_temperature_and_those_of_the_position() {
    let of = |params| match drawing(params).reads() {
        Reads::Drawn(Draw { scale, part, within }) => [scale, part, within].map(f32::from_bits),
        other => panic!("{other:?}"),
    };
    let [scale, part, within] = of(SamplingParams { temperature: 0.5, seed: 3, ..warm() });
    assert!((scale - 2.0 * std::f32::consts::LOG2_E).abs() < 1e-6);
    assert_eq!([part, within], random::pair(3, 0, 2), "the prompt has two tokens");
    let [scale, ..] = of(SamplingParams { temperature: f32::MIN_POSITIVE, ..warm() });
    assert!(scale.is_finite());
}

#[test]
fn what_is_guessed_are_the_numbers_that_come_after_so_many_tokens() {
    for seed in 0..20 {
        let sampler = TokenSampler::new(6);
        let mut state = drawing(SamplingParams { seed, tokens_max: 40, ..warm() });
        for at in 0..5 {
            let guesses: Vec<Draw> = (0..10).map(|ahead| sampler.guess(&state, ahead)).collect();
            let mut later = drawing(SamplingParams { seed, tokens_max: 40, ..warm() });
            (0..at).for_each(|_| _ = later.accept(1));
            for guess in guesses {
                assert_eq!(later.reads(), Reads::Drawn(guess));
                sampler.sample_drawn(&mut later, 4);
            }
            state.accept(2);
        }
    }
}
