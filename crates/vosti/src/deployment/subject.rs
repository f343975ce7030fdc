//! A deployment as the determinism suite sees it: it makes engines, and names the settings that may vary between them.

use super::{Deployment, DeviceConfig};
use crate::device::AnyDevice;
use std::path::PathBuf;
use std::process::Command;
use vosti_check::{CheckError, Facts, Setup, Subject};
use vosti_core::{PAGE, Program};
use vosti_cpu::Isa;
use vosti_cpu::Storage;

impl Deployment {
    /// The facts that the determinism suite needs: name, fingerprint, vocabulary, special tokens, context, narrowest window.
    pub fn facts(&self) -> Facts {
        let tokenizer = self.text.as_ref().map(|text| &text.tokenizer);
        let mut bytes = Vec::new();
        let special = tokenizer.into_iter().flat_map(|tokenizer| {
            let words = tokenizer.vocabulary() as u32;
            let special = |token: &u32| {
                bytes.clear();
                tokenizer.append_bytes(*token, &mut bytes);
                *token >= words || bytes.is_empty()
            };
            (0..self.program().vocab).filter(special).collect::<Vec<_>>()
        });
        Facts {
            model: self.name.clone(),
            fingerprint: self.fingerprint.clone(),
            vocab: self.program().vocab,
            bos: tokenizer.and_then(|tokenizer| tokenizer.bos()),
            special: special.collect(),
            context: self.program().context as usize,
            window: self.program().groups.iter().filter_map(|g| g.window).min().map(|w| w as usize),
            states: self.program().groups.iter().any(|group| !group.state.is_empty()),
        }
    }
}

/// Sequences of a suite that run together, at most.
const TOGETHER: usize = 12;

/// A deployment as the determinism suite sees it.
pub struct DeploymentSubject<'a> {
    deployment: &'a Deployment,
    facts: Facts,
    /// The program and the flags that a restarted process gets; none: no other process is asked.
    restart: Option<(PathBuf, Vec<String>)>,
}

impl<'a> DeploymentSubject<'a> {
    /// The deployment as the suite sees it; `restart` is a program with the flags that make it answer alike.
    pub fn new(deployment: &'a Deployment, restart: Option<(PathBuf, Vec<String>)>) -> Self {
        let facts = deployment.facts();
        DeploymentSubject { deployment, facts, restart }
    }
}

impl Subject for DeploymentSubject<'_> {
    type Device = AnyDevice;

    fn facts(&self) -> &Facts {
        &self.facts
    }

    fn program(&self) -> &Program {
        self.deployment.program()
    }

    fn device(&self, setup: &Setup) -> Result<AnyDevice, CheckError> {
        let isa = setup.instruction_set.as_deref();
        let config = DeviceConfig {
            pages: Some(setup.pool_tokens.div_ceil(PAGE).max(1)),
            together: TOGETHER,
            rows_max: setup.rows_max,
            threads: setup.threads,
            storage: setup.expanded.then_some(Storage::Expanded),
            isa: isa.and_then(|name| Isa::available().iter().copied().find(|isa| isa.name() == name)),
        };
        self.deployment.device(&config).map_err(|error| CheckError::Subject(error.to_string()))
    }

    fn thread_counts(&self) -> Vec<usize> {
        match self.deployment.gpu() {
            None => vec![1, 2, 4],
            Some(_) => Vec::new(),
        }
    }

    fn instruction_sets(&self) -> Vec<String> {
        match self.deployment.gpu() {
            None => Isa::available().iter().map(|isa| isa.name().to_string()).collect(),
            Some(_) => Vec::new(),
        }
    }

    fn stores(&self) -> bool {
        self.deployment.stores()
    }

    fn restarted(&self, seed: u64) -> Option<Result<Vec<String>, CheckError>> {
        let (program, flags) = self.restart.as_ref()?;
        let mut command = Command::new(program);
        command.args(["check", "--digests", "--seed", &seed.to_string()]).args(flags);
        let failed = |why: String| CheckError::Subject(format!("another process could not be asked: {why}"));
        Some(match vosti_child::output(&mut command, "") {
            Ok(output) if output.status.success() => {
                Ok(String::from_utf8_lossy(&output.stdout).lines().map(String::from).collect())
            }
            Ok(output) => Err(failed(String::from_utf8_lossy(&output.stderr).trim().to_string())),
            Err(error) => Err(failed(error.to_string())),
        })
    }
}
