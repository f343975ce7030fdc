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

/// The seam names, behind the sentence of each clause, the shape that discharges it and the law that watches it.
const SEAM: &str = include_str!("../../vosti-core/src/seam.rs");

const REST: &[&str] = &[
    "Triton's front end (Python source to TTIR): the checked-in TTIR is regenerated and compared in the tests",
    "the lifting of TTIR to tile IR (crates/vosti-tile): compared with an independent evaluator of the TTIR text",
    "the CPU executor (crates/vosti-cpu): compared bit for bit with the plain interpreter",
    "on a GPU: Triton's compiler, the driver, the hardware; no law has run there yet",
    "Z3: answers are checked in, a seeded share is solved again; cvc5 is asked the same where there is one",
    "the fit of contracts to ops (crates/vosti/src/bundle/fit.rs): role by role, over the program's own extents",
    "the composition of attention's two launches (crates/vosti/src/bundle/compose.rs): constants, scratch and roles compared",
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
    out.push_str(
        "Each clause of the seam (vosti-core/src/seam.rs): what discharges it, and the law that watches it.\n",
    );
    out.push_str("Laws have run on cpu (vosti-cpu/tests/laws.rs), and never yet on a GPU:\n");
    for clause in clauses(SEAM) {
        out.push_str(&format!("  {}\n    {}; law {}\n", clause.sentence, clause.by, clause.law));
    }
    out
}

struct Clause {
    sentence: String,
    by: String,
    law: String,
}

/// Comments of the form `Sentence. (What discharges it. Law: its_name.)`
fn clauses(seam: &str) -> Vec<Clause> {
    let (mut clauses, mut comment) = (vec![], String::new());
    for line in seam.lines().map(str::trim) {
        if let Some(text) = line.strip_prefix("// ") {
            comment = format!("{comment} {text}");
            continue;
        }
        clauses.extend(clause(comment.trim()));
        comment.clear();
    }
    clauses
}

fn clause(comment: &str) -> Option<Clause> {
    let (sentence, rest) = comment.rsplit_once(" (")?;
    let (by, law) = rest.strip_suffix(')')?.split_once("Law")?;
    let law = law.split_once(": ")?.1.trim_end_matches('.').to_string();
    let by = by.trim().trim_end_matches('.');
    let by = match by.strip_prefix("Shape ").and_then(|shape| shape.split(' ').next()) {
        Some(shape) => format!("{}; certificate: contract.shape = {shape}", by.to_lowercase()),
        None => by.to_lowercase(),
    };
    Some(Clause {
        sentence: sentence.to_string(),
        by: if by.is_empty() { "each op's kernel, below".into() } else { by },
        law,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_law_that_the_seam_names_is_listed_with_its_clause() {
        let named = SEAM
            .lines()
            .filter(|l| l.trim().starts_with("// ") && (l.contains("Law: ") || l.contains("Laws: ")))
            .count();
        assert!(named > 15 && clauses(SEAM).len() == named, "{named} laws, {} clauses", clauses(SEAM).len());
        let text = text();
        for part in ["contract.shape = attend; law attention_sees_its_window_in_order", "never yet on a GPU"] {
            assert!(text.contains(part), "{text}");
        }
    }
}
