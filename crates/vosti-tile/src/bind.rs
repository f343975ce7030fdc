//! Binding: puts constants in the place of a kernel's dimensions and numbers, and folds as Triton's front end does.
//!
//! [`bind()`] defines the meaning of a bound kernel: operations at its start give each number its value, and the rest stays
//! the same. `vosti_kernels::bind` does the same to TTIR text, which devices lift and a GPU's compiler gets; a test compares
//! the two. [`fold`] replaces operations on constants by their results, so that the plan of a bound kernel is the plan of a
//! kernel that was made with constants. It must never touch an operation on floats or memory. Read next: `whole.rs`,
//! [`crate::ir`].

use crate::interp::{cmp_int, scalar_int};
use crate::ir::*;
use std::collections::{BTreeMap, HashMap};
use thiserror::Error;

/// Why values do not bind a kernel.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[expect(missing_docs, reason = "each message names its fields")]
pub enum BindError {
    #[error("{kernel}: `{name}` is not bound")]
    Missing { kernel: String, name: String },
    #[error("{kernel}: `{name}` is {elem}, and its value is not")]
    Type { kernel: String, name: String, elem: Scalar },
}

/// The kernel with these values for its dimensions and numbers; values of other names are ignored. An error if a value is
/// missing or of another type.
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

/// FP32 has every integer up to this one.
const EXACT: i64 = 1 << 24;

/// The kernel after folding. Integer scalars that follow from constants become constants, also after a cast to FP32 that is
/// exact. A branch whose condition is known is replaced by the side that it takes. Bounds and masks that then always hold are
/// left out (`whole.rs`). The results of a run stay the same.
pub fn fold(kernel: &Kernel) -> Kernel {
    let mut folded = kernel.clone();
    let types: Vec<Type> = folded.values.iter().map(|info| info.ty.clone()).collect();
    Fold { types, known: HashMap::new(), stands_for: HashMap::new() }.ops(&mut folded.body);
    crate::whole::whole(folded)
}

struct Fold {
    types: Vec<Type>,
    /// Values of integer scalars; 0 or 1 for comparisons of them.
    known: HashMap<Value, i64>,
    /// The value that stands for each result of a branch that was replaced.
    stands_for: HashMap<Value, Value>,
}

impl Fold {
    fn ops(&mut self, ops: &mut Vec<Op>) {
        for mut op in std::mem::take(ops) {
            op.kind.rename(&|v| self.now(v));
            match &mut op.kind {
                OpKind::If { cond, then, otherwise } if let Some(known) = self.known.get(cond).copied() => {
                    let taken = if known == 0 { otherwise } else { then };
                    self.region(taken);
                    self.stands_for.extend(op.results.iter().copied().zip(taken.yields.drain(..)));
                    ops.append(&mut taken.ops);
                    continue;
                }
                OpKind::If { then, otherwise, .. } => {
                    self.region(then);
                    self.region(otherwise);
                }
                OpKind::For { body, .. } => self.region(body),
                kind => {
                    if let Some(result) = op.results.first() {
                        self.constant(kind, *result);
                    }
                }
            }
            ops.push(op);
        }
    }

    fn region(&mut self, region: &mut Region) {
        self.ops(&mut region.ops);
        region.yields.iter_mut().for_each(|v| *v = self.now(*v));
    }

    fn now(&self, v: Value) -> Value {
        self.stands_for.get(&v).copied().unwrap_or(v)
    }

    fn constant(&mut self, kind: &mut OpKind, result: Value) {
        let ty = &self.types[result.index()];
        if let OpKind::Cast { op: Cast::IntToFloatS, x, to: Scalar::F32 } = kind
            && self.types[x.index()].elem() != Scalar::I1
            && let Some(value) = self.known.get(x).filter(|value| value.abs() <= EXACT)
        {
            *kind = OpKind::Constant { value: Literal::float(*value as f32), ty: ty.clone() };
            return;
        }
        if !ty.is_tile() || !ty.shape().is_empty() || !ty.elem().is_int() {
            return;
        }
        if let Some(value) = self.value(kind) {
            self.known.insert(result, value);
            *kind = OpKind::Constant { value: Literal::Int(value), ty: ty.clone() };
        }
    }

    fn value(&self, kind: &OpKind) -> Option<i64> {
        let elem = |v: &Value| self.types[v.index()].elem();
        match kind {
            OpKind::Constant { value: Literal::Int(value), .. } => Some(*value),
            OpKind::Cast { op: Cast::ExtS, x, .. } if elem(x) != Scalar::I1 => self.known.get(x).copied(),
            OpKind::Binary { op, a, b } => scalar_int(*op, *self.known.get(a)?, *self.known.get(b)?, elem(a)),
            OpKind::CmpInt { op, a, b } => Some(cmp_int(*op, *self.known.get(a)?, *self.known.get(b)?, elem(a)).into()),
            _ => None,
        }
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
        // An operation whose result has no use is left out.
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

    /// The text of a kernel whose loop carries a value through `branch`.
    fn flagged(branch: &str) -> String {
        // Without a sum in the branch the loop doubles the carried value.
        let sum = if branch.contains("%sum") { "%sum" } else { "%acc" };
        format!(
            "module {{\n  tt.func public @k(%x: !tt.ptr<f32>, %FLAG: i32, %S: f32) attributes {{noinline = false}} {{\n    %zero = arith.constant 0 : i32\n    %one = arith.constant 1 : i32\n    %four = arith.constant 4 : i32\n    %start = tt.load %x : !tt.ptr<f32>\n    %end = scf.for %i = %zero to %four step %one iter_args(%acc = %start) -> (f32)  : i32 {{\n{branch}      %twice = arith.addf {sum}, {sum} : f32\n      scf.yield %twice : f32\n    }}\n    tt.store %x, %end : !tt.ptr<f32>\n    tt.return\n  }}\n}}\n"
        )
    }

    /// A printed kernel with each value's name replaced by its place in the order of occurrence.
    fn numbered(text: &str) -> String {
        let mut seen = vec![];
        let mut parts = text.split('%');
        let mut out = parts.next().unwrap_or_default().to_string();
        for part in parts {
            let end = part.find(|c: char| !c.is_alphanumeric() && c != '_' && c != '.').unwrap_or(part.len());
            let (name, rest) = part.split_at(end);
            let place = seen.iter().position(|other| *other == name).unwrap_or(seen.len());
            if place == seen.len() {
                seen.push(name);
            }
            out += &format!("%{place}{rest}");
        }
        out
    }

    #[test]
    fn a_known_flag_leaves_the_kernel_of_the_branch_that_it_takes() {
        let asked = "      %c = arith.cmpi eq, %FLAG, %one : i32\n      %sum = scf.if %c -> (f32) {\n        %more = arith.addf %acc, %S : f32\n        scf.yield %more : f32\n      } else {\n        scf.yield %acc : f32\n      }\n";
        let folded = |branch: &str, flag: i64| {
            let values = [("FLAG".to_string(), Literal::Int(flag)), ("S".to_string(), Literal::float(0.5))].into();
            numbered(&fold(&bind(&lift(&flagged(branch)).unwrap(), &values).unwrap()).to_string())
        };
        // The right sides are texts for one value of the flag.
        assert_eq!(folded(asked, 1), folded("      %sum = arith.addf %acc, %S : f32\n", 1));
        assert_eq!(folded(asked, 0), folded("", 0));
        assert_ne!(folded(asked, 0), folded(asked, 1));
    }
}
