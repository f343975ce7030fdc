//! The device laws hold of the symbolic device, and each of them fails on a device that breaks it. The laws of the sampler
//! hold of the sampler, and each of them fails on a sampler that breaks it. Every contract clause of the seam names its law, and every law is named there.

mod broken;
mod broken_sampler;

use broken::{Break, BrokenDevice};
use broken_sampler::{BrokenSampler, Flaw};
use std::collections::BTreeSet;
use vosti_check::faulty::{Fault, FaultyDevice};
use vosti_check::laws::{self, Bench, Subject, Verdict};
use vosti_check::symbolic::{self, SymbolicDevice};
use vosti_core::{BufferDecl, DeviceError, Dtype, Op, Program, Reads, RowSet, Sampler, StepPlan, Token};
use vosti_engine::sampler::{SamplerState, TokenSampler};
use vosti_engine::{Sampling, SamplingParams, math};

const VOCAB: u32 = 60;
/// Tokens from here on stand for KV that is not finite.
const OVERFLOWING: u32 = 50;
const PAGES: usize = 8;

fn attending() -> Program {
    symbolic::program(&[Some(50), None], &[0, 1], VOCAB, 400)
}

fn rowwise() -> Program {
    let buffer = |dtype, width, rows| BufferDecl { width, dtype, rows };
    let all = || buffer(Dtype::Bf16, 1, RowSet::All);
    let row = |k, from: u32, to: u32, rows| Op::Rowwise { k, ins: vec![from], outs: vec![to], rows };
    Program {
        ops: vec![Op::Embed { k: 0, out: 0 }, row(1, 0, 1, RowSet::All), row(2, 1, 2, RowSet::Selected)],
        buffers: vec![all(), all(), buffer(Dtype::F32, VOCAB, RowSet::Selected)],
        logits: 2,
        ..attending()
    }
}

type Watched = BrokenDevice<SymbolicDevice>;

fn broken(what: Option<Break>) -> Subject<Watched> {
    let bench = |program: Program| {
        let made = program.clone();
        let new = move |seed| SymbolicDevice::new(&made, &[PAGES, PAGES], 200, 180, seed);
        let windows = program.groups.iter().map(|g| g.window).collect::<Vec<_>>();
        Bench {
            device: Box::new(move || Ok(BrokenDevice::new(Box::new(new.clone()), &windows, OVERFLOWING, what))),
            program,
        }
    };
    Subject {
        rowwise: bench(rowwise()),
        attending: bench(attending()),
        overflowing: OVERFLOWING..VOCAB,
        refuse: BrokenDevice::refuse,
    }
}

fn healthy() -> Subject<Watched> {
    broken(None)
}

vosti_check::device_laws!(healthy);

type Law = fn(&Subject<Watched>) -> Verdict;

