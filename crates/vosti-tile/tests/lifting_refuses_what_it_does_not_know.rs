//! Text outside the subset is refused with the TTIR line, the Python line and the reason.

use rand_xoshiro::SplitMix64;
use rand_xoshiro::rand_core::{Rng as _, SeedableRng as _};
use vosti_tile::{Binary, LiftError, Op, OpKind, lift};

/// A module around one function body, with Python lines 40, 41, .. for the body's lines.
fn module(body: &str) -> String {
    let mut text = String::from(
        "module {\n  tt.func public @k(%x: !tt.ptr<f32> {tt.divisibility = 16 : i32}, %n: !tt.ptr<i32>) attributes {noinline = false} {\n",
    );
    let mut table = vec![];
    for (i, line) in body.lines().enumerate() {
        text += &format!("    {}\n", line.trim());
        table.push(format!("{}={}", i + 3, i + 40));
    }
    text + "    tt.return\n  }\n}\n// python lines, `module line=python line` from there on: " + &table.join(" ") + "\n"
}

fn refusal(body: &str) -> LiftError {
    match lift(&module(body)) {
        Ok(kernel) => panic!("accepted:\n{kernel}"),
        Err(error) => error,
    }
}

#[track_caller]
fn refuses(body: &str, line: u32, part: &str) {
    let error = refusal(body);
    assert!(error.to_string().contains(part), "{error}");
    assert_eq!((error.ttir_line, error.python_line), (line + 2, Some(line + 39)), "{error}");
}

const RANGE: &str = "%i = tt.make_range {end = 8 : i32, start = 0 : i32} : tensor<8xi32>\n";

/// So the refusals below are of the lines inside.
#[test]
fn the_module_around_the_lines_is_accepted() {
    assert!(lift(&module("%m = tt.load %n : !tt.ptr<i32>")).is_ok());
}

#[test]
fn unknown_operations_are_refused_by_name() {
    refuses(
        "%a = tt.get_program_id x : i32\n%b = tt.histogram %a : i32 -> i32",
        2,
        "`tt.histogram` is outside the subset",
    );
    refuses("cf.cond_br %a, ^bb1, ^bb2", 1, "early returns are not lifted");
    refuses("%o = tt.atomic_rmw fadd, acq_rel, gpu, %x, %v, %m : (f32) -> f32", 1, "the order of atomics is not fixed");
}

#[test]
fn attributes_that_may_change_the_meaning_are_refused() {
    refuses("%m = tt.load %n {isVolatile = true} : !tt.ptr<i32>", 1, "attribute `isVolatile`");
    refuses(
        "%a = arith.constant 1 : i32\n%b = arith.addi %a, %a overflow<nsw> : i32",
        2,
        "attribute `overflow` of `arith.addi`",
    );
    refuses(
        "%a = arith.constant 1.0 : f32\n%b = arith.addf %a, %a fastmath<fast> : f32",
        2,
        "attribute `fastmath` of `arith.addf`",
    );
    let hint = "%c = arith.constant 1 : i32\n%p = tt.addptr %x, %c {tt.divisibility = 16 : i32} : !tt.ptr<f32>, i32";
    refuses(hint, 2, "attribute `tt.divisibility` of `tt.addptr`");
    let twice = "%i = tt.make_range {end = 8 : i32, start = 0 : i32, end = 9 : i32} : tensor<8xi32>";
    refuses(twice, 1, "the attribute `end` stands twice");
    let dot = "%a = arith.constant dense<0.0> : tensor<16x16xf32>\n%b = tt.dot %a, %a, %a, inputPrecision = tf32 : tensor<16x16xf32> * tensor<16x16xf32> -> tensor<16x16xf32>";
    refuses(dot, 2, "input_precision=\"ieee\"");
}

#[test]
fn a_dot_of_integers_is_of_eight_bits_and_sums_in_32() {
    let dot = |elem: &str, sum: &str| {
        let zero = if sum == "f32" { "0.0" } else { "0" };
        format!(
            "%a = arith.constant dense<1> : tensor<16x16x{elem}>\n%c = arith.constant dense<{zero}> : tensor<16x16x{sum}>\n\
             %b = tt.dot %a, %a, %c : tensor<16x16x{elem}> * tensor<16x16x{elem}> -> tensor<16x16x{sum}>"
        )
    };
    refuses(&dot("i8", "f32"), 3, "i32 for i8 and f32 for floats");
    refuses(&dot("i8", "i8"), 3, "i32 for i8 and f32 for floats");
    refuses(&dot("i32", "i32"), 3, "dot takes operands of one type");
    let cast = "%a = arith.constant 1.0 : f32\n%b = arith.fptosi %a : f32 to i8";
    refuses(cast, 2, "an element type that the cast is defined on");
}

