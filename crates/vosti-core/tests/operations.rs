//! What each operation does, on a tiny device. The proof says that the operations are right for all inputs; these tests show
//! that they do what a reader expects.

mod common;
use common::*;
use vosti_core::*;

const WINDOWS: &[Option<u32>] = &[None, Some(70)];

#[test]
fn chunks_do_not_change_logits() {
    let whole = {
        let mut c = core(WINDOWS, 40);
        let id = c.admit(prompt(300), 0, 20).unwrap();
        drain(&mut c, id, 512)
    };
    assert_eq!(whole.len(), 20);
    for chunk in [1, 63, 64, 65, 200] {
        let mut c = core(WINDOWS, 40);
        let id = c.admit(prompt(300), 0, 20).unwrap();
        assert_eq!(drain(&mut c, id, chunk), whole, "chunk {chunk}");
        assert_eq!((c.free_pages(0), c.free_pages(1)), (40, 40), "no page leaks");
    }
}

#[test]
fn accepted_and_rejected_drafts_give_the_same_records() {
    let mut c = core(WINDOWS, 40);
    let id = c.admit(prompt(100), 0, 12).unwrap();
    let alone = drain(&mut c, id, 512);
    let id = c.admit(prompt(100), 0, 12).unwrap();
    let mut out = vec![];
    let mut most = 0;
    while !c.complete(id) {
        let r = c.request(id).unwrap();
        let (rows, at) = (r.history().len() - r.cached(), r.history().len() - 100);
        let mut drafts: Vec<Token> = alone.iter().skip(at).take(3).map(|x| x.0).collect();
        if at % 2 == 1 {
            drafts[0] = (drafts[0] + 1) % VOCAB;
        }
        let records = step(&mut c, id, rows, &drafts);
        most = most.max(records.len());
        out.extend(records.into_iter().map(|(r, l)| (r.token, l)));
    }
    assert_eq!(out, alone);
    assert!(most > 1, "a draft was accepted");
}

#[test]
fn an_attached_prefix_gives_the_same_records() {
    let mut c = core(WINDOWS, 40);
    let donor = c.admit(prompt(200), 5, 3).unwrap();
    let want = drain_keep(&mut c, donor);
    let mut blocks = vec![];
    while let Some(b) = c.publish(donor).unwrap() {
        blocks.push(b);
    }
    assert_eq!(blocks.len(), 3);
    c.finish(donor).unwrap();
    let id = c.admit(prompt(200), 5, 3).unwrap();
    assert_eq!(c.attach(id, blocks[1]), Err(CoreError::BlockMismatch));
    for &b in &blocks {
        c.attach(id, b).unwrap();
        assert_eq!(c.references(b, 0), 1);
    }
    assert_eq!(c.evict(blocks[0]), Err(CoreError::BlockInUse { block: blocks[0] }));
    assert_eq!(c.request(id).unwrap().cached(), 192);
    assert_eq!(drain(&mut c, id, 512), want);
    let stranger = c.admit(prompt(200), 6, 3).unwrap();
    assert_eq!(c.attach(stranger, blocks[0]), Err(CoreError::BlockMismatch));
    c.abort(stranger).unwrap();
    for &b in &blocks {
        c.evict(b).unwrap();
        assert_eq!(c.evict(b), Err(CoreError::UnknownBlock { block: b }));
    }
    assert_eq!((c.free_pages(0), c.free_pages(1)), (40, 40));
}

fn drain_keep(c: &mut Tested, id: RequestId) -> Vec<(Token, u64)> {
    let mut out = vec![];
    while !c.complete(id) {
        let r = c.request(id).unwrap();
        let rows = r.history().len() - r.cached();
        out.extend(step(c, id, rows, &[]).into_iter().map(|(r, l)| (r.token, l)));
    }
    out
}

