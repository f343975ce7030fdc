//! The answer to "what must I audit?": the list of trusted files. The certificates' hash, `vosti verify --tcb`,
//! and `docs/trust.md` use it. A file is on it if a mistake in the file could make a wrong
//! promise look proved.
//!
//! The order is the reading order of an audit. Code that only searches, prints or refutes is not on the list. `cargo xtask tidy`
//! compares it with the folders, so a new file must be in [`TRUSTED`] or in [`SEARCHES`].

/// The subject of a trusted file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Topic {
    /// The theorem and its terms.
    Promise,
    /// The contracts of devices and samplers.
    Assumption,
    /// The words of kernels' contracts.
    Contract,
    /// The lifting and the numbers.
    Meaning,
    /// The verifier's rules.
    Rule,
    /// Certificates, and the code that admits kernels by them.
    Admission,
    /// Which buffer is bound to which parameter.
    Wiring,
}

impl Topic {
    /// In reading order.
    pub const ALL: [Topic; 7] = [
        Topic::Promise,
        Topic::Assumption,
        Topic::Contract,
        Topic::Meaning,
        Topic::Rule,
        Topic::Admission,
        Topic::Wiring,
    ];

    /// The question that a reader asks of files of this topic.
    pub fn question(self) -> &'static str {
        match self {
            Topic::Promise => "What is promised?",
            Topic::Assumption => "What is assumed of devices and samplers?",
            Topic::Contract => "What does a kernel promise, and how is that read?",
            Topic::Meaning => "What does a kernel's text mean?",
            Topic::Rule => "By which rules is a kernel proved?",
            Topic::Admission => "Which proof discharges which op of a model?",
            Topic::Wiring => "Which memory is which parameter?",
        }
    }

    /// The tests and checks that watch the topic, besides readers.
    pub fn watched_by(self) -> &'static str {
        match self {
            Topic::Promise => "examples that it accepts and refuses, proved with the core; mutants that weaken it",
            Topic::Assumption => "a verified device that meets it; device laws on every real device (`vosti laws`)",
            Topic::Contract => "a second reader in the replays; the fuzzer, which changes contracts too",
            Topic::Meaning => {
                "an independent evaluator of the TTIR text; the executor against the interpreter, bit for bit"
            }
            Topic::Rule => "broken kernels that must be refused; the fuzzer: what is proved is run",
            Topic::Admission => "bundles that must be refused; the determinism suite",
            Topic::Wiring => "device laws, the determinism suite",
        }
    }
}

/// A file to audit.
pub struct Trusted {
    /// From the repository's root.
    pub path: &'static str,
    /// The part of an audit that it belongs to.
    pub topic: Topic,
    /// What it decides.
    pub decides: &'static str,
    /// The whole file.
    pub text: &'static str,
    /// Whether a change of its code makes every certificate stale, because the file decides what is proved of a kernel.
    pub in_certificates: bool,
}

impl Trusted {
    /// Lines that are neither empty nor comments.
    pub fn lines(&self) -> usize {
        self.text.lines().filter(|line| !line.trim().is_empty() && !line.trim().starts_with("//")).count()
    }
}

macro_rules! trusted {
    ($($topic:ident $certificates:literal $path:literal $decides:literal,)*) => {
        &[$(Trusted {
            path: $path,
            topic: Topic::$topic,
            decides: $decides,
            text: include_str!(concat!("../../../", $path)),
            in_certificates: $certificates,
        }),*]
    };
}

