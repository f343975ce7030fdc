//! Plans one step: which sequences take part, with how many rows and drafts, and which pages are freed for them.
//!
//! Running sequences come first, in the policy's order; then waiting ones start. When pages run out, the scheduler evicts
//! cached blocks, else shortens the chunk, else preempts the sequence that is last in the order (perhaps this one). So the
//! first sequence in the order always makes progress, and every request ends: `Engine::check` accepts none that the pool
//! could not hold alone. No request ends because pages ran out.

use crate::engine::refused;
use crate::policy::Order;
use crate::sequence::{Sequence, Serial};
use crate::{Engine, EngineError, FloatDevice};
use vosti_core::{BlockId, PAGE, Select, Token};

/// One sequence's part in the step.
pub(crate) struct Decision {
    pub serial: Serial,
    pub core: vosti_core::RequestId,
    /// Rows of its history, drafts not included.
    pub rows: usize,
    pub drafts: Vec<Token>,
    pub select: Select,
    /// Its rows end with the history: a token will be sampled.
    pub reaches_end: bool,
}

/// The step being planned.
struct Step {
    rows_left: usize,
    selected_left: usize,
    decisions: Vec<Decision>,
    preempted: bool,
}

impl<D: FloatDevice> Engine<D> {
    /// Decides the step. Pages are taken, evicted and preempted here; no step is begun in the core yet.
    pub(crate) fn plan(&mut self) -> Result<Vec<Decision>, EngineError> {
        let mixed = self.running.iter().any(|serial| !self.prefills(*serial));
        let limit = if mixed { self.policy.rows_mixed_max } else { usize::MAX };
        let mut step = Step {
            rows_left: self.policy.rows_step_max.min(self.rows_max).min(limit),
            selected_left: self.selected_max,
            decisions: Vec::with_capacity(self.running.len() + 1),
            preempted: false,
        };
        let order = self.running_in_order();
        for &serial in &order {
            // An earlier sequence may have preempted this one.
            if self.running.contains(&serial) {
                self.plan_sequence(serial, &order, &mut step)?;
            }
        }
        if !step.preempted {
            self.start_waiting(&mut step)?;
            let stuck = self.running.is_empty() && !self.waiting.is_empty();
            // Only with eviction off: every sequence waits for pages that the cache holds.
            if stuck && self.evict_all() > 0 {
                self.start_waiting(&mut step)?;
            }
        }
        Ok(step.decisions)
    }

    fn running_in_order(&self) -> Vec<Serial> {
        let last = |serial: Serial| self.policy.decode_first && self.prefills(serial);
        let keyed = self.running.iter().map(|s| (last(*s), self.order_key(*s), *s));
        let mut keyed: Vec<(bool, u64, Serial)> = keyed.collect();
        keyed.sort_unstable();
        keyed.into_iter().map(|(_, _, serial)| serial).collect()
    }

    /// More than the last position of its history is to be computed.
    fn prefills(&self, serial: Serial) -> bool {
        let request = self.core.request(self.sequences[&serial].core);
        request.is_some_and(|r| r.history().len() - r.cached() > 1)
    }

    fn order_key(&self, serial: Serial) -> u64 {
        match self.policy.order {
            Order::Turn => self.sequences[&serial].turn,
            Order::Lifo => !serial,
            Order::Random(seed) => mix(seed ^ mix(self.counters.steps ^ mix(serial))),
        }
    }

    /// Puts one running sequence into the step, with as many rows as fit. It may preempt the last running sequence of
    /// `order`, which may be itself. False: it has no part in this step.
    fn plan_sequence(&mut self, serial: Serial, order: &[Serial], step: &mut Step) -> Result<bool, EngineError> {
        self.release_behind(serial)?;
        let sequence = &self.sequences[&serial];
        let Sequence { core: id, prompt_next, routed_next, prompt_len, token_logits, .. } = *sequence;
        let Some(request) = self.core.request(id) else {
            return Ok(false);
        };
        let (len, cached) = (request.history().len(), request.cached());
        let left = len - cached;
        let mut rows = left.min(step.rows_left).min(self.policy.rows_sequence_max);
        // Every row is selected: its logits are shown, or its last layer's experts.
        let all = prompt_next < (prompt_len - 1).min(cached + rows) || routed_next < cached + rows;
        if all {
            rows = rows.min(step.selected_left);
        } else if rows == left && step.selected_left == 0 {
            rows -= 1;
        }
        if rows == 0 {
            return Ok(false);
        }
        rows = match self.make_room(serial, cached, rows, order, step)? {
            0 => return Ok(false),
            fitting => fitting,
        };
        let select = match (all, token_logits) {
            (true, _) => Select::All,
            (false, true) => Select::Shown,
            (false, false) => Select::Last,
        };
        let reaches_end = rows == left;
        step.rows_left -= rows;
        step.selected_left -= if all { rows } else { usize::from(reaches_end) };
        let drafts = if reaches_end { self.drafts(serial, cached + rows, rows, step)? } else { Vec::new() };
        step.rows_left -= drafts.len();
        step.selected_left -= drafts.len();
        step.decisions.push(Decision { serial, core: id, rows, drafts, select, reaches_end });
        Ok(true)
    }

