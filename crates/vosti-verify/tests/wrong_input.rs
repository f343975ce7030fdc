//! A contract that does not parse, names a missing parameter or contradicts itself, and TTIR outside the subset: one clear
//! message with the place, never `Proved`, never a panic. (Solvers: `tests/solver.rs`.)

mod common;

use sha2::{Digest as _, Sha256};
use std::path::Path;
use vosti_test_tools::filetests;
use vosti_verify::{Case, Problem, Verdict, Verification, replay, verify};

/// `filetests/pass/NAME` with one piece of its source, and one of its TTIR, replaced.
fn changed(name: &str, python: [&str; 2], ttir: [&str; 2]) -> Case {
    let test = filetests::one(name);
    let (source, text) = (test.source, test.ttir);
    assert!(source.contains(python[0]) && text.contains(ttir[0]), "{name}: nothing to replace");
    let copy = tempfile::tempdir().unwrap();
    let path = copy.path().join(format!("{name}.py"));
    let (source, text) = (source.replacen(python[0], python[1], 1), text.replacen(ttir[0], ttir[1], 1));
    std::fs::write(&path, &source).unwrap();
    std::fs::write(path.with_extension("ttir"), made_from(name, &source, &text)).unwrap();
    Case::read(&path).unwrap()
}

/// A TTIR whose header has the hashes of this source and of its own text.
fn made_from(name: &str, source: &str, ttir: &str) -> String {
    let hash = |text: &str| Sha256::digest(text).iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let body: Vec<&str> = ttir.lines().filter(|line| !line.starts_with("//")).collect();
    let body = body.join("\n") + "\n";
    let lines = ttir.lines().filter(|line| line.starts_with("// python lines")).collect::<String>();
    let made = format!("// made-from sha256 {} {name}.py\n// module sha256 {}\n", hash(source), hash(&body));
    format!("{made}{body}{lines}\n")
}

/// The one line that a user sees for a kernel that makes no problem.
fn refused(case: &Case) -> String {
    let Err(error) = &case.problem else { panic!("{} was accepted", case.name) };
    let verification = Verification::refused(&case.name, error);
    let Verdict::Unknown(failure) = &verification.verdict else { panic!("{}", verification.verdict) };
    assert_eq!(failure.obligation, error.obligation());
    let lifted = matches!(error, vosti_verify::ProblemError::Lift { .. });
    let wanted = if lifted { vosti_verify::Obligation::Subset } else { vosti_verify::Obligation::Contract };
    assert_eq!(failure.obligation, wanted);
    let line = verification.verdict.to_string();
    assert!(!line.contains('\n') && line.contains(&case.name), "{line}");
    line
}

const SAME: [&str; 2] = ["", ""];

#[test]
fn a_contract_that_does_not_parse_is_refused_with_its_line() {
    for (python, says) in [
        (["# shape = \"rowwise\"", "# shape = \"rowwise"], "line 7"),
        (["# shape = \"rowwise\"", "# shape = \"diagonal\""], "line 7: unknown variant `diagonal`"),
        (["# [params]", "# [parameters]"], "unknown field `parameters`"),
        (["# x = \"in 0\"", "# x = \"input\""], "`input` is not a role for `x`"),
        (["# K = 40", "# K = \"forty\""], "constant K is no number"),
        (["cdiv(rows, BM)\"", "cdiv(rows, \""], "cdiv(rows,"),
        (["# grid = [\"cdiv(rows, BM)\", \"cdiv(N, BN)\"]", "# grid = []"], "one to three axes"),
        (["\"cdiv(N, BN)\"]", "\"1\", \"1\", \"1\"]"], "one to three axes"),
        (["# /// contract", "# contract"], "no `# /// contract` block"),
        (["# ///\n@", "@"], "not closed"),
    ] {
        let line = refused(&changed("linear", python, SAME));
        assert!(line.contains(says), "{says:?} is not in {line}");
    }
}

