//! The verified scenario runs to its end: every operation in it was legal, and records came out.

#[test]
fn the_verified_scenario_ends_in_records() {
    let scene = vosti_core::scenario().unwrap();
    // One record at the end of the prompt, two from a step with one right and one wrong draft, one after attachment, one of a
    // list after preemption and attachment again.
    assert_eq!((scene.records, scene.published, scene.attached, scene.evicted), (5, 1, 2, 1));
}
