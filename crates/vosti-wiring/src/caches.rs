//! The memory of a cache, from the program alone: what a page holds, and how many pages of each group a pool has.
//!
//! A pool of n pages has n of each group whose pages have no state. A page with a state is large (one of Qwen 3.5 4B's is 100 MB, one
//! of its attention 2 MB), and a request needs few of them. So all pages with a state together take at most the bytes of the
//! others, and there are at least [`STATES_MIN`] of them, or as many as sequences that must run together need. Nothing here depends
//! on a machine.
//! Read next: `vosti_engine::capacity`, which counts the pages that a request needs.

use crate::error::WiringError;
use crate::wiring::Bound;
use vosti_core::{Dtype, GroupDecl, PAGE, PartDecl, Program};
use vosti_tile::Scalar;

/// Pages with a state that a pool has at least, if it has so many pages.
pub const STATES_MIN: usize = 8;
/// Pages with a state for each sequence of many: the two that it keeps between steps, and the next one, which a step that crosses a
/// page's end takes before it gives up the first (`vosti_engine::capacity` counts two: with no third, a step ends at the page's end).
const STATES_OF_A_SEQUENCE: usize = 3;

/// Element type and elements of a page of each part of a group, in the order of their numbers.
pub fn parts(group: &GroupDecl) -> impl Iterator<Item = (Dtype, usize)> {
    let elements = |part: &PartDecl, entries| (part.dtype, entries * part.heads as usize * part.width as usize);
    let entry = group.entry.iter().map(move |part| elements(part, PAGE));
    entry.chain(group.state.iter().map(move |part| elements(part, 1)))
}

/// Each buffer of the cache with its elements, where group i has `pages[i]` pages. [`WiringError::Groups`] if `pages` has another
/// length than the program's groups.
pub fn caches(program: &Program, pages: &[usize]) -> Result<Vec<(Bound, usize)>, WiringError> {
    if pages.len() != program.groups.len() {
        return Err(WiringError::Groups { pages: pages.len(), groups: program.groups.len() });
    }
    let layers = program.layers.iter().map(|layer| layer.group as usize).enumerate();
    let of_layer = |(layer, group): (usize, usize)| {
        let parts = parts(&program.groups[group]).enumerate();
        parts.map(move |(part, (_, elements))| (Bound::Cache { layer, part }, pages[group] * elements))
    };
    Ok(layers.flat_map(of_layer).collect())
}

/// Bytes of a page of each group: all parts of all its layers.
pub fn page_bytes(program: &Program) -> Vec<u64> {
    bytes(program, |group| parts(group).collect())
}

/// Those of its state alone.
pub fn state_bytes(program: &Program) -> Vec<u64> {
    bytes(program, |group| parts(group).skip(group.entry.len()).collect())
}

fn bytes(program: &Program, of: impl Fn(&GroupDecl) -> Vec<(Dtype, usize)>) -> Vec<u64> {
    let mut bytes = vec![0; program.groups.len()];
    for layer in &program.layers {
        let parts = of(&program.groups[layer.group as usize]).into_iter();
        let all = parts.map(|(dtype, elements)| Scalar::from(dtype).bytes() as u64 * elements as u64);
        bytes[layer.group as usize] += all.sum::<u64>();
    }
    bytes
}

/// Pages of each group in a pool of `pages` pages, in which `together` sequences must find room for their states.
pub fn pool(program: &Program, pages: usize, together: usize) -> Vec<usize> {
    let least = STATES_MIN.max(together.saturating_mul(STATES_OF_A_SEQUENCE)).min(pages);
    let bytes = page_bytes(program);
    let has_state = |group: usize| !program.groups[group].state.is_empty();
    let all = |states: bool| (0..bytes.len()).filter(|g| has_state(*g) == states).map(|g| u128::from(bytes[g])).sum();
    let (others, with_state): (u128, u128) = (all(false), all(true));
    let as_large = (pages as u128 * others).checked_div(with_state).filter(|_| others > 0);
    let states = as_large.map_or(pages, |n| n.clamp(least as u128, pages as u128) as usize);
    (0..bytes.len()).map(|group| if has_state(group) { states } else { pages }).collect()
}

