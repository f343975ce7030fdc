//! Device laws: each contract of `vosti-core/src/trusted/seam.rs`, checked on a real device.
//!
//! The proof assumes these contracts. Nothing can prove them of a device that is ordinary Rust, or silicon. But most of them
//! relate two runs: a request alone on a new device, and the same request packed with others, paged, in chunks, must give the
//! same bits. The seam names each law behind the sentence that it checks. A device's crate runs all laws with
//! [`device_laws!`](crate::device_laws) on small programs of its own; `tests/laws/` breaks a device for each law. A law
//! never shows that a device is right: for that, contracts of kernels are proved.

mod choices;
mod session;
mod stores;

pub use choices::*;
use session::{Row, Session, alone, dirty, refused, text};
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
pub use stores::*;
use vosti_core::{Device, DeviceError, PAGE, Program, RequestId, Select, StepPlan, Token};
use vosti_engine::FloatDevice;

/// How a device breaks a law.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Broken(pub String);

/// `Ok` if a law holds.
pub type Verdict<T = ()> = Result<T, Broken>;

fn broken<T>(what: impl Into<String>) -> Verdict<T> {
    Err(Broken(what.into()))
}

/// A program, and how to make a new device for it.
pub struct Bench<D> {
    /// The forward pass that laws run.
    pub program: Program,
    /// Makes a device that has run nothing.
    pub device: Box<dyn Fn() -> Verdict<D>>,
}

/// A device under test. Its steps take at least 150 rows, as many of them selected, and no more than its pool holds. Each group
/// has at least 8 pages, and as many as the other groups. The context is at least 160 tokens; if the context does not fit the
/// pool, its last positions are not tried.
pub struct Subject<D> {
    /// Nothing reads what is stored: logits are a function of token and position.
    pub rowwise: Bench<D>,
    /// Every kind of op. Pages behind a window are tried if a group has a window shorter than 100.
    pub attending: Bench<D>,
    /// Tokens of `attending` whose KV is not finite before it is stored: the vocabulary's last. Empty if there are none.
    pub overflowing: Range<Token>,
    /// Makes a device fail this step, its cache intact.
    pub refuse: fn(&mut D, &Program, &StepPlan) -> Result<(), DeviceError>,
}

/// `rows_max`: a step of that many rows runs and is right, and the number never changes.
pub fn rows_max_is_what_a_step_takes<D: FloatDevice>(subject: &Subject<D>) -> Verdict {
    let bench = &subject.attending;
    let mut device = (bench.device)()?;
    let rows_max = device.rows_max();
    let mut session = Session::new(subject, &bench.program, &mut device)?;
    let mut parts = Vec::new();
    let mut left = rows_max;
    while left > 0 {
        let history = text(subject, left.min(150), left as u64);
        parts.push((session.admit(&history, history.len())?, history));
        left -= parts[parts.len() - 1].1.len();
    }
    let rows: Vec<_> = parts.iter().map(|(id, history)| (*id, history.len())).collect();
    session.step(&rows)?;
    for (id, history) in &parts {
        session.compare(*id, &alone(subject, bench, history)?, "a full step")?;
    }
    drop(session);
    if device.rows_max() == rows_max { Ok(()) } else { broken("rows_max changed") }
}

/// `selected_max`: that many rows of one step can be selected and are right, and the number never changes.
pub fn selected_max_is_what_a_step_takes<D: FloatDevice>(subject: &Subject<D>) -> Verdict {
    let bench = &subject.attending;
    let mut device = (bench.device)()?;
    let selected_max = device.selected_max();
    let mut session = Session::new(subject, &bench.program, &mut device)?;
    let mut parts = Vec::new();
    let mut left = selected_max.min(session.core.device().rows_max());
    while left > 0 {
        let history = text(subject, left.min(120), left as u64);
        parts.push((session.admit(&history, history.len())?, history));
        left -= parts[parts.len() - 1].1.len();
    }
    let rows: Vec<_> = parts.iter().map(|(id, history)| (*id, history.len())).collect();
    session.step(&rows)?;
    for (id, history) in &parts {
        session.compare(*id, &alone(subject, bench, history)?, "every row selected")?;
    }
    drop(session);
    if device.selected_max() == selected_max { Ok(()) } else { broken("selected_max changed") }
}