/// Each law, and faults that break it.
const BREAKS: &[(&str, Law, Break)] = &[
    ("rows_max_is_what_a_step_takes", laws::rows_max_is_what_a_step_takes, Break::TakesFewerRows),
    ("selected_max_is_what_a_step_takes", laws::selected_max_is_what_a_step_takes, Break::TakesFewerSelected),
    ("pages_are_what_there_is", laws::pages_are_what_there_is, Break::HasFewerPages),
    ("clearing_keeps_the_weights", laws::clearing_keeps_the_weights, Break::ClearingChangesWeights),
    ("clearing_keeps_the_weights", laws::clearing_keeps_the_weights, Break::ClearingChangesLimit(0)),
    ("clearing_keeps_the_weights", laws::clearing_keeps_the_weights, Break::ClearingChangesLimit(1)),
    ("clearing_keeps_the_weights", laws::clearing_keeps_the_weights, Break::ClearingChangesLimit(2)),
    ("clearing_keeps_the_weights", laws::clearing_keeps_the_weights, Break::ClearingChangesLimit(3)),
    ("clearing_keeps_the_weights", laws::clearing_keeps_the_weights, Break::ClearingChangesLimit(4)),
    ("clearing_leaves_finite_slots", laws::clearing_leaves_finite_slots, Break::ClearsNothing),
    ("running_keeps_the_weights", laws::running_keeps_the_weights, Break::WeightsDrift),
    ("running_keeps_the_weights", laws::running_keeps_the_weights, Break::RunningChangesLimit(0)),
    ("running_keeps_the_weights", laws::running_keeps_the_weights, Break::RunningChangesLimit(1)),
    ("running_keeps_the_weights", laws::running_keeps_the_weights, Break::RunningChangesLimit(2)),
    ("running_keeps_the_weights", laws::running_keeps_the_weights, Break::RunningChangesLimit(3)),
    ("running_keeps_the_weights", laws::running_keeps_the_weights, Break::RunningChangesLimit(4)),
    ("embedding_depends_on_its_token", laws::embedding_depends_on_its_token, Break::SeesTheRowBefore),
    ("rowwise_depends_on_its_row", laws::rowwise_depends_on_its_row, Break::TileByRows),
    ("selected_rows_are_gathered", laws::selected_rows_are_gathered, Break::GathersInReverse),
    ("stored_rows_are_found_again", laws::stored_rows_are_found_again, Break::StoresWithLogitsOnly),
    ("a_store_sees_the_entries_before_it", laws::a_store_sees_the_entries_before_it, Break::KeepsRejectedDrafts),
    ("other_slots_are_untouched", laws::other_slots_are_untouched, Break::StoresBesideToo),
    ("attention_sees_its_window_in_order", laws::attention_sees_its_window_in_order, Break::PhysicalOrder),
    ("what_is_stored_is_finite", laws::what_is_stored_is_finite, Break::StoresInfinity),
    ("an_intact_failure_keeps_the_rest", laws::an_intact_failure_keeps_the_rest, Break::FailsAndForgets),
    ("running_does_not_panic", laws::running_does_not_panic, Break::PanicsOnManySequences),
    ("logits_are_what_the_step_left", laws::logits_are_what_the_step_left, Break::LogitsOnce),
    ("whole_rows_are_brought", laws::whole_rows_are_brought, Break::BringsTheFirstSequence),
    (
        "the_best_token_is_the_rows_first_largest",
        laws::the_best_token_is_the_rows_first_largest,
        Break::BestOfTheNextRow,
    ),
    ("lists_are_as_long_as_is_said", laws::lists_are_as_long_as_is_said, Break::ListsFewer),
    ("lists_are_brought", laws::lists_are_brought, Break::ListsTheFirstSequence),
    ("a_list_has_the_rows_largest_in_order", laws::a_list_has_the_rows_largest_in_order, Break::ListOfTheNextRow),
    ("tokens_are_drawn_if_it_is_said", laws::tokens_are_drawn_if_it_is_said, Break::OnlySaysThatItDraws),
    ("tokens_are_drawn_if_it_is_said", laws::tokens_are_drawn_if_it_is_said, Break::DrawsUnsaid),
    ("tokens_are_drawn_if_it_is_said", laws::tokens_are_drawn_if_it_is_said, Break::RunningChangesLimit(4)),
    ("drawn_tokens_are_brought", laws::drawn_tokens_are_brought, Break::DrawsTheFirstSequence),
    (
        "a_drawn_token_depends_on_its_row_and_numbers",
        laws::a_drawn_token_depends_on_its_row_and_numbers,
        Break::DrawsOfTheNextRow,
    ),
    (
        "a_drawn_token_depends_on_its_row_and_numbers",
        laws::a_drawn_token_depends_on_its_row_and_numbers,
        Break::DrawsByTheNextNumbers,
    ),
];

#[test]
fn every_device_law_can_fail() {
    for (name, law, what) in BREAKS {
        match law(&broken(Some(*what))) {
            Ok(()) => panic!("{name} does not see {what:?}"),
            Err(found) => println!("{name}: {what:?}: {found}"),
        }
    }
}

/// Each fault of the simulator and of `vosti check` breaks a law too.
#[test]
fn every_fault_breaks_a_law() {
    for fault in Fault::ALL {
        let bench = |program: Program| {
            let made = program.clone();
            let new = move || SymbolicDevice::new(&made, &[PAGES, PAGES], 200, 180, 0);
            Bench { device: Box::new(move || Ok(FaultyDevice::new(new(), Some(fault)))), program }
        };
        let refuse = |_: &mut FaultyDevice<SymbolicDevice>, _: &Program, _: &StepPlan| {
            Err(DeviceError { message: "told to fail".into(), intact: true })
        };
        let (rowwise, attending) = (bench(rowwise()), bench(attending()));
        let subject = Subject { rowwise, attending, overflowing: VOCAB..VOCAB, refuse };
        let laws = [
            laws::rowwise_depends_on_its_row,
            laws::selected_rows_are_gathered,
            laws::stored_rows_are_found_again,
            laws::a_store_sees_the_entries_before_it,
            laws::other_slots_are_untouched,
        ];
        assert!(laws.iter().any(|law| law(&subject).is_err()), "{} breaks no law", fault.name());
    }
}

