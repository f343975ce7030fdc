//! One checker per invariant. Each checks the whole state and reports a violation.

use crate::world::{SimEngine, Violation, violated};
use std::collections::{HashMap, HashSet};
use vosti_check::faulty::Failure;
use vosti_check::symbolic::Reference;
use vosti_core::{BlockId, PAGE, Parent};
use vosti_engine::{EngineError, Request, RequestId, Sampling, StepReport};

const NO_PAGE: i32 = -1;

/// The pool refuses a request only if some group cannot hold it: the pages that its positions see at one time, counted
/// position by position. A request that is taken may therefore have its whole answer.
pub fn refused_exactly_if_the_pool_is_too_small(
    engine: &SimEngine,
    request: &Request,
    checked: &Result<(), EngineError>,
) -> Result<(), Violation> {
    let program = engine.program();
    let tokens = request.prompt.len().saturating_add(request.sampling.tokens_max).min(program.context as usize);
    let fits = program.groups.iter().enumerate().all(|(group, decl)| {
        let first = |position: usize| decl.window.map_or(0, |w| (position + 1).saturating_sub(w as usize) / PAGE);
        let most = (0..tokens - 1).map(|position| position / PAGE + 1 - first(position)).max();
        most.unwrap_or(0) <= engine.core().pages(group)
    });
    match checked {
        Ok(()) if fits => Ok(()),
        Err(EngineError::ExceedsPool { .. }) if !fits => Ok(()),
        outcome => violated(format!("{tokens} tokens fit: {fits}, and the engine says {outcome:?}")),
    }
}

/// The reported numbers of pages: a page is free, in some request's table, or held by a block alone.
pub fn reported_pages_add_up(engine: &SimEngine) -> Result<(), Violation> {
    let (core, status) = (engine.core(), engine.status());
    for group in 0..engine.program().groups.len() {
        let alone =
            |id: &BlockId| core.block(*id).is_some_and(|b| b.has_page(group)) && core.references(*id, group) == 0;
        let cached = engine.cached_blocks().iter().filter(|id| alone(id)).count();
        if status.pages_free[group] + status.pages_used[group] + cached != status.pages_total[group] {
            return violated(format!("group {group}, where blocks alone hold {cached} pages: {status:?}"));
        }
    }
    Ok(())
}

/// Every page is free, or one request's own, or one block's, and nothing else.
pub fn pages_have_one_owner(engine: &SimEngine) -> Result<(), Violation> {
    let core = engine.core();
    for group in 0..engine.program().groups.len() {
        let mut owned: HashSet<i32> = HashSet::new();
        let mut take = |page: i32, who: String| match page {
            NO_PAGE => Ok(()),
            page if owned.insert(page) => Ok(()),
            page => violated(format!("page {page} of group {group} has two owners, one of them {who}")),
        };
        for (id, choice, request) in engine.core_requests() {
            let Some(view) = core.request(request) else {
                return violated(format!("{id:?} is unknown to the core"));
            };
            for page in view.table(group).iter().skip(view.chain().len()) {
                take(*page, format!("{id:?} choice {choice}"))?;
            }
        }
        for block in engine.cached_blocks() {
            let pages = core.block(block).map_or(NO_PAGE, |b| b.pages()[group]);
            take(pages, format!("{block:?}"))?;
        }
        let total = owned.len() + core.free_pages(group);
        if total != core.pages(group) {
            return violated(format!("{total} of {} pages of group {group} are accounted for", core.pages(group)));
        }
    }
    Ok(())
}

/// A request's table names its chain's pages, or lets go of them.
pub fn tables_follow_chains(engine: &SimEngine) -> Result<(), Violation> {
    let core = engine.core();
    for (id, choice, request) in engine.core_requests() {
        let Some(view) = core.request(request) else {
            return violated(format!("{id:?} is unknown to the core"));
        };
        for group in 0..engine.program().groups.len() {
            for (block, page) in view.chain().iter().zip(view.table(group)) {
                let registered = core.block(*block).map(|b| b.pages()[group]);
                if *page != NO_PAGE && registered != Some(*page) {
                    return violated(format!("{id:?} choice {choice} reads page {page}, {block:?} has {registered:?}"));
                }
            }
        }
    }
    Ok(())
}