#[test]
fn a_contract_that_names_a_missing_parameter_is_refused_by_name() {
    for (python, says) in [
        (["# x = \"in 0\"", "# x = \"in 0\"\n# y = \"in 1\""], "`y`, which the TTIR does not have"),
        (["# x = \"in 0\"\n", ""], "`x` of the TTIR has no role"),
        (["# x = [\"rows\", \"K\"]\n", ""], "no extents are declared for `x`"),
        (["# w = [\"N\", \"K\"]", "# w = [\"N\", \"DEPTH\"]"], "DEPTH"),
        (["# rows = \"rows\"", "# rows = \"positions\""], "needs the role Rows"),
        (["# rows = \"rows\"", "# rows = \"tokens\""], "needs the constant V"),
    ] {
        let line = refused(&changed("linear", python, SAME));
        assert!(line.contains(says), "{says:?} is not in {line}");
    }
}

#[test]
fn a_contract_that_contradicts_itself_is_refused() {
    for (name, python, says) in [
        ("linear", ["# w = \"weight 0\"", "# w = \"in 0\""], "have one role"),
        ("linear", ["# w = [\"N\", \"K\"]", "# w = [\"rows\", \"K\"]"], "must be what no step changes"),
        ("linear", ["# x = [\"rows\", \"K\"]", "# x = [\"K\", \"K\"]"], "must be `rows`"),
        ("linear", ["# x = [\"rows\", \"K\"]", "# x = [\"packed\", \"K\"]"], "need a row_index"),
        ("linear", ["# out = [\"rows\", \"N\"]", "# out = [\"N\", \"N\"]"], "must be `rows`"),
        ("gather", ["# x = [\"packed\", \"K\"]", "# x = [\"rows\", \"K\"]"], "`packed` where rows are gathered"),
        ("linear", ["# K = 40", "# K = -40"], "-40 is not positive"),
    ] {
        let line = refused(&changed(name, python, SAME));
        assert!(line.contains(says), "{says:?} is not in {line}");
    }
    // This contract is well formed, but no run meets it. Only the solver finds that.
    let Some(mut solver) = common::solver() else { return };
    let case = changed("attend", ["# BQ = 4", "# BQ = 0"], SAME);
    let verification = verify(case.problem.as_ref().unwrap(), &mut solver).unwrap();
    let line = verification.verdict.to_string();
    assert!(!verification.verdict.is_proved() && line.contains("premises: the contract contradicts itself"), "{line}");
}

#[test]
fn ttir_outside_the_subset_is_refused_with_both_lines() {
    for ttir in [
        ["tt.dot ", "tt.dot_scaled "],
        ["arith.truncf", "arith.fptoui"],
        ["scf.for ", "scf.while "],
        ["tt.advance", "tt.atomic_rmw fadd, acq_rel, gpu,"],
    ] {
        let line = refused(&changed("linear", SAME, ttir));
        assert!(line.contains("TTIR line") && line.contains("Python line"), "{ttir:?}: {line}");
    }
    let line = refused(&changed("linear", SAME, ["module {", "modul {"]));
    assert!(line.contains("TTIR line"), "{line}");
}

/// Triton's front end extends an i1 without its sign, so no Python gives these texts.
#[test]
fn a_true_bit_whose_sign_is_extended_is_minus_one() {
    const BIT: &str = "%bit = arith.constant dense<true> : tensor<4xi1>\n      %one = arith.extsi %bit : tensor<4xi1> to tensor<4xi32>\n      ";
    let step = ["%p_21 = tt.addptr %p_13, %p_20", &format!("{BIT}%p_21 = tt.addptr %p_13, %one")];
    let case = changed("sum_by_pointer", SAME, step);
    let problem = case.problem.as_ref().unwrap();
    // The pointer moves by -1, into the row before.
    assert!(matches!(replay::search(problem, problem, 0..4), replay::Outcome::Different(_)));
    let divided = ["%p_9 = arith.muli %row_5, %p_8", &format!("{BIT}%p_9 = arith.divsi %row_5, %one")];
    let line = refused(&changed("sum_by_pointer", SAME, divided));
    assert!(line.contains("a constant divisor other than 0 and -1"), "{line}");
    let Some(mut solver) = common::solver() else { return };
    let report = verify(problem, &mut solver).unwrap();
    assert!(report.verdict.to_string().contains("a pointer moves by no fixed offset in a loop"), "{}", report.verdict);
}

