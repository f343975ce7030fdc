//! `vosti._vosti`: the engine inside a Python process, with token ids as input and output. People use `python/vosti`, on top
//! of it.
//!
//! This module decides nothing: models, sampling and steps are those of the command and the server, so one seed gives one
//! answer in all three. The engine has its own thread; the GIL is released while a call waits for it.
//! Read next: `requests.rs`, then `run.rs`.

mod own;
mod replacement;
mod requests;
mod run;

use own::Own;
use pyo3::exceptions::{PyOverflowError, PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};
use replacement::PyReplacement;
use requests::{Asked, Had, Params};
use run::{Answered, Choice, Run, TICK};
use serde_json::Value;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use vosti::deployment::{DeployOptions, Deployment, DeviceConfig, Storage};
use vosti::pool::{self, Demand, Origin};
use vosti_engine::numbers;
use vosti_engine::progress::Progress;
use vosti_engine::{EngineHandle, Policy, Speculation, Token};
use vosti_model::{Arithmetic, ChatOptions, Date, Replacement};

/// What is wrong with a token id that no number of 32 bits is.
const OUTSIDE: &str = "a token id is negative or not in the vocabulary";

/// Shows nothing, and ends the work once it is true.
#[derive(Default)]
struct Quiet(AtomicBool);

impl Progress for Quiet {
    fn stage(&self, _label: &str, _total: u64) {}
    fn done(&self, _units: u64) {}
    fn cancelled(&self) -> bool {
        self.0.load(Relaxed)
    }
}

/// Stack of the thread that does long work, as large as a main thread's.
const STACK: usize = 8 << 20;

/// Does long work on a thread of its own, while this one looks for signals: Python tells its main thread alone. If a signal's handler
/// raises an exception, the work is told to end, and the exception is the result.
fn attended<T: Send>(py: Python<'_>, work: impl FnOnce(&Quiet) -> PyResult<T> + Send) -> PyResult<T> {
    py.detach(|| {
        let (quiet, (running, ended)) = (Quiet::default(), channel::<()>());
        let quiet = &quiet;
        std::thread::scope(|scope| {
            let work = move || {
                let _running = running; // dropped at the end, which wakes the other thread
                work(quiet)
            };
            let worker = std::thread::Builder::new().stack_size(STACK).spawn_scoped(scope, work).map_err(failed)?;
            let mut raised = Ok(());
            while ended.recv_timeout(TICK) == Err(RecvTimeoutError::Timeout) {
                if raised.is_ok() {
                    raised = Python::attach(|py| py.check_signals());
                    quiet.0.store(raised.is_err(), Relaxed);
                }
            }
            let done = worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            raised.and(done)
        })
    })
}

/// An engine, and the parts of its deployment that callers use.
#[pyclass(name = "Engine", frozen)]
struct PyEngine {
    making: Making,
    own: Arc<Own>,
    started: Mutex<Started>,
}

/// The engine that new requests go to, and its deployment's fingerprint. When the last handle is dropped, the engine finishes its
/// work and its thread ends.
#[derive(Clone)]
pub(crate) struct Started {
    engine: EngineHandle,
    fingerprint: String,
}

/// The parts of an engine, so that another can be made with other weights.
struct Making {
    name: String,
    path: PathBuf,
    options: DeployOptions,
    /// Sequences that run together.
    sequences: usize,
    speculation: Speculation,
}

impl Making {
    /// Makes a deployment and an engine over it; `tensors` replace those of its folder.
    fn make(&self, tensors: Option<Replacement>, quiet: &Quiet) -> PyResult<(Deployment, Started)> {
        let (path, options): (&Path, _) = (&self.path, &self.options);
        let deployment = match tensors {
            None => Deployment::load(&self.name, path, options, quiet),
            Some(tensors) => Deployment::load_with(&self.name, path, tensors, options, quiet),
        };
        let deployment = deployment.map_err(refused)?;
        let pages = options.pool.pages(deployment.program());
        let origin = Origin { free_memory: false, bundle: false };
        pool::check(deployment.program(), pages, origin).map_err(refused)?;
        let policy = Policy { running_max: self.sequences, speculation: self.speculation, ..deployment.policy() };
        let rows_max = policy.rows_step_max.min(pages.saturating_mul(vosti_core::PAGE));
        let config = DeviceConfig { pages: Some(pages), rows_max, ..DeviceConfig::default() };
        let engine = deployment.engine(&config, policy).map_err(refused)?;
        let (engine, _) = EngineHandle::spawn(engine).map_err(failed)?;
        let fingerprint = deployment.fingerprint().to_string();
        Ok((deployment, Started { engine, fingerprint }))
    }
}

