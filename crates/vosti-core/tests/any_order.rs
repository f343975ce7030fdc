//! Operations in any order with any arguments, legal or not, on a device that fails at times: a refused call changes nothing,
//! every answer is right, and no page is lost. No engine calls the core like this; the proof says that it may. A failure
//! names its seed: `play(seed)` repeats that run.

mod common;
use common::*;
use rand_xoshiro::SplitMix64;
use rand_xoshiro::rand_core::{Rng as _, SeedableRng as _};
use std::cell::Cell;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::rc::Rc;
use vosti_core::*;

const SEEDS: u64 = 100;
const MOVES: usize = 1_500;
const CONTEXT: u32 = 260;

/// Seeded random numbers.
struct Random(SplitMix64);

impl Random {
    fn new(seed: u64) -> Self {
        Self(SplitMix64::seed_from_u64(seed))
    }

    fn next(&mut self) -> u64 {
        self.0.next_u64()
    }

    fn below(&mut self, n: usize) -> usize {
        (self.next() % n.max(1) as u64) as usize
    }

    fn one_in(&mut self, n: u64) -> bool {
        self.next().is_multiple_of(n)
    }

    fn pick<T: Clone>(&mut self, of: &[T]) -> T {
        of[self.below(of.len())].clone()
    }
}

/// A request, as its client sees it, and the one right answer to it.
struct Client {
    id: RequestId,
    salt: u64,
    prompt: Vec<Token>,
    answer: Vec<(Token, u64)>,
    seen: usize,
}

/// History, cached positions, tables, chain, whether it is in the step, and the sampler's state.
type RequestView = (Vec<Token>, usize, Vec<Vec<i32>>, Vec<BlockId>, bool, u64);

/// Everything that policy can see of a core.
#[derive(PartialEq, Debug)]
struct Snapshot {
    free: Vec<usize>,
    requests: Vec<Option<RequestView>>,
    blocks: Vec<Option<(Parent, usize, Vec<i32>)>>,
    plan: (Vec<Token>, Vec<u32>, Vec<u32>),
    poisoned: bool,
}

struct Game {
    random: Random,
    core: Tested,
    fail: Rc<Cell<Option<bool>>>,
    clients: Vec<Client>,
    /// Every block that there ever was, and the prefix that it stands for.
    blocks: Vec<BlockId>,
    prefixes: HashMap<u64, Vec<Token>>,
    done: BTreeMap<&'static str, usize>,
}

fn answer(groups: &[GroupDecl], prompt: &[Token], mut state: u64) -> Vec<(Token, u64)> {
    let (mut history, mut out) = (prompt.to_vec(), vec![]);
    loop {
        let logits = canonical_logits(groups, &history);
        let (token, done) = choose(&mut state, logits);
        history.push(token);
        out.push((token, logits));
        if done || history.len() >= CONTEXT as usize {
            return out;
        }
    }
}

impl Game {
    fn new(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let windows = random.pick(&[vec![None], vec![Some(70)], vec![None, Some(3)], vec![Some(64), None]]);
        let mut device = Tiny::new(windows.len(), random.pick(&[5, 9, 14]));
        device.rows_max = random.pick(&[40, 512]);
        device.selected_max = random.pick(&[2, 512]);
        let fail = device.fail.clone();
        let core = Core::new(device, Modulo, Program { context: CONTEXT, ..program(&windows) }).unwrap();
        let (clients, blocks) = (vec![], vec![]);
        Game { random, core, fail, clients, blocks, prefixes: HashMap::new(), done: BTreeMap::new() }
    }

    /// A request: mostly a live one, sometimes one that ended, sometimes nobody's.
    fn request(&mut self) -> RequestId {
        let live: Vec<RequestId> =
            self.clients.iter().map(|c| c.id).filter(|id| self.core.request(*id).is_some()).collect();
        match self.random.below(20) {
            0 => RequestId { slot: self.random.below(9), serial: self.random.below(9) as u64 },
            1 if !self.clients.is_empty() => self.clients[self.random.below(self.clients.len())].id,
            _ if live.is_empty() => RequestId { slot: 0, serial: 77 },
            _ => self.random.pick(&live),
        }
    }