/// `filetests/make.py` lowers `kernel`, whatever the contract stands above.
#[test]
fn a_contract_that_stands_above_another_function_is_refused() {
    let function = "@triton.jit\ndef kernel(";
    for (python, says) in [
        (
            [function, "@triton.jit\ndef broken(x):\n    return x\n\n\n@triton.jit\ndef kernel("],
            "the contract stands above `broken`, and the TTIR is made from `kernel`: put it above `def kernel`",
        ),
        ([function, "HALF = 2\n\n\n@triton.jit\ndef kernel("], "is `HALF = 2`"),
        (["import triton\n", "import triton\n\nkernel = None\n"], "both define `kernel`"),
        (["import triton\n", "import triton\n\ndef kernel(x):\n    pass\n"], "both define `kernel`"),
    ] {
        let line = refused(&changed("linear", python, SAME));
        assert!(line.contains(says), "{says:?} is not in {line}");
    }
    let line = refused(&changed("linear", SAME, ["public @kernel(", "public @broken("]));
    assert!(line.contains("the TTIR is of `broken`, not of `kernel`"), "{line}");
}

/// Runs `filetests/make.py` on a file; what it prints if it refuses the file.
fn made(python: &Path, path: &Path) -> Result<(), String> {
    let make = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../filetests/make.py");
    let run = std::process::Command::new(python).arg(make).arg(path).output().unwrap();
    run.status.success().then_some(()).ok_or_else(|| String::from_utf8_lossy(&run.stderr).into_owned())
}

#[test]
fn a_ttir_is_tied_to_every_file_that_was_executed_or_read_when_it_was_made() {
    let Some(python) = vosti_test_tools::python("triton==3.6.0") else { return };
    let source = filetests::one("hash_of_tokens").source;
    let place = tempfile::tempdir().unwrap();
    let (own, beside) = (place.path().join("own"), place.path().join("beside"));
    std::fs::create_dir_all(&own).unwrap();
    std::fs::create_dir_all(&beside).unwrap();
    let helper = "import triton\n\n\n@triton.jit\ndef half(x):\n    return x // 2\n";
    std::fs::write(beside.join("helper.py"), helper).unwrap();
    std::fs::write(beside.join("shift.txt"), "3").unwrap();
    let path = own.join("case.py");
    let header = "import sys\nsys.path.insert(0, __file__ + \"/../../beside\")\nimport helper\nSHIFT = tl.constexpr(int(open(__file__ + \"/../../beside/shift.txt\").read()))\n";
    let text = source
        .replacen("import triton.language as tl\n", &format!("import triton.language as tl\n{header}"), 1)
        .replacen("h + (h << 3)", "helper.half(h) + (h << SHIFT)", 1);
    std::fs::write(&path, text.replace("__file__ + \"/..", "__file__.rsplit(\"/\", 1)[0] + \"")).unwrap();
    made(&python, &path).unwrap();
    assert!(Case::read(&path).unwrap().problem.is_ok());
    for (file, change) in [("helper.py", helper.replace("// 2", "// 3")), ("shift.txt", "4".to_string())] {
        let old = std::fs::read_to_string(beside.join(file)).unwrap();
        std::fs::write(beside.join(file), change).unwrap();
        let line = refused(&Case::read(&path).unwrap());
        assert!(line.contains(&format!("../beside/{file} is not what it was made from")), "{line}");
        std::fs::write(beside.join(file), old).unwrap();
    }
    // The tool itself refuses to lower a function that has no contract above it.
    let other = source.replace("def kernel(", "def half(")
        + "\n\n@triton.jit\ndef kernel(tokens, rows, out, V: tl.constexpr, BM: tl.constexpr):\n    pass\n";
    std::fs::write(&path, other).unwrap();
    let error = made(&python, &path).unwrap_err();
    assert!(error.contains("no contract ends above it"), "{error}");
}