#[test]
fn a_split_has_the_two_lanes_of_a_last_axis_of_two() {
    let split = |names: &str, shape: &str, half: &str| {
        format!(
            "%a = arith.constant dense<0.0> : tensor<{shape}xf32>\n\
             {names} = tt.split %a : tensor<{shape}xf32> -> tensor<{half}xf32>\n%s = arith.subf %l, %r : tensor<{half}xf32>\n\
             %p = tt.splat %x : !tt.ptr<f32> -> tensor<{half}x!tt.ptr<f32>>\ntt.store %p, %s : tensor<{half}x!tt.ptr<f32>>"
        )
    };
    let kernel = lift(&module(&split("%l, %r", "8x2", "8"))).unwrap();
    let halves = |op: &Op| match op.kind {
        OpKind::Half { which, .. } => Some((which, op.results[0])),
        _ => None,
    };
    let [(0, l), (1, r)] = kernel.body.iter().filter_map(halves).collect::<Vec<_>>()[..] else { panic!("{kernel}") };
    let reads = |op: &Op| matches!(op.kind, OpKind::Binary { op: Binary::SubF, a, b } if (a, b) == (l, r));
    assert!(kernel.body.iter().any(reads), "the first name is of the first lane:\n{kernel}");
    refuses(&split("%l, %r", "2x8", "2"), 2, "split");
    refuses(&split("%l, %r", "8x2", "4"), 2, "f32[4]");
    refuses(&split("%l, %r, %x", "8x2", "8"), 2, "the left of `=`");
    refuses(&split("%l", "8x2", "8"), 2, "the left of `=`");
    refuses(&split("%l, %l", "8x2", "8"), 2, "`%l`");
}

#[test]
fn types_outside_the_subset_are_refused() {
    refuses("%a = arith.constant 1 : i16", 1, "type `i16`");
    refuses("%a = arith.constant 128 : i8", 1, "`128` as a constant of type i8");
    refuses("%a = arith.constant dense<0.0> : tensor<4x4xf64>", 1, "type `f64`");
    refuses("%a = arith.constant dense<0> : tensor<4194304xi32>", 1, "more than 2^20 lanes");
    refuses("%a = arith.constant dense<0> : tensor<99999999999999999999xi32>", 1, "more than 2^20 lanes");
}

#[test]
fn a_scalar_parameter_is_an_i32_or_f32_without_attributes_and_nothing_runs_before_it_is_bound() {
    let text = "module {\n  tt.func public @k(%x: !tt.ptr<f32>, %K: i32) {\n    tt.return\n  }\n}\n";
    let kernel = lift(text).unwrap();
    let mut memory = vec![vosti_tile::interp::Buffer::F32(vec![0.0])];
    let error = vosti_tile::interp::run(&kernel, &mut memory, [1; 3], &Default::default()).unwrap_err();
    assert!(error.to_string().contains("`K` is not bound"), "{error}");
    for other in ["i64", "i1", "bf16", "tensor<4xi32>", "i32 {tt.divisibility = 16 : i32}"] {
        let error = lift(&text.replace("%K: i32", &format!("%K: {other}"))).unwrap_err();
        assert_eq!(error.ttir_line, 2, "{error}");
    }
}

#[test]
fn ill_typed_operations_are_refused() {
    refuses(&format!("{RANGE}%j = arith.addi %i, %i : tensor<4xi32>"), 2, "declared as `i32[4]`");
    refuses(&format!("{RANGE}%j = arith.addf %i, %i : tensor<8xi32>"), 2, "arithmetic takes float tiles");
    refuses(&format!("{RANGE}%j = tt.broadcast %i : tensor<8xi32> -> tensor<16xi32>"), 2, "does not follow");
    refuses(&format!("{RANGE}%j = tt.reshape %i : tensor<8xi32> -> tensor<3x3xi32>"), 2, "does not follow");
    refuses(
        &format!("{RANGE}%j = tt.addptr %x, %i : !tt.ptr<f32>, tensor<8xi32>"),
        2,
        "pointers of the offset's shape",
    );
    refuses(
        &format!("{RANGE}%j = tt.expand_dims %i {{axis = 5 : i32}} : tensor<8xi32> -> tensor<8x1xi32>"),
        2,
        "axis 5",
    );
    refuses("%m = tt.load %n : !tt.ptr<i32>\ntt.store %x, %m : !tt.ptr<f32>", 2, "pointers to the value's type");
}

