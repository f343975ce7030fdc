//! `vosti completions` and `vosti man`: made from the flags themselves, so they always match the command.

use super::Outcome;
use super::arguments::Vosti;
use super::output::print;
use anyhow::{Context, Result};
use clap::{Args, CommandFactory};
use std::path::PathBuf;

/// `vosti completions`
#[derive(Args)]
pub struct Completions {
    /// The shell; its manual says where the output belongs
    pub shell: clap_complete::Shell,
}

/// `vosti man`
#[derive(Args)]
pub struct Man {
    /// Where to write vosti.1 and a page for each command, such as ~/.local/share/man/man1
    #[arg(value_name = "FOLDER")]
    pub folder: PathBuf,
}

pub fn completions(arguments: &Completions) -> Result<Outcome> {
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut Vosti::command(), "vosti", &mut script);
    print(&String::from_utf8_lossy(&script))?;
    Ok(Outcome::Done)
}

pub fn pages(arguments: &Man) -> Result<Outcome> {
    let folder = &arguments.folder;
    let cannot = || format!("cannot write to {}", folder.display());
    std::fs::create_dir_all(folder).with_context(cannot)?;
    clap_mangen::generate_to(Vosti::command(), folder).with_context(cannot)?;
    Ok(Outcome::Done)
}
