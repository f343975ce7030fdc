//! Triton as a build-time tool: a Python environment of its own, and `kernels/compile.py` run in it.
//!
//! The script and the pinned requirement are part of this crate, so that a binary without the source tree can
//! compile. Triton's cache is not used. Neither a GPU nor a driver is needed.
//! Read next: `kernels/compile.py`, [`mod@crate::artifact`].

use crate::arch::Arch;
use crate::artifact::Artifact;
use crate::error::CubinError;
use crate::start::start;
use crate::unused;
use serde::Serialize;
use std::borrow::Cow;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use vosti_kernels::{Spec, compile_options};

/// The requirement for pip: the version that made the checked-in TTIR.
pub const REQUIREMENT: &str = "triton==3.6.0";
const SCRIPT: &str = include_str!("../../../kernels/compile.py");
/// The file of an environment that says what is installed there; it is written last.
const STAMP: &str = "installed.txt";
/// Ends without an error where the Triton of this requirement is installed.
const HAS_TRITON: &str =
    "import importlib.metadata, sys; sys.exit('triton==' + importlib.metadata.version('triton') != sys.argv[1])";

/// A Python that has the pinned Triton.
#[derive(Clone, Debug)]
pub struct Toolchain {
    python: PathBuf,
    copies: Copies,
}

/// How the loops of high products copy their tiles, where a target's table says that it may be by descriptor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Copies {
    /// One thread asks for a tile of a tensor map (TMA).
    #[default]
    Descriptors,
    /// Each thread copies 16 bytes at a time, as in all other kernels.
    Threads,
}

/// What the script is asked for. It fixes every byte that the script writes.
#[derive(Serialize)]
pub(crate) struct Request<'a> {
    arch: u32,
    shared_max: u64,
    pub(crate) kernels: Vec<Kernel<'a>>,
}

#[derive(Clone, Serialize)]
pub(crate) struct Kernel<'a> {
    pub(crate) stem: String,
    ttir: &'a str,
    num_warps: u32,
    num_stages: u32,
    descriptors: bool,
    start: String,
}