/// `filetests/pass/persistent` with more lines in front of its store, and another value stored.
fn before_the_store(lines: &str, value: &str) -> Case {
    const STORE: &str = "      tt.store %10, %11, %12";
    changed("persistent", SAME, [STORE, &format!("{lines}      tt.store %10, {value}, %12")])
}

/// The rules follow operands recursively, so a proof needs stack for the longest chain that the lifting takes.
#[test]
fn a_long_chain_of_operations_is_proved_or_refused_in_one_line() {
    let chain = |n: usize| {
        let step = |i: usize| format!("      %long{} = arith.addf %long{i}, %long{i} : tensor<16x16xf32>\n", i + 1);
        let lines = "      %long0 = arith.addf %11, %11 : tensor<16x16xf32>\n".to_string();
        before_the_store(&(lines + &(0..n).map(step).collect::<String>()), &format!("%long{n}"))
    };
    let line = refused(&chain(1000));
    assert!(line.contains("more than 1000 operations in a chain, each on the result of the one before"), "{line}");
    let Some(mut solver) = common::solver() else { return };
    let verification = verify(chain(970).problem.as_ref().unwrap(), &mut solver).unwrap();
    assert_eq!(verification.verdict, Verdict::Proved);
}

/// Each loop swaps two values that the loop inside of it swaps too: a proof compares the inner loop twice for each outer one. The
/// values are summed over their columns, because at one lane the second comparison is known from the first.
#[test]
fn a_proof_of_too_many_cases_ends_and_says_so() {
    let Some(mut solver) = common::solver() else { return };
    const TILE: &str = "tensor<16x16xf32>";
    let depth = 24;
    let mut lines =
        "      %none = arith.constant 0 : i32\n      %one = arith.constant 1 : i32\n      %two = arith.constant 2 : i32\n".to_string();
    for i in 0..depth {
        let (p, q) =
            if i == 0 { ("%11".into(), "%11".into()) } else { (format!("%p{}", i - 1), format!("%q{}", i - 1)) };
        lines += &format!(
            "%s{i}:2 = scf.for %i{i} = %none to %two step %one iter_args(%p{i} = {p}, %q{i} = {q}) -> ({TILE}, {TILE})  : i32 {{\n"
        );
    }
    let last = depth - 1;
    lines += &format!("scf.yield %q{last}, %p{last} : {TILE}, {TILE}\n}}\n");
    for i in (1..depth).rev() {
        lines += &format!("scf.yield %s{i}#1, %s{i}#0 : {TILE}, {TILE}\n}}\n");
    }
    lines += &format!(
        "%sum = \"tt.reduce\"(%s0#0) <{{axis = 1 : i32}}> ({{\n^bb0(%sum_a: f32, %sum_b: f32):\n%sum_c = arith.addf %sum_a, %sum_b : f32\ntt.reduce.return %sum_c : f32\n}}) : ({TILE}) -> tensor<16xf32>\n\
         %high = tt.expand_dims %sum {{axis = 1 : i32}} : tensor<16xf32> -> tensor<16x1xf32>\n\
         %wide = tt.broadcast %high : tensor<16x1xf32> -> {TILE}\n"
    );
    let case = before_the_store(&lines, "%wide");
    let verification = verify(case.problem.as_ref().unwrap(), &mut solver).unwrap();
    let line = verification.verdict.to_string();
    assert!(line.starts_with("UNKNOWN: too-many-cases: the proof needs more steps"), "{line}");
}