#[test]
fn a_whole_prompt_hit_leaves_a_position_to_compute() {
    let mut c = core(WINDOWS, 40);
    let donor = c.admit(prompt(128), 0, 1).unwrap();
    drain_keep(&mut c, donor);
    let first = c.publish(donor).unwrap().unwrap();
    let second = c.publish(donor).unwrap().unwrap();
    assert_eq!(c.publish(donor), Ok(None));
    let id = c.admit(prompt(128), 0, 1).unwrap();
    c.attach(id, first).unwrap();
    assert_eq!(c.attach(id, second), Err(CoreError::NothingLeftToCompute));
}

#[test]
fn pages_behind_the_window_come_back_and_records_stay() {
    let mut c = core(WINDOWS, 40);
    let id = c.admit(prompt(400), 0, 5).unwrap();
    let want = drain(&mut c, id, 512);
    let id = c.admit(prompt(400), 0, 5).unwrap();
    step(&mut c, id, 300, &[]);
    assert_eq!(c.release_behind(id, 0), Ok(0));
    assert_eq!(c.release_behind(id, 1), Ok(3), "cached 300, window from 231: pages 0 to 2");
    assert_eq!(drain(&mut c, id, 512), want);
    assert_eq!((c.free_pages(0), c.free_pages(1)), (40, 40));
}

#[test]
fn preemption_keeps_the_records() {
    let mut c = core(WINDOWS, 40);
    let id = c.admit(prompt(90), 0, 9).unwrap();
    let want = drain(&mut c, id, 512);
    let id = c.admit(prompt(90), 0, 9).unwrap();
    let mut out: Vec<_> = step(&mut c, id, 90, &[]).into_iter().map(|(r, l)| (r.token, l)).collect();
    c.preempt(id).unwrap();
    assert_eq!((c.free_pages(0), c.request(id).unwrap().cached()), (40, 0));
    out.extend(drain(&mut c, id, 40));
    assert_eq!(out, want);
}

#[test]
fn a_step_pins_its_requests() {
    let mut c = core(WINDOWS, 40);
    let id = c.admit(prompt(10), 0, 9).unwrap();
    cover(&mut c, id, 10);
    assert_eq!(c.commit(), Err(CoreError::NoStep));
    c.plan_begin().unwrap();
    assert_eq!(c.plan_begin(), Err(CoreError::StepInFlight));
    assert_eq!(c.run(), Err(CoreError::NoStep), "an empty step does not run");
    c.plan_rows(id, 10, &[], Select::Last).unwrap();
    for stage in 0..2 {
        let pinned = CoreError::RequestInStep { request: id };
        assert_eq!(c.abort(id), Err(pinned.clone()));
        assert_eq!(c.preempt(id), Err(pinned.clone()));
        assert_eq!(c.publish(id), Err(pinned.clone()));
        assert_eq!(c.take_page(id, 0), Err(pinned.clone()));
        assert_eq!(c.release_behind(id, 1), Err(pinned));
        if stage == 0 {
            c.run().unwrap();
        }
    }
    assert_eq!(c.commit().unwrap().len(), 1);
    c.abort(id).unwrap();
    assert_eq!(c.abort(id), Err(CoreError::UnknownRequest { request: id }));
}

#[test]
fn illegal_rows_are_refused_with_the_reason() {
    let mut c = core(WINDOWS, 2);
    assert_eq!(c.admit(vec![], 0, 1), Err(CoreError::EmptyPrompt));
    assert_eq!(c.admit(prompt(1000), 0, 1), Err(CoreError::PromptTooLong { tokens: 1000, context: 1000 }));
    assert_eq!(c.admit(vec![VOCAB], 0, 1), Err(CoreError::TokenOutOfRange { token: VOCAB, vocab: VOCAB }));
    let id = c.admit(prompt(100), 0, 9).unwrap();
    c.plan_begin().unwrap();
    let mut rows = |rows, drafts: &[Token]| c.plan_rows(id, rows, drafts, Select::Last);
    assert_eq!(rows(0, &[]), Err(CoreError::RowsOutOfRange { rows: 0, left: 100 }));
    assert_eq!(rows(101, &[]), Err(CoreError::RowsOutOfRange { rows: 101, left: 100 }));
    assert_eq!(rows(99, &[1]), Err(CoreError::DraftsNotAtEnd));
    assert_eq!(rows(100, &[VOCAB]), Err(CoreError::TokenOutOfRange { token: VOCAB, vocab: VOCAB }));
    assert_eq!(rows(100, &[]), Err(CoreError::PageMissing { group: 0, page: 0 }));
    c.plan_cancel().unwrap();
    cover(&mut c, id, 128);
    assert_eq!(c.take_page(id, 0), Err(CoreError::NoFreePage { group: 0 }));
}

