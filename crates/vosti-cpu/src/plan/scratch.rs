//! Scratch memory of a plan: a place is freed after its last use.

use std::cell::RefCell;
use std::rc::Rc;

/// Bytes that every place is a multiple of: one cache line.
const ALIGN: u32 = 64;

#[derive(Default, Debug)]
struct Free {
    /// Free ranges below `end`, ascending and not adjacent.
    ranges: Vec<(u32, u32)>,
    end: u32,
    peak: u32,
}

/// Allocates scratch bytes while a plan is compiled.
#[derive(Clone, Default, Debug)]
pub struct ScratchAllocator(Rc<RefCell<Free>>);

/// A place in use; dropping the last handle frees it.
#[derive(Debug)]
pub struct Allocation {
    pub at: u32,
    pub bytes: u32,
    owner: ScratchAllocator,
}

impl ScratchAllocator {
    /// An allocator of places from an offset on.
    pub fn starting_at(offset: usize) -> Self {
        let scratch = Self::default();
        scratch.0.borrow_mut().end = offset as u32;
        scratch
    }

    pub fn take(&self, bytes: usize) -> Rc<Allocation> {
        let bytes = (bytes.max(1) as u32).next_multiple_of(ALIGN);
        let mut free = self.0.borrow_mut();
        let found = free.ranges.iter().position(|(_, size)| *size >= bytes);
        let at = match found {
            Some(i) => {
                let (at, size) = free.ranges[i];
                if size == bytes {
                    free.ranges.remove(i);
                } else {
                    free.ranges[i] = (at + bytes, size - bytes);
                }
                at
            }
            None => {
                let at = free.end;
                free.end += bytes;
                free.peak = free.peak.max(free.end);
                at
            }
        };
        Rc::new(Allocation { at, bytes, owner: self.clone() })
    }

    /// The most bytes ever in use.
    pub fn peak(&self) -> usize {
        self.0.borrow().peak as usize
    }
}

impl Drop for Allocation {
    fn drop(&mut self) {
        let mut free = self.owner.0.borrow_mut();
        let i = free.ranges.partition_point(|(at, _)| *at < self.at);
        free.ranges.insert(i, (self.at, self.bytes));
        let joins = |a: (u32, u32), b: (u32, u32)| a.0 + a.1 == b.0;
        if i + 1 < free.ranges.len() && joins(free.ranges[i], free.ranges[i + 1]) {
            free.ranges[i].1 += free.ranges[i + 1].1;
            free.ranges.remove(i + 1);
        }
        if i > 0 && joins(free.ranges[i - 1], free.ranges[i]) {
            free.ranges[i - 1].1 += free.ranges[i].1;
            free.ranges.remove(i);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn freed_places_are_joined_and_used_again() {
        let scratch = ScratchAllocator::default();
        let (a, b, c) = (scratch.take(64), scratch.take(100), scratch.take(64));
        assert_eq!((a.at, b.at, c.at), (0, 64, 192));
        drop(a);
        drop(b);
        let d = scratch.take(192);
        assert_eq!(d.at, 0);
        assert_eq!(scratch.peak(), 256);
    }
}