/// In the seam, `Law: name.` ends the sentence above each clause that promises something.
#[test]
fn every_clause_of_the_seam_has_its_law() {
    let seam = include_str!("../../../vosti-core/src/trusted/seam.rs");
    let laws: Vec<&str> = seam.split("Law: ").skip(1).filter_map(|rest| rest.split('.').next()).collect();
    let named: BTreeSet<&str> = laws.iter().copied().collect();
    assert_eq!(named.len(), laws.len(), "a law is named twice");
    let device = BREAKS.iter().map(|(name, ..)| *name);
    let there: BTreeSet<&str> = device.chain(SAMPLER_LAWS.iter().map(|(name, ..)| *name)).collect();
    assert_eq!(named, there, "laws that the seam names, and laws that there are");
    let promises = clauses(seam);
    let laws: usize = promises.iter().map(|clause| clause.matches("Law: ").count()).sum();
    assert!(laws >= there.len(), "the seam is not read as it is written");
    for clause in promises {
        let stated = ["Law: ", "(Laws: each op's", "(By definition"].iter().any(|mark| clause.contains(mark));
        assert!(stated, "a promise without a law: {clause}");
    }
}

/// The sentences above what is promised: in the traits after `ensures` (and above `no_unwind`), in `op_ran` all of them.
fn clauses(seam: &str) -> Vec<String> {
    let between = |from: &str, to: &str| &seam[seam.find(from).unwrap()..seam.find(to).unwrap()];
    let traits = between("pub trait Device", "/// Every slot of every layer is finite").lines();
    let ops = between("fn op_ran", "/// The ops ran one after").lines();
    let mut promises: Vec<String> = vec![];
    let (mut assumes, mut goes_on) = (false, false);
    for line in traits.chain(ops).map(str::trim) {
        let sentence = line.strip_prefix("// ").filter(|_| !assumes);
        match (sentence, promises.last_mut()) {
            (Some(sentence), Some(last)) if goes_on => *last = format!("{last} {sentence}"),
            (Some(sentence), _) => promises.push(sentence.into()),
            (None, _) => {}
        }
        goes_on = sentence.is_some();
        // The core proves a device's premises: they are no promises.
        assumes = line == "requires" || assumes && !line.starts_with("ensures") && !line.contains("fn ");
    }
    promises
}

#[test]
fn a_clause_without_a_law_is_seen() {
    let seam = "pub trait Device {\n requires\n // a premise\n ensures\n // a promise\n // in two lines\n x,\n}\n\
        /// Every slot of every layer is finite\nfn op_ran {\n // an op\n}\n/// The ops ran one after";
    assert_eq!(clauses(seam), ["a promise in two lines", "an op"]);
}

/// Makes samplers for a vocabulary: the sampler, or one with a flaw.
type New<'a> = dyn Fn(u32) -> BrokenSampler + 'a;