    fn block(&mut self) -> BlockId {
        let live: Vec<BlockId> = self.blocks.iter().copied().filter(|id| self.core.block(*id).is_some()).collect();
        match self.random.below(8) {
            0 => BlockId { slot: self.random.below(9), serial: self.random.below(9) as u64 },
            1 if !self.blocks.is_empty() => self.blocks[self.random.below(self.blocks.len())],
            _ if live.is_empty() => BlockId { slot: 0, serial: 77 },
            _ => self.random.pick(&live),
        }
    }

    fn group(&mut self) -> usize {
        let groups = self.core.program().groups.len();
        if self.random.one_in(15) { groups } else { self.random.below(groups) }
    }

    fn snapshot(&self) -> Snapshot {
        let groups = 0..self.core.program().groups.len();
        let request = |c: &Client| {
            self.core.request(c.id).map(|r| {
                let tables = groups.clone().map(|g| r.table(g).to_vec()).collect();
                (r.history().to_vec(), r.cached(), tables, r.chain().to_vec(), r.in_step(), *r.state())
            })
        };
        let block = |id: &BlockId| self.core.block(*id).map(|b| (b.parent(), b.depth(), b.pages().to_vec()));
        let plan = self.core.plan();
        Snapshot {
            free: groups.clone().map(|g| self.core.free_pages(g)).collect(),
            requests: self.clients.iter().map(request).collect(),
            blocks: self.blocks.iter().map(block).collect(),
            plan: (plan.tokens().to_vec(), plan.positions().to_vec(), plan.selected().to_vec()),
            poisoned: self.core.poisoned(),
        }
    }

    /// One operation. What it did is checked in its own method, what it left by `sound`.
    fn step(&mut self) {
        let before = self.snapshot();
        // Most of what an engine does often, and all of the rest.
        let (what, ok) = match self.random.below(60) {
            0..=3 => ("admit", self.admit()),
            4..=17 => ("take_page", self.take_page()),
            18 => ("release_behind", self.release_behind()),
            19..=21 => ("publish", self.publish()),
            22..=25 => ("attach", self.attach()),
            26..=28 => ("evict", self.evict()),
            29 => ("evict_page", self.evict_page()),
            30 => ("preempt or abort", self.preempt_or_abort()),
            31..=32 => ("finish", self.finish()),
            33..=37 => ("plan_begin", self.core.plan_begin().is_ok()),
            38..=45 => ("plan_rows", self.plan_rows()),
            46..=52 => ("run", self.run()),
            53..=58 => ("commit", self.commit()),
            _ => ("plan_cancel", self.random.one_in(4) && self.core.plan_cancel().is_ok()),
        };
        if ok {
            *self.done.entry(what).or_default() += 1;
        } else {
            assert_eq!(self.snapshot(), before, "{what} was refused and changed something");
        }
    }

    fn admit(&mut self) -> bool {
        let len = self.random.pick(&[1, 20, 63, 64, 65, 100, 130, 190, 259]);
        let family = self.random.below(2) as u32;
        let mut prompt: Vec<Token> = (0..len as u32).map(|i| (i * 7 + i / 13 + family) % VOCAB).collect();
        match self.random.below(12) {
            0 => prompt.clear(),
            1 => prompt.resize(CONTEXT as usize, 0),
            2 => prompt[0] = VOCAB,
            _ => {}
        }
        if self.random.one_in(5) {
            let at = self.random.below(prompt.len());
            prompt.get_mut(at).into_iter().for_each(|t| *t = 3);
        }
        let live = self.clients.iter().filter(|c| self.core.request(c.id).is_some()).count();
        if live > 3 && !self.random.one_in(20) {
            prompt.clear();
        }
        let (salt, state) = (u64::from(self.random.one_in(4)), 1 + self.random.below(20) as u64);
        let right = (1..CONTEXT as usize).contains(&prompt.len()) && prompt.iter().all(|t| *t < VOCAB);
        let out = self.core.admit(prompt.clone(), salt, state);
        assert_eq!(out.is_ok(), right || self.core.poisoned(), "admit of {} tokens", prompt.len());
        let Ok(id) = out else { return false };
        assert!(self.clients.iter().all(|c| c.id.serial != id.serial), "an identity was given out twice");
        let answer = answer(&self.core.program().groups, &prompt, state);
        self.clients.push(Client { id, salt, prompt, answer, seen: 0 });
        true
    }

