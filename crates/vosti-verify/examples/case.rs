//! Proves and replays kernels in files: `case FOLDER/*.py`; `-v` prints the proof in words.

use vosti_verify::{Cache, Case, Solver, find_z3, replay, verify};

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let mut solver = Solver::new(find_z3(), Cache::none());
    for path in args.iter().filter(|a| a.ends_with(".py")) {
        let case = match Case::read(path.as_ref()) {
            Ok(case) => case,
            Err(error) => {
                println!("{path}: {error}");
                continue;
            }
        };
        let (text, found) = match &case.problem {
            Err(error) => (format!("{} | {error}", error.obligation()), None),
            Ok(problem) => match verify(problem, &mut solver) {
                Err(error) => (error.to_string(), None),
                Ok(report) => {
                    if args.iter().any(|a| a == "-v") {
                        report.story.iter().for_each(|s| println!("{}{}", "  ".repeat(s.depth + 1), s.text));
                    }
                    let short = report.verdict.failure().map_or("proved".to_string(), |f| f.obligation.to_string());
                    let text = format!("{short} | {:.3}s {}", report.time.as_secs_f64(), report.verdict);
                    (text, Some(replay::search(problem, problem, 0..60)))
                }
            },
        };
        println!("{} | {text} | {found:?}", case.name);
    }
}
