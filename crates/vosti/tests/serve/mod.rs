//! Starts the built binary as a server on a free port, and finds the Python of the tests. Shared by the `serve_*` tests.

#![allow(dead_code, reason = "each test uses a part of it")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// One server at a time in a test program: each uses every core.
static MACHINE: Mutex<()> = Mutex::new(());

/// A running `vosti serve`; killed when dropped.
pub struct Server {
    child: Child,
    pub url: String,
    _alone: MutexGuard<'static, ()>,
}

impl Server {
    /// Starts a server of the default model, and waits until it is ready.
    pub fn start(flags: &[&str]) -> Self {
        let alone = MACHINE.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let mut child = Command::new(env!("CARGO_BIN_EXE_vosti"))
            .args(["serve", "--port", "0", "--log-format", "off"])
            .args(flags)
            .stderr(Stdio::piped())
            .spawn()
            .expect("the binary starts");
        let (mut lines, mut told) = (BufReader::new(child.stderr.take().expect("piped")).lines(), String::new());
        // The first run fetches the model, and prints its progress before the line that names the address.
        let url = lines.by_ref().map_while(Result::ok).find_map(|line| {
            told += &line;
            let after = line.split_once("serving ")?.1.split_once(" at ")?.1;
            Some(after.split_once("/v1")?.0.to_string())
        });
        // Later output must not fill the pipe.
        std::thread::spawn(move || lines.for_each(drop));
        let url = url.unwrap_or_else(|| panic!("the server ended: {told}"));
        let server = Self { child, url, _alone: alone };
        server.wait("/ready", 200);
        server
    }

    /// Waits until a path answers with this status.
    pub fn wait(&self, path: &str, wanted: u16) {
        let start = Instant::now();
        while self.get(path).is_none_or(|(status, _)| status != wanted) {
            assert!(start.elapsed() < Duration::from_secs(120), "{path} never answers with {wanted}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    pub fn address(&self) -> &str {
        self.url.trim_start_matches("http://")
    }

    /// Status and body of a GET.
    pub fn get(&self, path: &str) -> Option<(u16, String)> {
        self.raw(format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").as_bytes())
    }

    /// Status and body of a POST of JSON.
    pub fn post(&self, path: &str, body: &str) -> Option<(u16, String)> {
        let head =
            format!("POST {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Type: application/json\r\n");
        self.raw(format!("{head}Content-Length: {}\r\n\r\n{body}", body.len()).as_bytes())
    }

    /// Sends these bytes; gives status and body of what comes back until the server closes, or None if it is no response.
    pub fn raw(&self, bytes: &[u8]) -> Option<(u16, String)> {
        let mut stream = TcpStream::connect(self.address()).ok()?;
        stream.set_read_timeout(Some(Duration::from_secs(120))).ok()?;
        // The server may answer and close before it has read everything.
        let _ = stream.write_all(bytes);
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        let answer = String::from_utf8_lossy(&answer).into_owned();
        let status = answer.split(' ').nth(1)?.parse().ok()?;
        Some((status, answer.split_once("\r\n\r\n")?.1.to_string()))
    }

    /// A streamed answer, of which the first event has arrived.
    pub fn stream(&self, path: &str, body: &str) -> Streamed {
        let mut stream = TcpStream::connect(self.address()).expect("it listens");
        stream.set_read_timeout(Some(Duration::from_secs(120))).expect("a socket");
        let head = format!("POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n");
        write!(stream, "{head}Content-Length: {}\r\n\r\n{body}", body.len()).expect("sent");
        let (mut seen, mut piece) = (Vec::new(), [0; 4096]);
        while !String::from_utf8_lossy(&seen).contains("data: {") {
            let read = stream.read(&mut piece).expect("it answers");
            assert!(read > 0, "the server closed: {}", String::from_utf8_lossy(&seen));
            seen.extend_from_slice(&piece[..read]);
        }
        Streamed { stream, seen }
    }

    /// Sends a signal, by `kill`'s name for it.
    pub fn signal(&self, name: &str) {
        let sent = Command::new("kill").args([format!("-{name}"), self.child.id().to_string()]).status();
        assert!(sent.expect("kill runs").success());
    }

    /// Waits for the server's end, and gives the exit code; None if a signal ended it.
    pub fn ends(&mut self) -> Option<i32> {
        self.child.wait().expect("it was started here").code()
    }

    pub fn runs(&mut self) -> bool {
        self.child.try_wait().expect("it was started here").is_none()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// See [`Server::stream`].
pub struct Streamed {
    stream: TcpStream,
    seen: Vec<u8>,
}

impl Streamed {
    /// Everything that arrives until the answer or the connection ends.
    pub fn all(mut self) -> String {
        let mut piece = [0; 4096];
        while !self.seen.ends_with(b"\r\n0\r\n\r\n") {
            match self.stream.read(&mut piece) {
                Ok(0) | Err(_) => break,
                Ok(read) => self.seen.extend_from_slice(&piece[..read]),
            }
        }
        String::from_utf8_lossy(&self.seen).into_owned()
    }
}

/// The path of a script of this folder by its name, or of any script by its path from the root of the repository.
pub fn script(name: &str) -> PathBuf {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    if name.contains('/') { package.join("../..").join(name) } else { package.join("tests/serve").join(name) }
}

/// Runs a command to its end and shows what it printed; the command must succeed.
pub fn succeeds(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let text = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    println!("{text}");
    assert!(output.status.success(), "{command:?}: {text}");
    text
}