    fn take_page(&mut self) -> bool {
        let (id, group) = (self.request(), self.group());
        let free = self.core.free_pages(group);
        let len = self.core.request(id).map(|r| r.table(group).len());
        if self.core.take_page(id, group).is_err() {
            return false;
        }
        let after = self.core.request(id).unwrap().table(group);
        assert!(Some(after.len()) == len.map(|n| n + 1) && *after.last().unwrap() != NO_PAGE);
        assert_eq!(self.core.free_pages(group) + 1, free);
        true
    }

    fn release_behind(&mut self) -> bool {
        let (id, group) = (self.request(), self.group());
        let before = self.core.request(id).map_or(vec![], |r| r.table(group).to_vec());
        let Ok(released) = self.core.release_behind(id, group) else { return false };
        let request = self.core.request(id).unwrap();
        let window = self.core.program().groups[group].window;
        let first = window.map_or(0, |w| (request.cached() + 1).saturating_sub(w as usize)) / PAGE;
        let (gone, kept) = before.split_at(first.min(before.len()));
        assert_eq!(released, gone.iter().filter(|p| **p != NO_PAGE).count(), "pages behind the window");
        let after = request.table(group);
        assert!(after[..gone.len()].iter().all(|p| *p == NO_PAGE) && &after[gone.len()..] == kept, "and only they");
        true
    }

    fn publish(&mut self) -> bool {
        let id = self.request();
        let full = self.core.request(id).is_some_and(|r| (r.chain().len() + 1) * PAGE <= r.cached());
        let Ok(block) = self.core.publish(id) else { return false };
        assert_eq!(block.is_some(), full, "published what is not cached, or did not what is");
        let Some(block) = block else { return false };
        assert!(self.blocks.iter().all(|b| b.serial != block.serial), "an identity was given out twice");
        let request = self.core.request(id).unwrap();
        let depth = self.core.block(block).unwrap().depth();
        assert_eq!((request.chain().last(), depth + 1), (Some(&block), request.chain().len()));
        self.prefixes.insert(block.serial, request.history()[..(depth + 1) * PAGE].to_vec());
        self.blocks.push(block);
        true
    }

    fn attach(&mut self) -> bool {
        let (id, block) = (self.request(), self.block());
        if self.core.attach(id, block).is_err() {
            return false;
        }
        let request = self.core.request(id).unwrap();
        let prefix = &self.prefixes[&block.serial];
        assert!(request.history().starts_with(prefix), "attached a block of another prefix");
        assert!(request.cached() == prefix.len() && request.cached() < request.history().len());
        true
    }

    fn evict(&mut self) -> bool {
        let block = self.block();
        let used = (0..self.core.program().groups.len()).any(|g| self.core.references(block, g) > 0);
        let known = self.core.block(block).is_some();
        let ok = self.core.evict(block).is_ok();
        assert_eq!(ok, known && !used, "evict of a block, in use: {used}");
        assert!(!ok || self.core.block(block).is_none());
        ok
    }

    fn evict_page(&mut self) -> bool {
        let (block, group) = (self.block(), self.group());
        let used = self.core.references(block, group) > 0;
        let ok = self.core.evict_page(block, group).is_ok();
        assert!(!ok || !used && self.core.block(block).is_some_and(|b| !b.has_page(group)));
        ok
    }

    fn preempt_or_abort(&mut self) -> bool {
        let id = self.request();
        if self.random.one_in(3) {
            let ok = self.core.abort(id).is_ok();
            assert!(!ok || self.core.request(id).is_none());
            return ok;
        }
        let ok = self.core.preempt(id).is_ok();
        if let (true, Some(r)) = (ok, self.core.request(id)) {
            assert!(r.cached() == 0 && r.chain().is_empty() && r.table(0).is_empty(), "preempted and keeps something");
        }
        ok
    }