/// Every live cached position of every request holds the canonical KV of its history.
pub fn cached_positions_are_canonical(
    engine: &SimEngine,
    histories: &mut HashMap<(u64, u32), Reference<'_>>,
) -> Result<(), Violation> {
    let program = engine.program();
    for (id, choice, request) in engine.core_requests() {
        let (Some(view), Some(history)) = (engine.core().request(request), histories.get_mut(&(id.0, choice))) else {
            return violated(format!("{id:?} choice {choice} is unknown"));
        };
        while history.len() < view.cached() {
            history.push(view.history()[history.len()]);
        }
        for (layer, decl) in program.layers.iter().enumerate() {
            let window = program.groups[decl.group as usize].window;
            let table = view.table(decl.group as usize);
            let first = window.map_or(0, |w| (view.cached() + 1).saturating_sub(w as usize));
            for position in first..view.cached() {
                let slot = table[position / PAGE] as usize * PAGE + position % PAGE;
                if engine.device().inner().inner().cached(layer, slot) != history.cached(layer, position) {
                    return violated(format!("{id:?} choice {choice}: position {position} of layer {layer} is stale"));
                }
            }
        }
    }
    Ok(())
}

/// Every page of every block holds the canonical KV of the block's whole prefix. `known` remembers prefixes; blocks not
/// seen before are looked at in any case, the others if `all`.
pub fn blocks_are_canonical<'p>(
    engine: &SimEngine,
    empty: &Reference<'p>,
    known: &mut HashMap<u64, Reference<'p>>,
    all: bool,
) -> Result<(), Violation> {
    let program = engine.program();
    for id in engine.cached_blocks() {
        let Some(block) = engine.core().block(id) else {
            return violated(format!("{id:?} is in the index and not in the core"));
        };
        let is_new = !known.contains_key(&id.serial);
        if is_new {
            let mut reference = match block.parent() {
                Parent::Root { .. } => empty.clone(),
                // Published before its children, so it has been seen, even if it is gone now.
                Parent::Block { serial } => match known.get(&serial) {
                    Some(parent) => parent.clone(),
                    None => return violated(format!("{id:?} has an unknown parent")),
                },
            };
            block.tokens().iter().for_each(|t| drop(reference.push(*t)));
            known.insert(id.serial, reference);
        }
        if !(is_new || all) {
            continue;
        }
        for (layer, decl) in program.layers.iter().enumerate() {
            let page = block.pages()[decl.group as usize];
            let stale = |offset: &usize| {
                let slot = page as usize * PAGE + offset;
                let canonical = known[&id.serial].cached(layer, block.depth() * PAGE + offset);
                engine.device().inner().inner().cached(layer, slot) != canonical
            };
            if page != NO_PAGE
                && let Some(offset) = (0..PAGE).find(stale)
            {
                return violated(format!("{id:?}: offset {offset} of layer {layer} is stale"));
            }
        }
    }
    Ok(())
}

/// With nothing running and the cache emptied, every page is free and no block is left.
pub fn nothing_is_left(engine: &mut SimEngine) -> Result<(), Violation> {
    engine.evict_all();
    let left: Vec<BlockId> = engine.cached_blocks();
    if !left.is_empty() {
        return violated(format!("blocks {left:?} cannot be evicted"));
    }
    let status = engine.status();
    if status.pages_free != status.pages_total || status.running + status.waiting + status.blocks_unused > 0 {
        return violated(format!("left at the end: {status:?}"));
    }
    Ok(())
}

/// A step fails exactly when the device does, and then reports no row and no token.
pub fn failures_are_told(
    failure: Option<Failure>,
    stepped: &Result<StepReport, EngineError>,
    records: u32,
) -> Result<(), Violation> {
    match (failure, stepped) {
        (None, Ok(_)) => Ok(()),
        (Some(_), Err(EngineError::Device(_))) if records == 0 => Ok(()),
        (Some(failure), outcome) => violated(format!("after {failure:?}: {outcome:?} and {records} records")),
        (None, Err(error)) => violated(error.to_string()),
    }
}

/// Once the device has lost its cache, no call gives an answer, panics or waits.
pub fn a_lost_cache_refuses_everything(engine: &mut SimEngine) -> Result<(), Violation> {
    let mut events = 0;
    let mut refused = Vec::new();
    refused.push(("step", engine.step(&mut |_| events += 1).is_err()));
    refused.push(("submit", engine.submit(Request::new(vec![0], Sampling::greedy(1))).is_err()));
    engine.preempt(RequestId(0));
    engine.abort(RequestId(0));
    engine.evict_all();
    refused.push(("step after abort", engine.step(&mut |_| events += 1).is_err()));
    refused.push(("run_until_idle", engine.is_idle() || engine.run_until_idle(&mut |_| events += 1).is_err()));
    match refused.iter().find(|(_, refused)| !refused) {
        Some((what, _)) => violated(format!("{what} works on a lost cache")),
        None if events > 0 => violated(format!("{events} events from a lost cache")),
        None => Ok(()),
    }
}
