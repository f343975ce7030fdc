//! `vosti prepare`: a model's kernels and certificates as a folder.

use super::arguments::Prepare;
use super::stream::print;
use super::{Outcome, open};
use anyhow::{Context, Result};
use vosti::bundle::Bundle;
use vosti::bundle::manifest::Model as Files;
use vosti_kernels::Act;
use vosti_model::{Model, PlanOptions};

pub fn run(arguments: &Prepare) -> Result<Outcome> {
    let (name, target) = (&arguments.model, arguments.target.as_str());
    let path = open::find(name)?;
    let cannot = || format!("cannot prepare {name}");
    let model = Model::open(&path).with_context(cannot)?;
    let plan = model.plan(&PlanOptions { target, act: Act::Bf16, context: arguments.context }).with_context(cannot)?;
    vosti_model::check_kernels(&plan).with_context(cannot)?;
    let files = Files::of_files(name, model.decoder.family, &path)
        .map_err(|(path, error)| anyhow::anyhow!("{}: {error}", path.display()))?;
    let manifest = Bundle::built_in()?.write(&arguments.output, arguments.force, files, target, &plan)?;
    print(&format!(
        "{}: {} ops, {} kernels, every one certified for {}; context {}\n",
        arguments.output.display(),
        manifest.program.ops.len(),
        manifest.kernels.len(),
        manifest.target,
        manifest.context
    ));
    Ok(Outcome::Done)
}
