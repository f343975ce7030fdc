//! What a proof trusts, for `vosti verify --tcb`.

/// Lines of Rust of the parts that a wrong `Proved` could come from.
const RULES: &[(&str, &str, &str)] = &[
    ("terms", include_str!("term.rs"), "simplification of integer and boolean terms"),
    ("symbolic runs", include_str!("run.rs"), "what an index, a mask or a pointer is"),
    ("integers", include_str!("integers.rs"), "integer operations and reshapes as terms"),
    ("premises", include_str!("world.rs"), "what the core guarantees about metadata"),
    ("contracts", include_str!("problem.rs"), "shapes, roles, extents"),
    ("extents", include_str!("geometry.toml"), "declared extents of the kernels' buffers"),
    ("one run", include_str!("unary.rs"), "bounds, wrap-around, coverage, one writer"),
    ("backward rules", include_str!("equal.rs"), "which operand lanes must agree"),
    ("loops", include_str!("loops.rs"), "induction and iterations that change nothing"),
    ("memory", include_str!("memory.rs"), "which loaded cells the contract calls equal"),
    ("forward facts", include_str!("facts.rs"), "zeros, -inf, finite cells"),
    ("contexts", include_str!("prover.rs"), "what is assumed where"),
    ("statement", include_str!("verify.rs"), "what is proved"),
    ("solver", include_str!("solver.rs"), "SMT-LIB text, and which answers are believed"),
    ("process", include_str!("process.rs"), "what a program said"),
];

/// Each `ensures` of the seam, the contract shape that discharges it, and what tests it on a device.
const SEAM: &[(&str, &str)] = &[
    (
        "Embed, Rowwise: out[t] = f_k(ins[t], p)",
        "row-wise; certificate `contract.shape = rowwise`; device law: packed against alone",
    ),
    (
        "StoreKv: cache[slot(t)] = f_k(ins[t], p), nothing else",
        "exact effect; `store_kv`; device law: packed against alone",
    ),
    (
        "Attend: out[t] = g_k(q[t], p, keys in the window)",
        "paged causal; `attend`; device law: paged and chunked against alone",
    ),
    ("every slot is finite", "exact effect includes it (obligation `finite`); pools start as zeros"),
];

const REST: &[&str] = &[
    "Triton's front end (Python source to TTIR): the checked-in TTIR is regenerated and compared in the tests",
    "the lifting of TTIR to tile IR (crates/vosti-tile): compared with an independent evaluator of the TTIR text",
    "the CPU executor (crates/vosti-cpu): compared bit for bit with the plain interpreter",
    "on a GPU: Triton's compiler, the driver, the hardware; no law has run there yet",
    "Z3: answers are checked in, a seeded share is solved again; cvc5 is asked the same where there is one",
    "the fit of contracts to ops (crates/vosti/src/bundle/fit.rs): role by role, over the program's own extents",
    "the devices' wiring of buffers to kernel parameters: device laws, the determinism suite",
];

/// The list, as text.
pub fn text() -> String {
    let mut out = String::from("A kernel proof trusts, in this crate:\n");
    let mut total = 0;
    for (name, source, what) in RULES {
        let lines = source.lines().filter(|l| !l.trim().is_empty() && !l.trim().starts_with("//")).count();
        total += lines;
        out.push_str(&format!("  {lines:5} lines  {name}: {what}\n"));
    }
    out.push_str(&format!("  {total:5} lines in all\nand outside of it:\n"));
    for line in REST {
        out.push_str(&format!("  {line}\n"));
    }
    out.push_str("Each promise of the seam, and the contract that discharges it:\n");
    for (promise, by) in SEAM {
        out.push_str(&format!("  {promise}\n    by {by}\n"));
    }
    out
}
