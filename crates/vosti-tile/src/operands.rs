//! What an operation reads, the regions that it has, and whether it touches memory.

use crate::ir::{OpKind, Region, Value};

impl OpKind {
    /// The values that the operation reads; operands inside its regions are left out.
    pub fn operands(&self) -> Vec<Value> {
        use OpKind::*;
        match self {
            ProgramId { .. } | NumPrograms { .. } | Constant { .. } | Poison { .. } | Range { .. } => vec![],
            Unary { x, .. }
            | Cast { x, .. }
            | Splat { x, .. }
            | Broadcast { x, .. }
            | ExpandDims { x, .. }
            | Reshape { x, .. }
            | Transpose { x, .. }
            | Half { x, .. }
            | Reduce { x, .. } => vec![*x],
            Binary { a, b, .. } | CmpInt { a, b, .. } | CmpFloat { a, b, .. } => vec![*a, *b],
            Fma { a, b, c } => vec![*a, *b, *c],
            Dot { a, b, acc } => vec![*a, *b, *acc],
            Select { cond, a, b } => vec![*cond, *a, *b],
            AddPtr { ptr, offset } => vec![*ptr, *offset],
            MakeBlock { base, shape, strides, offsets, .. } => {
                std::iter::once(base).chain(shape).chain(strides).chain(offsets).copied().collect()
            }
            Advance { ptr, offsets } => std::iter::once(ptr).chain(offsets).copied().collect(),
            Load { ptr, mask, other } => std::iter::once(ptr).chain(mask).chain(other).copied().collect(),
            LoadBlock { ptr, .. } => vec![*ptr],
            Store { ptr, value, mask } => [ptr, value].into_iter().chain(mask).copied().collect(),
            StoreBlock { ptr, value, .. } => vec![*ptr, *value],
            For { lo, hi, step, inits, .. } => [lo, hi, step].into_iter().chain(inits).copied().collect(),
            If { cond, .. } => vec![*cond],
        }
    }
    /// Replaces each value that the operation reads by `now` of it; operands inside its regions are left out.
    pub fn rename(&mut self, now: &dyn Fn(Value) -> Value) {
        use OpKind::*;
        let change = |v: &mut Value| *v = now(*v);
        match self {
            ProgramId { .. } | NumPrograms { .. } | Constant { .. } | Poison { .. } | Range { .. } => {}
            Unary { x, .. }
            | Cast { x, .. }
            | Splat { x, .. }
            | Broadcast { x, .. }
            | ExpandDims { x, .. }
            | Reshape { x, .. }
            | Transpose { x, .. }
            | Half { x, .. }
            | Reduce { x, .. } => change(x),
            Binary { a, b, .. } | CmpInt { a, b, .. } | CmpFloat { a, b, .. } => [a, b].into_iter().for_each(change),
            Fma { a, b, c } => [a, b, c].into_iter().for_each(change),
            Dot { a, b, acc } => [a, b, acc].into_iter().for_each(change),
            Select { cond, a, b } => [cond, a, b].into_iter().for_each(change),
            AddPtr { ptr, offset } => [ptr, offset].into_iter().for_each(change),
            MakeBlock { base, shape, strides, offsets, .. } => {
                std::iter::once(base).chain(shape).chain(strides).chain(offsets).for_each(change);
            }
            Advance { ptr, offsets } => std::iter::once(ptr).chain(offsets).for_each(change),
            Load { ptr, mask, other } => std::iter::once(ptr).chain(mask).chain(other).for_each(change),
            LoadBlock { ptr, .. } => change(ptr),
            Store { ptr, value, mask } => [ptr, value].into_iter().chain(mask).for_each(change),
            StoreBlock { ptr, value, .. } => [ptr, value].into_iter().for_each(change),
            For { lo, hi, step, inits, .. } => [lo, hi, step].into_iter().chain(inits).for_each(change),
            If { cond, .. } => change(cond),
        }
    }
    /// The operation's bodies.
    pub fn regions(&self) -> Vec<&Region> {
        match self {
            OpKind::For { body, .. } => vec![body],
            OpKind::If { then, otherwise, .. } => vec![then, otherwise],
            _ => vec![],
        }
    }
    /// True if the operation itself reads or writes memory; its regions do not count.
    pub fn touches_memory(&self) -> bool {
        use OpKind::*;
        matches!(self, Load { .. } | LoadBlock { .. } | Store { .. } | StoreBlock { .. })
    }
}