    /// Takes pages for `rows` more positions; evicts, shortens the chunk or preempts if there are too few. Returns how many
    /// positions fit.
    fn make_room(
        &mut self,
        serial: Serial,
        cached: usize,
        rows: usize,
        order: &[Serial],
        step: &mut Step,
    ) -> Result<usize, EngineError> {
        loop {
            let covered = self.grow(serial, cached + rows, true)?;
            if covered > cached {
                return Ok(covered - cached);
            }
            let last = order.iter().rev().copied().find(|s| self.running.contains(s));
            let victim = last.unwrap_or(serial);
            step.preempted = true;
            self.setbacks += u32::from(victim == serial && self.running.len() == 1);
            self.preempt_sequence(victim)?;
            if victim == serial {
                return Ok(0);
            }
        }
    }

    /// Drafts to check in this step, with pages for them. `end` is the length of the history.
    fn drafts(&mut self, serial: Serial, end: usize, rows: usize, step: &Step) -> Result<Vec<Token>, EngineError> {
        let sequence = &self.sequences[&serial];
        let (id, foreseen) = (sequence.core, sequence.foreseen.get(sequence.generated..).unwrap_or_default());
        if foreseen.is_empty() && self.drafter.is_none() {
            return Ok(Vec::new());
        }
        let Some(request) = self.core.request(id) else {
            return Ok(Vec::new());
        };
        // The last draft's row gives one more token, so one position and one token of the limits stay free.
        let limits = [
            step.rows_left,
            step.selected_left,
            self.policy.rows_sequence_max - rows,
            request.state().tokens_left() - 1,
            self.core.program().context as usize - end - 1,
        ];
        let most = limits.into_iter().min().unwrap_or(0);
        if most == 0 {
            return Ok(Vec::new());
        }
        let mut drafts = match &mut self.drafter {
            Some(drafter) if foreseen.is_empty() => drafter.draft(serial, request.history(), most),
            _ => foreseen.iter().copied().take(most).collect(),
        };
        let vocab = self.core.program().vocab;
        let valid = drafts.iter().take(most).take_while(|t| **t < vocab).count();
        // Nothing is evicted for a draft.
        let covered = self.grow(serial, end + valid, false)?;
        drafts.truncate(covered - end);
        Ok(drafts)
    }

    /// Gives the sequence pages below position `end` in every group, as long as there are any. Returns the end of the
    /// positions that have a page in all groups, at most `end`.
    fn grow(&mut self, serial: Serial, end: usize, evict: bool) -> Result<usize, EngineError> {
        let id = self.sequences[&serial].core;
        let mut covered = end;
        for group in 0..self.core.program().groups.len() {
            let pages = |engine: &Self| engine.core.request(id).map_or(0, |r| r.table(group).len());
            while pages(self) * PAGE < end {
                // A longer chunk is no reason to give up a landmark.
                let needed = self.core.request(id).is_some_and(|r| r.table(group).len() * PAGE <= r.cached());
                if self.core.free_pages(group) == 0 && !(evict && self.evict_for(group, needed)) {
                    break;
                }
                self.core.take_page(id, group).map_err(|e| refused("take_page", e))?;
            }
            covered = covered.min(pages(self) * PAGE);
        }
        Ok(covered)
    }

