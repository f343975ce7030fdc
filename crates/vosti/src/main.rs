//! The `vosti` command: parses the command line, runs one subcommand, and turns an error into one line.
//!
//! Exit codes: 0 done, 1 a check failed, 2 wrong input or a failure (one line on stderr says what is wrong and what to do),
//! 130 interrupted.

use std::process::ExitCode;

fn main() -> ExitCode {
    vosti::cli::main(std::env::args_os(), std::env::current_exe().ok()).into()
}
