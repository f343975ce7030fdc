//! Binding: puts constants in place of a kernel's dimensions and numbers, and does the folding of Triton's front end.
//!
//! [`bind()`] defines the meaning of a bound kernel: operations at its start give each number its value, and nothing else
//! changes. `vosti_kernels::bind` does the same to TTIR text, which a device lifts and a GPU's compiler gets; a test compares
//! the two. [`fold`] replaces operations on constants by their results, so that the plan of a bound kernel is the plan of a
//! kernel that was made with constants. It must never touch an operation on floats or memory. Read next: `whole.rs`,
//! [`crate::ir`].

use crate::interp::scalar_int;
use crate::ir::*;
use std::collections::{BTreeMap, HashMap};
use thiserror::Error;

#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[expect(missing_docs, reason = "each message names its fields")]
pub enum BindError {
    #[error("{kernel}: `{name}` is not bound")]
    Missing { kernel: String, name: String },
    #[error("{kernel}: `{name}` is {elem}, and what it is bound to is not")]
    Type { kernel: String, name: String, elem: Scalar },
}

/// The kernel with these values for its dimensions and numbers.
pub fn bind(kernel: &Kernel, values: &BTreeMap<String, Literal>) -> Result<Kernel, BindError> {
    let mut bound = kernel.clone();
    let mut front = vec![];
    for scalar in std::mem::take(&mut bound.scalars) {
        let place = || (kernel.name.clone(), scalar.name.clone());
        let Some(value) = values.get(&scalar.name).copied() else {
            let (kernel, name) = place();
            return Err(BindError::Missing { kernel, name });
        };
        let fits = match value {
            Literal::Int(v) => scalar.elem == Scalar::I32 && i32::try_from(v).is_ok(),
            Literal::Float(_) => scalar.elem == Scalar::F32,
        };
        if !fits {
            let (kernel, name) = place();
            return Err(BindError::Type { kernel, name, elem: scalar.elem });
        }
        let kind = OpKind::Constant { value, ty: Type::scalar(scalar.elem) };
        front.push(Op { kind, results: vec![scalar.value], line: Line::default() });
    }
    bound.body.splice(0..0, front);
    Ok(bound)
}

/// Largest integer up to which FP32 has every one.
const EXACT: i64 = 1 << 24;

/// Integer scalars that follow from constants, as constants, and such of them as FP32 has exactly, in FP32; without bounds and
/// masks that always hold then (`whole.rs`).
pub fn fold(kernel: &Kernel) -> Kernel {
    let mut folded = kernel.clone();
    let mut known = HashMap::new();
    let types: Vec<Type> = folded.values.iter().map(|info| info.ty.clone()).collect();
    fold_ops(&mut folded.body, &types, &mut known);
    crate::whole::whole(folded)
}

fn fold_ops(ops: &mut [Op], types: &[Type], known: &mut HashMap<Value, i64>) {
    for op in ops {
        match &mut op.kind {
            OpKind::For { body, .. } => fold_ops(&mut body.ops, types, known),
            OpKind::If { then, otherwise, .. } => {
                fold_ops(&mut then.ops, types, known);
                fold_ops(&mut otherwise.ops, types, known);
            }
            kind => {
                let Some(result) = op.results.first().copied() else { continue };
                let ty = &types[result.index()];
                if let OpKind::Cast { op: Cast::IntToFloatS, x, to: Scalar::F32 } = kind
                    && types[x.index()].elem() != Scalar::I1
                    && let Some(value) = known.get(x).filter(|value| value.abs() <= EXACT)
                {
                    *kind = OpKind::Constant { value: Literal::float(*value as f32), ty: ty.clone() };
                    continue;
                }
                if !ty.is_tile() || !ty.shape().is_empty() || !ty.elem().is_int() {
                    continue;
                }
                if let Some(value) = value(kind, types, known) {
                    known.insert(result, value);
                    *kind = OpKind::Constant { value: Literal::Int(value), ty: ty.clone() };
                }
            }
        }
    }
}