    fn finish(&mut self) -> bool {
        let complete: Vec<RequestId> = self.clients.iter().map(|c| c.id).filter(|id| self.core.complete(*id)).collect();
        let id =
            if complete.is_empty() || self.random.one_in(4) { self.request() } else { self.random.pick(&complete) };
        if self.core.finish(id).is_err() {
            return false;
        }
        let client = self.clients.iter().find(|c| c.id == id).unwrap();
        assert_eq!(client.seen, client.answer.len(), "completed before its answer was");
        true
    }

    fn plan_rows(&mut self) -> bool {
        let id = self.request();
        let left = self.core.request(id).map_or(0, |r| r.history().len() - r.cached());
        let rows = if self.random.one_in(3) { self.random.below(left + 2) } else { left };
        // Right guesses, wrong ones, and what is no token.
        let mut drafts: Vec<Token> = vec![];
        if let Some(client) = self.clients.iter().find(|c| c.id == id) {
            let right = client.answer.iter().skip(client.seen).map(|(t, _)| *t);
            drafts.extend(right.take(self.random.pick(&[0, 0, 1, 3])));
        }
        if self.random.one_in(4) {
            drafts.push(self.random.below(VOCAB as usize + 2) as Token);
        }
        let select = self.random.pick(&[Select::Last, Select::Last, Select::Shown, Select::All]);
        self.core.plan_rows(id, rows, &drafts, select).is_ok()
    }

    fn run(&mut self) -> bool {
        let failure = match self.random.below(150) {
            0 => Some(false),
            1..=15 => Some(true),
            _ => None,
        };
        self.fail.set(failure);
        let out = self.core.run();
        // A refused run leaves the failure for nobody.
        let met = failure.is_some() && self.fail.take().is_none();
        assert_eq!(out.is_err() && matches!(out, Err(CoreError::Device { .. })), met, "{out:?}");
        match failure {
            Some(intact) if met => {
                assert_eq!(self.core.poisoned(), !intact, "poisoned exactly when the cache is lost");
                assert_eq!(self.core.plan().rows(), 0, "the failed step is abandoned");
                true
            }
            _ => out.is_ok(),
        }
    }

    /// How many tokens each sequence of the step gives, and what there was to see. A draft counts if it is the right token and what the
    /// sampler reads behind it was brought: a drawn token only if the numbers were guessed.
    fn due(&self) -> (HashMap<RequestId, usize>, Vec<&'static str>) {
        let (mut due, mut seen) = (HashMap::new(), vec![]);
        let plan = self.core.plan();
        for s in plan.sequences().iter().filter(|s| s.emits) {
            let Some(request) = self.core.request(s.request) else { continue };
            let client = self.clients.iter().find(|c| c.id == s.request).unwrap();
            let (right, state, all) = (&client.answer[client.seen..], *request.state(), s.selected > s.drafts + 1);
            let drafts = &plan.tokens()[s.first_row + s.rows - s.drafts..s.first_row + s.rows];
            let mut n = 1;
            while n < right.len() && drafts.get(n - 1) == Some(&right[n - 1].0) {
                let brought = match (Modulo.reads(&state), Modulo.reads(&(state - n as u64))) {
                    (_, Reads::Best) => true,
                    (_, Reads::Top) => s.top,
                    (_, Reads::Row) => s.whole,
                    (Reads::Drawn(_), Reads::Drawn(draw)) => {
                        let guessed = Modulo.guess(&state, n) == draw;
                        seen.push(match (guessed, all) {
                            (true, false) => "a draft behind a right guess",
                            (true, true) => "a draft behind a right guess, every row selected",
                            (false, false) => "a draft behind a wrong guess",
                            (false, true) => "a draft behind a wrong guess, every row selected",
                        });
                        guessed
                    }
                    (_, Reads::Drawn(_)) => false,
                };
                if !brought {
                    break;
                }
                n += 1;
            }
            due.insert(s.request, n);
        }
        (due, seen)
    }

