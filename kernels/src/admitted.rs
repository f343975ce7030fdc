//! What a device may run: a model's launches, and of each specialisation the text and what is proved of it.
//!
//! `Bundle::admit` of `vosti-admission` makes an [`Admitted`] for a plan that it does not refuse, and a device takes nothing else.
//! Read next: [`vosti_contract::grid`].

use crate::draws::Draws;
use crate::error::KernelError;
use crate::spec::{Binding, Spec};
use std::collections::BTreeMap;
use std::sync::Arc;
use vosti_contract::{Contract, Grid};

/// A kernel that may run.
#[derive(Clone, Debug)]
pub struct Proved {
    /// The TTIR with the model's dimensions and numbers bound.
    pub text: String,
    /// The contract that the proof is of: the role and element type of each parameter, in signature order.
    pub contract: Contract,
    /// The grid that the proof is of.
    pub grid: Grid,
}

/// A model's launches and their kernels.
#[derive(Clone, Debug)]
pub struct Admitted {
    /// By the `k` of an op.
    pub bindings: Vec<Binding>,
    /// What draws tokens, if the device does.
    pub draws: Option<Draws>,
    kernels: BTreeMap<Spec, Arc<Proved>>,
}

impl Admitted {
    /// These launches and kernels.
    pub fn new(bindings: Vec<Binding>, draws: Option<Draws>, kernels: BTreeMap<Spec, Arc<Proved>>) -> Admitted {
        Admitted { bindings, draws, kernels }
    }

    /// Launches of checked-in kernels, for tests: no certificate is looked at. Error: a kernel has no text or no contract.
    pub fn unproved(bindings: &[Binding]) -> Result<Admitted, KernelError> {
        let mut kernels = BTreeMap::new();
        for spec in bindings.iter().flat_map(Binding::specs) {
            let contract = crate::contract(&spec.kernel)?.clone();
            let text = crate::ttir(spec).ok_or_else(|| KernelError::NotAdmitted { spec: spec.to_string() })?;
            let grid = Grid::written(&contract, &spec.constants)?;
            kernels.insert(spec.clone(), Arc::new(Proved { text: text.into_owned(), contract, grid }));
        }
        Ok(Admitted { bindings: bindings.to_vec(), draws: None, kernels })
    }

    /// The same with what draws tokens, for tests.
    pub fn with_draws(self, draws: Option<Draws>) -> Admitted {
        Admitted { draws, ..self }
    }

    /// The kernel of a specialisation. Error: it was not admitted.
    pub fn kernel(&self, spec: &Spec) -> Result<&Arc<Proved>, KernelError> {
        self.kernels.get(spec).ok_or_else(|| KernelError::NotAdmitted { spec: spec.to_string() })
    }

    /// The same with another text for a specialisation, for tests of devices that must notice it.
    pub fn with_text(mut self, spec: &Spec, text: &str) -> Admitted {
        if let Some(proved) = self.kernels.get_mut(spec) {
            *proved = Arc::new(Proved { text: text.into(), ..(**proved).clone() });
        }
        self
    }
}
