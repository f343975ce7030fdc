//! `vosti prepare`: a model's kernels and certificates as a folder, compiled where the target is a GPU. Other commands compile here
//! too, if they run on a GPU without such a folder.

use super::arguments::Prepare;
use super::bar::{Bar, Unit};
use super::interrupt::without_steps;
use super::output::{counted, print};
use super::values::Copying;
use super::{Outcome, open};
use crate::deployment::check_context;
use crate::estimate::card::{CARDS, CONSTANTS, Card};
use crate::estimate::{self, Step};
use crate::fetch::Cache;
use crate::model_source::ModelSource;
use anyhow::{Context, Result};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use vosti_admission::Bundle;
use vosti_admission::manifest::Model as Files;
use vosti_cubin::toolchain::REQUIREMENT;
use vosti_cubin::{Arch, Artifact, Copies, Counter, Cubin, Executed, Kept, Toolchain};
use vosti_engine::progress::Progress;
use vosti_kernels::{Admitted, CPU, Spec};
use vosti_model::{ModelPlan, Target};

pub fn run(arguments: &Prepare) -> Result<Outcome> {
    let (name, target) = (&arguments.model, arguments.target.as_str());
    anyhow::ensure!(!arguments.execute || target != CPU, "--execute needs a GPU target");
    anyhow::ensure!(arguments.copies == Copying::Descriptors || target != CPU, "--copies needs a GPU target");
    // What is wrong with the arguments is told before a model is fetched and kernels are compiled.
    vosti_kernels::check_target(target)?;
    let card = arguments.report.then(|| card(arguments)).transpose()?;
    Bundle::check_writable(&arguments.output, arguments.force)?;
    let path = open::find(name)?;
    let cannot = || format!("cannot prepare {name}");
    let model = ModelSource::open(&path).with_context(cannot)?;
    check_context(&model, arguments.context)?;
    let plan = model.plan(&Target::named(target), arguments.context).with_context(cannot)?;
    vosti_model::check_kernels(&plan).with_context(cannot)?;
    let files = Files::of_files(&path).map_err(|(path, error)| anyhow::anyhow!("{}: {error}", path.display()))?;
    let mut bundle = Bundle::built_in()?;
    let admitted = bundle.admit(&plan)?;
    let mut counters = BTreeMap::new();
    if target != CPU {
        let cubins = without_steps(|| compile(arguments, &plan, &admitted, &mut counters)).with_context(cannot)?;
        bundle = bundle.with_cubins(cubins);
    }
    let manifest = bundle.write(&arguments.output, arguments.force, files, target, &plan)?;
    print(&format!(
        "{}: {} ops, {} kernels, every one certified for {}; context {}\n",
        arguments.output.display(),
        plan.program.ops.len(),
        manifest.kernels.len(),
        manifest.target,
        manifest.context
    ))?;
    if target != CPU {
        print(&table(&bundle))?;
        if arguments.execute {
            print(&executed(&bundle))?;
        }
        if let Some(card) = card {
            report(arguments, &bundle, &plan, &counters, &card)?;
        }
        print(
            "The certificates' assumptions about the device are untested there: `vosti probe` tests them on the GPU.\n",
        )?;
    }
    Ok(Outcome::Done)
}

/// A plan's kernels for the GPU of a command that has no bundle.
pub fn for_gpu(target: &str, plan: &ModelPlan, admitted: &Admitted) -> Result<Vec<Cubin>> {
    let specs = vosti_model::plan::specs(plan);
    checked(without_steps(|| compiled(target, &specs, None, Copies::default()))?, plan, admitted, target)
}

/// Every specialisation of the plan, compiled and checked. `counters` gets those that a report can execute.
fn compile(
    arguments: &Prepare,
    plan: &ModelPlan,
    admitted: &Admitted,
    counters: &mut BTreeMap<String, Counter>,
) -> Result<Vec<Cubin>> {
    let target = arguments.target.as_str();
    let specs = vosti_model::plan::specs(plan);
    let artifacts = compiled(target, &specs, arguments.python.as_deref(), arguments.copies.into())?;
    let executed = if arguments.execute { execute(&artifacts)? } else { vec![None; artifacts.len()] };
    if arguments.report {
        let counter = |artifact: &Artifact| Some((artifact.spec.to_string(), Counter::of(artifact)?));
        counters.extend(artifacts.iter().filter_map(counter));
    }
    let mut cubins = checked(artifacts, plan, admitted, target)?;
    cubins.iter_mut().zip(executed).for_each(|(cubin, executed)| cubin.record.executed = executed);
    Ok(cubins)
}