    /// Frees one page of a group by eviction, a landmark's only if those may go.
    fn evict_for(&mut self, group: usize, landmarks: bool) -> bool {
        // A sequence that was preempted while it ran alone can wait for no other: progress comes before this policy.
        if !self.policy.eviction && self.setbacks == 0 {
            return false;
        }
        if self.core.program().groups[group].window.is_some() {
            // The list may hold pages that are in use again. The core refuses them, and they return to the list when released.
            while let Some(block) = self.prefix.pop_idle(group, landmarks) {
                if self.core.evict_page(block, group).is_ok() {
                    self.counters.evictions += 1;
                    self.counters.states_evicted += u64::from(self.has_state(group));
                    return true;
                }
            }
            return false;
        }
        self.evict_leaf()
    }

    /// Evicts the block that is next; whether there was one.
    pub(crate) fn evict_leaf(&mut self) -> bool {
        let Some(leaf) = self.prefix.leaf() else {
            return false;
        };
        let groups = 0..self.core.program().groups.len();
        let held = |group: &usize| self.core.block(leaf).is_some_and(|block| block.has_page(*group));
        let states = groups.filter(|group| self.has_state(*group) && held(group)).count();
        if self.core.evict(leaf).is_err() {
            return false;
        }
        self.prefix.evicted(leaf);
        self.counters.evictions += 1;
        self.counters.states_evicted += states as u64;
        true
    }

    /// Whether a page of the group has a state at its end.
    fn has_state(&self, group: usize) -> bool {
        !self.core.program().groups[group].state.is_empty()
    }

    /// Releases pages that the next row does not see.
    fn release_behind(&mut self, serial: Serial) -> Result<(), EngineError> {
        let Some(sequence) = self.sequences.get_mut(&serial) else {
            return Ok(());
        };
        let id = sequence.core;
        for (group, behind) in sequence.behind.iter_mut().enumerate() {
            let (Some(window), Some(request)) = (self.core.program().groups[group].window, self.core.request(id))
            else {
                continue;
            };
            let first = (request.cached() + 1).saturating_sub(window as usize) / PAGE;
            if first <= *behind {
                continue;
            }
            let blocks: Vec<BlockId> = request.chain().iter().take(first).skip(*behind).copied().collect();
            *behind = first;
            let released = self.core.release_behind(id, group).map_err(|e| refused("release_behind", e))?;
            self.counters.released_behind += released as u64;
            blocks.into_iter().for_each(|block| self.prefix.page_idle(block, group));
        }
        Ok(())
    }

    /// Frees a running sequence's pages; the sequence waits again.
    pub(crate) fn preempt_sequence(&mut self, serial: Serial) -> Result<(), EngineError> {
        self.detach(serial)?;
        self.running.remove(&serial);
        self.waiting.insert(serial);
        self.counters.preemptions += 1;
        Ok(())
    }

    /// Releases every page of a sequence.
    fn detach(&mut self, serial: Serial) -> Result<(), EngineError> {
        let Some(sequence) = self.sequences.get_mut(&serial) else {
            return Ok(());
        };
        sequence.behind.fill(0);
        let id = sequence.core;
        let chain = self.core.request(id).map_or(Vec::new(), |r| r.chain().to_vec());
        self.core.preempt(id).map_err(|e| refused("preempt", e))?;
        self.prefix.released(&chain);
        Ok(())
    }
}

/// Waiting sequences.
impl<D: FloatDevice> Engine<D> {
    /// Starts waiting sequences in order, until one does not fit.
    fn start_waiting(&mut self, step: &mut Step) -> Result<(), EngineError> {
        let full = |engine: &Self, step: &Step| {
            engine.running.len() >= engine.policy.running_max || step.rows_left == 0 || step.selected_left == 0
        };
        if self.waiting.is_empty() || full(self, step) {
            return Ok(());
        }
        for serial in self.waiting_in_order() {
            if full(self, step) {
                break;
            }
            if self.waits_for_leader(serial) {
                continue;
            }
            let path = self.cached_prefix(serial);
            if !self.running.is_empty() && !self.has_room(serial, &path) {
                break;
            }
            let hit = self.attach(serial, &path)?;
            if !self.start(serial, step)? {
                break;
            }
            self.count_hit(serial, hit);
        }
        Ok(())
    }

    /// Moves a sequence to the running ones and plans it; moves it back if not one row fits.
    fn start(&mut self, serial: Serial, step: &mut Step) -> Result<bool, EngineError> {
        self.waiting.remove(&serial);
        self.running.insert(serial);
        let preemptions = self.counters.preemptions;
        let planned = self.plan_sequence(serial, &[serial], step)?;
        if !planned && self.running.contains(&serial) {
            self.preempt_sequence(serial)?;
        }
        // The sequence had computed nothing, so this was not a preemption.
        self.counters.preemptions = preemptions;
        Ok(planned)
    }