/// Everything that must be audited. `true`: the certificates' hash covers it.
pub const TRUSTED: &[Trusted] = trusted![
    Promise false "crates/vosti-core/src/trusted/spec.rs" "the statement of the theorem",
    Promise false "crates/vosti-core/src/trusted/meaning.rs" "what a forward pass is, and a request's reference run",
    Promise false "crates/vosti-core/src/trusted/next.rs" "what an execution is, what clients see of it, and when two share W",
    Promise false "crates/vosti-core/src/trusted/views.rs" "what the words of these files mean, and what a core shows",
    Promise false "crates/vosti-core/src/trusted/legal.rs" "when each operation may run",
    Promise false "crates/vosti-core/src/trusted/effects.rs" "what each operation does",
    Promise false "crates/vosti-core/src/trusted/progress.rs" "which calls bring a request forward",
    Promise false "crates/vosti-core/src/trusted/premises.rs" "what the array holds that kernels read of a step",
    Assumption false "crates/vosti-core/src/trusted/seam.rs" "the contracts of `Device` and `Sampler`",
    Contract true "crates/vosti-contract/src/contract.rs" "shapes, grids and parameters of the contracts in `kernels/*.py`",
    Contract true "crates/vosti-contract/src/role.rs" "what each role of a parameter means",
    Contract true "crates/vosti-contract/src/dtype.rs" "the names of element types",
    Contract true "crates/vosti-contract/src/expr.rs" "the arithmetic of extents and grids",
    Contract true "crates/vosti-contract/src/value.rs" "values of constants",
    Contract false "kernels/src/spec.rs" "which kernel and constants a specialisation is",
    Contract true "crates/vosti-verify/src/problem.rs" "what a contract says of a kernel's parameters",
    Contract true "crates/vosti-verify/src/declared.rs" "what its extents, axes and dimensions are",
    Contract true "crates/vosti-verify/src/condition.rs" "what holds between dimensions, and whether it does of a model's",
    Contract true "crates/vosti-verify/src/dimension.rs" "dimensions: their ranges, extents of them, and whether a model's are in range",
    Contract true "crates/vosti-verify/src/premises.rs" "which premises a shape has, and of which constants",
    Contract true "crates/vosti-verify/src/world.rs" "what the core guarantees about a step's metadata",
    Contract false "crates/vosti-verify/src/case.rs" "the same for a kernel of one's own",
    Meaning true "crates/vosti-tile/src/parse.rs" "TTIR text to a syntax tree",
    Meaning true "crates/vosti-tile/src/lift.rs" "operations of control flow",
    Meaning true "crates/vosti-tile/src/lift/module.rs" "the module, its functions and their parameters",
    Meaning true "crates/vosti-tile/src/lift/simple.rs" "all other operations",
    Meaning true "crates/vosti-tile/src/build.rs" "types, shapes and constants of operations",
    Meaning true "crates/vosti-tile/src/ir.rs" "the operations of tile IR",
    Meaning true "crates/vosti-tile/src/operands.rs" "what an operation reads, and whether it touches memory",
    Meaning false "kernels/src/inventory.rs" "a text with constants in the place of its dimensions (`bind`)",
    Meaning false "crates/vosti-tile/src/bind.rs" "the same of tile IR, and what follows from constants",
    Meaning false "crates/vosti-tile/src/whole.rs" "which bounds and masks always hold then",
    Meaning false "crates/vosti-tile/src/interp/mod.rs" "what an operation does: loops, products, sums, programs in order",
    Meaning false "crates/vosti-tile/src/interp/elementwise.rs" "the same lane by lane: casts, arithmetic, comparisons",
    Meaning false "crates/vosti-tile/src/interp/memory.rs" "the memory that it does it on: bits by parameter and element",
    Meaning false "crates/vosti-tile/src/numerics/mod.rs" "casts, comparison, products and sums of pairs",
    Meaning false "crates/vosti-tile/src/numerics/fold.rs" "the order of sums",
    Meaning false "crates/vosti-tile/src/numerics/math.rs" "exponentials, roots",
    Meaning false "crates/vosti-tile/src/numerics/mode.rs" "denormals and rounding of the processor",
    Meaning false "crates/vosti-tile/src/numerics/edge.rs" "products that round up to the smallest normal number, on AArch64",
    Meaning false "crates/vosti-tile/src/numerics/soft.rs" "the same without a mode, and FP64 to FP32",
    Rule true "crates/vosti-verify/src/verify.rs" "the statement that is proved of a kernel",
    Rule true "crates/vosti-verify/src/prover.rs" "what is assumed where",
    Rule true "crates/vosti-verify/src/run.rs" "what an index, a mask or a pointer is",
    Rule true "crates/vosti-verify/src/run/reduced.rs" "what a reduction of booleans is",
    Rule true "crates/vosti-verify/src/run/trip.rs" "how often a loop runs",
    Rule true "crates/vosti-verify/src/data.rs" "integers of rows and weights that decide addresses and masks",
    Rule true "crates/vosti-verify/src/integers.rs" "integer operations and reshapes as terms",
    Rule true "crates/vosti-verify/src/term.rs" "simplification of integer and boolean terms",
    Rule true "crates/vosti-verify/src/polynomial.rs" "products of terms, and how an offset falls apart by a stride",
    Rule true "crates/vosti-verify/src/quantify.rs" "what it means that any lane of a mask is true",
    Rule true "crates/vosti-verify/src/unary.rs" "bounds, wrap-around, coverage, one writer",
    Rule true "crates/vosti-verify/src/equal.rs" "which operand lanes must agree",
    Rule true "crates/vosti-verify/src/recur.rs" "which entry of a page a cell or a carried value is",
    Rule true "crates/vosti-verify/src/memo.rs" "which goals need no second proof",
    Rule true "crates/vosti-verify/src/alike.rs" "which sums of two texts may be compared",
    Rule true "crates/vosti-verify/src/folded.rs" "one launch of attention in the place of two",
    Rule true "crates/vosti-verify/src/apart.rs" "that the two runs may really differ",
    Rule true "crates/vosti-verify/src/loops.rs" "induction, and iterations that change nothing",
    Rule true "crates/vosti-verify/src/memory.rs" "which loaded cells the contract calls equal",
    Rule true "crates/vosti-verify/src/facts.rs" "zeros, minus infinity, finite cells",
    Rule true "crates/vosti-verify/src/solve.rs" "which questions need the solver",
    Rule true "crates/vosti-verify/src/solver.rs" "SMT-LIB text, and which answers are believed",
    Rule true "crates/vosti-verify/src/process.rs" "what a solver said",
    Rule true "crates/vosti-verify/src/cache.rs" "which recorded answers are believed",
    Admission false "crates/vosti-verify/src/certificate.rs" "what a certificate is bound to",
    Admission false "crates/vosti-verify/src/record.rs" "which certificates are checked in",
    Admission false "crates/vosti-verify/src/trusted.rs" "this list",
    Admission false "kernels/src/specialise.rs" "which kernels of other row tiles must have the same bits",
    Admission false "kernels/src/admitted.rs" "what a device may run",
    Admission false "kernels/src/together.rs" "when one launch does the work of two ops",
    Admission false "kernels/src/draws.rs" "that what draws behind a program writes nothing of it",
    Admission false "crates/vosti-contract/src/grid.rs" "how many programs a launch has, for a proved grid",
    Admission false "crates/vosti-admission/src/bundle.rs" "no op without a fresh certificate that fits it",
    Admission false "crates/vosti-admission/src/op_contract.rs" "which contract an op needs",
    Admission false "crates/vosti-admission/src/launch_pair.rs" "when two launches are one op's, and one may run in their place",
    Admission false "crates/vosti-admission/src/limits.rs" "how large a step is proved for",
    Wiring false "crates/vosti-wiring/src/wiring.rs" "which buffer is bound to which parameter",
    Wiring false "crates/vosti-wiring/src/caches.rs" "how large each part of a layer's pages is",
    Wiring false "crates/vosti-wiring/src/step.rs" "which verified part of a step's array is whose",
    Wiring false "crates/vosti-wiring/src/outputs.rs" "which buffers hold the tokens and lists that the core is given",
    Wiring false "crates/vosti-wiring/src/weights.rs" "which part of a weight is which row",
];