/// Specialisations, compiled from their proved texts: by this Python, or else by an environment of the user's cache, where what it
/// made before is kept.
fn compiled(target: &str, specs: &[Spec], python: Option<&Path>, copies: Copies) -> Result<Vec<Artifact>> {
    let tells = |count: usize| tell!("compiling    {} for {target}", counted(count, "kernel"));
    if let Some(python) = python {
        tells(specs.len());
        return Ok(Toolchain::with_python(python.into()).copying(copies).compile_checked_in(target, specs)?);
    }
    let cache = Cache::of_user()?;
    Kept::at(cache.kernels()).copying(copies).compiled(target, specs, |missing| {
        let tool = triton(&cache)?;
        tells(missing);
        Ok(tool)
    })
}

/// The environment of the user's cache with Triton, which is made if it is not there.
pub fn triton(cache: &Cache) -> Result<Toolchain> {
    let folder = cache.tool(REQUIREMENT);
    if let Some(found) = Toolchain::find(&folder) {
        return Ok(found);
    }
    tell!("Triton       {REQUIREMENT}, in an environment of its own: this takes minutes, once");
    Ok(Toolchain::install(&folder)?)
}

/// What passes every check of machine code.
fn checked(artifacts: Vec<Artifact>, plan: &ModelPlan, admitted: &Admitted, target: &str) -> Result<Vec<Cubin>> {
    let arch = Arch::of_target(target)?;
    let cubin = |artifact: Artifact| -> Result<Cubin> {
        let proved = admitted.kernel(&artifact.spec)?;
        Ok(Cubin::of(artifact, &proved.contract, arch)?)
    };
    let cubins = artifacts.into_iter().map(cubin).collect::<Result<Vec<_>>>()?;
    vosti_cubin::alike(&plan.bindings, |spec| cubins.iter().find(|cubin| cubin.spec == *spec))?;
    Ok(cubins)
}

/// Executes the PTX of every kernel, on all cores.
fn execute(artifacts: &[Artifact]) -> Result<Vec<Option<Executed>>> {
    let bar = Bar::new(Unit::Count);
    bar.stage("executing their PTX", artifacts.len() as u64);
    let (done, next) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let found = Mutex::new(vec![None; artifacts.len()]);
    let work = || -> Result<()> {
        while let Some((at, artifact)) = Some(next.fetch_add(1, Relaxed)).and_then(|at| Some((at, artifacts.get(at)?)))
        {
            anyhow::ensure!(!bar.cancelled(), "interrupted");
            let executed = vosti_cubin::execute(artifact)?;
            found.lock().unwrap_or_else(PoisonError::into_inner)[at] = executed;
            bar.done(1 + done.fetch_add(1, Relaxed) as u64);
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        workers
            .into_iter()
            .try_for_each(|worker| worker.join().unwrap_or_else(|_| Err(anyhow::anyhow!("an execution panicked"))))
    })?;
    Ok(found.into_inner().unwrap_or_else(PoisonError::into_inner))
}

/// How many kernels were executed, and the names of those that were not.
fn executed(bundle: &Bundle) -> String {
    let left_out = bundle.cubins().iter().filter(|(_, cubin)| cubin.record.executed.is_none());
    let left_out: String =
        left_out.map(|(name, _)| format!("not executed, because an instruction is not known: {name}\n")).collect();
    let many = bundle.cubins().len() - left_out.lines().count();
    format!("{many} kernels' PTX was executed on this processor, and gave the tile interpreter's bits.\n{left_out}")
}

