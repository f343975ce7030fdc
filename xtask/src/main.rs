//! Developer commands: `cargo xtask COMMAND`. Each command has a file of its own; this file only names them.

mod audit;
mod bench;
mod book;
mod filetests;
mod helm;
mod llama_cpp;
mod mutants;
mod python;
mod release;
mod statement;
mod test;
mod tidy;
mod trust;
mod ttir;
mod verify;
mod wheel;

use clap::{Parser, Subcommand};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

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
    Test,
    /// Compiles every text of GPU targets [default: all], executes the PTX here and compares with the tile interpreter
    Execute {
        /// Targets such as cuda-sm80, and kernels by name
        names: Vec<String>,
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
    let result = match Arguments::parse().command {
        Task::Bench(bench) => bench::run(&bench),
        Task::Audit { names } => audit::run(&names),
        Task::Book => book::run(),
        Task::Test => test::run(),
        Task::Verify { check, prove } => verify::run(check, prove),
        Task::Release => release::run(),
        Task::Wheel(options) => wheel::run(&options),
        Task::VerifyMutants(options) => mutants::run(&options),
        Task::VerifyStatement(options) => statement::run(&options),
        Task::Execute { names } => execute(&names),
        Task::Filetests { names } => filetests::run(&names),
        Task::Tidy => tidy::run(),
        Task::Trust => trust::run(),
        Task::Ttir { check } => ttir::run(check),
        Task::Python => python::interpreter().map(|path| println!("{}", path.display())),
        Task::Helm => helm::program().map(|path| println!("{}", path.display())),
        Task::LlamaCpp => llama_cpp::source().map(|path| println!("{}", path.display())),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::from(2)
        }
    }
}

fn execute(names: &[String]) -> anyhow::Result<()> {
    python::interpreter()?;
    let example = ["run", "--quiet", "-p", "vosti-cuda", "--example", "every_text", "--", "--execute"];
    run_command(Command::new("cargo").args(example).args(names))
}

/// The repository's root.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask lies in the repository").to_path_buf()
}

/// The folder in which cargo builds.
pub fn target_folder() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), |given| root().join(given))
}

/// Runs a command in the repository's root and shows its output. An error, which names the command, if it does not start or
/// does not succeed.
pub fn run_command(command: &mut Command) -> anyhow::Result<()> {
    let shown = format!("{:?}", command).replace('"', "");
    let status = command.current_dir(root()).status().map_err(|e| anyhow::anyhow!("{shown}: {e}"))?;
    anyhow::ensure!(status.success(), "{shown}: {status}");
    Ok(())
}