/// A law of `Sampler`.
type SamplerLaw = fn(&New<'_>) -> bool;

/// Chooses a token as the core does.
fn choose(sampler: &BrokenSampler, state: &mut SamplerState, row: &[f32]) -> (Token, bool) {
    match sampler.reads(state) {
        Reads::Row => sampler.sample(state, row),
        Reads::Top => sampler.sample_top(state, &math::top(row, LISTED)),
        Reads::Best => sampler.sample_best(state, math::first_largest(row)),
        Reads::Drawn(draw) => sampler.sample_drawn(state, math::drawn_by(row, draw)),
    }
}

/// Logits of a list.
const LISTED: usize = 8;

/// A state before the first token, on a device that makes lists.
fn listing(sampling: &Sampling, prompt: &[Token]) -> SamplerState {
    SamplerState::new(sampling, prompt, 0).on_device(LISTED, false)
}

/// A state before the first token, on a device that makes lists and draws tokens.
fn drawing(sampling: &Sampling, prompt: &[Token]) -> SamplerState {
    SamplerState::new(sampling, prompt, 0).on_device(LISTED, true)
}

/// Each law of the sampler, and a flaw that breaks it.
const SAMPLER_LAWS: &[(&str, SamplerLaw, Flaw)] = &[
    ("the_vocabulary_is_what_it_says", |new| (1..300).all(|n| new(n).vocab() == n), Flaw::VocabularyOneLess),
    ("a_choice_depends_on_state_and_logits", a_choice_depends_on_state_and_logits, Flaw::RowsByCallOrder),
    ("tokens_are_in_the_vocabulary", tokens_are_in_the_vocabulary, Flaw::RowsOneTooFar),
    ("what_a_choice_reads_depends_on_the_state", what_a_choice_reads_depends_on_the_state, Flaw::ReadsByCallOrder),
    ("what_a_choice_reads_depends_on_the_state", what_a_choice_reads_depends_on_the_state, Flaw::NumbersByCallOrder),
    ("a_best_choice_depends_on_state_and_token", a_best_choice_depends_on_state_and_token, Flaw::BestByCallOrder),
    ("best_choices_are_in_the_vocabulary", best_choices_are_in_the_vocabulary, Flaw::BestUnchecked),
    ("a_listed_choice_depends_on_state_and_list", a_listed_choice_depends_on_state_and_list, Flaw::ListsByCallOrder),
    ("listed_choices_are_in_the_vocabulary", listed_choices_are_in_the_vocabulary, Flaw::ListsUnchecked),
    ("a_drawn_choice_depends_on_state_and_token", a_drawn_choice_depends_on_state_and_token, Flaw::DrawnByCallOrder),
    ("drawn_choices_are_in_the_vocabulary", drawn_choices_are_in_the_vocabulary, Flaw::DrawnUnchecked),
];

fn samplings() -> Vec<Sampling> {
    let base = SamplingParams { tokens_max: 12, seed: 9, ..SamplingParams::default() };
    let warm = SamplingParams { temperature: 1.1, ..base.clone() };
    let params = [
        base.clone(),
        SamplingParams { stop_tokens: vec![3], ..base },
        warm.clone(),
        SamplingParams { top_k: 5, top_p: 0.9, ..warm.clone() },
        SamplingParams { top_k: 8, min_p: 0.2, ..warm.clone() },
        SamplingParams { top_k: 9, ..warm.clone() },
        SamplingParams { typical_p: 0.7, ..warm.clone() },
        SamplingParams { typical_p: 0.6, top_k: 7, ..warm.clone() },
        SamplingParams { min_p: 0.1, repetition_penalty: 1.3, ..warm.clone() },
        SamplingParams { presence_penalty: 0.5, frequency_penalty: 0.4, logit_bias: vec![(2, 1.5)], ..warm },
    ];
    params.into_iter().map(|p| Sampling::new(p).unwrap()).collect()
}

fn rows(seed: u32, vocab: u32) -> impl Iterator<Item = Vec<f32>> {
    let value = move |row: u32, i: u32| ((row * 31 + i * 17 + seed * 7) % 101) as f32 / 12.0 - 4.0;
    (0..10).map(move |row| (0..vocab).map(|i| value(row, i)).collect())
}

/// Two requests that ask the same, one alone, the other with strangers sampled in between.
fn a_choice_depends_on_state_and_logits(new: &New<'_>) -> bool {
    samplings().iter().all(|sampling| {
        let (alone, shared) = (new(40), new(40));
        let (mut one, mut two) = (SamplerState::new(sampling, &[1, 2], 0), SamplerState::new(sampling, &[1, 2], 0));
        rows(1, 40).enumerate().all(|(i, row)| {
            for other in samplings().iter().take(i % 4) {
                let mut stranger = SamplerState::new(other, &[7; 9], 1);
                rows(5, 40).take(2).for_each(|row| _ = shared.sample(&mut stranger, &row));
            }
            one.finish().is_some() || alone.sample(&mut one, &row) == shared.sample(&mut two, &row)
        })
    })
}

fn tokens_are_in_the_vocabulary(new: &New<'_>) -> bool {
    samplings().iter().all(|sampling| {
        // Rows as wide as the vocabulary, wider, narrower, and of nothing that is a number.
        let strange = [vec![f32::NAN; 20], vec![f32::NEG_INFINITY; 20], vec![f32::INFINITY; 20], vec![]];
        rows(2, 20).chain(rows(3, 64)).chain(rows(4, 1)).chain(strange).all(|row| {
            let mut state = SamplerState::new(sampling, &[1], 0);
            new(20).sample(&mut state, &row).0 < 20
        })
    })
}

/// Greedy choices, which read best tokens: the same state and token, the same choice and the same end.
fn a_best_choice_depends_on_state_and_token(new: &New<'_>) -> bool {
    samplings().iter().filter(|s| s.temperature == 0.0).all(|sampling| {
        let (one, two) = (new(40), new(40));
        let (mut a, mut b) = (SamplerState::new(sampling, &[1, 2], 0), SamplerState::new(sampling, &[1, 2], 0));
        rows(1, 40).map(|row| math::first_largest(&row)).all(|best| {
            two.sample_best(&mut SamplerState::new(sampling, &[7; 9], 1), best);
            a.finish().is_some()
                || one.reads(&a) == Reads::Best && one.sample_best(&mut a, best) == two.sample_best(&mut b, best)
        })
    })
}

/// The part of a row that a choice reads is a function of the state: after the same tokens, two choices read the same part, by the same
/// numbers if it is a drawn token.
fn what_a_choice_reads_depends_on_the_state(new: &New<'_>) -> bool {
    samplings().iter().all(|sampling| {
        let (one, two) = (new(40), new(40));
        let (mut a, mut b) = (drawing(sampling, &[1, 2]), drawing(sampling, &[1, 2]));
        rows(1, 40).all(|row| {
            two.reads(&drawing(&samplings()[2], &[1]));
            let alike = one.reads(&a) == two.reads(&b);
            choose(&one, &mut a, &row);
            choose(&two, &mut b, &row);
            alike
        })
    })
}

fn best_choices_are_in_the_vocabulary(new: &New<'_>) -> bool {
    let choice = |best| new(20).sample_best(&mut SamplerState::new(&Sampling::greedy(2), &[1], 0), best).0;
    [0, 7, 19, 20, 21, u32::MAX].into_iter().all(|best| choice(best) == best.min(19))
}

/// Choices among the largest, which read lists: the same state and list, the same choice and the same end.
fn a_listed_choice_depends_on_state_and_list(new: &New<'_>) -> bool {
    let listed = |s: &Sampling| TokenSampler::new(40).reads(&listing(s, &[1])) == Reads::Top;
    let samplings: Vec<Sampling> = samplings().into_iter().filter(listed).collect();
    !samplings.is_empty()
        && samplings.iter().all(|sampling| {
            let (one, two) = (new(40), new(40));
            let (mut a, mut b) = (listing(sampling, &[1, 2]), listing(sampling, &[1, 2]));
            rows(1, 40).map(|row| math::top(&row, LISTED)).all(|list| {
                two.sample_top(&mut listing(sampling, &[7; 9]), &list);
                a.finish().is_some() || one.sample_top(&mut a, &list) == two.sample_top(&mut b, &list)
            })
        })
}

fn listed_choices_are_in_the_vocabulary(new: &New<'_>) -> bool {
    let strange = [vec![], vec![(20, 1.0)], vec![(u32::MAX, f32::NAN)], vec![(3, f32::INFINITY), (99, 1.0)]];
    samplings()
        .iter()
        .all(|sampling| strange.iter().all(|list| new(20).sample_top(&mut listing(sampling, &[1]), list).0 < 20))
}

/// Choices of what a device drew: the same state and token, the same choice and the same end.
fn a_drawn_choice_depends_on_state_and_token(new: &New<'_>) -> bool {
    let reads = |s: &Sampling| matches!(TokenSampler::new(40).reads(&drawing(s, &[1])), Reads::Drawn(_));
    let samplings: Vec<Sampling> = samplings().into_iter().filter(reads).collect();
    !samplings.is_empty()
        && samplings.iter().all(|sampling| {
            let (one, two) = (new(40), new(40));
            let (mut a, mut b) = (drawing(sampling, &[1, 2]), drawing(sampling, &[1, 2]));
            rows(1, 40).map(|row| math::first_largest(&row)).all(|token| {
                two.sample_drawn(&mut drawing(sampling, &[7; 9]), token);
                a.finish().is_some() || one.sample_drawn(&mut a, token) == two.sample_drawn(&mut b, token)
            })
        })
}

fn drawn_choices_are_in_the_vocabulary(new: &New<'_>) -> bool {
    let choice = |token| new(20).sample_drawn(&mut drawing(&samplings()[2], &[1]), token).0;
    [0, 7, 19, 20, 21, u32::MAX].into_iter().all(|token| choice(token) == token.min(19))
}

/// A row may stay on the device because `sample` gives the token that a device draws by the numbers of the state, up to rounding: of
/// none of these rows another one.
#[test]
fn a_choice_that_reads_drawn_tokens_is_the_rows_own() {
    let mut seen = 0;
    for sampling in samplings() {
        for row in rows(1, 40).chain(rows(8, 40)).chain(rows(3, 5_000)).chain(strange()) {
            let sampler = TokenSampler::new(row.len() as u32);
            for len in 0..50 {
                // Another length is another position, with other numbers.
                let (mut a, mut b) = (drawing(&sampling, &vec![1; len]), listing(&sampling, &vec![1; len]));
                if let Reads::Drawn(draw) = sampler.reads(&a) {
                    seen += 1;
                    assert_eq!(sampler.reads(&b), Reads::Row, "nothing is drawn, no drawn token is read");
                    let drawn = math::drawn_by(&row, draw);
                    assert_eq!(sampler.sample(&mut b, &row), sampler.sample_drawn(&mut a, drawn), "{len} {row:?}");
                    assert_eq!(a.finish(), b.finish());
                }
            }
        }
    }
    assert_eq!(seen, 36 * 50, "those of a whole row, and no others");
}

/// Rows may stay on the device because `sample` and `sample_top` agree wherever only a list is read.
#[test]
fn a_choice_that_reads_lists_is_the_rows_own() {
    let mut seen = 0;
    for sampling in samplings() {
        for row in rows(1, 40).chain(rows(8, 40)).chain(strange()) {
            let sampler = TokenSampler::new(40);
            for seed in 0..50 {
                let (mut a, mut b) = (listing(&sampling, &[1, 2]), SamplerState::new(&sampling, &vec![1; seed], 0));
                if sampler.reads(&a) == Reads::Top {
                    seen += 1;
                    a = listing(&sampling, &vec![1; seed]);
                    assert_eq!(sampler.reads(&b), Reads::Row, "no lists, no list read");
                    assert_eq!(sampler.sample(&mut b, &row), sampler.sample_top(&mut a, &math::top(&row, LISTED)));
                    assert_eq!(a.finish(), b.finish());
                }
            }
        }
    }
    assert_eq!(seen, 3 * 26 * 50, "those of up to eight, and no others");
}

/// Rows may stay on the device because `sample` and `sample_best` agree wherever only the best token is read.
#[test]
fn a_choice_that_reads_best_tokens_is_the_rows_own() {
    let mut seen = 0;
    for sampling in samplings() {
        for row in rows(1, 40).chain(rows(8, 40)).chain(strange()) {
            let sampler = TokenSampler::new(40);
            let (mut a, mut b) = (SamplerState::new(&sampling, &[1, 2], 0), SamplerState::new(&sampling, &[1, 2], 0));
            if sampler.reads(&a) == Reads::Best {
                seen += 1;
                assert_eq!(sampler.sample(&mut a, &row), sampler.sample_best(&mut b, math::first_largest(&row)));
                assert_eq!(a.finish(), b.finish());
            }
        }
    }
    assert_eq!(seen, 2 * 26, "the greedy ones, and no others");
}

/// Rows that no model gives.
fn strange() -> Vec<Vec<f32>> {
    vec![
        vec![f32::NAN; 40],
        vec![f32::NEG_INFINITY; 40],
        vec![-0.0; 40],
        (0..40).map(|i| if i % 2 == 0 { -0.0 } else { 0.0 }).collect(),
        (0..40).map(f32::from_bits).collect(),
        (0..40).map(|i| if i % 3 == 0 { f32::NAN } else { f32::INFINITY }).collect(),
    ]
}

#[test]
fn the_sampler_keeps_its_laws() {
    for (name, law, _) in SAMPLER_LAWS {
        assert!(law(&|vocab| BrokenSampler::new(vocab, None)), "{name}");
    }
}

#[test]
fn every_sampler_law_can_fail() {
    for (name, law, flaw) in SAMPLER_LAWS {
        assert!(!law(&|vocab| BrokenSampler::new(vocab, Some(*flaw))), "{name} does not see {flaw:?}");
    }
}
