//! Two specialisations of one kernel against each other: other row tiles are proved equal under listed
//! assumptions, another order of sums is refused.

mod common;

use vosti_test_tools::filetests;
use vosti_verify::{Assumption, Obligation, Verdict, Verification, verify_or_refute};

fn pair(left: &str, right: &str) -> Option<Verification> {
    let mut solver = common::solver()?;
    let (left, right) = (common::case(filetests::one(left)), common::case(filetests::one(right)));
    let (left, right) = (left.problem.as_ref().unwrap(), right.problem.as_ref().unwrap());
    Some(verify_or_refute(left, right, 20, &mut solver).unwrap())
}

#[test]
fn row_tiles_of_two_heights_give_the_same_bits() {
    for (left, right) in [
        ("linear_bm16", "linear_bm32"),
        ("sum_rows", "sum_rows_bm32"),
        ("rmsnorm_bm4", "rmsnorm_bm8"),
        ("attend_bq4", "attend_bq8"),
    ] {
        let Some(verification) = pair(left, right) else { return };
        assert_eq!(verification.verdict, Verdict::Proved, "{left} {right}");
        assert!(verification.assumptions.contains(&Assumption::TextsLaidOutAlike), "{left} {right}");
        let heights = [Assumption::DotHeightIndependent, Assumption::ReduceHeightIndependent];
        assert!(heights.iter().any(|h| verification.assumptions.contains(h)), "{:?}", verification.assumptions);
    }
}

/// The compiled kernels of these pairs add in other orders, though each text is proved alone and replays agree: the order of a
/// sum in a tile is the compiler's, and it depends on the text around the sum.
#[test]
fn two_texts_are_no_pair_if_they_differ_in_more_than_constants_and_extents() {
    let pairs = [
        ("sum_rows", "sum_rows_transposed"),
        ("sum_rows_transposed", "sum_rows"),
        ("sum_rows", "sum_rows_clamped"),
        ("linear_bm16", "linear_other_order"),
    ];
    for (left, right) in pairs {
        let Some(verification) = pair(left, right) else { return };
        let failure = verification.verdict.failure().unwrap_or_else(|| panic!("{left} {right} were proved"));
        assert_eq!(failure.obligation, Obligation::Alignment, "{left} {right}");
        assert!(failure.why.contains("differ in more than constants and extents"), "{left} {right}: {}", failure.why);
        assert!(matches!(verification.verdict, Verdict::Unknown(_)), "{left} {right}: {}", verification.verdict);
    }
    // One text in two files is a pair.
    let Some(verification) = pair("sum_rows", "sum_rows") else { return };
    assert_eq!(verification.verdict, Verdict::Proved);
}

#[test]
fn products_of_integers_give_the_same_bits_in_tiles_of_two_heights_without_an_assumption_about_sums() {
    let Some(verification) = pair("linear_int_bm16", "linear_int_bm32") else { return };
    assert_eq!(verification.verdict, Verdict::Proved);
    assert_eq!(verification.assumptions.to_vec(), [Assumption::ElementwiseUniform, Assumption::NanPayload]);
}

#[test]
fn another_order_of_sums_is_refused_at_the_first_difference() {
    let pairs = [
        (
            "linear_bm16",
            "linear_bk32",
            Obligation::Alignment,
            "dot sums 16 products at a time in one run and 32 in the other",
        ),
        // The mask of an iteration is that of other keys.
        (
            "attend_bq4",
            "attend_backwards",
            Obligation::Guard,
            "a mask or branch may be taken in one run and not in the other",
        ),
    ];
    for (left, right, obligation, why) in pairs {
        let Some(verification) = pair(left, right) else { return };
        let failure = verification.verdict.failure().unwrap_or_else(|| panic!("{left} {right} were proved"));
        assert_eq!((failure.obligation, failure.why.as_str()), (obligation, why), "{left} {right}");
    }
}
