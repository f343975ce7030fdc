//! The kernels of a deployment, each with a certificate that fits the op it is used for.
//!
//! There are two kinds, with one code path for both: the built-in bundle (every checked-in kernel and certificate, part of
//! this binary) and a folder that `vosti prepare` wrote for one model. Proofs meet the engine in [`Bundle::admit`]: a program
//! with an op that no proof discharges is refused before a weight is loaded. A device then runs the text that was admitted.
//! Read next: `op_contract.rs`, `launch_pair.rs`, `folder.rs`.

use crate::manifest::Manifest;
use crate::{BundleError, launch_pair, op_contract};
use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use vosti_contract::Shape;
use vosti_cubin::Cubin;
use vosti_kernels::{Admitted, Launch, Proved, Spec, together, ttir_hash};
use vosti_model::ModelPlan;
use vosti_verify::certificate::StandsFor;
use vosti_verify::{Certificate, CertificateError, Certificates, Problem, record};

/// Kernels with their certificates, and for a GPU target their machine code.
#[derive(Clone, Debug)]
pub struct Bundle {
    /// None: built in.
    pub(crate) folder: Option<PathBuf>,
    pub(crate) manifest: Option<Manifest>,
    pub(crate) certificates: Certificates,
    /// TTIR by its stem, which has no dimensions; the built-in bundle also has every checked-in text.
    pub(crate) texts: BTreeMap<String, String>,
    /// Machine code compiled from the texts, by specialisation, for a GPU target.
    pub(crate) cubins: BTreeMap<String, Cubin>,
}

impl Bundle {
    /// The checked-in kernels and certificates. An error if the certificates do not parse.
    pub fn built_in() -> Result<Bundle, BundleError> {
        let bundle = Bundle {
            folder: None,
            manifest: None,
            certificates: Certificates::new(),
            texts: BTreeMap::new(),
            cubins: BTreeMap::new(),
        };
        let certificates = record::checked_in().map_err(|error| bundle.wrong(error))?;
        Ok(Bundle { certificates: certificates.clone(), ..bundle })
    }

    /// The bundle in a folder, or the built-in one. Errors as in [`Bundle::read`] and [`Bundle::built_in`].
    pub fn open(folder: Option<&Path>) -> Result<Bundle, BundleError> {
        folder.map_or_else(Bundle::built_in, Bundle::read)
    }

    /// This bundle with these certificates instead of its own.
    pub fn with_certificates(self, certificates: Certificates) -> Bundle {
        Bundle { certificates, ..self }
    }

    /// This bundle with another text for a kernel, by the stem of its TTIR.
    pub fn with_ttir(mut self, kernel: &str, text: &str) -> Bundle {
        self.texts.insert(kernel.to_string(), text.to_string());
        self
    }

    /// This bundle with machine code that was compiled from its texts.
    pub fn with_cubins(mut self, cubins: Vec<Cubin>) -> Bundle {
        self.cubins = cubins.into_iter().map(|cubin| (cubin.spec.to_string(), cubin)).collect();
        self
    }

    /// Compiled kernels by specialisation.
    pub fn cubins(&self) -> &BTreeMap<String, Cubin> {
        &self.cubins
    }

    /// The manifest of a bundle in a folder; None for the built-in bundle.
    pub fn manifest(&self) -> Option<&Manifest> {
        self.manifest.as_ref()
    }

    /// The certificates by which [`Bundle::admit`] decides.
    pub fn certificates(&self) -> &Certificates {
        &self.certificates
    }

    /// The TTIR of a stem: the text that was proved, with dimensions as parameters.
    pub fn ttir(&self, kernel: &str) -> Option<&str> {
        let built_in = || self.folder.is_none().then(|| vosti_kernels::ttir_by_stem(kernel)).flatten();
        self.texts.get(kernel).map(String::as_str).or_else(built_in)
    }