fn value(kind: &OpKind, types: &[Type], known: &HashMap<Value, i64>) -> Option<i64> {
    match kind {
        OpKind::Constant { value: Literal::Int(value), .. } => Some(*value),
        OpKind::Cast { op: Cast::ExtS, x, .. } if types[x.index()].elem() != Scalar::I1 => known.get(x).copied(),
        OpKind::Binary { op, a, b } => {
            let (a, b, elem) = (known.get(a)?, known.get(b)?, types[a.index()].elem());
            scalar_int(*op, *a, *b, elem)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lift;

    const TEXT: &str = "module {\n  tt.func public @k(%x: !tt.ptr<f32>, %K: i32, %S: f32) attributes {noinline = false} {\n    %a = arith.constant 3 : i32\n    %b = arith.muli %K, %a : i32\n    %c = arith.extsi %b : i32 to i64\n    %p = tt.addptr %x, %c : !tt.ptr<f32>, i64\n    tt.store %p, %S : !tt.ptr<f32>\n    tt.return\n  }\n}\n";

    fn values(k: i64) -> BTreeMap<String, Literal> {
        [("K".to_string(), Literal::Int(k)), ("S".to_string(), Literal::float(0.5))].into()
    }

    #[test]
    fn a_bound_kernel_has_a_constant_for_each_number_and_nothing_else_is_changed() {
        let kernel = lift(TEXT).unwrap();
        assert_eq!(kernel.scalars.iter().map(|s| s.name.as_str()).collect::<Vec<_>>(), ["K", "S"]);
        let bound = bind(&kernel, &values(7)).unwrap();
        assert!(bound.scalars.is_empty());
        assert_eq!(bound.body[2..], kernel.body[..]);
        let first = OpKind::Constant { value: Literal::Int(7), ty: Type::scalar(Scalar::I32) };
        assert_eq!((&bound.body[0].kind, bound.body[0].results[0]), (&first, kernel.scalars[0].value));
    }

    #[test]
    fn a_number_that_is_missing_or_of_another_type_is_refused_by_name() {
        let kernel = lift(TEXT).unwrap();
        let none = bind(&kernel, &BTreeMap::new()).unwrap_err().to_string();
        assert!(none.contains("`K` is not bound"), "{none}");
        for wrong in [Literal::float(1.0), Literal::Int(1 << 40)] {
            let mut list = values(7);
            list.insert("K".into(), wrong);
            assert!(bind(&kernel, &list).unwrap_err().to_string().contains("`K` is i32"));
        }
    }

    #[test]
    fn integers_that_follow_from_constants_are_constants_and_wrap_as_they_would() {
        let folded = |k| fold(&bind(&lift(TEXT).unwrap(), &values(k)).unwrap());
        let constants = |kernel: &Kernel| {
            let list = kernel.body.iter().filter_map(|op| match op.kind {
                OpKind::Constant { value: Literal::Int(v), .. } => Some(v),
                _ => None,
            });
            list.collect::<Vec<_>>()
        };
        // What nothing uses any more is gone.
        assert_eq!(constants(&folded(7)), [21]);
        let wrapped = i64::from((1i32 << 30).wrapping_mul(3));
        assert_eq!(constants(&folded(1 << 30)), [wrapped]);
    }

    #[test]
    fn a_known_integer_that_fp32_has_is_a_constant_in_fp32_and_no_other() {
        let text = "module {\n  tt.func public @k(%x: !tt.ptr<f32>, %K: i32) attributes {noinline = false} {\n    %a = arith.sitofp %K : i32 to f32\n    tt.store %x, %a : !tt.ptr<f32>\n    tt.return\n  }\n}\n";
        let folded = |k: i64| {
            let values = [("K".to_string(), Literal::Int(k))].into();
            let kernel = fold(&bind(&lift(text).unwrap(), &values).unwrap());
            let stored = kernel.body.iter().position(|op| matches!(op.kind, OpKind::Store { .. })).unwrap();
            kernel.body[stored - 1].kind.clone()
        };
        let constant = |v: f32| OpKind::Constant { value: Literal::float(v), ty: Type::scalar(Scalar::F32) };
        assert_eq!(folded(7), constant(7.0));
        assert_eq!(folded(-(1 << 24)), constant(-16_777_216.0));
        assert!(matches!(folded((1 << 24) + 1), OpKind::Cast { op: Cast::IntToFloatS, .. }));
    }
}
