//! The determinism suite over engines on this device whose program has attention and a layer with a state: a request gets the same
//! bits in chunks that end inside pages, in decode, in batches, with drafts that are rejected inside a page, after a prefix with its
//! state, under eviction and preemption. With a kernel that is broken on purpose it does not.

#[allow(dead_code, reason = "the device laws use the rest")]
mod programs;

use programs::{Random, VOCAB, attending};
use std::ops::Range;
use vosti_check::{CheckError, Facts, Profile, Setup, Subject, SuiteOptions, SuiteReport};
use vosti_core::{PAGE, Program};
use vosti_cpu::{Config, CpuDevice};
use vosti_engine::progress::NoProgress;
use vosti_kernels::{Admitted, Binding};
use vosti_wiring::{TensorData, WeightError, Weights};

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
            admitted = admitted.with_text(spec, &text.replace(from, to));
        }
        let facts = Facts {
            model: "attention and a state".into(),
            vocab: VOCAB,
            context: program.context as usize,
            window: program.groups.iter().filter_map(|group| group.window).min().map(|window| window as usize),
            states: true,
            ..Facts::default()
        };
        Hybrid { facts, program, admitted }
    }

    fn check(&self, profile: Profile, only: &[&str]) -> SuiteReport {
        let only = only.iter().map(|name| name.to_string()).collect();
        let options = SuiteOptions { profile, prompt_max: None, only, seed: 5 };
        vosti_check::run(self, &options, &NoProgress).unwrap()
    }
}

/// The program's weights, with embeddings that are all finite: an answer may have any token.
struct Finite;

impl Weights for Finite {
    fn shape(&self, name: &str) -> Result<Vec<usize>, WeightError> {
        Random.shape(name)
    }

    fn rows(&self, name: &str, rows: Range<usize>) -> Result<TensorData, WeightError> {
        let finite = |x: u16| if x & 0x7f80 == 0x7f80 { 0x3e00 } else { x };
        Ok(match Random.rows(name, rows)? {
            TensorData::Bf16(all) => TensorData::Bf16(all.into_iter().map(finite).collect()),
            other => other,
        })
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
        let pages = vosti_wiring::pool(&self.program, setup.pool_tokens.div_ceil(PAGE).max(1), 12);
        let config = Config::new(setup.rows_max, setup.rows_max, pages, setup.threads.unwrap_or(2));
        CpuDevice::new(&self.program, &self.admitted, &Finite, config)
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
        assert!(failed.contains(&"chunk") && failed.contains(&"prefill-decode"), "{edit:?}\n{}", report.table());
    }
}
