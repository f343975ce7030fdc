//! The verified witnesses run to their end: every operation in them was legal, and records came out.

#[test]
fn the_verified_scenario_ends_in_records() {
    let scene = vosti_core::scenario().unwrap();
    // One record at the end of the prompt, two from a step with one right and one wrong draft, one after attachment, one of a
    // list after preemption and attachment again.
    assert_eq!((scene.records, scene.published, scene.attached, scene.evicted), (5, 1, 2, 1));
}

#[test]
fn the_theorem_is_about_something() {
    let (one, other) = vosti_core::two_executions().unwrap();
    // Four tokens of the request that both have, and one of another; every record's row was there to be read.
    assert_eq!((one.records, one.completed), (4, 1));
    assert_eq!((other.records, other.completed), (5, 2));
}

#[test]
fn a_device_that_lost_its_cache_is_not_asked_again() {
    let one = vosti_core::lost_execution().unwrap();
    assert_eq!((one.records, one.completed), (1, 1));
}
