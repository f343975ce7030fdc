//! `vosti prepare`: a model's kernels and certificates as a folder, compiled where the target is a GPU.

use super::arguments::Prepare;
use super::output::print;
use super::{Outcome, open};
use anyhow::{Context, Result};
use vosti::fetch::Cache;
use vosti::model_source::ModelSource;
use vosti_admission::Bundle;
use vosti_admission::manifest::Model as Files;
use vosti_cuda::toolchain::REQUIREMENT;
use vosti_cuda::{Arch, Image, Toolchain};
use vosti_kernels::CPU;
use vosti_model::{ModelPlan, Target};

pub fn run(arguments: &Prepare) -> Result<Outcome> {
    let (name, target) = (&arguments.model, arguments.target.as_str());
    let path = open::find(name)?;
    let cannot = || format!("cannot prepare {name}");
    let model = ModelSource::open(&path).with_context(cannot)?;
    let plan = model.plan(&Target::named(target), arguments.context).with_context(cannot)?;
    vosti_model::check_kernels(&plan).with_context(cannot)?;
    let files = Files::of_files(name, model.decoder().family, &path)
        .map_err(|(path, error)| anyhow::anyhow!("{}: {error}", path.display()))?;
    let mut bundle = Bundle::built_in()?;
    bundle.admit(&plan)?;
    if target != CPU {
        bundle = bundle.with_images(compile(arguments, &plan).with_context(cannot)?);
    }
    let manifest = bundle.write(&arguments.output, arguments.force, files, target, &plan)?;
    print(&format!(
        "{}: {} ops, {} kernels, every one certified for {}; context {}\n",
        arguments.output.display(),
        manifest.program.ops.len(),
        manifest.kernels.len(),
        manifest.target,
        manifest.context
    ))?;
    if target != CPU {
        print(&table(&bundle))?;
        print("What certificates assume of the device is untested: nothing here has run on a GPU.\n")?;
    }
    Ok(Outcome::Done)
}

/// Every specialisation of the plan, compiled from its proved text and checked.
fn compile(arguments: &Prepare, plan: &ModelPlan) -> Result<Vec<Image>> {
    let target = arguments.target.as_str();
    let arch = Arch::of_target(target)?;
    let tool = match &arguments.python {
        Some(python) => Toolchain::with_python(python.clone()),
        None => {
            eprintln!("Triton       {REQUIREMENT}, in an environment of its own (the first time takes minutes)");
            Toolchain::install(&Cache::of_user()?.tool(REQUIREMENT))?
        }
    };
    let specs = vosti_model::plan::specs(plan);
    eprintln!("compiling    {} kernels for {target}", specs.len());
    let artifacts = tool.compile_checked_in(target, &specs)?;
    let images = artifacts.into_iter().map(|artifact| Image::of(artifact, arch)).collect::<Result<Vec<_>, _>>()?;
    vosti_cuda::alike(&plan.bindings, |spec| images.iter().find(|image| image.spec == *spec))?;
    Ok(images)
}

/// What the checks found, a line a kernel.
fn table(bundle: &Bundle) -> String {
    let mut out = format!("{:>9} {:>12} {:>7} {:>11}  kernel\n", "registers", "shared bytes", "matrix", "async loads");
    for (name, image) in bundle.images() {
        let facts = &image.record.facts;
        out += &format!(
            "{:>9} {:>12} {:>7} {:>11}  {name}\n",
            facts.registers, facts.shared_dynamic, facts.matrix_instructions, facts.async_copies
        );
    }
    out
}