impl<'a> Request<'a> {
    pub(crate) fn of(target: &str, copies: Copies, kernels: &[(Spec, &'a str)]) -> Result<Request<'a>, CubinError> {
        let arch = Arch::of_target(target)?;
        let kernel = |(spec, ttir): &(Spec, &'a str)| {
            let options = compile_options(target, spec)?;
            let (num_warps, num_stages) = (options.num_warps, options.num_stages);
            let descriptors = options.descriptors && copies == Copies::Descriptors;
            let start = start(spec, vosti_kernels::contract(&spec.kernel)?, options, arch);
            Ok(Kernel { stem: spec.to_string(), ttir, num_warps, num_stages, descriptors, start })
        };
        let kernels = kernels.iter().map(kernel).collect::<Result<_, CubinError>>()?;
        Ok(Request { arch: arch.number(), shared_max: arch.shared_bytes_max(), kernels })
    }

    fn json(&self) -> String {
        // Only strings, numbers and flags, so this cannot fail.
        serde_json::to_string(self).unwrap_or_default()
    }

    /// The same, of these kernels alone.
    pub(crate) fn with(&self, kernels: Vec<Kernel<'a>>) -> Request<'a> {
        Request { kernels, ..*self }
    }

    /// A name for what the script makes of one kernel.
    pub(crate) fn name_of(&self, kernel: &Kernel<'a>) -> String {
        let alone = self.with(vec![kernel.clone()]);
        blake3::hash([SCRIPT, &alone.json()].concat().as_bytes()).to_hex().to_string()
    }
}

impl Toolchain {
    /// The environment in `folder`, if there is one that works: after an upgrade of the system, its Python may be gone or another one.
    pub fn find(folder: &Path) -> Option<Toolchain> {
        let python = folder.join("bin/python");
        if !fs::read_to_string(folder.join(STAMP)).is_ok_and(|installed| installed == REQUIREMENT) {
            return None;
        }
        run(Command::new(&python).args(["-c", HAS_TRITON, REQUIREMENT]), "").ok()?;
        unused::note(folder, STAMP);
        Some(Toolchain::with_python(python))
    }

    /// Makes an environment in `folder`, unless there is one already. pip fetches Triton from the index that the user has
    /// configured. Environments beside it that nobody has used for long are removed. Errors: no python3, or a failure of venv or pip.
    pub fn install(folder: &Path) -> Result<Toolchain, CubinError> {
        // Two processes that install at once would clear each other's environment, so the second waits for the first.
        let _one = lock(folder)?;
        if let Some(found) = Toolchain::find(folder) {
            return Ok(found);
        }
        let (python, stamp) = (folder.join("bin/python"), folder.join(STAMP));
        run(Command::new("python3").args(["-m", "venv", "--clear"]).arg(folder), "")?;
        let pip = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", REQUIREMENT];
        run(Command::new(&python).args(pip), "").map_err(|error| match error {
            CubinError::Tool { output, .. } => CubinError::Pip { requirement: REQUIREMENT, output: errors(&output) },
            error => error,
        })?;
        fs::write(&stamp, REQUIREMENT).map_err(|error| CubinError::Cache { path: stamp, error })?;
        unused::remove(folder.parent().unwrap_or(folder), STAMP);
        Ok(Toolchain::with_python(python))
    }

    /// The user's own Python. The script refuses any version of Triton other than the pinned one.
    pub fn with_python(python: PathBuf) -> Toolchain {
        Toolchain { python, copies: Copies::default() }
    }

    /// The same, with high products' tiles copied in this way.
    pub fn copying(self, copies: Copies) -> Toolchain {
        Toolchain { copies, ..self }
    }

    /// The Python that has Triton.
    pub fn python(&self) -> &Path {
        &self.python
    }

    /// Compiles specialisations for a target, given their TTIR. Errors: an unknown target, a failure of the compiler.
    pub fn compile(&self, target: &str, kernels: &[(Spec, &str)]) -> Result<Vec<Artifact>, CubinError> {
        let scratch = tempfile::tempdir().map_err(|error| CubinError::Io { path: std::env::temp_dir(), error })?;
        let request = Request::of(target, self.copies, kernels)?;
        self.compile_into(scratch.path(), &request)?;
        kernels.iter().map(|(spec, ttir)| Artifact::read(scratch.path(), spec, ttir)).collect()
    }

    /// Has the compiler write its files of each kernel to a folder.
    pub(crate) fn compile_into(&self, folder: &Path, request: &Request<'_>) -> Result<(), CubinError> {
        let ran = run(Command::new(&self.python).args(["-B", "-c", SCRIPT]).arg(folder), &request.json());
        ran.map_err(|error| match error {
            CubinError::Tool { tool, output } if without_triton(&output) => {
                let why = output.lines().next_back().unwrap_or_default().to_string();
                CubinError::NoTriton { tool, needs: REQUIREMENT, why }
            }
            error => error,
        })?;
        if !request.kernels.iter().all(|kernel| folder.join(format!("{}.json", kernel.stem)).exists()) {
            return Err(CubinError::Wrote { tool: self.python.display().to_string(), needs: REQUIREMENT });
        }
        Ok(())
    }

    /// Compiles specialisations from their checked-in TTIR. Errors: no TTIR is checked in, or those of `compile`.
    pub fn compile_checked_in(&self, target: &str, specs: &[Spec]) -> Result<Vec<Artifact>, CubinError> {
        let texts = checked_in(specs)?;
        let kernels: Vec<(Spec, &str)> = texts.iter().map(|(spec, text)| (spec.clone(), text.as_ref())).collect();
        self.compile(target, &kernels)
    }
}

/// Specialisations with their checked-in TTIR. Error: the first without.
pub(crate) fn checked_in(specs: &[Spec]) -> Result<Vec<(Spec, Cow<'static, str>)>, CubinError> {
    let text = |spec: &Spec| {
        let missing = || CubinError::Ttir { spec: spec.to_string() };
        vosti_kernels::ttir(spec).map(|text| (spec.clone(), text)).ok_or_else(missing)
    };
    specs.iter().map(text).collect()
}

/// Locks a folder, by a file beside it. Closing the file releases the lock.
pub(crate) fn lock(folder: &Path) -> Result<fs::File, CubinError> {
    let path = folder.with_extension("lock");
    let failed = |error| CubinError::Cache { path: path.clone(), error };
    fs::create_dir_all(folder.parent().unwrap_or(folder)).map_err(failed)?;
    let file = fs::File::options().create(true).truncate(false).write(true).open(&path).map_err(failed)?;
    file.lock().map_err(failed)?;
    Ok(file)
}

/// Whether a Python says that it has no Triton, or another one than the script wants.
fn without_triton(said: &str) -> bool {
    let last = said.lines().next_back().unwrap_or_default();
    ["ModuleNotFoundError: ", "ImportError: ", "compile.py needs Triton "].iter().any(|begin| last.starts_with(begin))
}

/// What pip calls errors; all that it said if it names none.
fn errors(said: &str) -> String {
    let errors: Vec<&str> = said.lines().filter_map(|line| line.strip_prefix("ERROR: ")).collect();
    if errors.is_empty() { said.to_string() } else { errors.join("; ") }
}

/// Runs a tool to its end, with `input` as its standard input. If the tool fails, the error has its output.
fn run(command: &mut Command, input: &str) -> Result<(), CubinError> {
    let tool = command.get_program().to_string_lossy().into_owned();
    let start = |error| CubinError::Start { tool: tool.clone(), error };
    let output = vosti_child::output(command, input).map_err(start)?;
    match output.status.success() {
        true => Ok(()),
        false => {
            let said = [&output.stdout[..], &output.stderr[..]].concat();
            Err(CubinError::Tool { tool, output: String::from_utf8_lossy(&said).trim().to_string() })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_failing_tool_says_is_in_the_error() {
        let broken = Toolchain::with_python("/bin/false".into());
        let error = broken.compile_checked_in("cuda-sm90", &[]).unwrap_err();
        assert!(matches!(error, CubinError::Tool { .. }), "{error}");
        let idle = Toolchain::with_python("/bin/true".into());
        let spec = vosti_kernels::parse_stem("linear-bf16-BK64-BM64-BN64-K576-N960-SWAP1").unwrap();
        let error = idle.compile_checked_in("cuda-sm90", &[spec]).unwrap_err().to_string();
        assert!(
            error.starts_with("/bin/true ended without an error and wrote no kernels") && error.contains(REQUIREMENT),
            "{error}"
        );
        let missing = Toolchain::with_python("/nowhere/python".into());
        let error = missing.compile_checked_in("cuda-sm90", &[]).unwrap_err().to_string();
        assert!(error.contains("needs python3"), "{error}");
    }

    #[test]
    fn only_one_installs_at_a_time() {
        let place = tempfile::tempdir().unwrap();
        let folder = place.path().join("tools/triton");
        let held = lock(&folder).unwrap();
        std::thread::scope(|scope| {
            let (told, hears) = std::sync::mpsc::channel();
            let folder = &folder;
            scope.spawn(move || {
                let locked = lock(folder).map(drop);
                told.send(locked.is_ok()).unwrap();
            });
            let early = hears.recv_timeout(std::time::Duration::from_millis(50));
            assert!(early.is_err(), "the second did not wait");
            drop(held);
            assert_eq!(hears.recv(), Ok(true));
        });
        // The first has made the environment, and the second uses it.
        fs::create_dir_all(folder.join("bin")).unwrap();
        vosti_test_tools::script(&folder.join("bin/python"), "exit 0");
        fs::write(folder.join(STAMP), REQUIREMENT).unwrap();
        Toolchain::install(&folder).unwrap();
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 2, "nothing was installed again");
    }

    #[test]
    fn an_environment_is_used_if_it_works() {
        let place = tempfile::tempdir().unwrap();
        let (folder, python) = (place.path().join("triton"), place.path().join("triton/bin/python"));
        assert!(Toolchain::find(&folder).is_none());
        fs::create_dir_all(folder.join("bin")).unwrap();
        fs::write(folder.join(STAMP), REQUIREMENT).unwrap();
        assert!(Toolchain::find(&folder).is_none(), "its Python is gone");
        vosti_test_tools::script(&python, "exit 1");
        assert!(Toolchain::find(&folder).is_none(), "its Python has no Triton");
        vosti_test_tools::script(&python, "exit 0");
        assert_eq!(Toolchain::find(&folder).unwrap().python(), python);
        fs::remove_file(folder.join(STAMP)).unwrap();
        assert!(Toolchain::find(&folder).is_none(), "it was not finished");
    }

    #[test]
    fn a_python_without_triton_is_told_by_name() {
        let place = tempfile::tempdir().unwrap();
        let python = place.path().join("python");
        let said = |text: &str| {
            vosti_test_tools::script(&python, text);
            Toolchain::with_python(python.clone()).compile_checked_in("cuda-sm90", &[]).unwrap_err().to_string()
        };
        let traceback = "printf 'Traceback (most recent call last):\\n  File\\n%s\\n' \"ModuleNotFoundError: No module named 'triton'\" >&2; exit 1";
        let wanted = format!(
            "{} has no {REQUIREMENT} (ModuleNotFoundError: No module named 'triton'): give --python a Python 3 that has it, \
             or leave it out",
            python.display()
        );
        assert_eq!(said(traceback), wanted);
        let other = "echo compile.py needs Triton 3.6.0, found 3.2.0 >&2; exit 1";
        assert!(said(other).contains("needs Triton 3.6.0, found 3.2.0): give --python"), "{}", said(other));
        assert!(matches!(said("echo error: no registers >&2; exit 1"), text if text.ends_with("error: no registers")));
    }

    #[test]
    fn the_page_that_asks_the_script_by_hand_gives_all_that_it_reads() {
        let page = include_str!("../../../docs/add-a-gpu-target.md");
        let spec = vosti_kernels::parse_stem("linear-bf16-BK64-BM64-BN64-K576-N960-SWAP1").unwrap();
        let request = Request::of("cuda-sm90", Copies::default(), &[(spec, "")]).unwrap();
        let json: serde_json::Value = serde_json::from_str(&request.json()).unwrap();
        let keys = |value: &serde_json::Value| value.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
        for key in [keys(&json), keys(&json["kernels"][0])].concat() {
            assert!(page.contains(&format!("\"{key}\": ")), "{key} is not in the request of docs/add-a-gpu-target.md");
        }
    }

    #[test]
    fn of_pips_words_its_errors_are_told() {
        let said = "WARNING: Retrying after connection broken\nERROR: Could not find a version\nERROR: No matching distribution\n";
        assert_eq!(errors(said), "Could not find a version; No matching distribution");
        assert_eq!(errors("no pip"), "no pip");
    }

    #[test]
    fn the_pinned_triton_is_the_one_of_the_scripts() {
        let version = REQUIREMENT.strip_prefix("triton==").unwrap();
        for script in [SCRIPT, include_str!("../../../kernels/ttir.py")] {
            assert!(script.contains(&format!("VERSION = \"{version}\"")));
        }
        assert!(include_str!("../../../xtask/requirements.txt").contains(REQUIREMENT));
    }
}