/// Files beside the trusted ones that need no audit, each with the reason.
pub const SEARCHES: &[(&str, &str)] = &[
    ("crates/vosti-core/src/trusted/mod.rs", "names the modules"),
    ("crates/vosti-verify/src/budget.rs", "ends a proof that takes too long: it can refuse and never prove"),
    ("crates/vosti-verify/src/certificate.schema.json", "the form of a certificate, for other readers"),
    (
        "crates/vosti-verify/src/inventory.rs",
        "walks over kernels; one that it forgets has no certificate and is refused",
    ),
    ("crates/vosti-verify/src/lib.rs", "names the modules"),
    ("crates/vosti-verify/src/mutate.rs", "makes wrong kernels for the fuzzer"),
    ("crates/vosti-verify/src/mutate_contract.rs", "makes wrong contracts for the fuzzer"),
    ("crates/vosti-verify/src/reading.rs", "the replays' own reading of contracts: it can refute and never prove"),
    ("crates/vosti-verify/src/replay.rs", "runs a kernel twice: it can refute and never prove"),
    ("crates/vosti-verify/src/replay_attend.rs", "the same for attention"),
    ("crates/vosti-verify/src/replay_recur.rs", "the same for pages with a state"),
    ("crates/vosti-verify/src/show.rs", "tells a proof as a person would"),
    ("crates/vosti-verify/src/tcb.rs", "prints this list"),
    ("crates/vosti-verify/src/verdict.rs", "names of verdicts, obligations and assumptions"),
    ("crates/vosti-contract/src/error.rs", "messages"),
    ("crates/vosti-contract/src/lib.rs", "names the modules"),
    ("kernels/src/error.rs", "messages"),
    ("kernels/src/heights.rs", "chooses among row tiles that are proved to give the same bits"),
    ("kernels/src/lib.rs", "names the modules"),
    ("kernels/src/quantised.rs", "a file's weights as numbers: the same in every run"),
    ("kernels/src/request.rs", "asks Triton for texts; what is proved is the text that came back"),
    ("kernels/src/scores.rs", "a model's scales as numbers: the same in every run"),
    ("crates/vosti-tile/src/error.rs", "messages"),
    ("crates/vosti-tile/src/generate.rs", "random kernels for tests"),
    ("crates/vosti-tile/src/generate/tiles.rs", "the same"),
    ("crates/vosti-tile/src/lib.rs", "names the modules"),
    ("crates/vosti-tile/src/numerics/tests.rs", "tests"),
    ("crates/vosti-tile/src/print.rs", "tile IR for people"),
    ("crates/vosti-admission/src/error.rs", "messages"),
    ("crates/vosti-admission/src/folder.rs", "reads and writes folders; what it reads is admitted or refused"),
    ("crates/vosti-admission/src/lib.rs", "names the modules"),
    ("crates/vosti-admission/src/manifest.rs", "the form of a bundle's manifest"),
    ("crates/vosti-wiring/src/error.rs", "messages"),
    ("crates/vosti-wiring/src/lib.rs", "names the modules"),
    ("crates/vosti-wiring/src/uniform.rs", "random weights for benchmarks"),
];

