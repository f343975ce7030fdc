//! Two specialisations of one kernel against each other: other row tiles are proved equal under listed
//! assumptions, another order of sums is refused.

mod common;

use std::path::Path;
use vosti_verify::{Assumption, Case, Verdict, Verification, verify_or_refute};

fn pair(left: &str, right: &str) -> Option<Verification> {
    let mut solver = common::solver()?;
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../filetests/pairs");
    let read = |name: &str| Case::read(&folder.join(format!("{name}.py"))).unwrap();
    let (left, right) = (read(left), read(right));
    let (left, right) = (left.problem.as_ref().unwrap(), right.problem.as_ref().unwrap());
    Some(verify_or_refute(left, right, 20, &mut solver).unwrap())
}

#[test]
fn row_tiles_of_two_heights_give_the_same_bits() {
    for (left, right) in [("linear_bm16", "linear_bm32"), ("rmsnorm_bm4", "rmsnorm_bm8"), ("attend_bq4", "attend_bq8")]
    {
        let Some(verification) = pair(left, right) else { return };
        assert_eq!(verification.verdict, Verdict::Proved, "{left} {right}");
        let heights = [Assumption::DotHeightIndependent, Assumption::ReduceHeightIndependent];
        assert!(heights.iter().any(|h| verification.assumptions.contains(h)), "{:?}", verification.assumptions);
    }
}

#[test]
fn another_order_of_sums_is_refused() {
    for (left, right) in [("linear_bm16", "linear_bk32"), ("attend_bq4", "attend_backwards")] {
        let Some(verification) = pair(left, right) else { return };
        assert!(!verification.verdict.is_proved(), "{left} {right}");
    }
}
