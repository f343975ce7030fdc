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
    out.push_str(
        "Laws run on cpu in the tests (vosti-cpu/tests/laws.rs), and ran once on a GPU, an H200 (docs/gpu.md):\n",
    );
    for clause in seam() {
        let laws = clause.laws.iter().map(|law| format!("; law {law}")).collect::<String>();
        out.push_str(&format!("  {}\n    {}{laws}\n", clause.sentence, clause.by));
    }
    out
}

/// The clauses of the seam.
pub fn seam() -> Vec<Clause> {
    clauses(SEAM)
}

/// A clause of the seam: what it says, what discharges it, and the laws that watch it.
pub struct Clause {
    /// The English sentence above the clause.
    pub sentence: String,
    /// The shape of kernels, or the code, that discharges it.
    pub by: String,
    /// The device laws that watch it; none if each op's do.
    pub laws: Vec<String>,
}

/// Comments of the form `Sentence. (What discharges it. Law: its_name. Law: another.)`
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
    let by = by.trim().trim_end_matches('.');
    let laws = match law.strip_prefix(": ") {
        Some(laws) => laws.trim_end_matches('.').split(". Law: ").map(str::to_string).collect(),
        None => vec![],
    };
    let shape = by.strip_prefix("Shape ").and_then(|shape| shape.split([' ', ',', ';']).next());
    let by = match shape {
        Some(shape) => format!("{}; certificate: contract.shape = {shape}", by.to_lowercase()),
        None if by.is_empty() => "each op's kernel and law, below".into(),
        None => by.to_lowercase(),
    };
    Some(Clause { sentence: sentence.to_string(), by, laws })
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
        let is_a_name = |law: &String| law.chars().all(|c| c.is_ascii_lowercase() || c == '_');
        for clause in clauses(SEAM) {
            assert!(
                clause.laws.iter().all(is_a_name) && !clause.by.ends_with([',', ';']),
                "{}: {:?}",
                clause.by,
                clause.laws
            );
        }
        let text = text();
        for part in [
            "contract.shape = attend; law attention_sees_its_window_in_order",
            "; law whole_rows_are_brought; law lists_are_brought; law drawn_tokens_are_brought",
            "op_contract.rs",
        ] {
            assert!(text.contains(part), "{text}");
        }
    }
}
