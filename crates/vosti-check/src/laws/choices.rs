//! The laws of what a device brings to the host for a sampler: rows, best tokens, lists and drawn tokens.
//! Read `laws.rs` first.

use super::session::{NO_DRAW, Row, Session, alone, text};
use super::{Broken, Subject, Verdict, broken};
use vosti_core::{Draw, Reads, RequestId, Select, Token};
use vosti_engine::FloatDevice;
use vosti_engine::math::{drawn, first_largest, max, top};

/// A request of a step, the rows that it gets alone, and whether the step shows them.
struct Part {
    id: RequestId,
    history: Vec<Token>,
    alone: Vec<Row>,
    shown: bool,
}

/// The drafts of each request of such a step.
const DRAFTS: usize = 2;

/// A step that shows rows of some of its requests: with drafts, with every row, beside requests that show none.
fn partly_shown<'d, D: FloatDevice>(
    subject: &Subject<D>,
    reads: Reads,
    device: &'d mut D,
) -> Verdict<(Session<'d, D>, Vec<Part>)> {
    let bench = &subject.attending;
    let mut session = Session::reading(reads, subject, &bench.program, device)?;
    let mut parts = Vec::new();
    for (i, (len, select)) in
        [(20, Select::Last), (14, Select::Shown), (9, Select::All), (31, Select::Last), (3, Select::Shown)]
            .into_iter()
            .enumerate()
    {
        let history = text(subject, len, 40 + i as u64);
        parts.push((session.admit(&history, len - DRAFTS)?, history, select));
    }
    let rows: Vec<(RequestId, usize, &[Token], Select)> = parts
        .iter()
        .map(|(id, history, select)| (*id, history.len() - DRAFTS, &history[history.len() - DRAFTS..], *select))
        .collect();
    session.run(&rows)?;
    let part = |(id, history, select): &(RequestId, Vec<Token>, Select)| {
        Ok(Part {
            id: *id,
            history: history.clone(),
            alone: alone(subject, bench, history)?,
            shown: *select != Select::Last,
        })
    };
    let parts = parts.iter().map(part).collect::<Verdict<_>>()?;
    Ok((session, parts))
}

/// `run` on sequences that show whole rows: their rows are brought, whatever the other sequences of the step show.
pub fn whole_rows_are_brought<D: FloatDevice>(subject: &Subject<D>) -> Verdict {
    let mut device = (subject.attending.device)()?;
    let (session, parts) = partly_shown(subject, Reads::Best, &mut device)?;
    let mut shown = parts.iter().filter(|part| part.shown);
    shown.try_for_each(|part| session.compare(part.id, &part.alone, "beside rows that stay on the device"))
}

/// `best`: each selected row's first largest logit, whether or not the row was brought.
pub fn the_best_token_is_the_rows_first_largest<D: FloatDevice>(subject: &Subject<D>) -> Verdict {
    let mut device = (subject.attending.device)()?;
    let (session, parts) = partly_shown(subject, Reads::Best, &mut device)?;
    for Part { id, alone, .. } in &parts {
        let mut given = session.bests.range((*id, 0)..=(*id, usize::MAX)).peekable();
        if given.peek().is_none() {
            return broken("no best token to compare");
        }
        for ((_, position), best) in given {
            let row: Vec<f32> = alone[*position].iter().map(|bits| f32::from_bits(*bits)).collect();
            if *best != first_largest(&row) {
                return broken(format!("position {position}: {best} is not the first largest logit"));
            }
        }
    }
    Ok(())
}

/// `top_max`: lists have that many logits; if it is 0, a step with lists is refused. The number never changes.
pub fn lists_are_as_long_as_is_said<D: FloatDevice>(subject: &Subject<D>) -> Verdict {
    let bench = &subject.attending;
    let mut device = (bench.device)()?;
    let most = device.top_max();
    if most > 0 {
        let (session, _) = partly_shown(subject, Reads::Top, &mut device)?;
        let long = most.min(bench.program.vocab as usize);
        if let Some(list) = session.lists.values().find(|list| list.len() != long) {
            return broken(format!("a list of {}, which should have {long}", list.len()));
        }
    } else if partly_shown(subject, Reads::Top, &mut device).is_ok() {
        return broken("a step with lists ran, on a device that makes none");
    }
    if device.top_max() == most { Ok(()) } else { broken("top_max changed") }
}

/// `run` on sequences that read lists: a list is brought for every selected row, whether or not the whole row is.
pub fn lists_are_brought<D: FloatDevice>(subject: &Subject<D>) -> Verdict {
    each_list(subject, |_, list, _| if list.is_empty() { Err("nothing".into()) } else { Ok(()) })
}

/// `top`: the row's largest logits, largest first, equal ones by token, whether or not the whole row was brought.
pub fn a_list_has_the_rows_largest_in_order<D: FloatDevice>(subject: &Subject<D>) -> Verdict {
    each_list(subject, |most, list, row| {
        let bits =
            |list: &[(Token, f32)]| -> Vec<(Token, u32)> { list.iter().map(|(t, x)| (*t, x.to_bits())).collect() };
        match bits(list) == bits(&top(row, most)) {
            true => Ok(()),
            false => Err("not the largest logits in order".into()),
        }
    })
}

