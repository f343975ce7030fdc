//! Small changes to a kernel, well typed by construction: the fuzzer's mutants.

use crate::replay::Random;
use std::collections::HashSet;
use vosti_tile::{Binary, CmpInt, Kernel, Literal, Op, OpKind, Padding, Scalar, Type};

/// A changed kernel.
pub struct Mutant {
    /// What was changed, and at which TTIR line.
    pub what: String,
    /// The change keeps every result: swapped operands of a commutative operation.
    pub neutral: bool,
    /// The kernel with the change: well typed, but most often wrong.
    pub kernel: Kernel,
}

/// Every single change that this module knows, in a fixed order; no two give the same kernel.
pub fn mutants(kernel: &Kernel) -> Vec<Mutant> {
    let mut count = 0;
    kernel.walk(&mut |_| count += 1);
    let (mut out, mut seen) = (vec![], HashSet::from([identity(kernel)]));
    for place in 0..count {
        for choice in 0..MAX_CHOICES {
            let mut changed = kernel.clone();
            let mut at = 0;
            let Some((what, neutral)) = change(&mut changed.body, place, choice, &mut at) else {
                break;
            };
            if seen.insert(identity(&changed)) {
                out.push(Mutant { what, neutral, kernel: changed });
            }
        }
    }
    out
}

/// The hash of a kernel's body: kernels of the same parameters are equal if it is.
pub fn identity(kernel: &Kernel) -> [u8; 32] {
    *blake3::hash(format!("{:?}", kernel.body).as_bytes()).as_bytes()
}

/// The `seed`-th kernel with two changes, both picked at random.
pub fn twice(kernel: &Kernel, seed: u64) -> Option<Mutant> {
    let mut random = Random::new(seed);
    let mut pick = |mut list: Vec<Mutant>| match list.len() {
        0 => None,
        n => Some(list.swap_remove(random.below(n))),
    };
    let first = pick(mutants(kernel))?;
    let second = pick(mutants(&first.kernel))?;
    let what = format!("{}; {}", first.what, second.what);
    Some(Mutant { what, neutral: first.neutral && second.neutral, kernel: second.kernel })
}

const MAX_CHOICES: usize = 8;

fn change(ops: &mut [Op], place: usize, choice: usize, at: &mut usize) -> Option<(String, bool)> {
    for op in ops {
        let here = *at == place;
        *at += 1;
        if here {
            let line = op.line.ttir;
            return alter(&mut op.kind, choice).map(|(what, neutral)| (format!("line {line}: {what}"), neutral));
        }
        let inner = match &mut op.kind {
            OpKind::For { body, .. } => change(&mut body.ops, place, choice, at),
            OpKind::If { then, otherwise, .. } => {
                let found = change(&mut then.ops, place, choice, at);
                if found.is_some() || *at > place { found } else { change(&mut otherwise.ops, place, choice, at) }
            }
            _ => None,
        };
        if inner.is_some() || *at > place {
            return inner;
        }
    }
    None
}