#[test]
fn values_are_defined_before_they_are_used_and_in_scope() {
    refuses("%a = arith.addi %b, %b : i32", 1, "`%b` is used before it is defined");
    let leak = "%c = arith.constant true\nscf.if %c {\n%v = arith.constant 1 : i32\n}\n%w = arith.addi %v, %v : i32";
    refuses(leak, 5, "`%v` is used before");
}

#[test]
fn a_value_that_is_defined_twice_is_refused() {
    let one = "%a = arith.constant 1 : i32\n";
    refuses(&format!("{one}%a = arith.constant 2 : i32"), 2, "`%a` is defined twice");
    refuses("%n = arith.constant 2 : i32", 1, "`%n` is defined twice");
    let inside =
        |name: &str| format!("{one}scf.for {name} = %a to %a step %a : i32 {{\n%b = arith.addi %a, %a : i32\n}}");
    refuses(&inside("%a"), 2, "`%a` is defined twice");
    // Two bodies may use one name.
    lift(&module(&format!("{}\n{}", inside("%i"), inside("%i").replacen(one, "", 1)))).unwrap();
}

#[test]
fn text_that_is_part_of_no_lifted_function_is_refused() {
    let text = module("%m = tt.load %n : !tt.ptr<i32>");
    let refused = |what: &str, by: &str, part: &str| {
        let error = lift(&text.replacen(what, by, 1)).unwrap_err().to_string();
        assert!(error.contains(part), "{part:?} is not in {error}");
    };
    refused("module {", "module attributes {ttg.maxnreg = 8 : i32} {", "attribute `ttg.maxnreg` of `module`");
    refused("module {", "module @name {", "expected `{`");
    refused("module {", "module {\n  tt.global @x", "a function or the module's `}`");
    refused("  }\n}", "  }\n  ttg.other\n}", "a function or the module's `}`");
    refused("  }\n}", "  }\n}\nmodule {\n}", "the end of the text behind the module");
    let unused = "  }\n  tt.func private @f() {\n    tt.return\n  }\n}";
    refused("  }\n}", unused, "a function that the kernel does not call");
    lift(&text.replacen("module {", "module attributes {} {", 1)).unwrap();
}

/// Who follows operands recursively would need as much stack.
#[test]
fn a_chain_of_too_many_operations_is_refused_in_one_line() {
    let chain = |n: usize| {
        let step = |i: usize| format!("%v{} = arith.addf %v{i}, %v{i} : f32\n", i + 1);
        "%v0 = tt.load %x : !tt.ptr<f32>\n".to_string() + &(0..n).map(step).collect::<String>()
    };
    lift(&module(&chain(999))).unwrap();
    refuses(&chain(1001), 1001, "more than 1000 operations in a chain");
    let wide = "%v = tt.load %x : !tt.ptr<f32>\n".to_string()
        + &(0..3000).map(|i| format!("%w{i} = arith.addf %v, %v : f32\n")).collect::<String>();
    lift(&module(&wide)).unwrap();
}

#[test]
fn a_reduction_by_something_unknown_is_refused() {
    let body = format!(
        "{RANGE}%s = \"tt.reduce\"(%i) <{{axis = 0 : i32}}> ({{\n^bb0(%a: i32, %b: i32):\n%c = arith.subi %a, %b : i32\ntt.reduce.return %c : i32\n}}) : (tensor<8xi32>) -> i32"
    );
    let error = refusal(&body);
    assert!(error.to_string().contains("something else than one operation"), "{error}");
}