#[test]
fn a_device_error_abandons_the_step_and_a_lost_cache_poisons() {
    let mut c = core(&[None], 4);
    let id = c.admit(prompt(10), 0, 9).unwrap();
    cover(&mut c, id, 10);
    let failing = |intact| {
        let device = Tiny::new(1, 4);
        device.fail.set(Some(intact));
        Core::new(device, Modulo, program(&[None])).unwrap()
    };
    for intact in [true, false] {
        let mut c = failing(intact);
        let id = c.admit(prompt(10), 0, 9).unwrap();
        cover(&mut c, id, 10);
        c.plan_begin().unwrap();
        c.plan_rows(id, 10, &[], Select::Last).unwrap();
        assert!(matches!(c.run(), Err(CoreError::Device { .. })));
        assert_eq!(c.poisoned(), !intact);
        assert_eq!(c.abort(id), if intact { Ok(()) } else { Err(CoreError::Poisoned) });
    }
}

#[test]
fn the_context_ends_a_request() {
    let mut c = core(&[None], 40);
    let id = c.admit(prompt(998), 0, 99).unwrap();
    for chunk in [500, 498] {
        step(&mut c, id, chunk, &[]);
    }
    assert_eq!(c.finish(id), Err(CoreError::RequestNotComplete { request: id }));
    c.plan_begin().unwrap();
    assert_eq!(c.plan_rows(id, 1, &[1], Select::Last), Err(CoreError::DraftsBeyondContext { drafts: 1 }));
    c.plan_cancel().unwrap();
    step(&mut c, id, 1, &[]);
    assert!(c.complete(id) && c.request(id).unwrap().history().len() == 1000);
    c.finish(id).unwrap();
}

#[test]
fn selecting_all_rows_gives_prompt_logits() {
    let mut c = core(WINDOWS, 8);
    let id = c.admit(prompt(30), 0, 1).unwrap();
    cover(&mut c, id, 30);
    c.plan_begin().unwrap();
    c.plan_rows(id, 30, &[], Select::All).unwrap();
    c.run().unwrap();
    let records = c.commit().unwrap();
    assert_eq!((records.len(), records[0].selected, records[0].position), (1, 29, 30));
    assert_eq!(c.device().logits.len(), 30);
}

#[test]
fn rows_and_lists_leave_the_device_when_the_sampler_reads_them_or_rows_are_asked_for() {
    // `Modulo` reads the row when its state is a multiple of three, and the list before that.
    for (state, select, brought) in [
        (5, Select::Last, (false, false)),
        (7, Select::Last, (true, false)),
        (6, Select::Last, (false, true)),
        (5, Select::Shown, (false, true)),
        (7, Select::Shown, (true, true)),
        (5, Select::All, (false, true)),
    ] {
        let mut c = core(WINDOWS, 8);
        let id = c.admit(prompt(30), 0, state).unwrap();
        cover(&mut c, id, 30);
        c.plan_begin().unwrap();
        c.plan_rows(id, 30, &[], select).unwrap();
        let planned = &c.plan().sequences()[0];
        assert_eq!((planned.top, planned.whole), brought, "{state} {select:?}");
        c.run().unwrap();
        let record = c.commit().unwrap()[0];
        assert_eq!(c.device().brought[record.selected], brought);
        assert_eq!(record.token, best(c.device().logits[record.selected]));
    }
}

