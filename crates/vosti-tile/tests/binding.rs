//! A bound text is the bound kernel, and nothing about it differs from what the text's parameters say.

use std::collections::BTreeMap;
use vosti_kernels::{Const, Spec, examples, ttir, ttir_by_stem};
use vosti_tile::{Kernel, Line, Literal, bind, lift};

fn values(spec: &Spec) -> BTreeMap<String, Literal> {
    let numbers = &vosti_kernels::contract(&spec.kernel).unwrap().numbers;
    let literal = |name: &String| match spec.constants[name] {
        Const::Int(v) => Literal::Int(v),
        Const::Float(v) => Literal::float(v as f32),
    };
    numbers.iter().map(|number| (number.name.clone(), literal(&number.name))).collect()
}

/// Without the lines of the constants that binding adds, which are in no text.
fn told_apart(mut kernel: Kernel, bound: usize) -> Kernel {
    kernel.body[..bound].iter_mut().for_each(|op| op.line = Line::default());
    kernel
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
        assert_eq!(told_apart(here, values.len()), told_apart(there, values.len()), "{spec}");
        seen += 1;
    }
    assert!(seen >= 20, "{seen}");
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
    // A text that takes other parameters is no text of this kernel's.
    assert!(vosti_kernels::bind(&text.replace("%K: i32", "%KK: i32"), &spec).is_none());
    assert!(vosti_kernels::bind(&text.replace("%K: i32", "%K: i64"), &spec).is_none());
    assert!(vosti_kernels::bind(&text.replace("%K: i32", "%K: i32 {tt.divisibility = 16 : i32}"), &spec).is_none());
}
