//! Binding a text equals binding its tile IR, and the bound kernel differs from the text only in its parameters' values.

use std::collections::BTreeMap;
use vosti_contract::{Const, NumberKind};
use vosti_kernels::{Spec, examples, ttir, ttir_by_stem};
use vosti_tile::{Kernel, Line, Literal, Op, OpKind, Value, bind, fold, lift};

fn values(spec: &Spec) -> BTreeMap<String, Literal> {
    let numbers = &vosti_kernels::contract(&spec.kernel).unwrap().numbers;
    let literal = |name: &String| match spec.constants[name] {
        Const::Int(v) => Literal::Int(v),
        Const::Float(v) => Literal::float(v as f32),
    };
    numbers.iter().map(|number| (number.name.clone(), literal(&number.name))).collect()
}

/// The constants that binding adds, without their lines, which are in no text; and the rest.
fn told_apart(mut kernel: Kernel, numbers: &[Value]) -> (Vec<Op>, Kernel) {
    let added = kernel.body.iter().take_while(|op| op.results.first().is_some_and(|v| numbers.contains(v))).count();
    let mut front: Vec<Op> = kernel.body.drain(..added).collect();
    front.iter_mut().for_each(|op| op.line = Line::default());
    (front, kernel)
}

/// How often a text uses a parameter as an operand; its declaration does not count.
fn uses(text: &str, name: &str) -> usize {
    let word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let name = format!("%{name}");
    text.match_indices(&name).filter(|(at, _)| !text[at + name.len()..].starts_with(word)).count() - 1
}

#[test]
fn a_bound_text_lifts_to_the_bound_kernel() {
    let mut seen = 0;
    for spec in examples() {
        let values = values(&spec);
        if values.is_empty() {
            continue;
        }
        let text = ttir_by_stem(&spec.text().to_string()).unwrap();
        let kernel = lift(text).unwrap();
        assert_eq!(kernel.scalars.len(), values.len(), "{spec}");
        let here = bind(&kernel, &values).unwrap();
        let there = lift(&ttir(&spec).unwrap()).unwrap();
        let numbers: Vec<Value> = kernel.scalars.iter().map(|scalar| scalar.value).collect();
        let ((here, own), (there, lifted)) = (told_apart(here, &numbers), told_apart(there, &numbers));
        assert_eq!(own, lifted, "{spec}");
        assert!(there.iter().all(|op| here.contains(op)) && here.len() == numbers.len(), "{spec}");
        // The lifting leaves out unused operations, such as the epsilon of a norm that a text lacks.
        for scalar in kernel.scalars.iter().filter(|s| there.iter().all(|op| op.results != [s.value])) {
            assert_eq!(uses(text, &scalar.name), 0, "{spec}: {}", scalar.name);
        }
        seen += 1;
    }
    assert!(seen >= 20, "{seen}");
}

/// A device decides a flag's branches when it is made, so a plan has no branch on a dimension.
#[test]
fn no_branch_on_a_dimension_is_left_in_a_folded_kernel() {
    let branches = |kernel: &Kernel| {
        let mut found = 0;
        kernel.walk(&mut |op| found += usize::from(matches!(op.kind, OpKind::If { .. })));
        found
    };
    let mut flags = 0;
    for spec in examples() {
        let text = lift(ttir_by_stem(&spec.text().to_string()).unwrap()).unwrap();
        let numbers = &vosti_kernels::contract(&spec.kernel).unwrap().numbers;
        let flag = numbers.iter().any(|number| matches!(number.kind, NumberKind::Dimension { lo: 0, hi: 1 | 2 }));
        // The number of branches on flags: attention has one of them inside of another.
        let decided = match spec.kernel.as_str() {
            // Where no partial results are stored, the branch around them goes with the one inside of it.
            "attend" => 4 + usize::from([1, 2].map(Const::Int).contains(&spec.constants["USE"])),
            "rope_store" => 3,
            "quantise" => 2,
            "route" => 3,
            // These choose without a branch.
            "attend_combine" | "expert_glu" => 0,
            // A product of integers has branches for each flag in each of its forms, and none is left.
            name if name.contains("_int") => branches(&text),
            _ => usize::from(flag),
        };
        let (all, left) = (branches(&text), branches(&fold(&lift(&ttir(&spec).unwrap()).unwrap())));
        assert_eq!(all - left, decided, "{spec}");
        flags += usize::from(flag);
    }
    assert!(flags >= 20, "{flags}");
}

#[test]
fn a_text_is_not_bound_without_all_of_its_numbers_or_to_others_than_its_own() {
    let spec = examples().into_iter().find(|spec| spec.kernel == "linear").unwrap();
    let text = ttir_by_stem(&spec.text().to_string()).unwrap();
    let with = |change: &dyn Fn(&mut Spec)| {
        let mut spec = spec.clone();
        change(&mut spec);
        vosti_kernels::bind(text, &spec).is_some()
    };
    assert!(with(&|_| ()));
    assert!(!with(&|spec| _ = spec.constants.remove("K")));
    assert!(!with(&|spec| _ = spec.constants.insert("K".into(), Const::Float(1.0))));
    assert!(!with(&|spec| _ = spec.constants.insert("K".into(), Const::Int(1 << 31))));
    // A text with other parameters is not this kernel's.
    assert!(vosti_kernels::bind(&text.replace("%K: i32", "%KK: i32"), &spec).is_none());
    assert!(vosti_kernels::bind(&text.replace("%K: i32", "%K: i64"), &spec).is_none());
    assert!(vosti_kernels::bind(&text.replace("%K: i32", "%K: i32 {tt.divisibility = 16 : i32}"), &spec).is_none());
}
