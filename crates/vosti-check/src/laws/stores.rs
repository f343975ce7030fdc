//! The laws of `StoreKv`: its slots, the entries that it looks back at, the other slots, and what is not finite. Read `laws.rs` first.

use super::session::{Session, alone, dirty, refused, text};
use super::{Subject, Verdict};
use vosti_core::Select;
use vosti_engine::FloatDevice;

/// StoreKv, the step's slots: what a step stored is what later steps read.
pub fn stored_rows_are_found_again<D: FloatDevice>(subject: &Subject<D>) -> Verdict {
    let bench = &subject.attending;
    let history = text(subject, 150, 4);
    let want = alone(subject, bench, &history)?;
    for chunks in [&[1, 63][..], &[64], &[65, 2], &[7], &[128, 1]] {
        let mut device = (bench.device)()?;
        let mut session = Session::new(subject, &bench.program, &mut device)?;
        // Chunks of the prompt, then a token at a time.
        let id = session.admit(&history, 140)?;
        session.finish(id, history.len(), chunks)?;
        session.compare(id, &want, &format!("in chunks of {chunks:?}"))?;
    }
    // Rows that are not selected are stored too.
    let mut device = (bench.device)()?;
    let mut session = Session::new(subject, &bench.program, &mut device)?;
    let id = session.admit(&history, history.len())?;
    for rows in [50, 50, 49, 1] {
        session.run(&[(id, rows, &[], Select::Shown)])?;
        refused(session.core.commit())?;
    }
    session.compare(id, &want, "after chunks without logits")
}

/// StoreKv, a store that looks back: it sees the entries before a row's own, of its own request and no others. Where steps begin
/// and end, what is stored beside it, and drafts that were rejected change nothing.
pub fn a_store_sees_the_entries_before_it<D: FloatDevice>(subject: &Subject<D>) -> Verdict {
    let bench = &subject.attending;
    let (one, two, wrong) = (text(subject, 150, 14), text(subject, 150, 15), text(subject, 150, 16));
    let mut device = (bench.device)()?;
    let mut session = Session::new(subject, &bench.program, &mut device)?;
    let (a, b) = (session.admit(&one, 100)?, session.admit(&two, 150)?);
    session.step(&[(a, 33), (b, 62)])?;
    session.step(&[(b, 5), (a, 40)])?;
    session.step(&[(a, 27)])?;
    // One drafts, right and then wrong, beside the other's prompt. A wrong draft's row is computed again with the right token.
    while session.cached(a) + 4 <= one.len() {
        let next = session.cached(a) + 1;
        let drafts = [one[next], wrong[next + 1], wrong[next + 2]];
        let mut parts = vec![(a, 1, &drafts[..], Select::All)];
        match two.len() - session.cached(b) {
            0 => {}
            left => parts.push((b, left.min(5), &[], Select::All)),
        }
        session.run(&parts)?;
        refused(session.core.commit())?;
    }
    session.finish(a, one.len(), &[1])?;
    session.compare(a, &alone(subject, bench, &one)?, "with drafts that were rejected")?;
    session.compare(b, &alone(subject, bench, &two)?, "beside drafts that were rejected")
}

/// StoreKv, the other slots: a request's stores change no other request's keys.
pub fn other_slots_are_untouched<D: FloatDevice>(subject: &Subject<D>) -> Verdict {
    let bench = &subject.attending;
    let history = text(subject, 140, 6);
    let want = alone(subject, bench, &history)?;
    let mut device = (bench.device)()?;
    let mut session = Session::new(subject, &bench.program, &mut device)?;
    let id = session.admit(&history, 70)?;
    session.finish(id, 70, &[70])?;
    for seed in 0..5 {
        let other = text(subject, 130, 100 + seed);
        let stranger = session.admit(&other, other.len())?;
        session.finish(stranger, other.len(), &[90, 40])?;
        session.step(&[(id, 1)])?;
        refused(session.core.abort(stranger))?;
    }
    session.finish(id, history.len(), &[1])?;
    session.compare(id, &want, "with others storing in between")
}

/// StoreKv, values that are not finite: finite values are stored in their place, so a page's next owner sees no trace.
pub fn what_is_stored_is_finite<D: FloatDevice>(subject: &Subject<D>) -> Verdict {
    let bench = &subject.attending;
    let history = text(subject, 100, 9);
    let want = alone(subject, bench, &history)?;
    let mut device = (bench.device)()?;
    let mut session = Session::new(subject, &bench.program, &mut device)?;
    dirty(subject, &mut session)?;
    let id = session.admit(&history, 99)?;
    session.finish(id, history.len(), &[30])?;
    session.compare(id, &want, "on pages that held what is not finite")
}
