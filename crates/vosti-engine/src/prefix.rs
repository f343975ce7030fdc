//! The prefix cache's policy: which published blocks may continue a prompt, and which block to evict when pages run out.
//!
//! A hash proposes a block; the core compares tokens, depth and parent before it attaches the block. So a mistake in this file
//! costs cache hits and never changes an answer. This module holds no page and no token.

use std::cmp::Reverse;
use std::collections::{BTreeSet, HashMap};
use vosti_core::{Block, BlockId, PAGE, Parent, Token};

/// The key of a block: the block or salt that it continues, and a hash of its tokens.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Place {
    /// The parent's serial, or the tenant's salt.
    parent: u64,
    is_root: bool,
    hash: u64,
}

impl Place {
    fn new(parent: Parent, tokens: &[Token]) -> Self {
        let (parent, is_root) = match parent {
            Parent::Root { salt } => (salt, true),
            Parent::Block { serial } => (serial, false),
        };
        // FNV-1a: a collision proposes a block that the core will refuse.
        let hash = tokens
            .iter()
            .fold(0xcbf2_9ce4_8422_2325u64, |h, t| (h ^ u64::from(*t)).wrapping_mul(0x0000_0100_0000_01b3));
        Self { parent, is_root, hash }
    }
}

struct Entry {
    place: Place,
    depth: usize,
    parent: Option<BlockId>,
    /// Registered blocks that continue this one.
    children: usize,
    /// Sequences whose chain this block is in.
    users: usize,
    /// The clock when a sequence last released it.
    tick: u64,
    /// Later prompts are likely to go on from its end.
    landmark: bool,
    /// Per group, the place at which its page is listed in `idle`, if it is.
    idle: Vec<Option<Idle>>,
}

/// The place of a page that may be in no table, in the order of eviction: whether it is kept longer, the tick, and the depth.
type Idle = (bool, u64, usize);

/// A group of layers, as far as evictions of single pages go.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kept {
    /// All pages of a sequence.
    All,
    /// Those of a window.
    Window,
    /// Those of a window, and a prefix is continued from the state of one page. At most so many landmarks outlive other pages.
    State { landmarks: usize },
}

/// Every registered block, findable by content, ordered for eviction.
pub(crate) struct PrefixIndex {
    entries: HashMap<BlockId, Entry>,
    places: HashMap<Place, Vec<BlockId>>,
    /// Blocks that no sequence uses and no block continues: least recently used first, then deepest first.
    leaves: BTreeSet<(u64, Reverse<usize>, BlockId)>,
    /// Per group with a window: block pages that may be in no table, least recently used first, then shallowest first (a
    /// hit needs only the pages of its last window). Landmarks' states come after all others.
    idle: Vec<Option<BTreeSet<(Idle, BlockId)>>>,
    groups: Vec<Kept>,
    /// Blocks that no sequence uses.
    unused: usize,
    clock: u64,
}

impl PrefixIndex {
    /// An empty index over these groups.
    pub fn new(groups: Vec<Kept>) -> Self {
        Self {
            entries: HashMap::new(),
            places: HashMap::new(),
            leaves: BTreeSet::new(),
            idle: groups.iter().map(|kept| (*kept != Kept::All).then(BTreeSet::new)).collect(),
            groups,
            unused: 0,
            clock: 0,
        }
    }

    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Every block, in order of identity.
    pub fn blocks(&self) -> Vec<BlockId> {
        let mut blocks: Vec<BlockId> = self.entries.keys().copied().collect();
        blocks.sort_unstable_by_key(|b| b.serial);
        blocks
    }

    /// Whether no sequence uses the block.
    pub fn is_unused(&self, id: BlockId) -> bool {
        self.entries.get(&id).is_none_or(|e| e.users == 0)
    }

    pub fn unused(&self) -> usize {
        self.unused
    }

    /// Block pages of a group with a window that may be in no table.
    pub fn idle_len(&self, group: usize) -> usize {
        self.idle[group].as_ref().map_or(0, BTreeSet::len)
    }

