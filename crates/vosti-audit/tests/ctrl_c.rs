//! Ctrl-C ends `vosti-verify` with the Python that it runs.

use std::process::{Command, Stdio};

#[test]
fn ctrl_c_ends_the_python_and_what_it_runs() {
    let folder = tempfile::tempdir().unwrap();
    let [kernel, python, runs] = ["kernel.py", "python", "runs"].map(|name| folder.path().join(name));
    std::fs::write(&kernel, "").unwrap();
    vosti_test_tools::endless(&python, &runs);
    let mut command = Command::new(env!("CARGO_BIN_EXE_vosti-verify"));
    command.arg("--suggest").arg(&kernel).arg("--python").arg(&python).stderr(Stdio::null());
    let ended = vosti_test_tools::interrupted(command.spawn().expect("the binary starts"), &runs, 2);
    assert_eq!(ended, (Some(130), false));
}