#[test]
fn divisions_and_shifts_that_nothing_defines_are_refused() {
    let with = |operation: &str, by: &str| {
        format!("%a = tt.get_program_id x : i32\n%b = arith.constant {by} : i32\n%c = {operation} %a, %b : i32")
    };
    for operation in ["arith.divsi", "arith.remsi", "arith.divui", "arith.remui"] {
        refuses(&with(operation, "0"), 3, "constant divisor other than 0");
        refuses(&with(operation, "-1"), 3, "constant divisor other than 0");
        assert!(lift(&module(&with(operation, "-3"))).is_ok(), "{operation}");
    }
    for operation in ["arith.shli", "arith.shrsi", "arith.shrui"] {
        refuses(&with(operation, "32"), 3, "constant amount from 0 to 31");
        refuses(&with(operation, "-1"), 3, "constant amount from 0 to 31");
        assert!(lift(&module(&with(operation, "31"))).is_ok(), "{operation}");
    }
    let unknown = "%a = tt.get_program_id x : i32\n%p = tt.get_num_programs x : i32\n";
    refuses(&format!("{unknown}%c = arith.divsi %a, %p : i32"), 3, "constant divisor");
    refuses(&format!("{unknown}%c = arith.shli %a, %p : i32"), 3, "constant amount");
    let truths = "%t = arith.constant true\n%c = arith.divsi %t, %t : i1";
    refuses(truths, 2, "constant divisor");
    // A splat of a constant counts as a constant.
    let spread = format!(
        "{RANGE}%b = arith.constant 4 : i32\n%s = tt.splat %b : i32 -> tensor<8xi32>\n%c = arith.divsi %i, %s : tensor<8xi32>"
    );
    assert!(lift(&module(&spread)).is_ok());
}

/// A GPU's compiler reads the same text, so it must see the operations that are lifted and proved.
#[test]
fn what_another_reader_may_see_otherwise_is_refused() {
    let text = module("%m = tt.load %n : !tt.ptr<i32>");
    let refused = |what: &str, by: &str, part: &str| {
        assert!(text.contains(what), "{text}");
        let error = lift(&text.replacen(what, by, 1)).unwrap_err().to_string();
        assert!(error.contains(part), "{part:?} is not in {error}");
    };
    // MLIR ends a comment at a carriage return, and the hash leaves comment lines out.
    refused("module", "// hidden\r tt.func public @other()\nmodule", "a control character");
    refused("    tt.return", "    // hidden\r tt.store %x, %x : !tt.ptr<f32>\n    tt.return", "a control character");
    // A comment may begin in quotes.
    refused("\n}", "\n  @\"//\" tt.func public @other() {}\n}", "does not begin its line");
    // No caller checks a claim about a parameter of a private function, and a compiler may use it.
    let called = "module {\n  tt.func public @k(%x: !tt.ptr<f32>) {\n    tt.call @f(%x) : (!tt.ptr<f32>) -> ()\n    tt.return\n  }\n  tt.func private @f(%p: !tt.ptr<f32> {tt.divisibility = 16 : i32}) {\n    tt.return\n  }\n}\n";
    assert!(lift(called).unwrap_err().to_string().contains("attribute `tt.divisibility`"));
    lift(&called.replace(" {tt.divisibility = 16 : i32}", "")).unwrap();
}

#[test]
fn calls_to_nothing_and_recursion_are_refused() {
    refuses("tt.call @nothing() : () -> ()", 1, "`nothing` is called but not defined");
    let text = "module {\n  tt.func public @k(%x: !tt.ptr<f32>) {\n    tt.call @f() : () -> ()\n    tt.return\n  }\n  tt.func private @f() {\n    tt.call @f() : () -> ()\n    tt.return\n  }\n}\n";
    assert!(lift(text).unwrap_err().to_string().contains("nest too deep"));
    // Each function calls the next one ten times.
    let mut text = String::from(
        "module {\n  tt.func public @k(%x: !tt.ptr<f32>) {\n    tt.call @f0() : () -> ()\n    tt.return\n  }\n",
    );
    for i in 0..10 {
        let call = format!("    tt.call @f{}() : () -> ()\n", i + 1);
        text += &format!("  tt.func private @f{i}() {{\n{}    tt.return\n  }}\n", call.repeat(10));
    }
    text += "  tt.func private @f10() {\n    tt.return\n  }\n}\n";
    assert!(lift(&text).unwrap_err().to_string().contains("operations"));
}

