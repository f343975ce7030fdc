//! Leaves out checks that a kernel's constants make needless: bounds that a whole tile is within, and masks that are true in
//! every lane.
//!
//! Where a head fills its tile, the plan of the bound text is then the plan of a text without the check. A bound or a mask is
//! left out only if the integers of the text show that it always holds. Read next: [`crate::bind`].

use crate::build::swept;
use crate::ir::*;
use std::collections::{HashMap, HashSet};

/// Facts about values that follow from constants.
#[derive(Default)]
struct Known {
    /// The lowest and highest number in the lanes of an integer tile.
    ranges: HashMap<Value, (i64, i64)>,
    /// Masks that are true in every lane.
    always: HashSet<Value>,
    /// Masks that are equal to another mask.
    same: HashMap<Value, Value>,
    /// Axis by axis, whether a window lies in its array.
    inside: HashMap<Value, Vec<bool>>,
}

/// The kernel without needless checks.
pub(crate) fn whole(mut kernel: Kernel) -> Kernel {
    let types: Vec<Type> = kernel.values.iter().map(|info| info.ty.clone()).collect();
    let mut known = Known::default();
    known.ops(&mut kernel.body, &types);
    swept(kernel)
}

impl Known {
    fn ops(&mut self, ops: &mut [Op], types: &[Type]) {
        for op in ops {
            self.rewrite(&mut op.kind);
            match &mut op.kind {
                OpKind::For { body, .. } => self.ops(&mut body.ops, types),
                OpKind::If { then, otherwise, .. } => {
                    self.ops(&mut then.ops, types);
                    self.ops(&mut otherwise.ops, types);
                }
                kind => {
                    if let Some(result) = op.results.first() {
                        self.learn(*result, kind, types);
                    }
                }
            }
        }
    }

    /// Removes from an access the checks that always hold.
    fn rewrite(&self, kind: &mut OpKind) {
        match kind {
            OpKind::Load { mask, other, .. } => {
                self.mask(mask);
                if mask.is_none() {
                    *other = None;
                }
            }
            OpKind::Store { mask, .. } => self.mask(mask),
            OpKind::LoadBlock { ptr, check, padding } => {
                self.checks(*ptr, check);
                if check.is_empty() {
                    *padding = Padding::Undefined;
                }
            }
            OpKind::StoreBlock { ptr, check, .. } => self.checks(*ptr, check),
            _ => {}
        }
    }

    fn mask(&self, mask: &mut Option<Value>) {
        let Some(value) = *mask else { return };
        *mask = (!self.always.contains(&value)).then(|| self.now(value));
    }

    fn now(&self, value: Value) -> Value {
        self.same.get(&value).copied().unwrap_or(value)
    }

    fn checks(&self, ptr: Value, check: &mut Vec<usize>) {
        if let Some(inside) = self.inside.get(&ptr) {
            check.retain(|axis| !inside[*axis]);
        }
    }

    fn learn(&mut self, result: Value, kind: &OpKind, types: &[Type]) {
        match kind {
            OpKind::Constant { value: Literal::Int(v), ty } if ty.elem() != Scalar::I1 => {
                self.ranges.insert(result, (*v, *v));
            }
            OpKind::Range { start, end } if start < end => {
                self.ranges.insert(result, (i64::from(*start), i64::from(*end) - 1));
            }
            OpKind::Cast { op: Cast::ExtS, x, .. } if types[x.index()].elem() != Scalar::I1 => self.copied(result, *x),
            OpKind::Splat { x, .. } | OpKind::ExpandDims { x, .. } => self.copied(result, *x),
            OpKind::Broadcast { x, .. } => self.copied(result, *x),
            OpKind::CmpInt { op, a, b } => {
                let (Some(a), Some(b)) = (self.ranges.get(a), self.ranges.get(b)) else { return };
                let holds = match op {
                    CmpInt::Slt => a.1 < b.0,
                    CmpInt::Sle => a.1 <= b.0,
                    CmpInt::Sgt => a.0 > b.1,
                    CmpInt::Sge => a.0 >= b.1,
                    _ => false,
                };
                if holds {
                    self.always.insert(result);
                }
            }
            OpKind::Binary { op: Binary::And, a, b } if types[result.index()].elem() == Scalar::I1 => {
                match (self.always.contains(a), self.always.contains(b)) {
                    (true, true) => _ = self.always.insert(result),
                    (true, false) => _ = self.same.insert(result, self.now(*b)),
                    (false, true) => _ = self.same.insert(result, self.now(*a)),
                    (false, false) => {}
                }
            }
            OpKind::MakeBlock { shape, offsets, block, .. } => {
                let fits = |((offset, shape), lanes): ((&Value, &Value), &usize)| {
                    let (Some(offset), Some(shape)) = (self.ranges.get(offset), self.ranges.get(shape)) else {
                        return false;
                    };
                    i64::try_from(*lanes).is_ok_and(|lanes| 0 <= offset.0 && offset.1 + lanes <= shape.0)
                };
                let inside = offsets.iter().zip(shape).zip(block.iter()).map(fits).collect();
                self.inside.insert(result, inside);
            }
            _ => {}
        }
    }

    /// `result` has the lanes of `of`, or copies of them, so the same facts hold.
    fn copied(&mut self, result: Value, of: Value) {
        if let Some(range) = self.ranges.get(&of).copied() {
            self.ranges.insert(result, range);
        }
        if self.always.contains(&of) {
            self.always.insert(result);
        }
    }
}