/// The `choice`-th change of an operation; None when there are no more.
fn alter(kind: &mut OpKind, choice: usize) -> Option<(String, bool)> {
    let done = |what: String| Some((what, false));
    match kind {
        OpKind::Constant { value, ty } => constant(value, ty, choice),
        OpKind::ProgramId { axis } => {
            let other = [1 - (*axis).min(1)].get(choice).copied()?;
            *axis = other;
            done(format!("program id of axis {other}"))
        }
        // A shift's amount must be a constant: a text with another one is not read.
        OpKind::Binary { op: Binary::Shl | Binary::ShrS | Binary::ShrU, .. } => None,
        OpKind::Binary { op, a, b } => {
            if choice == 0 {
                std::mem::swap(a, b);
                use Binary::*;
                let neutral = matches!(op, AddF | MulF | MaxNumF | MinNumF | Add | Mul | And | Or | Xor | MaxS | MinS);
                return Some(("operands swapped".into(), neutral));
            }
            if choice <= 2 {
                let kept = if choice == 1 { *a } else { *b };
                (*a, *b) = (kept, kept);
                return done(format!("{op:?} of one operand with itself"));
            }
            let other = siblings(*op).get(choice - 3).copied()?;
            let what = format!("{op:?} becomes {other:?}");
            *op = other;
            done(what)
        }
        OpKind::CmpInt { op, .. } => {
            use CmpInt::*;
            let other = [Slt, Sle, Sgt, Sge, Eq, Ne].get(choice).copied()?;
            let what = format!("{op:?} becomes {other:?}");
            *op = other;
            done(what)
        }
        OpKind::Select { a, b, .. } => match choice {
            0 => {
                std::mem::swap(a, b);
                done("select's values swapped".into())
            }
            1 => {
                *b = *a;
                done("select keeps its first value".into())
            }
            2 => {
                *a = *b;
                done("select keeps its second value".into())
            }
            _ => None,
        },
        OpKind::Load { mask, other, .. } => match choice {
            0 => {
                (*mask, *other) = (None, None);
                done("mask dropped".into())
            }
            1 => {
                *other = None;
                done("`other` dropped".into())
            }
            _ => None,
        },
        OpKind::Store { mask, .. } if choice == 0 => {
            *mask = None;
            done("mask dropped".into())
        }
        OpKind::LoadBlock { check, padding, .. } => {
            if choice < check.len() {
                let axis = check.remove(choice);
                return done(format!("axis {axis} not checked"));
            }
            if choice == check.len() {
                *padding = Padding::Undefined;
                return done("padding dropped".into());
            }
            None
        }
        OpKind::StoreBlock { check, .. } if choice < check.len() => {
            let axis = check.remove(choice);
            done(format!("axis {axis} not checked"))
        }
        OpKind::Half { which, .. } if choice == 0 => {
            *which = 1 - *which;
            done("the other half".into())
        }
        OpKind::Range { start, end } => {
            let by = [1, -1, 3].get(choice).copied()?;
            (*start, *end) = (*start + by, *end + by);
            done(format!("range moved by {by}"))
        }
        OpKind::Reduce { op, .. } => {
            let other = siblings(*op).get(choice).copied()?;
            let what = format!("reduction by {op:?} becomes {other:?}");
            *op = other;
            done(what)
        }
        OpKind::MakeBlock { offsets, shape, strides, .. } => match choice {
            0 if offsets.len() == 2 => {
                offsets.swap(0, 1);
                done("offsets swapped".into())
            }
            1 if shape.len() == 2 => {
                shape.swap(0, 1);
                done("extents swapped".into())
            }
            2 if strides.len() == 2 => {
                strides.swap(0, 1);
                done("strides swapped".into())
            }
            _ => None,
        },
        _ => None,
    }
}

fn constant(value: &mut Literal, ty: &Type, choice: usize) -> Option<(String, bool)> {
    let old = *value;
    *value = match (old, ty.elem()) {
        (Literal::Int(v), Scalar::I1) => Literal::Int([1 - v].get(choice).copied()?),
        (Literal::Int(v), elem) => {
            let new = [v + 1, v - 1, v.wrapping_mul(2), 0, v / 2, 1].get(choice).copied()?;
            Literal::Int(if elem == Scalar::I32 { i64::from(new as i32) } else { new })
        }
        (Literal::Float(bits), _) => {
            let v = f32::from_bits(bits);
            Literal::float([0.0, 1.0, -v, v * 0.5, f32::NEG_INFINITY].get(choice).copied()?)
        }
    };
    Some((format!("constant {old:?} becomes {value:?}"), false))
}

fn siblings(op: Binary) -> Vec<Binary> {
    use Binary::*;
    let family: &[Binary] = match op {
        AddF | SubF | MulF | DivF | MaxNumF | MinNumF => &[AddF, SubF, MulF, MaxNumF, MinNumF],
        Add | Sub | Mul | MaxS | MinS => &[Add, Sub, Mul, MaxS, MinS],
        DivS | RemS => &[DivS, RemS],
        And | Or | Xor => &[And, Or],
        _ => &[],
    };
    family.iter().copied().filter(|f| *f != op).collect()
}
