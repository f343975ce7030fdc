//! The verified witnesses run to their end: every operation in them was legal, and records came out.

#[test]
fn the_verified_scenario_ends_in_records() {
    let (scene, execution) = vosti_core::scenario().unwrap();
    // One record at the end of the prompt, two from a step with one right and one wrong draft, one after attachment, and four after
    // preemption and attachment again, the last two of lists.
    assert_eq!((scene.records, execution.records, execution.completed), (8, 8, 2));
    assert_eq!((scene.published, scene.attached, scene.evicted, scene.released), (1, 2, 1, 0));
}

#[test]
fn the_theorem_is_about_something() {
    let (one, other) = vosti_core::two_executions().unwrap();
    // Four tokens of the request that both have, drawn ones among them, and one of another; every record's row was there to be read.
    assert_eq!((one.records, one.completed), (4, 1));
    assert_eq!((other.records, other.completed), (5, 2));
}

#[test]
fn a_device_that_lost_its_cache_is_not_asked_again() {
    let one = vosti_core::lost_execution().unwrap();
    assert_eq!((one.records, one.completed), (1, 1));
}