#[test]
fn drafts_after_which_the_sampler_reads_more_wait_for_a_step_that_brings_it() {
    let mut c = core(WINDOWS, 8);
    let id = c.admit(prompt(30), 0, 8).unwrap();
    let alone = drain(&mut c, id, 512);
    let right: Vec<Token> = alone.iter().map(|(token, _)| *token).collect();
    let id = c.admit(prompt(30), 0, 8).unwrap();
    // State 8 takes the best token, 7 reads a list and 6 its row: each in a step that brings it. 5 comes along with 6.
    assert_eq!(step(&mut c, id, 30, &right[..4]).len(), 1);
    assert_eq!(step(&mut c, id, 1, &right[1..4]).len(), 1);
    assert_eq!(step(&mut c, id, 1, &right[2..5]).len(), 2);
}

/// What the next step of one request says of draws, with these drafts.
fn planned(c: &mut Tested, id: RequestId, rows: usize, drafts: &[Token], select: Select) -> Vec<Draw> {
    let cached = c.request(id).unwrap().cached();
    cover(c, id, cached + rows + drafts.len());
    c.plan_begin().unwrap();
    c.plan_rows(id, rows, drafts, select).unwrap();
    let draws = c.plan().sequences()[0].draws.clone();
    c.plan_cancel().unwrap();
    draws
}

#[test]
fn a_token_is_drawn_of_each_selected_row_by_the_samplers_numbers_and_its_guesses() {
    let mut c = core(WINDOWS, 8);
    for state in [9, 20] {
        let id = c.admit(prompt(30), 0, state).unwrap();
        assert_eq!(planned(&mut c, id, 30, &[1, 2], Select::Last), [], "nothing is drawn in state {state}");
        c.abort(id).unwrap();
    }
    let id = c.admit(prompt(30), 0, 14).unwrap();
    let guesses = |n: usize| (1..=n).map(|ahead| Modulo.guess(&14, ahead));
    let of = |before: usize, drafts: usize| -> Vec<Draw> {
        std::iter::repeat_n(numbers(14), before + 1).chain(guesses(drafts)).collect()
    };
    assert_eq!(planned(&mut c, id, 30, &[], Select::Last), of(0, 0));
    assert_eq!(planned(&mut c, id, 30, &[1, 2, 3], Select::Last), of(0, 3));
    assert_eq!(planned(&mut c, id, 30, &[1, 2, 3], Select::Shown), of(0, 3));
    assert_eq!(planned(&mut c, id, 30, &[1, 2], Select::All), of(29, 2), "any numbers before the end of the history");
    assert_eq!(planned(&mut c, id, 20, &[], Select::Last), [], "no row is selected");
}

#[test]
fn drafts_behind_a_wrong_guess_wait_for_a_step_with_the_right_numbers() {
    let mut c = core(WINDOWS, 8);
    for select in [Select::Last, Select::All] {
        let id = c.admit(prompt(30), 0, 17).unwrap();
        let alone = drain(&mut c, id, 512);
        let right: Vec<Token> = alone.iter().map(|(token, _)| *token).collect();
        let id = c.admit(prompt(30), 0, 17).unwrap();
        let mut steps = vec![];
        let mut out = vec![];
        while !c.complete(id) {
            let r = c.request(id).unwrap();
            let (rows, at) = (r.history().len() - r.cached(), r.history().len() - 30);
            let drafts = &right[at..right.len().min(at + 4)];
            cover(&mut c, id, 30 + at + drafts.len());
            c.plan_begin().unwrap();
            c.plan_rows(id, rows, drafts, select).unwrap();
            c.run().unwrap();
            let records = c.commit().unwrap();
            steps.push(records.len());
            out.extend(records.iter().map(|r| (r.token, c.device().logits[r.selected])));
        }
        assert_eq!(out, alone);
        // The guesses for states 15 and 12 are wrong: a step ends before each. From state 9 on nothing is drawn, and a step ends before a
        // state that reads a row (9, 6 and 3) unless whole rows are brought anyway, and before one that reads a list (7, 4 and 1) unless
        // the step began with one.
        let whole = &[2, 3, 5, 5, 1, 1][..];
        assert_eq!(steps, if select == Select::All { whole } else { &[2, 3, 3, 2, 1, 2, 1, 2, 1] }, "{select:?}");
    }
}
