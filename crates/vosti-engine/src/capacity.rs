//! How many pages a sequence needs, and how long a sequence a pool holds.
//!
//! The request and the deployment decide how long an answer may get. The pool decides only whether the engine accepts the
//! request; it never shortens an answer. Read next: `Engine::check`.

use vosti_core::{GroupDecl, PAGE, Program};

/// The most pages of each group that a sequence of `tokens` tokens (prompt and answer) needs at one time.
pub fn pages_for(program: &Program, tokens: usize) -> Vec<usize> {
    program.groups.iter().map(|group| pages_of(group, tokens)).collect()
}

/// The most tokens of one sequence (prompt and answer) that a pool with `pages[g]` pages in each group g holds. `usize::MAX` if
/// every group has a window and the pages for one window.
pub fn tokens_in(program: &Program, pages: &[usize]) -> usize {
    let of_group = |(group, pages): (&GroupDecl, &usize)| match group.window {
        Some(window) if *pages >= window_pages(window) => usize::MAX,
        _ => pages.saturating_mul(PAGE).saturating_add(1),
    };
    program.groups.iter().zip(pages).map(of_group).min().unwrap_or(usize::MAX)
}

/// Pages of one group for `tokens` tokens. The last token needs no slot: its keys are never read.
fn pages_of(group: &GroupDecl, tokens: usize) -> usize {
    let all = tokens.saturating_sub(1).div_ceil(PAGE).max(1);
    group.window.map_or(all, |window| all.min(window_pages(window)))
}

/// The most pages that one window of keys lies on, the row's own page included.
fn window_pages(window: u32) -> usize {
    (window as usize).saturating_sub(1).div_ceil(PAGE) + 1
}

#[cfg(test)]
mod tests {
    use super::*;
    use vosti_check::symbolic::program;

    #[test]
    fn pages_for_a_length_hold_it_and_one_page_less_does_not() {
        for windows in [vec![None], vec![Some(1)], vec![None, Some(70)], vec![Some(64), None, Some(130)]] {
            let layers: Vec<u32> = (0..windows.len() as u32).collect();
            let program = program(&windows, &layers, 24, 1_000);
            for tokens in 2..600 {
                let pages = pages_for(&program, tokens);
                assert!(tokens_in(&program, &pages) >= tokens, "{windows:?} {tokens}");
                for group in (0..pages.len()).filter(|g| pages[*g] > 1) {
                    let mut fewer = pages.clone();
                    fewer[group] -= 1;
                    assert!(tokens_in(&program, &fewer) < tokens, "{windows:?} {tokens} group {group}");
                }
            }
        }
    }

    #[test]
    fn a_window_bounds_the_pages_of_its_group_alone() {
        let both = program(&[None, Some(70)], &[0, 1], 24, 10_000);
        assert_eq!(pages_for(&both, 6_401), [100, 3]);
        assert_eq!(tokens_in(&both, &[100, 3]), 6_401);
        assert_eq!(tokens_in(&both, &[100, 2]), 129);
        assert_eq!(tokens_in(&program(&[Some(70)], &[0], 24, 10_000), &[3]), usize::MAX);
    }
}
