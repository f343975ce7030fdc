//! The report as one self-contained page with a picture: one square per pair, green where all bits match.

use super::report::{Pair, Relation, SuiteReport};
use std::fmt::Write;

const SQUARE: usize = 10;
const COLUMNS: usize = 64;

/// The page.
pub fn page(report: &SuiteReport) -> String {
    let mut out = String::from(HEAD);
    let verdict = if report.passed { "passed" } else { "failed" };
    let _ = write!(
        out,
        "<h1>vosti check: <span class={verdict}>{verdict}</span></h1>\n<p>{} · profile {} · seed {} · fingerprint \
         <code>{}</code></p>\n<p>{} of {} pairs of complete logits vectors are equal bit for bit; {} were dropped, because \
         they are too long. Each square is a pair: <span class=key style='background:#2a9d57'></span> equal, \
         <span class=key style='background:#c8322b'></span> different, \
         <span class=key style='background:#e0a526'></span> equal but without evidence.</p>\n",
        escape(&report.model),
        report.profile,
        report.seed,
        escape(&report.fingerprint),
        report.pairs_equal,
        report.pairs,
        report.pairs_dropped,
    );
    for relation in &report.relations {
        section(&mut out, relation);
    }
    out.push_str("</body></html>\n");
    out
}

fn section(out: &mut String, relation: &Relation) {
    let verdict = if relation.passed() { "passed" } else { "failed" };
    let verdict = if relation.skipped() || relation.undecided() { "skipped" } else { verdict };
    let (equal, pairs) = (relation.equal(), relation.pairs.len());
    let name = relation.name;
    let _ =
        write!(out, "<h2>{name} <span class={verdict}>{equal} / {pairs}</span></h2>\n<p>{}", escape(relation.claim));
    if relation.interrupted {
        out.push_str(" It was ended early.");
    }
    if relation.dropped > 0 {
        let _ = write!(out, " {} pairs were dropped, because they are too long.", relation.dropped);
    }
    for (i, (what, count)) in relation.seen.iter().enumerate() {
        let _ = write!(out, "{}{count} {}", if i == 0 { " Seen: " } else { ", " }, escape(what));
    }
    out.push_str("</p>\n");
    for missing in &relation.missing {
        let _ = writeln!(out, "<p class=failed>No evidence: {}</p>", escape(missing));
    }
    picture(out, &relation.pairs);
}

fn picture(out: &mut String, pairs: &[Pair]) {
    let rows = pairs.len().div_ceil(COLUMNS);
    let (width, height) = (COLUMNS * SQUARE, rows * SQUARE);
    let _ = writeln!(out, "<svg width={width} height={height} role=img aria-label='which pairs match'>");
    for (i, pair) in pairs.iter().enumerate() {
        let (x, y) = (i % COLUMNS * SQUARE, i / COLUMNS * SQUARE);
        let colour = match (pair.equal, &pair.missing) {
            (true, None) => "#2a9d57",
            (true, Some(_)) => "#e0a526",
            (false, _) => "#c8322b",
        };
        let side = SQUARE - 1;
        let why = pair.difference.as_deref().or(pair.missing.as_deref()).unwrap_or("equal");
        let _ = writeln!(
            out,
            "<rect x={x} y={y} width={side} height={side} fill='{colour}'><title>{}: {}</title></rect>",
            escape(&pair.label),
            escape(why)
        );
    }
    out.push_str("</svg>\n");
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('\'', "&#39;")
}

const HEAD: &str = "<!doctype html>
<html lang=en><head><meta charset=utf-8><title>vosti check</title><style>
body { font: 16px/1.5 system-ui, sans-serif; max-width: 46rem; margin: 2rem auto; padding: 0 1rem; }
.passed { color: #2a9d57 } .failed { color: #c8322b } .skipped { color: #777 }
.key { display: inline-block; width: 9px; height: 9px }
code { word-break: break-all }
</style></head><body>
";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Facts, Profile, SuiteOptions};

    #[test]
    fn the_picture_has_a_square_per_pair_and_shows_differences_and_missing_evidence() {
        let mut relation = Relation::new("batch", "a < b");
        let pair = |equal: bool, missing: Option<&str>| Pair {
            label: "len 17 & more".into(),
            equal,
            difference: (!equal).then(|| "1 of 9 values differ".into()),
            missing: missing.map(String::from),
        };
        relation.pairs = vec![pair(true, None), pair(false, None), pair(true, Some("no hit"))];
        let options = SuiteOptions { profile: Profile::quick(None), prompt_max: None, only: vec![], seed: 1 };
        let page = page(&SuiteReport::new(&Facts::default(), &options, vec![relation], false));
        assert_eq!(page.matches("<rect").count(), 3);
        assert!(page.contains("1 of 9 values differ") && page.contains("no hit"));
        assert!(page.contains("len 17 &amp; more") && page.contains("a &lt; b"));
        assert!(page.contains("2 of 3 pairs"));
    }
}