#[test]
fn a_second_function_that_hides_in_a_line_is_refused() {
    let hidden = |between: &str| {
        format!(
            "module {{\n  tt.func public @k(%x: !tt.ptr<f32>) {{\n    tt.return\n  }}{between}tt.func public @other(%x: !tt.ptr<f32>) {{\n    tt.return\n  }}\n}}\n"
        )
    };
    assert!(lift(&hidden(" ")).unwrap_err().to_string().contains("does not begin its line"));
    assert!(lift(&hidden("\n")).unwrap_err().to_string().contains("one public function"));
}

#[test]
fn broken_text_is_refused_and_never_panics() {
    for text in [
        "",
        "module",
        "module {",
        "module {\n}\n",
        "tt.func public @k(",
        "module {\n  tt.func public @k() {",
        "\u{0}%\u{2603}",
    ] {
        assert!(lift(text).is_err(), "{text:?}");
    }
    let nested = "scf.if %c {\n".repeat(100_000);
    assert!(
        lift(&module(&format!("%c = arith.constant true\n{nested}"))).unwrap_err().to_string().contains("too deep")
    );
    assert!(lift(&module(&format!("%c = arith.constant 1 : {}", "tensor<".repeat(100_000)))).is_err());
    // Every prefix of a real kernel, and every line left out.
    let stem = vosti_kernels::ttir_stems().into_iter().find(|s| s.starts_with("attend")).unwrap();
    let text = vosti_kernels::ttir_by_stem(stem).unwrap();
    for end in (0..text.len()).step_by(97).filter(|end| text.is_char_boundary(*end)) {
        lift(&text[..end]).ok();
    }
    let lines: Vec<&str> = text.lines().collect();
    for skip in 0..lines.len() {
        let without: Vec<&str> = lines.iter().enumerate().filter(|(i, _)| *i != skip).map(|(_, l)| *l).collect();
        lift(&without.join("\n")).ok();
    }
}

#[test]
fn ten_thousand_damaged_kernels_lift_or_are_refused_and_never_panic() {
    let stems = ["embed-", "linear-", "rmsnorm-", "rope_store-", "attend-"];
    let stems = stems.map(|start| vosti_kernels::ttir_stems().into_iter().find(|s| s.starts_with(start)).unwrap());
    let mut random = SplitMix64::seed_from_u64(1);
    let mut below = |n: usize| (random.next_u64() % n.max(1) as u64) as usize;
    let mut accepted = 0;
    for i in 0..10_000 {
        let text = vosti_kernels::ttir_by_stem(stems[i % stems.len()]).unwrap();
        let mut words: Vec<&str> = text.split_inclusive(|c: char| !c.is_alphanumeric()).collect();
        // Words change places, are doubled, left out or made extreme: the text mostly stays TTIR and is mostly wrong.
        for _ in 0..=below(2) {
            let (at, other) = (below(words.len()), below(words.len()));
            match below(4) {
                0 => words.swap(at, other),
                1 => words.insert(at, words[other]),
                2 => drop(words.remove(at)),
                _ => words[at] = ["-1 ", "9223372036854775807 ", "0 ", "18446744073709551616 ", "<", "i1 "][below(6)],
            }
        }
        if let Ok(kernel) = lift(&words.concat()) {
            assert!(!kernel.to_string().is_empty());
            accepted += 1;
        }
    }
    assert!(accepted > 100, "only {accepted} were accepted: the damage is too coarse to test what follows the parser");
}

#[test]
fn every_checked_in_specialisation_lifts_with_python_lines() {
    for stem in vosti_kernels::ttir_stems() {
        let kernel = lift(vosti_kernels::ttir_by_stem(stem).unwrap()).unwrap_or_else(|error| panic!("{stem}: {error}"));
        kernel.walk(&mut |op| assert!(op.line.python.is_some(), "{stem}: TTIR line {}", op.line.ttir));
    }
}

/// A reduction's region may hold another reduction, and so on: each of them recurses.
#[test]
fn reductions_in_reductions_are_refused() {
    let open =
        |i: usize| format!("%r{i} = \"tt.reduce\"(%i) <{{axis = 0 : i32}}> ({{\n^bb0(%a{i}: i32, %b{i}: i32):\n");
    let error = refusal(&format!("{RANGE}{}", (0..3000).map(open).collect::<String>()));
    assert!(error.to_string().contains("nest too deep"), "{error}");
}
