//! The determinism suite over engines on this device whose program has attention and a layer with a state: a request gets the same
//! bits in chunks that end inside pages, in decode, in batches, with drafts that are rejected inside a page, after a prefix with its
//! state, under eviction and preemption. With a kernel that is broken on purpose it does not.

mod programs;

use programs::{OVERFLOWING, Random, VOCAB, attending};
use vosti_core::{PAGE, Program};
use vosti_cpu::{Config, CpuDevice};
use vosti_determinism::{CheckError, Facts, Profile, Setup, Subject, SuiteOptions, SuiteReport};
use vosti_kernels::{Admitted, Binding};
use vosti_progress::NoProgress;

struct Hybrid {
    facts: Facts,
    program: Program,
    admitted: Admitted,
}

impl Hybrid {
    /// With this text in place of another one in a kernel, if there is one.
    fn new(edit: Option<(&str, &str, &str)>) -> Hybrid {
        let (program, bindings): (Program, Vec<Binding>) = attending();
        let mut admitted = Admitted::unproved(&bindings).unwrap();
        let specs = bindings.iter().flat_map(|binding| &binding.launches).map(|launch| &launch.spec);
        for spec in specs.filter(|spec| edit.is_some_and(|(kernel, ..)| spec.kernel == kernel)) {
            let (_, from, to) = edit.unwrap();
            let text = vosti_kernels::ttir(spec).unwrap();
            assert!(text.contains(from), "{spec} has no {from}");
            admitted = admitted.with_text(spec, text.replace(from, to));
        }
        let facts = Facts {
            model: "attention and a state".into(),
            vocab: VOCAB,
            special: (OVERFLOWING..VOCAB).collect(),
            context: program.context as usize,
            window: program.groups.iter().filter_map(|group| group.window).min().map(|window| window as usize),
            ..Facts::default()
        };
        Hybrid { facts, program, admitted }
    }

    fn check(&self, profile: Profile, only: &[&str]) -> SuiteReport {
        let only = only.iter().map(|name| name.to_string()).collect();
        let options = SuiteOptions { profile, prompt_max: None, only, seed: 5 };
        vosti_determinism::run(self, &options, &NoProgress).unwrap()
    }
}

impl Subject for Hybrid {
    type Device = CpuDevice;

    fn facts(&self) -> &Facts {
        &self.facts
    }

    fn program(&self) -> &Program {
        &self.program
    }

    fn device(&self, setup: &Setup) -> Result<CpuDevice, CheckError> {
        let pages = vosti_wiring::pool(&self.program, setup.pool_tokens.div_ceil(PAGE).max(1));
        let config = Config::new(setup.rows_max, setup.rows_max, pages, setup.threads.unwrap_or(2));
        CpuDevice::new(&self.program, &self.admitted, &Random, config)
            .map_err(|error| CheckError::Subject(error.to_string()))
    }
}

#[test]
fn a_request_gets_the_same_bits_whatever_happens_to_its_states() {
    let hybrid = Hybrid::new(None);
    let report = hybrid.check(Profile::quick(hybrid.facts.window), &[]);
    println!("{}", report.table());
    assert!(report.passed, "\n{}", report.table());
}

#[test]
fn a_broken_kernel_of_a_layer_with_a_state_is_noticed() {
    for edit in [
        // The entries that earlier steps stored in a page are taken for zeros.
        ("store_delta", "cmpi slt, %j, %old", "cmpi sge, %j, %old"),
        // A step that begins in a page has no state.
        ("store_delta", "cmpi sgt, %begun", "cmpi slt, %begun"),
        // Later rows of the page are seen.
        ("read_state", "arith.cmpi sle", "arith.cmpi ne"),
    ] {
        let report = Hybrid::new(Some(edit)).check(Profile::brief(), &[]);
        let failed: Vec<_> = report.relations.iter().filter(|relation| relation.failed()).map(|r| r.name).collect();
        println!("{edit:?}: {failed:?}");
        assert!(failed.contains(&"chunk") && failed.contains(&"decode"), "{edit:?}\n{}", report.table());
    }
}
