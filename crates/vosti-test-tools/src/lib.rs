//! Finds the tools that tests compare with: Python and its packages, a browser, llama.cpp's source, audited packages, Helm. [`script`] makes a
//! test's own program in the place of a tool. [`filetests`] reads the verifier's file tests.
//!
//! A test whose tool is missing prints one line and ends, so `cargo test` works on any machine. Under `cargo xtask test`,
//! which CI runs, the same test fails: a check that did not run has not passed. Only `[dev-dependencies]` and `xtask` name
//! this crate.

pub mod filetests;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// The environment variable that `cargo xtask test` sets. With it, every tool must be there.
pub const REQUIRED: &str = "VOSTI_TEST_TOOLS_REQUIRED";

/// Whether a missing tool is a failure.
pub fn required() -> bool {
    std::env::var_os(REQUIRED).is_some()
}

/// Returns `found`. If it is false, prints that `what` is missing and `how` to get it.
///
/// # Panics
/// If tools are required and this one is missing.
pub fn have(found: bool, what: &str, how: &str) -> bool {
    assert!(found || !required(), "this test needs {what}: {how}");
    if !found {
        println!("skipped: this test needs {what}: {how}");
    }
    found
}

/// A Python that has a package, by pip's name for it (`numpy`, `triton==3.6.0`): `VOSTI_PYTHON`, the environment that
/// `cargo xtask python` makes, or `python3`. `None` if no Python has it, see [`have`].
pub fn python(package: &str) -> Option<PathBuf> {
    let check = match package.split_once("==") {
        Some((name, version)) => format!("import {name}; assert {name}.__version__ == '{version}'"),
        None => format!("import {package}"),
    };
    let given = std::env::var_os("VOSTI_PYTHON").map(PathBuf::from);
    let made = target().join("python/bin/python");
    let candidates = [given, Some(made), Some("python3".into())];
    let found = candidates.into_iter().flatten().find(|python| ends_well(Command::new(python).args(["-c", &check])));
    have(found.is_some(), &format!("a Python with {package}"), "run `cargo xtask python`");
    found
}

/// A headless Chromium or Chrome. `None` if there is none, see [`have`].
pub fn chromium() -> Option<&'static str> {
    let names = ["chromium", "chromium-browser", "google-chrome"];
    let found = names.into_iter().find(|name| ends_well(Command::new(name).arg("--version")));
    have(found.is_some(), "Chromium", "on Debian, `apt-get install chromium`");
    found
}

/// A folder of llama.cpp's source, by its path in the source. `None` if the source was not fetched, see [`have`].
pub fn llama_cpp(folder: &str) -> Option<PathBuf> {
    let path = target().join("llama.cpp/llama.cpp").join(folder);
    have(path.is_dir(), "llama.cpp's source", "run `cargo xtask llama-cpp`").then_some(path)
}

/// The packages whose kernels are audited. `None` if they were not fetched, see [`have`].
pub fn audited_packages() -> Option<PathBuf> {
    let path = target().join("audits");
    have(path.join("fetched.txt").is_file(), "the packages of audits/packages.txt", "run `cargo xtask audit`")
        .then_some(path)
}

/// Helm's program. `None` if it was not fetched, see [`have`]. The package that brings Helm has a program for Linux on x86-64
/// only: elsewhere `None` with a printed line, even if tools are required.
pub fn helm() -> Option<PathBuf> {
    let path = target().join("helm/helm");
    if cfg!(not(all(target_os = "linux", target_arch = "x86_64"))) {
        println!("skipped: this test needs Helm, which `cargo xtask helm` gets for Linux on x86-64 only");
        return None;
    }
    have(path.is_file(), "Helm", "run `cargo xtask helm`").then_some(path)
}

/// Makes `path` a shell script that can be run at once.
///
/// A child process writes the file. If this process wrote it, a program that another test starts at the same time would
/// inherit the open file, and a file that is open for writing cannot be run ("Text file busy").
///
/// # Panics
/// If the file cannot be written.
pub fn script(path: &Path, text: &str) {
    let mut writer = Command::new("sh")
        .args(["-c", "cat > \"$0\" && chmod +x \"$0\""])
        .arg(path)
        .stdin(Stdio::piped())
        .spawn()
        .expect("a shell starts");
    // The pipe closes at the end of the statement, so the shell ends.
    write!(writer.stdin.take().expect("a pipe"), "#!/bin/sh\n{text}\n").expect("the script is passed on");
    assert!(writer.wait().expect("the shell ends").success(), "{} is written", path.display());
}

/// Makes `program` a script that writes its own number and that of a program that it starts into the file `runs`, and never ends.
///
/// # Panics
/// If the file cannot be written.
pub fn endless(program: &Path, runs: &Path) {
    let runs = runs.display();
    script(program, &format!("sleep 600 &\necho $$ $! > {runs}.new\nmv {runs}.new {runs}\nwait"));
}

/// Waits until `command` runs a program that [`endless`] made, sends Ctrl-C to `command` alone, and returns its exit code, and whether one of
/// the first `count` programs whose numbers are in `runs` goes on. Ends what goes on, and removes `runs`.
///
/// # Panics
/// If the command ends before it runs the program.
pub fn interrupted(mut command: Child, runs: &Path, count: usize) -> (Option<i32>, bool) {
    let nap = || std::thread::sleep(Duration::from_millis(20));
    while !runs.exists() {
        assert_eq!(command.try_wait().expect("it is known"), None, "it ended before it ran a program");
        nap();
    }
    let kill = |signal: &str, process: &str| {
        let sent = Command::new("kill").args([signal, process]).stderr(Stdio::null()).status();
        sent.expect("kill runs");
    };
    kill("-INT", &command.id().to_string());
    let numbers = std::fs::read_to_string(runs).expect("numbers");
    std::fs::remove_file(runs).expect("removed");
    let goes_on = |process: &str| {
        let stat = std::fs::read_to_string(format!("/proc/{process}/stat"));
        // An ended process that nobody waited for is a zombie.
        stat.is_ok_and(|stat| !stat.rsplit(')').next().is_some_and(|rest| rest.trim_start().starts_with('Z')))
    };
    let (mut code, mut left) = (None, true);
    // Far longer than any end takes.
    for _ in 0..1500 {
        code = command.try_wait().expect("it is known");
        left = numbers.split_whitespace().take(count).any(goes_on);
        if code.is_some() && !left {
            break;
        }
        nap();
    }
    numbers.split_whitespace().for_each(|process| kill("-KILL", process));
    if code.is_none() {
        _ = command.kill();
    }
    (code.and_then(|status| status.code()), left)
}

fn target() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from)
}

fn ends_well(command: &mut Command) -> bool {
    command.output().is_ok_and(|output| output.status.success())
}