/// Bytes of a pool of `pages` pages, for any sequences.
pub fn pool_bytes(program: &Program, pages: usize) -> u64 {
    let groups = pool(program, pages, 1).into_iter().zip(page_bytes(program));
    groups.fold(0, |all, (pages, bytes)| bytes.saturating_mul(pages as u64).saturating_add(all))
}

/// The most pages of a pool that has at most `limit` and that `fits`. A smaller pool fits where a larger one does.
pub fn most_pages(limit: usize, fits: impl Fn(usize) -> bool) -> usize {
    let (mut least, mut most) = (0, limit);
    while least < most {
        let middle = least + (most - least).div_ceil(2);
        match fits(middle) {
            true => least = middle,
            false => most = middle - 1,
        }
    }
    least
}

/// The most pages of a pool that takes at most so many bytes.
pub fn pages_in(program: &Program, bytes: u64) -> usize {
    most_pages(i32::MAX as usize, |pages| pool_bytes(program, pages) <= bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use vosti_core::LayerDecl;

    /// `attention` layers of 1 KiB a position, and `states` layers of 2 KiB a position and 896 KiB a page: a page of 64 KiB and
    /// one of 1 MiB.
    fn program(attention: usize, states: usize) -> Program {
        let part = |heads, width, dtype| PartDecl { heads, width, dtype };
        let group = |window, entry, state| GroupDecl { window, entry, state };
        let layer = |group| move |_| LayerDecl { group };
        Program {
            ops: vec![],
            buffers: vec![],
            groups: vec![
                group(None, vec![part(4, 64, Dtype::Bf16); 2], vec![]),
                group(Some(65), vec![part(8, 64, Dtype::F32)], vec![part(14, 16_384, Dtype::F32)]),
            ],
            layers: (0..attention).map(layer(0)).chain((0..states).map(layer(1))).collect(),
            logits: 0,
            vocab: 1,
            context: 1,
            kernels: 1,
        }
    }

    #[test]
    fn states_take_no_more_than_the_other_pages_and_some_are_always_there() {
        let hybrid = program(2, 3);
        assert_eq!(page_bytes(&hybrid), [128 << 10, 3 << 20]);
        assert_eq!(state_bytes(&hybrid), [0, 3 * (896 << 10)]);
        assert_eq!(pool(&hybrid, 2_400, 1), [2_400, 100]);
        assert_eq!(pool(&hybrid, 100, 1), [100, STATES_MIN]);
        assert_eq!(pool(&hybrid, 3, 1), [3, 3]);
        assert_eq!(pool_bytes(&hybrid, 2_400), 600 << 20);
        assert_eq!(pool(&hybrid, 100, 12), [100, 36]);
        // Alone, they are the pool.
        assert_eq!(pool(&program(0, 3), 2_400, 1), [2_400, 2_400]);
        assert_eq!(pool(&program(2, 0), 2_400, 1)[0], 2_400);
    }

    #[test]
    fn a_pool_of_some_bytes_is_the_largest_that_fits() {
        for program in [program(2, 3), program(0, 3), program(2, 0)] {
            for bytes in [1 << 20, 30 << 20, 600 << 20, 7 << 30] {
                let pages = pages_in(&program, bytes);
                assert!(pool_bytes(&program, pages) <= bytes && bytes < pool_bytes(&program, pages + 1), "{bytes}");
            }
        }
    }

    #[test]
    fn a_buffer_has_every_page_of_its_group() {
        let program = program(1, 1);
        let cell = |layer, part, n| (Bound::Cache { layer, part }, n);
        let want =
            [cell(0, 0, 5 * 64 * 256), cell(0, 1, 5 * 64 * 256), cell(1, 0, 2 * 64 * 512), cell(1, 1, 2 * 14 * 16_384)];
        assert_eq!(caches(&program, &[5, 2]).unwrap(), want);
        assert!(caches(&program, &[5]).is_err());
    }
}