    /// The longest chain of blocks that holds the beginning of `history` and satisfies `usable(chain)`. It leaves at least
    /// one position to compute.
    pub fn longest<'a>(
        &self,
        salt: u64,
        history: &[Token],
        block: impl Fn(BlockId) -> Option<&'a Block>,
        usable: impl Fn(&[BlockId]) -> bool,
    ) -> Vec<BlockId> {
        let limit = (history.len() - 1) / PAGE;
        let mut levels: Vec<Vec<BlockId>> = Vec::new();
        for depth in 0..limit {
            let tokens = &history[depth * PAGE..(depth + 1) * PAGE];
            let found = match levels.last() {
                None => self.at(Place::new(Parent::Root { salt }, tokens), tokens, &block),
                Some(parents) => {
                    let of = |p: &BlockId| Place::new(Parent::Block { serial: p.serial }, tokens);
                    parents.iter().flat_map(|p| self.at(of(p), tokens, &block)).collect()
                }
            };
            if found.is_empty() {
                break;
            }
            levels.push(found);
        }
        let ends = levels.iter().rev().flatten();
        ends.map(|end| self.path(*end)).find(|path| usable(path)).unwrap_or_default()
    }

    /// The blocks under this key with these tokens, newest first.
    fn at<'a>(&self, place: Place, tokens: &[Token], block: &impl Fn(BlockId) -> Option<&'a Block>) -> Vec<BlockId> {
        let Some(found) = self.places.get(&place) else {
            return Vec::new();
        };
        let same = |id: &BlockId| block(*id).is_some_and(|b| b.tokens() == tokens);
        found.iter().rev().copied().filter(same).collect()
    }

    /// The chain that ends with this block.
    fn path(&self, end: BlockId) -> Vec<BlockId> {
        let mut path = vec![end];
        while let Some(parent) = self.entries.get(&path[path.len() - 1]).and_then(|e| e.parent) {
            path.push(parent);
        }
        path.reverse();
        path
    }

    /// A sequence has published this block, and uses it. `landmark`: later prompts are likely to go on from its end.
    pub fn published(&mut self, id: BlockId, parent: Option<BlockId>, block: &Block, landmark: bool) {
        let place = Place::new(block.parent(), block.tokens());
        self.places.entry(place).or_default().push(id);
        if let Some(parent) = parent.and_then(|p| self.entries.get_mut(&p)) {
            parent.children += 1;
        }
        let entry = Entry {
            place,
            depth: block.depth(),
            // The parent may be evicted already, if all of its pages were behind windows.
            parent: parent.filter(|p| self.entries.contains_key(p)),
            children: 0,
            users: 1,
            tick: self.clock,
            landmark,
            idle: vec![None; self.idle.len()],
        };
        self.entries.insert(id, entry);
    }

    /// A sequence has attached this block.
    pub fn used(&mut self, id: BlockId) {
        let Some(entry) = self.entries.get_mut(&id) else {
            return;
        };
        if entry.users == 0 {
            self.unused -= 1;
            self.leaves.remove(&(entry.tick, Reverse(entry.depth), id));
        }
        entry.users += 1;
    }

    /// A sequence has released its whole chain.
    pub fn released(&mut self, chain: &[BlockId]) {
        self.clock += 1;
        for id in chain {
            let Some(entry) = self.entries.get_mut(id) else {
                continue;
            };
            entry.users -= 1;
            entry.tick = self.clock;
            if entry.users == 0 {
                self.unused += 1;
                if entry.children == 0 {
                    self.leaves.insert((entry.tick, Reverse(entry.depth), *id));
                }
            }
            for group in 0..self.idle.len() {
                self.page_idle(*id, group);
            }
        }
    }

    /// A sequence has released the block's page of this group, which may now be in no table.
    pub fn page_idle(&mut self, id: BlockId, group: usize) {
        let (Some(idle), Some(entry)) = (&mut self.idle[group], self.entries.get_mut(&id)) else {
            return;
        };
        if let Some(place) = entry.idle[group].take() {
            idle.remove(&(place, id));
        }
        let most = if let Kept::State { landmarks } = self.groups[group] { landmarks } else { 0 };
        let place = (entry.landmark && most > 0, self.clock, entry.depth);
        entry.idle[group] = Some(place);
        idle.insert((place, id));
        let mut landmarks = idle.iter().rev().take_while(|((landmark, ..), _)| *landmark);
        // The one too many, the least recently used, is a page like others.
        let Some(&(place, id)) = landmarks.nth(most).filter(|_| most > 0) else { return };
        idle.remove(&(place, id));
        let place = (false, place.1, place.2);
        idle.insert((place, id));
        if let Some(entry) = self.entries.get_mut(&id) {
            entry.idle[group] = Some(place);
        }
    }

    /// The block to evict next, if any.
    pub fn leaf(&self) -> Option<BlockId> {
        self.leaves.first().map(|(_, _, id)| *id)
    }

    /// Takes the next candidate for `Core::evict_page` from the list, a landmark only if they may go. It comes back by `page_idle`.
    pub fn pop_idle(&mut self, group: usize, landmarks: bool) -> Option<BlockId> {
        let idle = self.idle[group].as_mut()?;
        let next = *idle.first().filter(|((landmark, ..), _)| landmarks || !*landmark)?;
        idle.remove(&next);
        let id = next.1;
        if let Some(entry) = self.entries.get_mut(&id) {
            entry.idle[group] = None;
        }
        Some(id)
    }

    /// The core has evicted the block.
    pub fn evicted(&mut self, id: BlockId) {
        let Some(entry) = self.entries.remove(&id) else {
            return;
        };
        self.leaves.remove(&(entry.tick, Reverse(entry.depth), id));
        for (idle, place) in self.idle.iter_mut().zip(&entry.idle) {
            if let (Some(idle), Some(place)) = (idle, place) {
                idle.remove(&(*place, id));
            }
        }
        if entry.users == 0 {
            self.unused -= 1;
        }
        if let Some(found) = self.places.get_mut(&entry.place) {
            found.retain(|other| *other != id);
            if found.is_empty() {
                self.places.remove(&entry.place);
            }
        }
        self.parent_lost_child(entry.parent);
    }

    fn parent_lost_child(&mut self, parent: Option<BlockId>) {
        let Some(id) = parent else {
            return;
        };
        if let Some(entry) = self.entries.get_mut(&id) {
            entry.children -= 1;
            if entry.users == 0 && entry.children == 0 {
                self.leaves.insert((entry.tick, Reverse(entry.depth), id));
            }
        }
    }
}