/// The requests of a call, which stay in Python until their turn comes.
struct Call {
    /// The caller's word for a request, for errors.
    what: &'static str,
    count: usize,
    /// Returns the parts of the request with an index.
    given: Py<PyAny>,
    /// Called with the number of finished requests.
    done: Option<Py<PyAny>>,
}

/// Requests that the engine has, as a multiple of those that run together.
const AHEAD: usize = 2;

/// The process that made the first engine; 0 before.
static PROCESS: AtomicU32 = AtomicU32::new(0);

/// Refuses a process that was forked from the one with the threads: a call would wait for them for ever.
fn not_forked() -> PyResult<()> {
    let own = std::process::id();
    match PROCESS.compare_exchange(0, own, Relaxed, Relaxed) {
        Err(first) if first != own => Err(failed(format!(
            "this process was forked from process {first}, which used vosti first, and the engine's threads stayed there: start \
             processes with multiprocessing.get_context(\"spawn\"), or use vosti only in the children"
        ))),
        _ => Ok(()),
    }
}

fn refused(error: impl std::fmt::Display) -> PyErr {
    PyValueError::new_err(error.to_string())
}

impl PyEngine {
    /// The engine for new requests. Refused in a forked process.
    fn started(&self) -> PyResult<Started> {
        not_forked()?;
        Ok(self.lock().clone())
    }

    fn lock(&self) -> MutexGuard<'_, Started> {
        self.started.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs all requests of a call to their ends, or none. `asked` makes a request of its parts, and `read` makes a result of its
    /// answer.
    ///
    /// All requests are made once before any runs, so that a wrong one costs no work. Then each is made again when its turn comes,
    /// and its answer is read as soon as it ends. So only the few in the engine take memory here, and each result takes a pointer.
    fn all<G>(
        &self,
        py: Python<'_>,
        call: Call,
        asked: impl Fn(G) -> Result<Asked, String> + Sync,
        read: impl Fn(Python<'_>, usize, Answered) -> PyResult<Py<PyAny>> + Sync,
    ) -> PyResult<Vec<Py<PyAny>>>
    where
        G: for<'py> FromPyObjectOwned<'py>,
    {
        let Call { what, count, given, done } = call;
        let make = |index| {
            let refused = |why| refused(format!("{what} {index}: {why}"));
            let given = Python::attach(|py| {
                let given = given.call1(py, (index,))?;
                given.extract::<G>(py).map_err(|error| {
                    let error: PyErr = error.into();
                    let outside = error.is_instance_of::<PyOverflowError>(py);
                    refused(if outside { OUTSIDE.to_string() } else { error.value(py).to_string() })
                })
            })?;
            asked(given).map_err(refused)
        };
        let started = self.started()?;
        py.detach(|| {
            (0..count).try_for_each(|index| make(index).map(drop))?;
            let run = Run::new(self.own.clone());
            let ahead = AHEAD * self.making.sequences;
            let read = |index, answered| Python::attach(|py| read(py, index, answered));
            run.all(what, (0..count).map(make), ahead, &started, read, &mut |count| tell(done.as_ref(), count))
        })
    }
}

#[pymethods]
impl PyEngine {
    #[new]
    #[pyo3(signature = (model, *, context = None, threads = None, sequences = None, kv_pages = None, weights = None, arithmetic = None, activations = None, speculate = false))]
    #[allow(clippy::too_many_arguments, reason = "Python's keywords")]
    fn new(
        py: Python<'_>,
        model: &str,
        context: Option<u32>,
        threads: Option<usize>,
        sequences: Option<usize>,
        kv_pages: Option<usize>,
        weights: Option<&str>,
        arithmetic: Option<&str>,
        activations: Option<u32>,
        speculate: bool,
    ) -> PyResult<Self> {
        let sequences = sequences.unwrap_or(Policy::default().running_max);
        let speculation = if speculate { Speculation::NGRAM } else { Speculation::Off };
        let storage = match weights {
            None | Some("as-they-come") => Storage::AsTheyCome,
            Some("expanded") => Storage::Expanded,
            Some(other) => return Err(refused(format!("weights is {other:?}: give as-they-come, expanded or None"))),
        };
        let arithmetic = match (arithmetic, activations) {
            (None, None) => None,
            (Some("bf16"), None) => Some(Arithmetic::Bf16),
            (None | Some("integers"), Some(8)) => Some(Arithmetic::Integers8),
            (Some("integers"), None) | (None | Some("integers"), Some(16)) => Some(Arithmetic::Integers16),
            (Some("bf16"), Some(_)) => {
                return Err(refused("activations are for products in integers, and arithmetic is bf16"));
            }
            (None | Some("integers"), Some(other)) => {
                return Err(refused(format!("activations is {other}: give 16, 8 or None")));
            }
            (Some(other), _) => {
                return Err(refused(format!("arithmetic is {other:?}: give integers, bf16 or None")));
            }
        };
        not_forked()?;
        // Each as long as the context allows.
        let demand = Demand { tokens: usize::MAX, sequences };
        let pool = pool::Asked { pages: kv_pages, bytes: None, demand };
        let options = DeployOptions { threads, context, arithmetic, storage, pool, ..DeployOptions::default() };
        attended(py, |quiet| {
            let path = vosti::fetch::find(model, quiet).map_err(refused)?;
            let making = Making { name: model.to_string(), path, options, sequences, speculation };
            let (deployment, started) = making.make(None, quiet)?;
            let own = Own::new(&making.name, &deployment);
            Ok(PyEngine { making, own: Arc::new(own), started: Mutex::new(started) })
        })
    }

