//! How large a step may be: kernels are proved for a bounded number of rows, tokens and page table entries.

use vosti_core::PAGE;
use vosti_verify::problem::limit;

/// The bound that steps exceed, in words, if they have up to `rows` rows of contexts of up to `context` tokens; None if the
/// proofs cover them. The page tables of all `groups` cache groups are one array, so they count together.
pub fn unproved(rows: usize, context: usize, groups: usize) -> Option<String> {
    let all = || {
        let (entries, most) = ((rows * groups * context.div_ceil(PAGE)) as i128, limit::TABLE);
        (entries > most).then(|| {
            format!("{entries} page table entries in a step, {groups} groups', and kernels are proved for up to {most}")
        })
    };
    limit::exceeded(rows, context, PAGE).or_else(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn page_tables_of_all_groups_are_within_what_is_proved() {
        let (rows, context) = (1 << 14, PAGE << 14);
        assert_eq!(unproved(rows, context, 1), None);
        let both = unproved(rows, context, 2).unwrap();
        assert!(both.starts_with("536870912 page table entries in a step, 2 groups', and"), "{both}");
        assert_eq!(unproved(rows / 2, context, 2), None);
        assert!(unproved(2 * rows, context, 1).unwrap().contains("page table entries"));
        assert!(unproved(1, context * 1000, 9).unwrap().contains("tokens of context"));
    }
}