    /// A specialisation's text with its dimensions and numbers bound; None if there is no text, or no value for one of them.
    pub fn bound(&self, spec: &Spec) -> Option<Cow<'_, str>> {
        vosti_kernels::bind(self.ttir(&spec.text().to_string())?, spec)
    }

    /// The bundle's name in messages: its folder, or `this binary's kernels`.
    pub fn origin(&self) -> String {
        self.folder.as_ref().map_or_else(|| "this binary's kernels".into(), |folder| folder.display().to_string())
    }

    fn remedy(&self) -> &'static str {
        match self.folder {
            None => "run `vosti verify --record` in the source tree, and build again",
            Some(_) => "run `vosti prepare` again",
        }
    }

    pub(crate) fn wrong(&self, error: CertificateError) -> BundleError {
        BundleError::Certificate { origin: self.origin(), error: error.into(), remedy: self.remedy() }
    }

    /// Refuses a plan unless each op is discharged: each of its launches has a kernel with a fresh certificate for the text
    /// that will run, and the contract, or two launches' contracts together, is the op's. A launch that may run in the place of
    /// two has such a kernel too, and is proved to give their bits. Machine code must be compiled from that text. The error names
    /// the kernel and the op. A device runs what this returns and nothing else.
    pub fn admit(&self, plan: &ModelPlan) -> Result<Admitted, BundleError> {
        let mut kernels = BTreeMap::new();
        let mut problems: HashMap<String, Problem> = HashMap::new();
        if plan.draws.as_ref().is_some_and(|draws| !draws.leave_alone(&plan.program)) {
            return Err(BundleError::Draws);
        }
        let program = plan.whole();
        let used = together::launched(&program.ops, &plan.bindings)
            .map_err(|index| BundleError::Unlaunched { op: op_contract::name(&program.ops[index]), index })?;
        for (index, (op, used)) in program.ops.iter().zip(&used).enumerate() {
            let Some(used) = used else { continue };
            let binding = plan.bindings.get(used.binding as usize);
            let launches = binding.map_or(&[][..], |binding| &binding.launches);
            let stages = launch_pair::stages(op_contract::shape(&program, used), launches.len())
                .ok_or(BundleError::Launches { op: op_contract::name(op), index, launches: launches.len() })?;
            let misfit = |kernel: &str, why: String| BundleError::Misfit {
                origin: self.origin(),
                kernel: kernel.into(),
                op: op_contract::name(op),
                index,
                why,
            };
            let scratch = binding.map_or(&[][..], |binding| &binding.scratch);
            let mut one = |spec: &Spec, bound: op_contract::Bound| {
                let kernel = spec.to_string();
                if !problems.contains_key(&kernel) {
                    let proved = self.certified(&spec.text().to_string())?;
                    let of = proved.at(&spec.constants).map_err(|why| misfit(&kernel, why))?;
                    problems.insert(kernel.clone(), of);
                }
                op_contract::check(&program, used, &problems[&kernel], &bound)
                    .and_then(|()| self.proved(spec, &problems[&kernel]))
                    .map(|proved| kernels.insert(spec.clone(), Arc::new(proved)))
                    .and_then(|_| self.compiled(spec))
                    .map_err(|why| misfit(&kernel, why))
            };
            let weights = &plan.weights;
            for (launch, stage) in launches.iter().zip(stages) {
                let bound =
                    |spec| one(spec, op_contract::Bound { stage: *stage, bound: &launch.weights, weights, scratch });
                launch.specs().try_for_each(bound)?;
            }
            let folded = binding.map_or(&[][..], |binding| &binding.folded);
            for folded in folded {
                // Without scratch, and as the whole op.
                let (stage, bound) = (Shape::Attend, &launches[0].weights);
                one(folded, op_contract::Bound { stage, bound, weights, scratch: &[] })?;
            }
            let problem = |launch: &Launch| &problems[&launch.spec.to_string()];
            for (launch, spec) in
                launches.iter().flat_map(|launch| launch.higher.iter().map(move |spec| (launch, spec)))
            {
                self.stands_for(&spec.text().to_string(), problem(launch))
                    .and_then(|()| op_contract::same_numbers(&launch.spec, spec))
                    .map_err(|why| misfit(&spec.to_string(), why))?;
            }
            if let [first, second] = launches {
                launch_pair::check(problem(first), problem(second))
                    .map_err(|why| misfit(&second.spec.to_string(), why))?;
            }
            for folded in folded {
                let misfit = |why| misfit(&folded.to_string(), why);
                let [first, second] = launches else {
                    return Err(misfit("it runs in the place of one launch".into()));
                };
                launch_pair::folds(folded, first, second)
                    .and_then(|()| self.stands_for(&folded.text().to_string(), problem(second)))
                    .map_err(misfit)?;
            }
        }
        Ok(Admitted::new(plan.bindings.clone(), plan.draws.clone(), kernels))
    }

    /// What a device needs of a proved kernel.
    fn proved(&self, spec: &Spec, problem: &Problem) -> Result<Proved, String> {
        let contract = vosti_kernels::contract(&spec.kernel).map_err(|error| error.to_string())?.clone();
        let text = self.bound(spec).ok_or("its text does not take its dimensions")?.into_owned();
        Ok(Proved { text, contract, grid: op_contract::grid(problem)? })
    }

    /// Refuses a kernel that is not proved to give the bits of the one in whose place it may run.
    fn stands_for(&self, kernel: &str, first: &Problem) -> Result<(), String> {
        let proved = self.certificates.get(kernel).map_or(&[][..], |certificate| &certificate.stands_for);
        let same = |other: &StandsFor| other.kernel == first.name && other.ttir_hash == first.ttir_hash;
        match proved.iter().any(same) {
            true => Ok(()),
            false => Err(format!("its certificate does not say that it gives the bits of {}", first.name)),
        }
    }

    /// Refuses machine code that was compiled from another text than the admitted one; without machine code there is no check.
    fn compiled(&self, spec: &Spec) -> Result<(), String> {
        let Some(cubin) = self.cubins.get(&spec.to_string()) else { return Ok(()) };
        let text = self.bound(spec).map(|text| ttir_hash(&text));
        match text == Some(ttir_hash(&cubin.ttir)) && cubin.spec == *spec {
            true => Ok(()),
            false => Err("its machine code was compiled from another text than the proved one".into()),
        }
    }

    /// The problem that a kernel's certificate proves; an error if there is no certificate, no text, or the two do not fit.
    fn certified(&self, kernel: &str) -> Result<Problem, BundleError> {
        let missing = || BundleError::Missing { origin: self.origin(), kernel: kernel.into(), remedy: self.remedy() };
        let certificate = self.certificates.get(kernel).ok_or_else(missing)?;
        let text = self.ttir(kernel).ok_or_else(missing)?;
        let problem = Problem::of_text(kernel, text).map_err(|error| BundleError::Kernel {
            origin: self.origin(),
            error: error.into(),
            remedy: self.remedy(),
        })?;
        certificate.check(&problem).and_then(|()| self.recorded(certificate)).map_err(|error| self.wrong(error))?;
        Ok(problem)
    }

    /// Refuses a folder's certificate that is not the one of this binary: what a kernel may stand for and which solver proved it follow from
    /// nothing that can be computed here.
    fn recorded(&self, certificate: &Certificate) -> Result<(), CertificateError> {
        let proof = |of: Option<&Certificate>| match of {
            None => "none".into(),
            Some(of) => format!("by {}, for the bits of {:?}", of.solver, of.stands_for),
        };
        let own = record::checked_in()?.get(&certificate.kernel);
        match self.folder.is_none() || own == Some(certificate) {
            true => Ok(()),
            false => Err(CertificateError::Stale {
                kernel: certificate.kernel.clone(),
                what: "proof",
                found: proof(Some(certificate)),
                wanted: proof(own),
            }),
        }
    }
}

/// BLAKE3 over a plan: the program, its bindings, and how each weight is made.
pub fn plan_hash(plan: &ModelPlan) -> String {
    let text = format!("{:?}\n{:?}\n{:?}", plan.program, plan.bindings, plan.weights);
    blake3::hash(text.as_bytes()).to_hex().to_string()
}
