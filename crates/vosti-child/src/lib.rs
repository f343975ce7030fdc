//! Programs that Vosti starts. Each has a process group of its own, so it can be ended with every program that it started itself.
//!
//! A terminal's Ctrl-C does not reach such a group, so a command that starts programs must call [`stop_all`] in its handler; a
//! caller that is told otherwise to stop drops its [`Program`].

use std::io::{self, Read, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, Command, ExitStatus, Output, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Groups whose first process was not waited for yet: until then no other process can have its number.
struct Running {
    leaders: Vec<u32>,
    stopped: bool,
}

static RUNNING: Mutex<Running> = Mutex::new(Running { leaders: Vec::new(), stopped: false });

fn running() -> MutexGuard<'static, Running> {
    RUNNING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// How long a process that was interrupted may take to clear up after [`stop_all`]: whoever waits for a program has an error at once.
pub const CLEARING: Duration = Duration::from_millis(500);

fn kill_group(leader: u32) {
    // SAFETY: a signal to a group of processes touches no memory of this one.
    unsafe { libc::kill(-(leader as libc::pid_t), libc::SIGKILL) };
}

/// Ends every program that runs, and those that it started. From now on none starts.
pub fn stop_all() {
    let mut running = running();
    running.stopped = true;
    running.leaders.iter().for_each(|leader| kill_group(*leader));
    others().iter().for_each(|child| {
        // SAFETY: as above.
        unsafe { libc::kill(*child, libc::SIGKILL) };
    });
}

/// Whether [`stop_all`] was called.
pub fn stopped() -> bool {
    running().stopped
}

/// All children of this process, also those that other code started (a solver). Only Linux lists them.
fn others() -> Vec<libc::pid_t> {
    let threads = std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let lists = threads.filter_map(|thread| std::fs::read_to_string(thread.path().join("children")).ok());
    lists.flat_map(|list| list.split_whitespace().filter_map(|id| id.parse().ok()).collect::<Vec<_>>()).collect()
}

/// A running program. When it is dropped, it and the programs that it started end.
pub struct Program {
    child: Child,
    ended: Option<ExitStatus>,
}

impl Program {
    /// Starts a program. Errors: those of the system, and one after [`stop_all`].
    pub fn start(command: &mut Command) -> io::Result<Program> {
        // Held until the program is listed, so that `stop_all` misses none.
        let mut running = running();
        if running.stopped {
            return Err(io::Error::other("interrupted"));
        }
        let child = command.process_group(0).spawn()?;
        running.leaders.push(child.id());
        Ok(Program { child, ended: None })
    }

    /// The pipe to its standard input, once, if the command asked for one.
    pub fn input(&mut self) -> Option<ChildStdin> {
        self.child.stdin.take()
    }

    /// How it ended; none while it runs.
    pub fn ended(&mut self) -> io::Result<Option<ExitStatus>> {
        if self.ended.is_none() {
            let mut running = running();
            self.ended = self.child.try_wait()?;
            if self.ended.is_some() {
                running.leaders.retain(|leader| *leader != self.child.id());
            }
        }
        Ok(self.ended)
    }

    fn wait(&mut self) -> io::Result<ExitStatus> {
        loop {
            match self.ended()? {
                Some(status) => return Ok(status),
                None => std::thread::sleep(Duration::from_millis(2)),
            }
        }
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        if let Ok(None) = self.ended() {
            kill_group(self.child.id());
            _ = self.wait();
        }
    }
}

/// Runs a program to its end, with `input` as its standard input, and returns what it wrote.
pub fn output(command: &mut Command, input: &str) -> io::Result<Output> {
    let piped = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut program = Program::start(piped)?;
    let pipes = (program.input(), program.child.stdout.take(), program.child.stderr.take());
    let (stdout, stderr) = std::thread::scope(|scope| {
        // A program that ends before it has read its input says itself why.
        scope.spawn(|| pipes.0.map(|mut pipe| pipe.write_all(input.as_bytes())));
        let errors = scope.spawn(|| whole(pipes.2));
        (whole(pipes.1), errors.join().unwrap_or_default())
    });
    Ok(Output { status: program.wait()?, stdout, stderr })
}

fn whole(pipe: Option<impl Read>) -> Vec<u8> {
    let mut bytes = Vec::new();
    _ = pipe.map(|mut pipe| pipe.read_to_end(&mut bytes));
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufRead, BufReader};
    use std::sync::mpsc::channel;

    /// A shell that starts a program which keeps the shell's output open, and waits for it.
    const FAMILY: &str = "sleep 600 & echo started; wait";

    #[test]
    fn a_program_ends_with_what_it_started() {
        let mut program =
            Program::start(Command::new("sh").args(["-c", FAMILY]).stdout(Stdio::piped())).expect("sh starts");
        let mut said = BufReader::new(program.child.stdout.take().expect("piped"));
        let mut line = String::new();
        said.read_line(&mut line).expect("text");
        assert_eq!((line.as_str(), program.ended().expect("it is known")), ("started\n", None));
        drop(program);
        let (tell, told) = channel();
        std::thread::spawn(move || tell.send(said.read_line(&mut line).expect("text")));
        assert_eq!(told.recv_timeout(Duration::from_secs(60)), Ok(0), "the second program still has the pipe");
    }

    #[test]
    fn what_a_program_writes_is_returned_whole() {
        let long = "x".repeat(1 << 20);
        let both = output(Command::new("sh").args(["-c", "tee /dev/stderr; exit 3"]), &long).expect("sh starts");
        assert_eq!((both.status.code(), both.stdout.len(), both.stderr.len()), (Some(3), 1 << 20, 1 << 20));
        assert!(output(Command::new("sh").args(["-c", "exit 0"]), &long).expect("sh starts").status.success());
        assert!(output(&mut Command::new("/nowhere/program"), "").is_err());
    }
}
