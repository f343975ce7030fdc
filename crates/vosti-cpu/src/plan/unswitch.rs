//! Loop bodies without masks, for the iterations in which every mask is true.
//!
//! In most iterations of a masked loop no lane is masked. Where the masks are comparisons of integers that vary along one
//! axis each, the plan can test this cheaply at the start of an iteration. A second body, without the masks and the selects
//! that they control, then computes the same values.
//! Read next: [`super::compile()`].

use std::collections::{HashMap, HashSet};

use vosti_tile::{Binary, CmpInt, Kernel, Op, OpKind, Region, Value};

/// A loop's other body.
pub struct Unmasked {
    pub body: Region,
    /// Comparisons that must hold in every lane for this body to compute the same values.
    pub masks: Vec<Value>,
}

/// The other bodies of a kernel's loops, by the loop's index.
pub fn unmasked(kernel: &Kernel) -> HashMap<Value, Unmasked> {
    let mut found = HashMap::new();
    kernel.walk(&mut |op| {
        if let OpKind::For { index, body, .. } = &op.kind
            && let Some(other) = without_masks(kernel, body)
        {
            found.insert(*index, other);
        }
    });
    found
}

fn without_masks(kernel: &Kernel, body: &Region) -> Option<Unmasked> {
    let made: HashMap<Value, &Op> = body.ops.iter().flat_map(|op| op.results.iter().map(move |r| (*r, op))).collect();
    if body.ops.iter().any(|op| !op.kind.regions().is_empty()) {
        return None;
    }
    let is_mask = |op: &&Op| match &op.kind {
        OpKind::CmpInt { op: CmpInt::Slt | CmpInt::Sle | CmpInt::Sgt | CmpInt::Sge, a, b } => {
            kernel.ty(op.results[0]).lanes() > 1 && [a, b].iter().all(|v| simple(kernel, &made, **v))
        }
        _ => false,
    };
    let masks: Vec<Value> = body.ops.iter().filter(is_mask).map(|op| op.results[0]).collect();
    let mut held: HashSet<Value> = masks.iter().copied().collect();
    let mut stands_for: HashMap<Value, Value> = HashMap::new();
    let mut ops = Vec::new();
    let mut choices = 0;
    for op in &body.ops {
        let now = |v: &Value| stands_for.get(v).copied().unwrap_or(*v);
        let result = op.results.first().copied();
        match (&op.kind, result) {
            (_, Some(result)) if held.contains(&result) => continue,
            (OpKind::ExpandDims { x, .. } | OpKind::Broadcast { x, .. }, Some(result)) if held.contains(x) => {
                held.insert(result);
                continue;
            }
            (OpKind::Binary { op: Binary::And, a, b }, Some(result)) if held.contains(a) || held.contains(b) => {
                match (held.contains(a), held.contains(b)) {
                    (true, true) => _ = held.insert(result),
                    (true, false) => _ = stands_for.insert(result, now(b)),
                    _ => _ = stands_for.insert(result, now(a)),
                }
                continue;
            }
            (OpKind::Select { cond, a, .. }, Some(result)) if held.contains(cond) => {
                let a = now(a);
                stands_for.insert(result, a);
                choices += 1;
                continue;
            }
            _ => {}
        }
        let mut op = op.clone();
        op.kind.rename(&|v| now(&v));
        if op.kind.operands().iter().any(|v| held.contains(v)) {
            return None;
        }
        ops.push(op);
    }
    let yields = body.yields.iter().map(|v| stands_for.get(v).copied().unwrap_or(*v)).collect::<Vec<_>>();
    if choices == 0 || yields.iter().any(|v| held.contains(v)) {
        return None;
    }
    sweep(&mut ops, &yields);
    Some(Unmasked { body: Region { ops, yields }, masks })
}

/// True for an integer that varies along one axis at most and needs no memory to compute in the body.
fn simple(kernel: &Kernel, made: &HashMap<Value, &Op>, value: Value) -> bool {
    let Some(op) = made.get(&value) else { return wide(kernel, value) <= 1 };
    match &op.kind {
        OpKind::Broadcast { x, .. } | OpKind::ExpandDims { x, .. } | OpKind::Splat { x, .. } => {
            simple(kernel, made, *x)
        }
        OpKind::Constant { .. } => true,
        OpKind::Range { .. } => true,
        OpKind::Binary { op, a, b } if !op.is_float() => {
            wide(kernel, value) <= 1 && simple(kernel, made, *a) && simple(kernel, made, *b)
        }
        OpKind::Cast { x, .. } => wide(kernel, value) <= 1 && kernel.ty(*x).elem().is_int() && simple(kernel, made, *x),
        _ => false,
    }
}

fn wide(kernel: &Kernel, value: Value) -> usize {
    kernel.ty(value).shape().iter().filter(|n| **n > 1).count()
}

/// Removes operations whose results nobody reads and that write nothing.
fn sweep(ops: &mut Vec<Op>, yields: &[Value]) {
    let mut used: HashSet<Value> = yields.iter().copied().collect();
    let mut kept = Vec::new();
    while let Some(op) = ops.pop() {
        if op.kind.touches_memory() || op.results.iter().any(|r| used.contains(r)) {
            used.extend(op.kind.operands());
            kept.push(op);
        }
    }
    kept.reverse();
    *ops = kept;
}