/// `pages`: every page below that number can be used, and the number never changes.
pub fn pages_are_what_there_is<D: FloatDevice>(subject: &Subject<D>) -> Verdict {
    let bench = &subject.attending;
    let mut device = (bench.device)()?;
    let groups = 0..bench.program.groups.len();
    let pages: Vec<usize> = groups.clone().map(|g| device.pages(g)).collect();
    let mut session = Session::new(subject, &bench.program, &mut device)?;
    let mut requests = Vec::new();
    while groups.clone().all(|g| session.core.free_pages(g) > 0) {
        let free = groups.clone().map(|g| session.core.free_pages(g)).min().unwrap_or(0);
        let history = text(subject, (free * PAGE).min(150), free as u64);
        let id = session.admit(&history, history.len())?;
        session.step(&[(id, history.len())])?;
        requests.push((id, history));
    }
    for (id, history) in &requests {
        session.compare(*id, &alone(subject, bench, history)?, "in a full pool")?;
    }
    drop(session);
    if groups.map(|g| device.pages(g)).eq(pages) { Ok(()) } else { broken("pages changed") }
}

/// The limits of a device with this many groups: rows and selected rows of a step, logits of a list, whether it draws, each group's
/// pages.
fn limits(device: &impl Device, groups: usize) -> Vec<usize> {
    let fixed = [device.rows_max(), device.selected_max(), device.top_max(), usize::from(device.draws())];
    fixed.into_iter().chain((0..groups).map(|group| device.pages(group))).collect()
}

/// `clear` keeps weights and limits.
pub fn clearing_keeps_the_weights<D: FloatDevice>(subject: &Subject<D>) -> Verdict {
    let bench = &subject.attending;
    let history = text(subject, 70, 1);
    let want = alone(subject, bench, &history)?;
    let mut device = (bench.device)()?;
    let groups = bench.program.groups.len();
    let told = limits(&device, groups);
    for round in 0..3 {
        // A new core clears its device.
        let mut session = Session::new(subject, &bench.program, &mut device)?;
        if limits(session.core.device(), groups) != told {
            return broken(format!("the limits change when the device is cleared {} times", round + 1));
        }
        let id = session.admit(&history, history.len())?;
        session.finish(id, history.len(), &[64])?;
        session.compare(id, &want, &format!("after clearing {} times", round + 1))?;
    }
    Ok(())
}

/// `clear`: no row sees what a slot held before.
pub fn clearing_leaves_finite_slots<D: FloatDevice>(subject: &Subject<D>) -> Verdict {
    let bench = &subject.attending;
    let history = text(subject, 100, 3);
    let want = alone(subject, bench, &history)?;
    let mut device = (bench.device)()?;
    dirty(subject, &mut Session::new(subject, &bench.program, &mut device)?)?;
    let mut session = Session::new(subject, &bench.program, &mut device)?;
    let id = session.admit(&history, history.len())?;
    session.finish(id, history.len(), &[33])?;
    session.compare(id, &want, "on a device that was cleared after use")
}

/// `run` keeps weights and limits.
pub fn running_keeps_the_weights<D: FloatDevice>(subject: &Subject<D>) -> Verdict {
    let bench = &subject.attending;
    let history = text(subject, 40, 5);
    let want = alone(subject, bench, &history)?;
    let mut device = (bench.device)()?;
    let mut session = Session::new(subject, &bench.program, &mut device)?;
    let groups = bench.program.groups.len();
    let told = limits(session.core.device(), groups);
    for round in 0..6 {
        let id = session.admit(&history, history.len())?;
        session.finish(id, history.len(), &[9, 1])?;
        if limits(session.core.device(), groups) != told {
            return broken(format!("the limits change after {round} other requests"));
        }
        session.compare(id, &want, &format!("after {round} other requests"))?;
        refused(session.core.abort(id))?;
    }
    Ok(())
}

/// Embed: the row of a token is the token's, whatever the rows beside it.
pub fn embedding_depends_on_its_token<D: FloatDevice>(subject: &Subject<D>) -> Verdict {
    let bench = &subject.rowwise;
    let (one, mut other) = (text(subject, 90, 1), text(subject, 90, 2));
    let shared = [0, 5, 31, 32, 63, 64, 89];
    shared.into_iter().for_each(|i| other[i] = one[i]);
    let (left, right) = (alone(subject, bench, &one)?, alone(subject, bench, &other)?);
    match shared.into_iter().find(|i| left[*i] != right[*i]) {
        Some(i) => broken(format!("position {i}: one token, two rows, depending on the tokens beside it")),
        None => Ok(()),
    }
}