/// The card of the report, known before anything is compiled.
fn card(arguments: &Prepare) -> Result<Card> {
    let arch = Arch::of_target(&arguments.target).context("--report needs a GPU target")?;
    let found = Card::find(arch, arguments.card.as_deref());
    found.with_context(|| {
        let known = CARDS.iter().filter(|card| card.arch == arch).map(|card| card.name).collect::<Vec<_>>().join(", ");
        format!("--card: the cards known for {} are {known}", arguments.target)
    })
}

/// Prints the estimates of decode steps and of prefills, without cached tokens and behind as many as the deepest decode step has,
/// and the constants that they use.
fn report(
    arguments: &Prepare,
    bundle: &Bundle,
    plan: &ModelPlan,
    counters: &BTreeMap<String, Counter>,
    card: &Card,
) -> Result<()> {
    let decode =
        arguments.depth.iter().map(|depth| Step { sequences: arguments.batch, tokens: 1, depth: *depth, draws: false });
    let deepest = arguments.depth.iter().copied().max().filter(|depth| *depth > 0);
    let prefill = |depth| Step { sequences: 1, tokens: arguments.prefill.max(2), depth, draws: false };
    let prefills = std::iter::once(0).chain(deepest).map(prefill);
    print(&format!(
        "\nOn {} ({} multiprocessors, reads at {:.2} TB/s, {:.0} TFLOP/s), estimated:\n",
        card.name,
        card.multiprocessors,
        card.read() * 1e-12,
        card.matrices() * 1e-12
    ))?;
    let reaches = |step: &Step| step.depth + step.tokens;
    let (steps, beyond): (Vec<Step>, Vec<Step>) =
        decode.chain(prefills).partition(|step| reaches(step) <= plan.program.context as usize);
    for step in &beyond {
        print(&format!("\nleft out: a step that reaches {} tokens, beyond the context\n", reaches(step)))?;
    }
    let bar = Bar::new(Unit::Count);
    let drawing = steps.first().filter(|step| step.tokens == 1).map(|step| Step { draws: true, ..*step });
    let all: Vec<Step> = steps.iter().copied().chain(drawing).collect();
    let counts = estimate::counted::of(plan, bundle.cubins(), card, counters, &all, &bar)?;
    anyhow::ensure!(!bar.cancelled(), "interrupted");
    drop(bar);
    let of = |step| estimate::estimate(plan, bundle.cubins(), &counts, card, step);
    for step in steps {
        print(&format!("\n{}", of(step)?.table()))?;
    }
    if let Some(step) = drawing {
        let more = of(step)?.seconds - of(Step { draws: false, ..step })?.seconds;
        print(&format!(
            "\na decode step of batch {} that draws its tokens takes {:.3} ms more\n",
            step.sequences,
            more * 1e3
        ))?;
    }
    for ((name, _), error) in counts.iter().filter_map(|(key, counted)| Some((key, counted.as_ref().err()?))) {
        print(&format!("\nnot counted: {name}: {error}\n"))?;
    }
    print("\nConstants of the estimate:\n")?;
    for constant in &CONSTANTS {
        print(&format!("{:>6.2} {:<3} {} ({})\n", constant.value, constant.unit, constant.name, constant.source))?;
    }
    print("\n")?;
    Ok(())
}

/// The facts of each compiled kernel, one line each.
fn table(bundle: &Bundle) -> String {
    let heads = ["registers", "shared bytes", "matrix", "async loads", "in flight", "blocks/SM"];
    let line = |cells: [String; 6], name: &str| {
        let [registers, shared, matrix, copies, flight, blocks] = cells;
        format!("{registers:>9} {shared:>12} {matrix:>7} {copies:>11} {flight:>9} {blocks:>9}  {name}\n")
    };
    let mut out = line(heads.map(String::from), "kernel");
    for (name, cubin) in bundle.cubins() {
        let facts = &cubin.record.facts;
        let cells = [
            facts.registers.to_string(),
            facts.shared_dynamic.to_string(),
            facts.matrix_instructions.to_string(),
            facts.async_copies.to_string(),
            facts.in_flight.to_string(),
            facts.blocks.to_string(),
        ];
        out += &line(cells, name);
    }
    out
}
