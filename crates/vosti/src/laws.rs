//! The device laws on a real device: the assumptions that the engine's proof makes about it, checked on the program of a
//! model.
//!
//! The laws are `vosti-engine`'s (`laws.rs`), which tests run on small programs. Here the program is a deployment's own, so
//! the laws are checked on the kernels that answer requests. A GPU can check no other kernels, because its bundle has no
//! others. The report names the parts of laws that a model cannot try. Read next: `vosti-core/src/trusted/seam.rs`.

use crate::deployment::{DeployError, Deployment, DeviceConfig};
use crate::device::AnyDevice;
use serde::Serialize;
use std::collections::HashMap;
use std::rc::Rc;
use vosti_check::laws::{Bench, Broken, Law, Subject, all};
use vosti_core::{Device, Op, PAGE, Program, Uses};
use vosti_engine::progress::Progress;

/// Rows of the largest step: more than a row tile, and a ragged end. `vosti probe` tries every height of row tiles.
const ROWS_MAX: usize = 200;
/// Pages of each group.
const PAGES: usize = 12;
/// The laws reach behind windows of fewer tokens than this.
const WINDOW: u32 = 100;

/// Why there is no report.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "each message names its fields")]
pub enum LawsError {
    #[error(transparent)]
    Deploy(#[from] DeployError),
    #[error(
        "a context of {0} is too short for the laws, which take 160 tokens: take a model or a bundle with a longer one"
    )]
    Context(u32),
    #[error("there is no law called {given}; there are {known}")]
    Unknown { given: String, known: String },
    #[error("interrupted")]
    Interrupted,
}

/// The result of one law.
#[derive(Clone, Debug, Serialize)]
pub struct LawResult {
    /// The law's name, as `--only` takes it.
    pub law: &'static str,
    /// How the device broke it; none if it holds.
    pub broken: Option<String>,
    /// The part of the law that this model cannot try.
    pub untried: Option<&'static str>,
}

/// The results of all laws that were checked.
#[derive(Clone, Debug, Serialize)]
pub struct LawsReport {
    /// The processor's or the GPU's name.
    pub device: String,
    /// The model, as it was asked for.
    pub model: String,
    /// Of the deployment.
    pub fingerprint: String,
    /// True if every law was checked and holds.
    pub passed: bool,
    /// True if it was ended early: not every law was checked.
    pub interrupted: bool,
    /// In the order in which they ran.
    pub laws: Vec<LawResult>,
}

/// Every law, or the laws of these names. An unknown name is an error that lists the names.
pub fn named(only: &[String]) -> Result<Vec<Law<AnyDevice>>, LawsError> {
    let mut laws = all::<AnyDevice>();
    if let Some(given) = only.iter().find(|name| !laws.iter().any(|(law, _)| law == name)) {
        let known: Vec<&str> = laws.iter().map(|(law, _)| *law).collect();
        return Err(LawsError::Unknown { given: given.clone(), known: known.join(", ") });
    }
    laws.retain(|(law, _)| only.is_empty() || only.iter().any(|name| name == law));
    Ok(laws)
}

/// Checks laws on a deployment's device. It is an error if the context is shorter than 160 tokens, if no device can be made, or if
/// the work is ended before the first law.
pub fn run(
    deployment: Deployment,
    laws: Vec<Law<AnyDevice>>,
    progress: &dyn Progress,
) -> Result<LawsReport, LawsError> {
    let program = deployment.program().clone();
    if program.context < 160 {
        return Err(LawsError::Context(program.context));
    }
    let deployment = Rc::new(deployment);
    // A device that cannot be made is an error of its own, and breaks no law.
    let made = device(&deployment, &program)?;
    let choices = Choices { lists: made.top_max() > 0, draws: made.draws() };
    drop(made);
    let bench = |program: Program| {
        let (deployment, own) = (deployment.clone(), program.clone());
        let made = move || device(&deployment, &own).map_err(|error| Broken(error.to_string()));
        Bench { program, device: Box::new(made) }
    };
    let subject = Subject {
        rowwise: bench(without_attention(&program)),
        attending: bench(program.clone()),
        overflowing: 0..0,
        refuse: |device: &mut AnyDevice, program, plan| {
            // It refuses a program that it was not made for.
            device.run(&Program { context: program.context - 1, ..program.clone() }, plan)
        },
    };
    progress.stage("watching", laws.len() as u64);
    let (mut results, mut interrupted) = (vec![], false);
    for (law, broken_by) in laws {
        interrupted = progress.cancelled();
        if interrupted {
            break;
        }
        let broken = broken_by(&subject).err().map(|broken| broken.to_string());
        results.push(LawResult { law, broken, untried: untried(law, &program, choices) });
        progress.done(results.len() as u64);
    }
    if results.is_empty() {
        return Err(LawsError::Interrupted);
    }
    Ok(LawsReport {
        device: deployment.device_name(),
        model: deployment.describe(),
        fingerprint: deployment.fingerprint().to_string(),
        passed: results.iter().all(|result| result.broken.is_none()) && !interrupted,
        interrupted,
        laws: results,
    })
}