/// Calls `look` with the list of each selected row of a step, and with the row that the request gets alone.
fn each_list<D: FloatDevice>(
    subject: &Subject<D>,
    look: impl Fn(usize, &[(Token, f32)], &[f32]) -> Result<(), String>,
) -> Verdict {
    let mut device = (subject.attending.device)()?;
    let most = device.top_max();
    if most == 0 {
        return Ok(()); // The device makes no lists.
    }
    let (session, parts) = partly_shown(subject, Reads::Top, &mut device)?;
    for Part { id, alone, .. } in &parts {
        let mut given = session.lists.range((*id, 0)..=(*id, usize::MAX)).peekable();
        if given.peek().is_none() {
            return broken("no list to look at");
        }
        for ((_, position), list) in given {
            let row: Vec<f32> = alone[*position].iter().map(|bits| f32::from_bits(*bits)).collect();
            look(most, list, &row).map_err(|what| Broken(format!("position {position}: {what}")))?;
        }
    }
    Ok(())
}

/// `draws`: a step that draws tokens runs; if the device draws none, it is refused. What the device says never changes.
pub fn tokens_are_drawn_if_it_is_said<D: FloatDevice>(subject: &Subject<D>) -> Verdict {
    let mut device = (subject.attending.device)()?;
    let draws = device.draws();
    let runs = partly_shown(subject, drawing(1.0), &mut device).map(drop);
    match (draws, runs) {
        (true, runs) => runs?,
        (false, Ok(())) => return broken("a step that draws tokens ran, on a device that draws none"),
        (false, Err(_)) => {}
    }
    if device.draws() == draws { Ok(()) } else { broken("whether it draws changed") }
}

/// `run` on sequences that read drawn tokens: one is brought of every selected row, whether or not the whole row is. A draw that is as
/// sharp as can be gives a token with the row's largest logit.
pub fn drawn_tokens_are_brought<D: FloatDevice>(subject: &Subject<D>) -> Verdict {
    each_drawn(subject, f32::MAX, |token, row, _| match row.get(token as usize) == Some(&max(row)) {
        true => Ok(()),
        false => Err("a token without the largest logit".into()),
    })
}

/// `drawn`: by the row's logits and the numbers alone. Beside other requests it is what it is alone, and it is where the weights of the
/// row have the numbers, up to rounding.
pub fn a_drawn_token_depends_on_its_row_and_numbers<D: FloatDevice>(subject: &Subject<D>) -> Verdict {
    const ROUNDING: [f32; 3] = [-1e-4, 0.0, 1e-4];
    each_drawn(subject, 3.0, |token, row, draw| {
        let [scale, pick, within] = [draw.scale, draw.part, draw.within].map(f32::from_bits);
        let near = |x: f32, by: f32| (x + by).clamp(0.0, 1.0 - f32::EPSILON);
        let may = |a: f32| ROUNDING.iter().any(|b| drawn(row, [scale, near(pick, a), near(within, *b)]) == token);
        if ROUNDING.into_iter().any(may) { Ok(()) } else { Err("not where its numbers are".into()) }
    })
}

/// Draws at this scale.
fn drawing(scale: f32) -> Reads {
    Reads::Drawn(Draw { scale: scale.to_bits(), ..NO_DRAW })
}

/// Calls `look` with the token drawn of each selected row of a step, which must be what it is alone, with the row, and with the numbers.
fn each_drawn<D: FloatDevice>(
    subject: &Subject<D>,
    scale: f32,
    look: impl Fn(Token, &[f32], Draw) -> Result<(), String>,
) -> Verdict {
    let mut device = (subject.attending.device)()?;
    if !device.draws() {
        return Ok(()); // The device draws no tokens.
    }
    let (session, parts) = partly_shown(subject, drawing(scale), &mut device)?;
    for Part { id, history, alone, .. } in &parts {
        let mut lonely = (subject.attending.device)()?;
        let mut other = Session::reading(drawing(scale), subject, &subject.attending.program, &mut lonely)?;
        let own = other.admit(history, history.len() - DRAFTS)?;
        other.run(&[(own, history.len() - DRAFTS, &history[history.len() - DRAFTS..], Select::Last)])?;
        let mut given = session.drawn.range((*id, 0)..=(*id, usize::MAX)).peekable();
        if given.peek().is_none() {
            return broken("no drawn token to look at");
        }
        for ((_, position), (draw, token)) in given {
            let row: Vec<f32> = alone[*position].iter().map(|bits| f32::from_bits(*bits)).collect();
            let wrong = |what: String| Broken(format!("position {position}: {what}"));
            // A request that shows every row has tokens drawn of rows that it draws none of alone.
            if other.drawn.get(&(own, *position)).is_some_and(|alone| *alone != (*draw, *token)) {
                return Err(wrong("another token than alone".into()));
            }
            look(*token, &row, *draw).map_err(wrong)?;
        }
    }
    Ok(())
}
