//! Developer commands that need the kernels or their verifier. `cargo xtask COMMAND` runs them; they are apart so that the other
//! commands do not wait until these crates are built.

mod audit;
mod filetests;
mod trust;
mod ttir;

use clap::Parser;
use std::process::ExitCode;

#[derive(Parser)]
#[command(name = "cargo xtask", disable_help_subcommand = true)]
enum Task {
    Audit {
        names: Vec<String>,
    },
    Filetests {
        names: Vec<String>,
    },
    Trust,
    Ttir {
        #[arg(long)]
        check: bool,
    },
}

fn main() -> ExitCode {
    xtask::ended(match Task::parse() {
        Task::Audit { names } => audit::run(&names),
        Task::Filetests { names } => filetests::run(&names),
        Task::Trust => trust::run(),
        Task::Ttir { check } => ttir::run(check),
    })
}