fn device(deployment: &Deployment, program: &Program) -> Result<AnyDevice, DeployError> {
    deployment.device_for(
        program,
        &DeviceConfig { pages: Some(PAGES), together: PAGES, rows_max: ROWS_MAX, ..DeviceConfig::default() },
    )
}

/// The program with attention removed: its output is replaced by its queries or, if these are of another form, by an input of its
/// store. Logits are then a function of a token and its position, because nobody reads what is stored, and every other kernel of
/// the model runs.
fn without_attention(program: &Program) -> Program {
    let mut instead: HashMap<u32, u32> = HashMap::new();
    let mut stored: HashMap<u32, Vec<u32>> = HashMap::new();
    let mut ops = vec![];
    for op in &program.ops {
        let Uses { binding: k, tokens, inputs, outputs: outs, rows, cache_read, cache_written } = op.uses();
        let ins = inputs.iter().map(|buffer| *instead.get(buffer).unwrap_or(buffer)).collect();
        if tokens {
            ops.push(op.clone());
        } else if let Some(read) = cache_read {
            let form = |buffer: u32| program.buffers[buffer as usize];
            let seen = inputs.iter().chain(stored.get(&read.layer).into_iter().flatten());
            let alike = seen.copied().find(|buffer| form(*buffer) == form(outs[0]));
            instead.insert(outs[0], alike.unwrap_or(inputs[0]));
        } else if let Some(write) = cache_written {
            stored.insert(write.layer, inputs);
            ops.push(Op::StoreKv { k, ins, layer: write.layer, back: write.back });
        } else {
            outs.iter().for_each(|out| _ = instead.remove(out));
            ops.push(Op::Rowwise { k, ins, outs, rows });
        }
    }
    Program { ops, ..program.clone() }
}

/// What a device does of a choice.
#[derive(Clone, Copy)]
struct Choices {
    lists: bool,
    draws: bool,
}

/// The part of a law that a model's weights, windows or context, or what the device leaves to the sampler, leave untried.
fn untried(law: &str, program: &Program, choices: Choices) -> Option<&'static str> {
    match law {
        "lists_are_brought" | "a_list_has_the_rows_largest_in_order" if !choices.lists => {
            Some("this device makes no lists: the sampler finds a row's largest logits")
        }
        "drawn_tokens_are_brought" | "a_drawn_token_depends_on_its_row_and_numbers" if !choices.draws => {
            Some("this device draws no tokens: the sampler does")
        }
        "what_is_stored_is_finite" | "clearing_leaves_finite_slots" => {
            Some("pages held finite numbers only: no token of this model stores others")
        }
        "attention_sees_its_window_in_order"
            if !program.groups.iter().any(|g| g.window.is_some_and(|w| w < WINDOW)) =>
        {
            Some("no page fell behind a window: none is shorter than 100")
        }
        "a_store_sees_the_entries_before_it"
            if !program.ops.iter().any(|op| op.uses().cache_written.is_some_and(|write| write.back > 0)) =>
        {
            Some("no entry depends on earlier ones: this model stores keys and values only")
        }
        "running_does_not_panic" if program.context as usize > PAGES * PAGE => {
            Some("the last positions of a context were not reached: the pool has 12 pages")
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vosti_model::Target;

    #[test]
    fn without_attention_every_other_kernel_is_left_and_reads_what_was_written() {
        let configs = ["llama-3.1-8b", "gemma-3-270m", "gemma-4-12b"].map(|name| format!("configs/{name}.json"));
        for name in configs.iter().map(String::as_str).chain(["tests/tiny/qwen3_5/config.json"]) {
            let path = format!("{}/../vosti-model/{name}", env!("CARGO_MANIFEST_DIR"));
            let config = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
            let decoder = vosti_model::families::from_config(name, &config).unwrap();
            let target = Target::named("cpu").with_choices();
            let program = vosti_model::plan(&decoder, &target, Some(512)).unwrap().program;
            let rows = without_attention(&program);
            let others = |program: &Program| program.ops.iter().filter(|op| op.uses().cache_read.is_none()).count();
            assert_eq!(others(&rows), others(&program), "{name}");
            let mut written = std::collections::HashSet::new();
            for op in rows.ops.iter().map(Op::uses) {
                assert!(op.cache_read.is_none(), "{name}: {op:?}");
                assert!(op.inputs.iter().all(|buffer| written.contains(buffer)), "{name}: {op:?}");
                written.extend(op.outputs);
            }
        }
    }
}
