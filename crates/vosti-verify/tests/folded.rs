//! One launch of attention that folds its own splits is proved to give the bits of two launches; changed kernels are not, unless
//! they give them too.

use vosti_verify::mutate::{Mutant, mutants};
use vosti_verify::problem::Statement;
use vosti_verify::replay::{Outcome, Random, folded};
use vosti_verify::solver::{Solver, find_z3};
use vosti_verify::{Cache, Problem, verify, verify_folded};

const FIRST: &str = "attend-bf16-BQ64-DP16-GP2-PAGE64-ROWS512-SPLIT64";
const SECOND: &str = "attend_combine-bf16-BQ64-DP16-GP2-ROWS512-SPLIT64";

fn problems() -> [Problem; 2] {
    [FIRST, SECOND].map(|stem| Problem::of_stem(stem).unwrap())
}

/// Whether all of it is proved: each launch, and that the one gives the bits of the two.
fn proved(first: &Problem, second: &Problem, solver: &mut Solver) -> bool {
    let mut verification = verify(first, solver).unwrap();
    if verification.verdict.is_proved() {
        verify_folded(first, second, &mut verification, solver).unwrap();
    }
    verification.verdict.is_proved() && verify(second, solver).unwrap().verdict.is_proved()
}

/// The first difference of some replays, or how many of them agree: the others are too large to run.
fn difference(first: &Problem, second: &Problem, seeds: u64) -> Result<u64, String> {
    let mut ran = 0;
    for seed in 0..seeds {
        match folded(first, second, seed) {
            Outcome::Different(how) => return Err(how),
            Outcome::Same => ran += 1,
            Outcome::NotRun(_) => {}
        }
    }
    Ok(ran)
}

#[test]
fn one_launch_gives_the_bits_of_two() {
    let [first, second] = problems();
    assert!(difference(&first, &second, 40).unwrap() >= 20);
    let mut solver = Solver::new(find_z3(), Cache::none());
    assert!(proved(&first, &second, &mut solver));
}

/// The problem of a specialisation's text with words replaced, in the contract too if `contract` says so.
fn replaced(stem: &str, words: &[(&str, &str)], contract: bool) -> Problem {
    let change = |text: String| words.iter().fold(text, |text, (old, new)| text.replace(old, new));
    let problem = Problem::of_stem(stem).unwrap();
    let (signature, body) = vosti_kernels::ttir_by_stem(stem).unwrap().split_once(") attributes").unwrap();
    let statement = Statement { text: change(problem.statement.text.clone()), ..problem.statement };
    match contract {
        true => Problem::of_statement(stem, &change(format!("{signature}) attributes{body}")), statement).unwrap(),
        false => Problem::of_text(stem, &format!("{signature}) attributes{}", change(body.to_string()))).unwrap(),
    }
}

/// Why it is not proved that one launch gives the bits of two, though each launch is proved.
fn refused(first: &Problem, second: &Problem) -> String {
    let mut solver = Solver::new(find_z3(), Cache::none());
    let mut verification = verify(first, &mut solver).unwrap();
    assert!(verification.verdict.is_proved(), "{}", verification.verdict);
    verify_folded(first, second, &mut verification, &mut solver).unwrap();
    assert!(verification.stands_for.is_empty());
    verification.verdict.to_string()
}

/// A first launch has tiles of another height than a second one, and admission asks for no other.
#[test]
fn texts_that_read_the_height_of_a_tile_are_no_launch_in_the_place_of_two() {
    let [first, second] = [FIRST, SECOND].map(|stem| replaced(stem, &[("%SINKS", "%HEIGHT")], false));
    assert!(verify(&second, &mut Solver::new(find_z3(), Cache::none())).unwrap().verdict.is_proved());
    difference(&first, &second, 40).unwrap_err();
    assert!(refused(&first, &second).contains("a kernel reads HEIGHT"), "{}", refused(&first, &second));
}

/// Heads of a group, and groups: a contract that takes the two in another order means other cells by the same coordinates.
#[test]
fn extents_are_compared_by_the_names_of_their_dimensions() {
    let exchanged =
        [("KV_HEADS", "THIRD"), ("GROUP", "KV_HEADS"), ("THIRD", "GROUP"), ("KV_HEADS <= GP", "GROUP <= GP")];
    let why = refused(&problems()[0], &replaced(SECOND, &exchanged, true));
    assert!(why.contains("has no counterpart of the same extents"), "{why}");
}

/// How many of these mutants are proved, and how many differ in a replay. It fails if one is proved that differs. One that swaps
/// operands in what both launches compute need not be proved, because two texts are compared operation by operation.
fn counted(list: Vec<Mutant>, with: impl Fn(&Mutant) -> [Problem; 2]) -> [usize; 2] {
    let (mut solver, mut counts, total) = (Solver::new(find_z3(), Cache::none()), [0; 2], list.len());
    for mutant in list {
        let [first, second] = with(&mutant);
        let proved = proved(&first, &second, &mut solver);
        let how = difference(&first, &second, if proved { 40 } else { 8 });
        assert!(!(proved || mutant.neutral) || how.is_ok(), "{}: proved is {proved}, and {how:?}", mutant.what);
        counts[0] += usize::from(proved);
        counts[1] += usize::from(how.is_err());
    }
    println!("of {total} mutants {} are proved, and {} differ", counts[0], counts[1]);
    counts
}

/// Mutants picked at random; all of them if `VOSTI_ALL_MUTANTS` is set.
fn some(mut list: Vec<Mutant>, count: usize) -> Vec<Mutant> {
    if std::env::var_os("VOSTI_ALL_MUTANTS").is_none() {
        Random::new(7).shuffle(&mut list);
        list.truncate(count);
    }
    list
}

#[test]
fn a_changed_second_launch_is_not_proved_if_it_gives_other_bits() {
    let [_, second] = problems();
    let counts = counted(some(mutants(&second.kernel), 10), |mutant| {
        let [first, second] = problems();
        [first, second.with_kernel(mutant.kernel.clone())]
    });
    assert!(counts[1] >= 3, "{counts:?}");
}

#[test]
fn a_changed_first_launch_is_not_proved_if_it_gives_other_bits() {
    let [first, _] = problems();
    let counts = counted(some(mutants(&first.kernel), 8), |mutant| {
        let [first, second] = problems();
        [first.with_kernel(mutant.kernel.clone()), second]
    });
    assert!(counts[1] >= 2, "{counts:?}");
}
