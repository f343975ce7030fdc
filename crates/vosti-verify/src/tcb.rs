//! Prints what a proof trusts, for `vosti verify --tcb` and `docs/trust.md`. The list itself is `trusted.rs`.

use crate::trusted::{OUTSIDE, TRUSTED, Topic};

/// The seam names, behind the sentence of each clause, the shape that discharges it and the law that watches it.
const SEAM: &str = include_str!("../../vosti-core/src/trusted/seam.rs");

/// The list, as text.
pub fn text() -> String {
    let mut out = String::new();
    for topic in Topic::ALL {
        out.push_str(&format!("{}\n", topic.question()));
        for file in TRUSTED.iter().filter(|file| file.topic == topic) {
            out.push_str(&format!("  {:5} lines  {}: {}\n", file.lines(), file.path, file.decides));
        }
        out.push_str(&format!("               watched by {}\n", topic.watched_by()));
    }
    let total: usize = TRUSTED.iter().map(|file| file.lines()).sum();
    out.push_str(&format!("{total} lines in all. Trusted besides:\n"));
    OUTSIDE.iter().for_each(|line| out.push_str(&format!("  {line}\n")));
    out.push_str(
        "Each clause of the seam (vosti-core/src/trusted/seam.rs): what discharges it, and the law that watches it.\n",
    );
    out.push_str("Laws have run on cpu (vosti-cpu/tests/laws.rs), and never yet on a GPU:\n");
    for clause in seam() {
        out.push_str(&format!("  {}\n    {}; law {}\n", clause.sentence, clause.by, clause.law));
    }
    out
}

/// The clauses of the seam.
pub fn seam() -> Vec<Clause> {
    clauses(SEAM)
}

/// A clause of the seam: what it says, what discharges it, and the law that watches it.
pub struct Clause {
    /// The English sentence above the clause.
    pub sentence: String,
    /// The shape of kernels, or the code, that discharges it.
    pub by: String,
    /// The device law that watches it.
    pub law: String,
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
        for part in
            ["contract.shape = attend; law attention_sees_its_window_in_order", "never yet on a GPU", "op_contract.rs"]
        {
            assert!(text.contains(part), "{text}");
        }
    }
}
