//! A page of an audit: for each refuted kernel its source, the two launches and the elements that differ. One file, without scripts.

use crate::report::{Audit, Finding, Report};
use std::fmt::Write as _;

/// Lines of the file around the one that is named.
const AROUND: usize = 8;

const STYLE: &str = "body{font:15px/1.5 system-ui,sans-serif;margin:2em auto;max-width:70em;padding:0 1em;color:#222;background:#fff}\
pre,code,td{font-family:ui-monospace,monospace;font-size:13px}pre{background:#f6f6f4;padding:.7em 1em;overflow-x:auto}\
mark{background:#ffd9d2;display:block}table{border-collapse:collapse}td,th{padding:.15em .9em .15em 0;text-align:left;border-bottom:1px solid #ddd}\
.refuted{color:#b3261e}.proved{color:#1b6e33}h2{margin-top:2em}";

/// The page; `source` is the text of the Python file.
pub fn page(audit: &Audit, source: &str) -> String {
    let mut out = format!(
        "<!doctype html>\n<html lang=\"en\"><meta charset=\"utf-8\"><title>{0}: batch invariance</title>\n<style>{STYLE}</style>\n<h1>{0}</h1>\n",
        escaped(&audit.path)
    );
    out += "<table><tr><th>kernel</th><th>launch</th><th>verdict</th></tr>\n";
    for report in &audit.reports {
        let verdict = report.verdict.to_string().to_lowercase();
        let conditions: String = report.conditions().iter().map(|name| format!(" if {name}")).collect();
        let cells = [escaped(&report.function), escaped(&report.launch)];
        writeln!(
            out,
            "<tr><td>{}</td><td>{}</td><td class=\"{verdict}\">{verdict}{conditions}</td></tr>",
            cells[0], cells[1]
        )
        .ok();
    }
    out += "</table>\n";
    for report in audit.reports.iter().filter(|report| report.verdict == Finding::Refuted) {
        refutation(&mut out, report, source);
    }
    out + "</html>\n"
}

fn refutation(out: &mut String, report: &Report, source: &str) {
    let mut put = |text: String| {
        out.push_str(&text);
        out.push('\n');
    };
    put(format!("<h2>{}</h2>", escaped(&report.function)));
    put(format!("<p class=\"refuted\">{}</p>", escaped(report.why.as_deref().unwrap_or("two runs differ"))));
    if let Some(line) = report.line.map(|line| line as usize) {
        let from = line.saturating_sub(AROUND).max(1);
        let mut text = String::new();
        for (number, code) in
            source.lines().enumerate().map(|(at, code)| (at + 1, code)).skip(from - 1).take(2 * AROUND + 1)
        {
            let code = escaped(&format!("{number:5}  {code}"));
            text += &if number == line { format!("<mark>{code}</mark>") } else { format!("{code}\n") };
        }
        put(format!("<p>Line {line}:</p><pre>{text}</pre>"));
    }
    let launches: Vec<&str> = report.launch.split(" == ").collect();
    let functions: Vec<&str> = report.function.split(" == ").collect();
    let of = |list: &[&str], at: usize| escaped(list.get(at).or(list.first()).copied().unwrap_or(""));
    put("<table><tr><th></th><th>kernel</th><th>launch</th></tr>".into());
    for (at, name) in ["first run", "second run"].into_iter().enumerate() {
        put(format!("<tr><td>{name}</td><td>{}</td><td>{}</td></tr>", of(&functions, at), of(&launches, at)));
    }
    put("</table>".into());
    if let Some(runs) = &report.counterexample {
        put(format!("<p>{}</p>", escaped(runs)));
    }
    if report.differences.is_empty() {
        return;
    }
    put("<table><tr><th>output</th><th>row of the first run</th><th>row of the second</th><th>element</th><th>first value</th><th>bits</th><th>second value</th><th>bits</th></tr>".into());
    for difference in &report.differences {
        let [l, r] = difference.rows;
        let ([u, v], [x, y]) = (&difference.values, &difference.bits);
        let (buffer, at) = (escaped(&difference.buffer), escaped(&difference.element));
        put(format!(
            "<tr><td>{buffer}</td><td>{l}</td><td>{r}</td><td>{at}</td><td>{u}</td><td>{x}</td><td>{v}</td><td>{y}</td></tr>"
        ));
    }
    put("</table>".into());
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::Difference;

    #[test]
    fn a_page_shows_the_line_the_launches_and_the_bits() {
        let text = "seed 3: row 1 of 2 and row 0 of 5 have equal inputs, but `y` differs at 17 and 1: 1e0 (0x3f80) and 2e0 (0x4000)";
        let report = Report {
            function: "k".into(),
            launch: "BK=64 == BK=2".into(),
            verdict: Finding::Refuted,
            why: Some("loop-range: a < b".into()),
            obligation: None,
            line: Some(2),
            source: None,
            counterexample: Some(text.into()),
            differences: Difference::read(text).into_iter().collect(),
            compiled: None,
            assumptions: vec![],
            premises: vec![],
            seconds: 0.0,
        };
        let audit = Audit { path: "k.py".into(), reports: vec![report], without_contract: vec![], skipped: vec![] };
        let page = page(&audit, "import triton\nfor k in range(BK):\n");
        let parts = [
            "<mark>    2  for k in range(BK):</mark>",
            "loop-range: a &lt; b",
            "<td>first run</td><td>k</td><td>BK=64</td>",
            "<td>second run</td><td>k</td><td>BK=2</td>",
            "<td>y</td><td>1</td><td>0</td><td>17 and 1</td><td>1e0</td><td>0x3f80</td><td>2e0</td><td>0x4000</td>",
        ];
        for part in parts {
            assert!(page.contains(part), "{part}\n{page}");
        }
    }
}