/// Row-wise ops: an output row depends on its own input rows, whatever else the step holds.
pub fn rowwise_depends_on_its_row<D: FloatDevice>(subject: &Subject<D>) -> Verdict {
    let bench = &subject.rowwise;
    let lengths = [1, 17, 64, 50];
    let histories: Vec<Vec<Token>> = lengths.iter().map(|n| text(subject, *n, *n as u64)).collect();
    let want: Vec<Vec<Row>> = histories.iter().map(|h| alone(subject, bench, h)).collect::<Verdict<_>>()?;
    for chunk in [1, 7, 16, 33, 64] {
        let mut device = (bench.device)()?;
        let mut session = Session::new(subject, &bench.program, &mut device)?;
        let ids: Vec<RequestId> = histories.iter().map(|h| session.admit(h, h.len())).collect::<Verdict<_>>()?;
        loop {
            let left = |i: usize| histories[i].len() - session.cached(ids[i]);
            // A request whose prompt has run takes no further part: its history is at its end.
            let parts: Vec<_> = (0..ids.len()).filter(|i| left(*i) > 0).map(|i| (ids[i], left(i).min(chunk))).collect();
            if parts.is_empty() {
                break;
            }
            session.step(&parts)?;
        }
        for (id, want) in ids.iter().zip(&want) {
            session.compare(*id, want, &format!("packed, {chunk} rows at a time"))?;
        }
    }
    Ok(())
}

/// Selected rows: each gets its own logits, whichever rows are selected.
pub fn selected_rows_are_gathered<D: FloatDevice>(subject: &Subject<D>) -> Verdict {
    let bench = &subject.attending;
    let histories: Vec<Vec<Token>> = (1..4).map(|seed| text(subject, 50, seed)).collect();
    let mut device = (bench.device)()?;
    let mut session = Session::new(subject, &bench.program, &mut device)?;
    let ids: Vec<RequestId> = histories.iter().map(|h| session.admit(h, 40)).collect::<Verdict<_>>()?;
    // A chunk without logits, a history with drafts, and a request that shows every row.
    let drafts = &histories[1][40..44];
    session.run(&[
        (ids[0], 13, &[], Select::Shown),
        (ids[1], 40, drafts, Select::Shown),
        (ids[2], 40, &[], Select::All),
    ])?;
    let given = |id: RequestId| session.rows.range((id, 0)..=(id, usize::MAX)).count();
    if [given(ids[0]), given(ids[1]), given(ids[2])] != [0, 5, 40] {
        return broken("not the rows that were selected");
    }
    for (id, history) in ids.iter().zip(&histories).skip(1) {
        session.compare(*id, &alone(subject, bench, history)?, "selected among others")?;
    }
    Ok(())
}

/// Attend: a row sees the KV rows of its window, in logical order, on whichever pages they lie. Pages behind the window may
/// belong to another request.
pub fn attention_sees_its_window_in_order<D: FloatDevice>(subject: &Subject<D>) -> Verdict {
    let bench = &subject.attending;
    let history = text(subject, 150, 8);
    let want = alone(subject, bench, &history)?;
    for (round, chunk) in [150, 40, 64].into_iter().enumerate() {
        let mut device = (bench.device)()?;
        let mut session = Session::new(subject, &bench.program, &mut device)?;
        (0..=round).try_for_each(|_| session.shuffle())?;
        let id = session.admit(&history, 149)?;
        let mut strangers = Vec::new();
        while session.cached(id) < history.len() {
            session.finish(id, (session.cached(id) + chunk).min(history.len()), &[chunk])?;
            for group in 0..bench.program.groups.len() {
                refused(session.core.release_behind(id, group))?;
            }
            let other = text(subject, 10, 50);
            strangers.push(session.admit(&other, other.len())?);
            session.step(&[(strangers[strangers.len() - 1], other.len())])?;
        }
        session.compare(id, &want, &format!("on scattered pages, {chunk} rows at a time"))?;
    }
    Ok(())
}

/// A failure with its cache intact has changed nothing but the step's own slots.
pub fn an_intact_failure_keeps_the_rest<D: FloatDevice>(subject: &Subject<D>) -> Verdict {
    let bench = &subject.attending;
    let (one, two) = (text(subject, 120, 10), text(subject, 30, 11));
    let mut device = (bench.device)()?;
    let mut session = Session::new(subject, &bench.program, &mut device)?;
    let (a, b) = (session.admit(&one, one.len())?, session.admit(&two, 20)?);
    session.step(&[(a, 70), (b, 20)])?;
    session.refuses.set(true);
    match session.run(&[(a, 50, &[], Select::Shown), (b, 1, &[], Select::Shown)]) {
        Ok(()) => return broken("a step that should fail did not"),
        Err(_) if session.core.poisoned() => return broken("the failure does not say that the cache is intact"),
        Err(_) => {}
    }
    session.step(&[(b, 1), (a, 50)])?;
    session.finish(b, two.len(), &[1])?;
    session.compare(a, &alone(subject, bench, &one)?, "after a failed step")?;
    session.compare(b, &alone(subject, bench, &two)?, "after a failed step")
}