    /// Names the deployment: two deployments with one fingerprint give the same answers.
    #[getter]
    fn fingerprint(&self) -> String {
        self.lock().fingerprint.clone()
    }

    /// For tests: answers that run, answers that wait, and, since the engine's start, its steps and the answers that were aborted.
    fn counts(&self, py: Python<'_>) -> PyResult<(usize, usize, u64, u64)> {
        let engine = self.started()?.engine;
        let (status, counters) = py.detach(move || engine.report()).map_err(failed)?;
        Ok((status.running, status.waiting, counters.steps, counters.aborted))
    }

    /// Begins to replace every weight: the result needs a new tensor for each tensor in the model's folder.
    fn replacement(&self) -> PyResult<PyReplacement> {
        let begun = vosti_model::Model::replacement(&self.making.path).map_err(refused)?;
        Ok(PyReplacement::new(begun))
    }

    /// Replaces every weight, and drops all keys and values. On an error nothing changes.
    fn replace(&self, py: Python<'_>, tensors: &PyReplacement) -> PyResult<()> {
        not_forked()?;
        let tensors = tensors.take()?;
        attended(py, |quiet| {
            let stays = |error| refused(format!("the weights were not changed: {error}"));
            let (_, started) = self.making.make(Some(tensors), quiet).map_err(stays)?;
            let former = std::mem::replace(&mut *self.lock(), started);
            // Running requests end with the former weights.
            former.engine.drain();
            Ok(())
        })
    }

    /// Longest sequence, prompt and answer.
    #[getter]
    fn context(&self) -> u32 {
        self.own.context
    }

    #[getter]
    fn vocabulary(&self) -> u32 {
        self.own.vocabulary
    }

    /// What the model's files ask for and do not say.
    fn warnings(&self) -> Vec<String> {
        self.own.text().map_or_else(|_| Vec::new(), |text| text.tokenizer.warnings())
    }

    /// The sampling of calls that give none, by the names of `SamplingParams`.
    fn defaults<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let all = PyDict::new(py);
        for (name, value) in self.own.sampling.all() {
            match value {
                // The shortest number that is this one: 0.2, and not the 32 bits of it as 64.
                numbers::Value::Float(number) => {
                    all.set_item(name, number.to_string().parse().unwrap_or(f64::from(number)))?
                }
                numbers::Value::Whole(number) => all.set_item(name, number)?,
            }
        }
        Ok(all)
    }

    #[pyo3(signature = (text, add_special_tokens = true))]
    fn tokenize(&self, text: &str, add_special_tokens: bool) -> PyResult<Vec<u32>> {
        self.own.text().map_err(refused)?.tokenizer.encode(text, add_special_tokens).map_err(refused)
    }

    fn detokenize(&self, tokens: Vec<u32>) -> PyResult<String> {
        let text = self.own.text().map_err(refused)?;
        if !tokens.is_empty() {
            self.own.check(&tokens).map_err(refused)?;
        }
        Ok(text.tokenizer.decode(&tokens))
    }