/// The index has a few terms, each of which stands in the next one twice: written out, it has 2^60.
#[test]
fn an_index_that_is_too_long_to_print_is_refused_at_once() {
    let Some(mut solver) = common::solver() else { return };
    let mut lines =
        "%two = arith.constant 2 : i32\n%three = arith.constant 3 : i32\n%five = arith.constant 5 : i32\n%h0 = arith.addi %tile, %two : i32\n"
            .to_string();
    for i in 0..60 {
        lines += &format!(
            "%a{i} = arith.divsi %h{i}, %two : i32\n%b{i} = arith.divsi %h{i}, %three : i32\n%s{i} = arith.addi %a{i}, %b{i} : i32\n%h{} = arith.addi %s{i}, %five : i32\n",
            i + 1
        );
    }
    lines += "%far = tt.splat %h60 : i32 -> tensor<16x16xi32>\n%at_far = tt.addptr %10, %far : tensor<16x16x!tt.ptr<f32>>, tensor<16x16xi32>\n";
    const STORE: &str = "tt.store %10, %11, %12";
    let case = changed("persistent", SAME, [STORE, &format!("{lines}tt.store %at_far, %11, %12")]);
    let verification = verify(case.problem.as_ref().unwrap(), &mut solver).unwrap();
    assert!(matches!(verification.verdict, Verdict::Unknown(_)), "{}", verification.verdict);
}

#[test]
fn a_specialisation_that_does_not_exist_is_refused() {
    let Err(error) = Problem::of_stem("linear-bf16-K3") else { panic!("accepted") };
    assert!(error.to_string().contains("no checked-in TTIR `linear-bf16-K3`: run `cargo xtask ttir`"), "{error}");
    for (stem, says) in
        [("nothing-bf16-K1", "there is no kernel `nothing`"), ("linear-bf16-K1", "no specialisation's name")]
    {
        let Err(error) = Problem::of_text(stem, "module {}") else { panic!("{stem} was accepted") };
        assert!(error.to_string().contains(says), "{error}");
    }
}

#[test]
fn a_ttir_that_was_not_made_from_the_python_beside_it_is_refused_with_what_to_run() {
    let copy = tempfile::tempdir().unwrap();
    let path = copy.path().join("linear.py");
    let case = |source: &str, ttir: &str| {
        std::fs::write(&path, source).unwrap();
        std::fs::write(path.with_extension("ttir"), ttir).unwrap();
        Case::read(&path).unwrap()
    };
    let linear = filetests::one("linear");
    let (source, ttir) = (linear.source, linear.ttir);
    assert!(case(&source, &ttir).problem.is_ok());
    let other = filetests::one("linear_add").ttir;
    let unsaid: String = ttir.lines().filter(|l| !l.starts_with("// made-from")).map(|l| format!("{l}\n")).collect();
    for (source, ttir, says) in [
        (source.replace("* BM", "* BM + 1"), ttir.clone(), "linear.py is not what it was made from"),
        (source.replace("# K = 40", "# K = 41"), ttir.clone(), "linear.py is not what it was made from"),
        (source.clone(), ttir.replacen("constant 16", "constant 15", 1), "its text is not what was made"),
        (source.clone(), other, "made from linear_add.py"),
        (source.clone(), unsaid, "does not say that it was made from this file"),
    ] {
        let line = refused(&case(&source, &ttir));
        assert!(line.contains(says) && line.contains("run `python filetests/make.py"), "{says:?} is not in {line}");
    }
}

