//! `vosti-verify FILE.py`: what `vosti verify FILE.py` does, as a small program without the engine. It needs a Python with Triton, which it
//! does not install.

use clap::Parser;
use std::fs;
use std::io::{ErrorKind, Write as _, stdout};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use vosti_audit::{Audit, AuditError, Finding, Request, audit, page, suggestion};

/// Proves that kernels of a Triton file are batch-invariant, or shows two runs that differ (docs/verify-your-kernel.md).
/// Exit codes: 0 proved, 1 refuted, 2 wrong input, 3 unknown, 130 interrupted.
#[derive(Parser)]
#[command(name = "vosti-verify", version)]
struct Arguments {
    /// The Triton file; it stays as it is
    file: PathBuf,

    /// Prove this function only; may be given several times
    #[arg(long, value_name = "NAME")]
    function: Vec<String>,

    /// Constants of a launch, e.g. BLOCK=1024,num_warps=4; several launches must give the same bits
    #[arg(long, value_name = "NAME=VALUE,...")]
    launch: Vec<String>,

    /// Its contracts [default: the `.toml` beside it]
    #[arg(long, value_name = "FILE")]
    contract: Option<PathBuf>,

    /// Print the verdicts as JSON
    #[arg(long, conflicts_with = "suggest")]
    json: bool,

    /// Draft contracts from the file's text, and prove nothing
    #[arg(long, conflicts_with_all = ["launch", "contract", "html"])]
    suggest: bool,

    /// Write a page of the verdicts, with the two runs of each refuted kernel
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,

    /// A Python with Triton 3.6.0 [default: the one that this program is installed with, or `python3`]
    #[arg(long, env = "VOSTI_PYTHON", value_name = "PROGRAM")]
    python: Option<PathBuf>,
}

const INTERRUPTED: u8 = 130;

impl Arguments {
    fn python(&self) -> PathBuf {
        let beside = || Some(std::env::current_exe().ok()?.with_file_name("python")).filter(|path| path.is_file());
        self.python.clone().or_else(beside).unwrap_or_else(|| "python3".into())
    }
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    // Without a handler Ctrl-C ends this process alone.
    let _ = ctrlc::set_handler(|| {
        vosti_child::stop_all();
        std::thread::sleep(vosti_child::CLEARING);
        std::process::exit(INTERRUPTED.into());
    });
    let result = run(&arguments);
    if vosti_child::stopped() {
        return ExitCode::from(INTERRUPTED);
    }
    match result {
        Ok(Some(Finding::Proved) | None) => ExitCode::SUCCESS,
        Ok(Some(Finding::Refuted)) => ExitCode::from(1),
        Ok(Some(Finding::Unknown)) => ExitCode::from(3),
        Err(why) => {
            // What cannot be told is no reason to panic.
            _ = writeln!(std::io::stderr(), "error: {why}");
            ExitCode::from(2)
        }
    }
}

fn run(arguments: &Arguments) -> Result<Option<Finding>, String> {
    let python = || Ok::<_, AuditError>(arguments.python());
    if arguments.suggest {
        let draft = suggestion(&arguments.python(), &arguments.file, &arguments.function);
        print(&draft.map_err(|error| error.to_string())?)?;
        return Ok(None);
    }
    let request = Request {
        path: arguments.file.clone(),
        contract: arguments.contract.clone(),
        functions: arguments.function.clone(),
        launches: arguments.launch.clone(),
        run_all: false,
    };
    let audit = audit(&request, python).map_err(|error| error.to_string())?;
    print(&if arguments.json {
        serde_json::to_string_pretty(&audit).map_err(|error| error.to_string())? + "\n"
    } else {
        audit.to_string()
    })?;
    if let Some(path) = &arguments.html {
        write(path, &audit, &arguments.file)?;
    }
    Ok(Some(audit.finding()))
}

/// A reader that has read enough, as `head` has, is no failure.
fn print(text: &str) -> Result<(), String> {
    match stdout().write_all(text.as_bytes()).and_then(|()| stdout().flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(format!("cannot write standard output: {error}")),
        _ => Ok(()),
    }
}

fn write(path: &Path, audit: &Audit, file: &Path) -> Result<(), String> {
    let source = fs::read_to_string(file).map_err(|error| format!("cannot read {}: {error}", file.display()))?;
    fs::write(path, page(audit, &source)).map_err(|error| format!("cannot write {}: {error}", path.display()))
}