    /// The chat template's text of messages, tools and variables, all as JSON, and its tokens. Text of messages gives no control
    /// token.
    fn render(
        &self,
        messages: &str,
        tools: Option<&str>,
        variables: &str,
        add_generation_prompt: bool,
    ) -> PyResult<(String, Vec<u32>)> {
        let json = |text: &str| serde_json::from_str::<Value>(text).map_err(refused);
        let options = ChatOptions {
            add_generation_prompt,
            date: Date::DEFAULT,
            tools: tools.map(json).transpose()?,
            variables: json(variables)?.as_object().cloned().unwrap_or_default(),
        };
        let own = self.own.text().map_err(refused)?;
        let prompt = own.chat().map_err(refused)?.render(&json(messages)?, &options).map_err(refused)?;
        let tokens = own.tokenizer.encode_prompt(&prompt, false).map_err(refused)?;
        Ok((prompt.text().into_owned(), tokens))
    }

    /// A run that requests are added to one by one.
    fn run(&self) -> Run {
        Run::new(self.own.clone())
    }

    /// Compiles a grammar, so that the request that asks for it begins at once.
    fn compile(&self, py: Python<'_>, grammar: &str) -> PyResult<()> {
        let compile = || self.own.compile(&requests::read(grammar)?).map(drop);
        py.detach(compile).map_err(refused)
    }

    /// Answers prompts, and returns what `read` makes of each index and answer. `given` returns, for an index, a prompt, its
    /// parameters and the part of the answer that the caller has.
    fn generate(
        &self,
        py: Python<'_>,
        count: usize,
        given: Py<PyAny>,
        read: Py<PyAny>,
        done: Option<Py<PyAny>>,
    ) -> PyResult<Vec<Py<PyAny>>> {
        let fingerprint = self.fingerprint();
        let asked = |(prompt, params, had): (Vec<Token>, Params, Option<Had>)| {
            params.asked(prompt, had, &self.own, &fingerprint)
        };
        let read = |py: Python<'_>, index, answered| read.call1(py, (index, answered));
        self.all(py, Call { what: "prompt", count, given, done }, asked, read)
    }

    /// Log-probabilities of each sequence's tokens but the first, each given all tokens before it: native FP32, as bytes. `given`
    /// returns the sequence with an index.
    fn score(
        &self,
        py: Python<'_>,
        count: usize,
        given: Py<PyAny>,
        done: Option<Py<PyAny>>,
    ) -> PyResult<Vec<Py<PyAny>>> {
        let asked = |sequence| requests::scored(sequence, &self.own);
        let read = |py: Python<'_>, _, answered: Answered| {
            let bytes: Vec<u8> = answered.scores().flat_map(f32::to_ne_bytes).collect();
            Ok(PyBytes::new(py, &bytes).into_any().unbind())
        };
        self.all(py, Call { what: "sequence", count, given, done }, asked, read)
    }
}

/// Runs while a call waits: handles Python's signals, and reports the number of finished requests.
fn tell(done: Option<&Py<PyAny>>, count: Option<usize>) -> PyResult<()> {
    Python::attach(|py| {
        py.check_signals()?;
        match (done, count) {
            (Some(done), Some(count)) => done.call1(py, (count,)).map(drop),
            _ => Ok(()),
        }
    })
}

/// The engine's error while it ran.
fn failed(error: impl std::fmt::Display) -> PyErr {
    PyRuntimeError::new_err(error.to_string())
}

/// Runs the `vosti` command and returns its exit code; the first word is the script that runs it.
#[pyfunction]
fn command(py: Python<'_>, words: Vec<OsString>) -> u8 {
    py.detach(|| {
        let program = words.first().map(PathBuf::from);
        vosti::cli::main(words, program)
    })
}

/// Refuses parameters of another type or out of their range.
#[pyfunction]
fn check(params: Params) -> PyResult<()> {
    params.check().map_err(refused)
}

#[pymodule]
fn _vosti(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<PyEngine>()?;
    module.add_class::<PyReplacement>()?;
    module.add_class::<Answered>()?;
    module.add_class::<Choice>()?;
    module.add_class::<Run>()?;
    module.add_function(wrap_pyfunction!(check, module)?)?;
    module.add_function(wrap_pyfunction!(command, module)?)?;
    module.add("__version__", env!("CARGO_PKG_VERSION"))
}