/// Only the contract is changed, never the text.
#[test]
fn a_contract_that_says_more_or_less_than_its_shape_asks_for_is_refused() {
    for (name, python, says) in [
        (
            "linear",
            ["# BK = 16", "# BK = 16\n# SPLIT = 32\n# ROWS = 512"],
            "no premise of Rowwise, no extent and no axis of the grid uses the constant ROWS",
        ),
        ("linear", ["# BK = 16", "# BK = 16\n# EPS = 0.5"], "uses the constant EPS"),
        ("linear", ["# BK = 16", "# BK = 16\n# HEADS = 6"], "uses the constant HEADS"),
        ("store_kv", ["# BM = 16", "# BM = 16\n# WINDOW = 6"], "uses the constant WINDOW"),
        ("linear", ["# text = [\"BK\"]", "# text = [\"BK\", \"BK\"]"], "names BK twice"),
        ("linear", ["# text = [\"BK\"]", "# text = [\"BK\", \"BQ\"]"], "no such constant"),
        ("linear", ["# text = [\"BK\"]", "# text = [\"BK\", \"N\"]"], "the extents of `w`: `N` is not known here"),
        ("linear", ["# K = 40", "# K = 40.0"], "the extents of `x`: `K` is not known here"),
        ("linear", ["\"cdiv(N, BN)\"", "\"cdiv(N, BX)\""], "axis 1 of the grid: `cdiv(N, BX)`: `BX` is not known here"),
        ("linear", ["\"cdiv(N, BN)\"", "\"cdiv(M, BN)\""], "axis 1 of the grid: `cdiv(M, BN)`: `M` is not known here"),
        (
            "any_linear",
            ["\"cdiv(N, BN)\"", "\"cdiv(N, K)\""],
            "axis 1 of the grid: `K` is a dimension: write a constant",
        ),
        ("linear", ["# K = 40", "# K = 4611686018427387904"], "more elements than 64 bits count"),
        ("linear", ["# N = 24", "# N = 9223372036854775807"], "more elements than 64 bits count"),
        (
            "linear",
            ["\"cdiv(N, BN)\"", "\"cdiv(length, BN)\""],
            "the shape Rowwise allows no axis `cdiv(length, BN)` of the grid",
        ),
        ("linear", ["\"cdiv(N, BN)\"", "\"9223372036854775807\""], "too many"),
        ("linear", ["# w = [\"N\", \"K\"]", "# w = [\"N\", \"K\"]\n# z = [\"N\"]"], "`z`, which is no parameter"),
        ("linear", ["# w = \"weight 0\"", "# w = \"slots\""], "holds bf16 in the TTIR and i32"),
        (
            "linear",
            ["# w = \"weight 0\"", "# w = \"weight 0 f32\""],
            "`w` holds bf16 in the TTIR and f32 in the contract",
        ),
        ("linear", ["# w = \"weight 0\"", "# w = \"weight 0 if NORM\""], "is not a role for `w`"),
        ("embed", ["# V = 50", "# V = 0"], "needs V from 1 to"),
        ("embed", ["# V = 50", "# V = 50.0"], "needs the constant V"),
        ("attend", ["# WINDOW = 0", "# WINDOW = -1"], "needs WINDOW from 0 to"),
        ("attend", ["# HEADS = 6", "# HEADS = 7"], "no multiple"),
        ("attend", ["# PAGE = 16", "# PAGE = 2147483648"], "needs PAGE from 1 to"),
        ("attend", ["# BQ = 4", "# BQ = 1048577"], "needs BQ from 0 to"),
        (
            "attend",
            ["# BQ = 4", "# BQ = 4\n# SPLIT = 32"],
            "no premise of Attend, no extent and no axis of the grid uses the constant SPLIT",
        ),
        ("attend_part", ["# SPLIT = 32", "# SPLIT = 32\n# USE = 1"], "USE is a dimension, and no constant"),
        ("attend_part", ["# SPLIT = 32", "# SPLIT = 8388608"], "needs SPLIT from 1 to"),
        ("attend_part", ["# ROWS = 64", "# ROWS = 2097152"], "needs ROWS from 1 to"),
    ] {
        let line = refused(&changed(name, python, SAME));
        assert!(line.contains(says), "{says:?} is not in {line}");
    }
}