/// `run` does not panic on the largest plans: most sequences, most rows, last position.
pub fn running_does_not_panic<D: FloatDevice>(subject: &Subject<D>) -> Verdict {
    let edges = || {
        for bench in [&subject.rowwise, &subject.attending] {
            let mut device = (bench.device)()?;
            let rows_max = device.rows_max();
            let context = bench.program.context as usize;
            let mut session = Session::new(subject, &bench.program, &mut device)?;
            let one = session.admit(&text(subject, 1, 1), 1)?;
            session.step(&[(one, 1)])?;
            refused(session.core.abort(one))?;
            // As many requests as fit, one row each; then the most rows, and the last position of a context.
            let most = (0..bench.program.groups.len()).map(|g| session.core.free_pages(g)).min().unwrap_or(0);
            let many: Vec<_> = (0..most.min(rows_max))
                .map(|i| Ok((session.admit(&text(subject, 2, i as u64), 2)?, 1)))
                .collect::<Verdict<_>>()?;
            session.step(&many)?;
            many.iter().try_for_each(|(id, _)| refused(session.core.abort(*id)))?;
            let room = (0..bench.program.groups.len()).map(|g| session.core.free_pages(g) * PAGE).min();
            let context = context.min(room.unwrap_or(context));
            let long = session.admit(&text(subject, context, 3), context - 1)?;
            session.refuses.set(true);
            drop(session.run(&[(long, 1, &[], Select::Shown)]));
            session.finish(long, context - 1, &[rows_max])?;
        }
        Ok(())
    };
    catch_unwind(AssertUnwindSafe(edges)).unwrap_or_else(|_| broken("a step panicked"))
}

/// `logits`: every read until the next step gives the rows that the last step left.
pub fn logits_are_what_the_step_left<D: FloatDevice>(subject: &Subject<D>) -> Verdict {
    let bench = &subject.attending;
    let history = text(subject, 60, 12);
    let want = alone(subject, bench, &history)?;
    let mut device = (bench.device)()?;
    let mut session = Session::new(subject, &bench.program, &mut device)?;
    let id = session.admit(&history, history.len())?;
    session.run(&[(id, history.len(), &[], Select::All)])?;
    let read = |session: &Session<'_, D>| -> Vec<Row> {
        let row = |i| session.core.device().logits(i).iter().map(|x| x.to_bits()).collect();
        let mut rows: Vec<Row> = (0..history.len()).rev().map(row).collect();
        rows.reverse();
        rows
    };
    let before = read(&session);
    refused(session.core.commit())?;
    if before != want || read(&session) != want {
        return broken("the rows change while one looks");
    }
    Ok(())
}

/// A law by its name.
pub type Law<D> = (&'static str, fn(&Subject<D>) -> Verdict);

/// Every law, in the order of the seam.
pub fn all<D: FloatDevice>() -> Vec<Law<D>> {
    crate::each_device_law!(list_of_laws D)
}

macro_rules! list_of_laws {
    ($device:ident $($law:ident)*) => { vec![$((stringify!($law), $law as fn(&Subject<$device>) -> Verdict)),*] };
}
use list_of_laws;

/// Calls a macro with one word and the names of all laws.
#[macro_export]
macro_rules! each_device_law {
    ($then:ident $word:ident) => {
        $then! { $word
            rows_max_is_what_a_step_takes
            selected_max_is_what_a_step_takes
            pages_are_what_there_is
            clearing_keeps_the_weights
            clearing_leaves_finite_slots
            running_keeps_the_weights
            embedding_depends_on_its_token
            rowwise_depends_on_its_row
            selected_rows_are_gathered
            stored_rows_are_found_again
            a_store_sees_the_entries_before_it
            other_slots_are_untouched
            attention_sees_its_window_in_order
            what_is_stored_is_finite
            an_intact_failure_keeps_the_rest
            running_does_not_panic
            logits_are_what_the_step_left
            whole_rows_are_brought
            the_best_token_is_the_rows_first_largest
            lists_are_as_long_as_is_said
            lists_are_brought
            a_list_has_the_rows_largest_in_order
            tokens_are_drawn_if_it_is_said
            drawn_tokens_are_brought
            a_drawn_token_depends_on_its_row_and_numbers
        }
    };
}

/// One test for each device law; `$subject` is a function that makes the [`Subject`](crate::laws::Subject).
#[macro_export]
macro_rules! device_laws {
    ($subject:ident) => {
        use $crate::test_each_law;
        $crate::each_device_law! { test_each_law $subject }
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! test_each_law {
    ($subject:ident $($law:ident)*) => {
        $(#[test]
        fn $law() {
            $crate::laws::$law(&$subject()).unwrap();
        })*
    };
}