/// What is trusted besides the files of [`TRUSTED`].
pub const OUTSIDE: &[&str] = &[
    "Verus, Z3 and rustc; an answer of Z3 that is checked in is solved again by a seeded share",
    "Triton's front end (Python source to TTIR): the checked-in TTIR is made again and compared in the tests",
    "the CPU executor (`crates/vosti-cpu`): compared bit for bit with the interpreter of tile IR",
    "the sampler (`sampler.rs`, `sampling.rs`, `random.rs`, `math.rs` in `crates/vosti-engine/src`): its laws run in that crate's tests",
    "the processor's keeping of the assumptions that certificates list: `vosti laws` and `tests/probes.rs` try to break them",
    "on a GPU, the host's code (`crates/vosti-cuda`), the driver and the hardware: compiled kernels are inspected \
     (`crates/vosti-cubin`), and on one card, an H200, `vosti laws` and `vosti check` found no fault (`docs/gpu.md`)",
    "on a GPU, Triton's compiler; of a kernel whose record says `executed: ptx` (`vosti prepare --execute`) what is left is ptxas and the \
     sum inside one matrix instruction, as far as small cases show: there its PTX gave the tile interpreter's bits (`crates/vosti-ptx`)",
];

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn no_file_is_listed_twice() {
        let listed: BTreeSet<&str> = TRUSTED.iter().map(|t| t.path).chain(SEARCHES.iter().map(|s| s.0)).collect();
        assert_eq!(listed.len(), TRUSTED.len() + SEARCHES.len());
    }

    #[test]
    fn the_list_is_in_reading_order() {
        assert!(TRUSTED.is_sorted_by_key(|trusted| trusted.topic));
    }
}
