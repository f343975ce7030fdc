//! Developer commands: `cargo xtask COMMAND`. Each command has a file of its own; this file only names them.

mod bench;
mod book;
mod helm;
mod llama_cpp;
mod mutants;
mod release;
mod statement;
mod test;
mod test_programs;
mod tidy;
mod verify;
mod wheel;

use clap::{Parser, Subcommand};
use std::ffi::OsStr;
use std::process::{Command, ExitCode};
use xtask::{packages, python, root, run_command, target_folder};

#[derive(Parser)]
#[command(name = "cargo xtask", about = "Developer commands", disable_help_subcommand = true)]
struct Arguments {
    #[command(subcommand)]
    command: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Measures this engine against llama.cpp, in turn, on this machine
    Bench(bench::Bench),
    /// Verifies kernels of public packages and writes docs/audit.md (fetches 200 MB)
    Audit {
        /// Words of a package or a path: verify those alone, and write nothing
        names: Vec<String>,
    },
    /// Builds the book of all pages and prints where it is
    Book,
    /// Checks everything that a change must pass; CI runs this
    Test {
        /// Steps to run, such as `clippy`, `tests` or "python package" [default: all]
        steps: Vec<String>,
    },
    /// Compiles every text of GPU targets [default: all], executes the PTX here and compares with the tile interpreter
    Execute {
        /// Targets such as cuda-sm80, and kernels by name
        names: Vec<String>,
        /// Instead, breaks the PTX of some kernels in so many ways of each kind, one at a time, and counts what no case sees
        #[arg(long)]
        edits: Option<u64>,
        /// Which edits
        #[arg(long, default_value_t = 1, requires = "edits")]
        seed: u64,
    },
    /// Makes the TTIR of file tests that lack theirs with Triton's front end, and writes broken kernels out for `vosti verify`
    Filetests {
        /// Kernels to make and write out in any case
        names: Vec<String>,
    },
    /// Checks the tree's own rules: sizes, names, trust markers, dependency directions
    Tidy,
    /// Writes docs/trust.md, the list of files to audit
    Trust,
    /// Makes the TTIR of every specialisation with Triton's front end
    Ttir {
        /// Compare with the checked-in texts, and write nothing
        #[arg(long)]
        check: bool,
    },
    /// Checks the core's proof with Verus if it is installed, and writes the proof receipt
    Verify {
        /// Compare the receipt instead of writing it
        #[arg(long)]
        check: bool,
        /// Fail if Verus is missing, instead of comparing the receipt alone
        #[arg(long)]
        prove: bool,
    },
    /// Tries wrong versions of the core: each must fail the proof at the obligation that it names (needs Verus)
    VerifyMutants(mutants::Mutants),
    /// Deletes clauses of the core's statement, which must make the proof fail, and prints which survive (needs Verus, and hours)
    VerifyStatement(statement::Options),
    /// Makes the Python environment of the developer tools under target/ and prints its interpreter
    Python,
    /// Builds the files of a release for this machine: the command's archive, its SHA-256 and the wheel
    Release,
    /// Builds the Python package as a wheel and prints where it is
    Wheel(wheel::Wheel),
    /// Fetches llama.cpp's source, whose vocabularies and chat templates tests read, and prints its folder
    LlamaCpp,
    /// Fetches Helm, with which tests render the Kubernetes chart, and prints its path
    Helm,
}

fn main() -> ExitCode {
    xtask::ended(xtask::of_this_checkout().and_then(|()| run(Arguments::parse().command)))
}

fn run(task: Task) -> anyhow::Result<()> {
    match task {
        Task::Bench(bench) => bench::run(&bench),
        Task::Audit { names } => kernels("audit", &names),
        Task::Book => book::run(),
        Task::Test { steps } => test::run(&steps),
        Task::Verify { check, prove } => verify::run(check, prove),
        Task::Release => release::run(),
        Task::Wheel(options) => wheel::run(&options),
        Task::VerifyMutants(options) => mutants::run(&options),
        Task::VerifyStatement(options) => statement::run(&options),
        Task::Execute { names, edits, seed } => execute(&names, edits.map(|count| [seed, count])),
        Task::Filetests { names } => kernels("filetests", &names),
        Task::Tidy => tidy::run(),
        Task::Trust => kernels::<&str>("trust", &[]),
        Task::Ttir { check } => kernels("ttir", if check { &["--check"] } else { &[] }),
        Task::Python => python::interpreter().map(|path| println!("{}", path.display())),
        Task::Helm => helm::program().map(|path| println!("{}", path.display())),
        Task::LlamaCpp => llama_cpp::source().map(|path| println!("{}", path.display())),
    }
}

/// A command of `xtask-kernels`, which says itself what is wrong.
fn kernels<S: AsRef<OsStr>>(command: &str, arguments: &[S]) -> anyhow::Result<()> {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["run", "--quiet", "--package", "xtask-kernels", "--", command]).args(arguments);
    let status = cargo.current_dir(root()).status()?;
    if status.success() { Ok(()) } else { std::process::exit(status.code().unwrap_or(2)) }
}

fn execute(names: &[String], edits: Option<[u64; 2]>) -> anyhow::Result<()> {
    python::interpreter()?;
    let (example, how) = match edits {
        None => ("every_text", vec!["--execute".to_string()]),
        Some(numbers) => ("edited_texts", numbers.map(|number| number.to_string()).to_vec()),
    };
    let run = ["run", "--quiet", "-p", "vosti-cubin", "--example", example, "--"];
    run_command(Command::new("cargo").args(run).args(how).args(names))
}