    fn commit(&mut self) -> bool {
        let (due, seen) = self.due();
        let Ok(records) = self.core.commit() else { return false };
        seen.into_iter().for_each(|what| *self.done.entry(what).or_default() += 1);
        let mut given: HashMap<RequestId, usize> = HashMap::new();
        records.iter().for_each(|record| *given.entry(record.request).or_default() += 1);
        assert_eq!(given, due, "records of each request");
        for record in records {
            let client = self.clients.iter_mut().find(|c| c.id == record.request).expect("a record for nobody");
            let logits = self.core.device().logits[record.selected];
            let right = client.answer.get(client.seen);
            assert_eq!(Some(&(record.token, logits)), right, "record {} of {:?}", client.seen, client.id);
            client.seen += 1;
            assert_eq!(record.position, client.prompt.len() + client.seen - 1, "position");
        }
        true
    }

    /// What holds between any two operations.
    fn sound(&self) {
        if self.core.poisoned() {
            return;
        }
        let groups = &self.core.program().groups;
        let live = || self.clients.iter().filter_map(|c| Some((c, self.core.request(c.id)?)));
        let blocks = || self.blocks.iter().filter_map(|id| Some((id, self.core.block(*id)?)));
        for (group, _) in groups.iter().enumerate() {
            let own = live().flat_map(|(_, r)| r.table(group).iter().skip(r.chain().len()).copied());
            let registered = blocks().map(|(_, b)| b.pages()[group]);
            let pages: Vec<i32> = own.chain(registered).filter(|p| *p != NO_PAGE).collect();
            let distinct: HashSet<i32> = pages.iter().copied().collect();
            assert_eq!(distinct.len(), pages.len(), "a page has two owners");
            assert_eq!(pages.len() + self.core.free_pages(group), self.core.pages(group), "a page is nobody's");
        }
        let holds = |group: usize, page: i32, offset: usize, right: u64| {
            page == NO_PAGE || self.core.device().cache[group][page as usize * PAGE + offset] == right
        };
        for (client, request) in live() {
            let answered = client.answer[..client.seen].iter().map(|(t, _)| *t);
            let history: Vec<Token> = client.prompt.iter().copied().chain(answered).collect();
            assert_eq!(request.history(), history, "the history is prompt and records");
            assert!(request.cached() < history.len(), "nothing is left to compute");
            for (group, kv) in canonical_kv(groups, &history).into_iter().enumerate() {
                for (p, kv) in kv.into_iter().enumerate().take(request.cached()) {
                    let page = request.table(group)[p / PAGE];
                    assert!(holds(group, page, p % PAGE, kv), "position {p} of {:?} is stale", client.id);
                }
            }
            let mut parent = Parent::Root { salt: client.salt };
            for id in request.chain() {
                let found = self.core.block(*id).map(|b| b.parent());
                assert!(found.is_none_or(|p| p == parent), "another tenant's block, or another chain's");
                parent = Parent::Block { serial: id.serial };
            }
        }
        for (id, block) in blocks() {
            let prefix = &self.prefixes[&id.serial];
            assert_eq!(block.tokens(), &prefix[block.depth() * PAGE..], "a block's tokens end its prefix");
            for (group, kv) in canonical_kv(groups, prefix).into_iter().enumerate() {
                let at = block.depth() * PAGE;
                assert!((0..PAGE).all(|o| holds(group, block.pages()[group], o, kv[at + o])), "{id:?} is stale");
            }
        }
    }
}

/// One game; what was done in it, and how often.
fn play(seed: u64) -> BTreeMap<&'static str, usize> {
    let mut game = Game::new(seed);
    for _ in 0..MOVES {
        game.step();
        game.sound();
        if game.core.poisoned() {
            assert_eq!(game.core.admit(vec![1], 0, 1), Err(CoreError::Poisoned));
            break;
        }
    }
    game.done
}

#[test]
fn any_operations_in_any_order_keep_the_promise() {
    let mut done: BTreeMap<&'static str, usize> = BTreeMap::new();
    for seed in 0..SEEDS {
        // So that a failure says which.
        let one = std::panic::catch_unwind(|| play(seed));
        let one = one.unwrap_or_else(|_| panic!("seed {seed} broke the promise, as said above"));
        one.into_iter().for_each(|(what, n)| *done.entry(what).or_default() += n);
    }
    println!("{done:?}");
    assert_eq!(done.len(), 18, "every operation was legal at times, and guesses were right and wrong: {done:?}");
    assert!(done.values().all(|n| *n as u64 > SEEDS / 10), "and often: {done:?}");
}
