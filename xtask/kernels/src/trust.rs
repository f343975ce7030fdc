//! `cargo xtask trust`: writes the page of what must be audited from the verifier's own list, and adds no fact to it.

use anyhow::Result;
use vosti_verify::tcb;
use vosti_verify::trusted::{OUTSIDE, TRUSTED, Topic, Trusted};
use xtask::root;

/// The path of the page, from the root.
const PAGE: &str = "docs/trust.md";

/// Writes the page.
pub fn run() -> Result<()> {
    std::fs::write(root().join(PAGE), page())?;
    println!("{PAGE}");
    Ok(())
}

/// The page's text.
fn page() -> String {
    let mut out = String::from(
        "<!-- made by `cargo xtask trust` from crates/vosti-verify/src/trusted.rs -->\n\
         # What must be audited\n\n\
         If these files and the list at the end are right, so is the promise: machines check everything else. Read them in this \
         order.\n`vosti verify --tcb` prints the same list and counts lines. A change of a file marked * makes every kernel certificate \
         stale.\n",
    );
    for topic in Topic::ALL {
        out += &format!(
            "\n## {}\n\nWatched by {}.\n\n| file | decides |\n| --- | --- |\n",
            topic.question(),
            topic.watched_by()
        );
        for file in TRUSTED.iter().filter(|file| file.topic == topic) {
            let star = if file.in_certificates { " *" } else { "" };
            let Trusted { path, decides, .. } = file;
            out += &format!("| [`{path}`](../{path}){star} | {decides} |\n");
        }
    }
    out += "\n## Trusted besides\n\n";
    OUTSIDE.iter().for_each(|line| out += &format!("- {line}\n"));
    out += "\n## Each clause of the seam\n\n| clause | discharged by | laws |\n| --- | --- | --- |\n";
    for clause in tcb::seam() {
        let laws: Vec<String> = clause.laws.iter().map(|law| format!("`{law}`")).collect();
        out += &format!("| {} | {} | {} |\n", clause.sentence, clause.by, laws.join(", "));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_is_the_list() {
        let page_there = std::fs::read_to_string(root().join(PAGE)).unwrap();
        assert!(page_there == page(), "{PAGE} is stale: run `cargo xtask trust`");
    }
}