    fn waiting_in_order(&self) -> Vec<Serial> {
        let mut waiting: Vec<Serial> = self.waiting.iter().copied().collect();
        waiting.sort_by_cached_key(|serial| (self.order_key(*serial), *serial));
        waiting
    }

    /// A request's further choices wait until the first one has published the prompt, so that they share it.
    fn waits_for_leader(&self, serial: Serial) -> bool {
        let sequence = &self.sequences[&serial];
        if sequence.leader == serial || !sequence.use_prefix_cache || !self.policy.prefix_cache {
            return false;
        }
        let leader = self.sequences.get(&sequence.leader).and_then(|s| self.core.request(s.core));
        leader.is_some_and(|r| r.chain().len() < (sequence.prompt_len - 1) / PAGE)
    }

    /// The longest cached prefix of a sequence's history.
    fn cached_prefix(&self, serial: Serial) -> Vec<BlockId> {
        let sequence = &self.sequences[&serial];
        let wanted = sequence.use_prefix_cache && self.policy.prefix_cache;
        let Some(request) = self.core.request(sequence.core).filter(|_| wanted) else {
            return Vec::new();
        };
        let usable = |path: &[BlockId]| self.path_is_usable(path);
        let block = |id| self.core.block(id);
        self.prefix.longest(request.salt(), request.history(), block, usable)
    }

    /// Attaches a cached prefix; returns its length in tokens. The core compares the tokens itself: a refusal is a lost hit.
    fn attach(&mut self, serial: Serial, path: &[BlockId]) -> Result<usize, EngineError> {
        let id = self.sequences[&serial].core;
        for block in path {
            if self.core.attach(id, *block).is_err() {
                self.detach(serial)?;
                return Ok(0);
            }
            self.prefix.used(*block);
        }
        Ok(path.len() * PAGE)
    }

    /// Whether the blocks still have every page that the position after them sees.
    fn path_is_usable(&self, path: &[BlockId]) -> bool {
        let cached = path.len() * PAGE;
        self.core.program().groups.iter().enumerate().all(|(group, decl)| {
            let first = decl.window.map_or(0, |w| (cached + 1).saturating_sub(w as usize) / PAGE);
            let has_page = |id: &BlockId| self.core.block(*id).is_some_and(|b| b.has_page(group));
            path.iter().skip(first).all(has_page)
        })
    }

    /// Whether the pool has pages for the whole history without `path`. A start with fewer pages would end in preemption.
    fn has_room(&self, serial: Serial, path: &[BlockId]) -> bool {
        let Some(request) = self.core.request(self.sequences[&serial].core) else {
            return false;
        };
        let missing = request.history().len().div_ceil(PAGE) - path.len();
        let reused = path.iter().filter(|id| self.prefix.is_unused(**id)).count();
        self.core.program().groups.iter().enumerate().all(|(group, decl)| {
            let (needed, evictable) = match decl.window {
                Some(window) => (missing.min(window as usize / PAGE + 2), self.prefix.idle_len(group)),
                None => (missing, self.prefix.unused()),
            };
            let evictable = if self.policy.eviction { evictable.saturating_sub(reused) } else { 0 };
            needed <= self.core.free_pages(group) + evictable
        })
    }

    /// Counts a start. Tokens count at a sequence's first start only, as in vLLM's metrics: they are then tokens of the prompt.
    fn count_hit(&mut self, serial: Serial, hit: usize) {
        let has_states = (0..self.core.program().groups.len()).any(|group| self.has_state(group));
        let Some(sequence) = self.sequences.get_mut(&serial) else {
            return;
        };
        self.counters.positions_lost += sequence.reached.saturating_sub(hit) as u64;
        if !sequence.use_prefix_cache || !self.policy.prefix_cache {
            return;
        }
        self.counters.prefix_hits += u64::from(hit > 0);
        self.counters.states_attached += u64::from(hit > 0 && has_states);
        if sequence.cached_tokens.is_none() {
            self.counters.prefix_query_tokens += sequence.prompt_len as u64;
            self.counters.prefix_hit_tokens += hit as u64;
            sequence.cached_tokens = Some(hit);
        }
    }
}

/// SplitMix64's finaliser (Steele, Lea, Flood 2014), for an order that looks random.
fn mix(x: u64) -> u64 {
    let x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}
