//! Finds which axes of different tiles are the same, and which axes may omit lanes.
//!
//! Two axes are the same (of one class) if every operation combines lane i of one with lane i of the other only. An axis may be
//! compacted to its live lanes if no operation mixes its lanes: it is never reduced, contracted, or a column axis.
//! Read next: [`super::live`].

use std::collections::HashMap;

use vosti_tile::{Kernel, Op, OpKind, Region, Value};

/// The classes of a kernel's axes.
pub struct Axes {
    first: Vec<usize>,
    parent: Vec<usize>,
    mixed: Vec<bool>,
    extent: Vec<usize>,
    /// Reshapes that only merge or split leading axes, after a block load (result to operand) or before a block store (stored
    /// value to operand).
    pub merges: HashMap<Value, Value>,
}

/// True if `fine`'s leading axes multiply to `coarse`'s first and the rest are equal.
pub fn splits_first(fine: &[usize], coarse: &[usize]) -> bool {
    let rest = coarse.len().wrapping_sub(1);
    coarse.len() >= 2
        && fine.len() > coarse.len()
        && fine[fine.len() - rest..] == coarse[1..]
        && fine[..fine.len() - rest].iter().product::<usize>() == coarse[0]
}

impl Axes {
    pub fn of(kernel: &Kernel) -> Self {
        let mut first = Vec::with_capacity(kernel.values.len());
        let mut extent = Vec::new();
        for info in &kernel.values {
            first.push(extent.len());
            extent.extend(info.ty.shape());
        }
        let parent: Vec<usize> = (0..extent.len()).collect();
        let mut axes = Self { first, mixed: vec![false; parent.len()], parent, extent, merges: HashMap::new() };
        let mut uses: HashMap<Value, usize> = HashMap::new();
        let mut made: HashMap<Value, &Op> = HashMap::new();
        kernel.walk(&mut |op| {
            op.kind.operands().into_iter().for_each(|v| *uses.entry(v).or_default() += 1);
            op.kind.regions().iter().flat_map(|r| &r.yields).for_each(|v| *uses.entry(*v).or_default() += 1);
            op.results.iter().for_each(|r| _ = made.insert(*r, op));
        });
        kernel.walk(&mut |op| axes.find_merge(kernel, op, &uses, &made));
        kernel.walk(&mut |op| axes.link(kernel, op));
        for (index, info) in kernel.values.iter().enumerate() {
            let value = Value(index as u32);
            let leading = info.ty.shape().iter().position(|n| *n > 1).unwrap_or(0);
            for axis in leading + 1..info.ty.shape().len() {
                axes.mix(value, axis);
            }
        }
        axes
    }

    /// The class of an axis of a value.
    pub fn class(&self, value: Value, axis: usize) -> usize {
        let mut node = self.first[value.index()] + axis;
        while self.parent[node] != node {
            node = self.parent[node];
        }
        node
    }

    pub fn extent(&self, class: usize) -> usize {
        self.extent[class]
    }

    /// True if some operation mixes the lanes of this class.
    pub fn is_mixed(&self, class: usize) -> bool {
        self.mixed[class]
    }

    fn union(&mut self, a: Value, i: usize, b: Value, j: usize) {
        let (x, y) = (self.class(a, i), self.class(b, j));
        if self.extent[x] == self.extent[y] && x != y {
            self.parent[y] = x;
            self.mixed[x] |= self.mixed[y];
        }
    }

    fn same(&mut self, kernel: &Kernel, a: Value, b: Value) {
        let rank = kernel.ty(a).shape().len();
        if rank == kernel.ty(b).shape().len() {
            (0..rank).for_each(|i| self.union(a, i, b, i));
        }
    }

    fn mix(&mut self, value: Value, axis: usize) {
        let class = self.class(value, axis);
        self.mixed[class] |= self.extent[class] > 1;
    }

    fn find_merge(&mut self, kernel: &Kernel, op: &Op, uses: &HashMap<Value, usize>, made: &HashMap<Value, &Op>) {
        let only_use = |v: &Value| uses.get(v) == Some(&1);
        match &op.kind {
            OpKind::Reshape { x, .. } if only_use(x) => {
                let load = made.get(x).is_some_and(|op| matches!(op.kind, OpKind::LoadBlock { .. }));
                if load && splits_first(kernel.ty(*x).shape(), kernel.ty(op.results[0]).shape()) {
                    self.merges.insert(op.results[0], *x);
                }
            }
            OpKind::StoreBlock { value, .. } if only_use(value) => {
                if let Some(OpKind::Reshape { x, .. }) = made.get(value).map(|op| &op.kind)
                    && splits_first(kernel.ty(*value).shape(), kernel.ty(*x).shape())
                {
                    self.merges.insert(*value, *x);
                }
            }
            _ => {}
        }
    }

    fn link(&mut self, kernel: &Kernel, op: &Op) {
        use OpKind::*;
        let result = op.results.first().copied();
        match &op.kind {
            Unary { .. }
            | Binary { .. }
            | Fma { .. }
            | CmpInt { .. }
            | CmpFloat { .. }
            | Select { .. }
            | Cast { .. }
            | AddPtr { .. }
            | Load { .. } => {
                let result = result.expect("one result");
                op.kind.operands().into_iter().for_each(|v| self.same(kernel, result, v));
            }
            LoadBlock { ptr, .. } => self.same(kernel, result.expect("one result"), *ptr),
            Advance { ptr, .. } => self.same(kernel, result.expect("one result"), *ptr),
            Store { ptr, value, mask } => {
                self.same(kernel, *ptr, *value);
                mask.iter().for_each(|m| self.same(kernel, *ptr, *m));
            }
            StoreBlock { ptr, value, .. } => self.same(kernel, *ptr, *value),
            Broadcast { x, .. } => self.same(kernel, result.expect("one result"), *x),
            ExpandDims { x, axis } => {
                let result = result.expect("one result");
                for i in 0..kernel.ty(*x).shape().len() {
                    self.union(result, i + usize::from(i >= *axis), *x, i);
                }
            }
            Reshape { x, .. } => self.reshape(kernel, result.expect("one result"), *x),
            Transpose { x, perm } => {
                let result = result.expect("one result");
                for (i, p) in perm.iter().enumerate() {
                    self.union(result, i, *x, *p);
                    self.mix(*x, *p);
                }
            }
            Half { x, .. } => {
                let (result, last) = (result.expect("one result"), kernel.ty(*x).shape().len() - 1);
                (0..last).for_each(|i| self.union(result, i, *x, i));
                self.mix(*x, last);
            }
            Dot { a, b, acc } => {
                let result = result.expect("one result");
                self.union(result, 0, *a, 0);
                self.union(result, 1, *b, 1);
                self.same(kernel, result, *acc);
                self.union(*a, 1, *b, 0);
                self.mix(*a, 1);
                self.mix(*b, 1);
            }
            Reduce { x, axis, .. } => {
                let result = result.expect("one result");
                for i in (0..kernel.ty(*x).shape().len()).filter(|i| i != axis) {
                    self.union(result, i - usize::from(i > *axis), *x, i);
                }
                self.mix(*x, *axis);
            }
            For { args, inits, body, .. } => {
                for (i, arg) in args.iter().enumerate() {
                    self.same(kernel, *arg, inits[i]);
                    self.same(kernel, *arg, body.yields[i]);
                    self.same(kernel, *arg, op.results[i]);
                }
            }
            If { then, otherwise, .. } => {
                for (i, result) in op.results.iter().enumerate() {
                    [then, otherwise].iter().for_each(|r: &&Region| self.same(kernel, *result, r.yields[i]));
                }
            }
            ProgramId { .. }
            | NumPrograms { .. }
            | Constant { .. }
            | Poison { .. }
            | Splat { .. }
            | Range { .. }
            | MakeBlock { .. } => {}
        }
    }

    fn reshape(&mut self, kernel: &Kernel, result: Value, x: Value) {
        if self.merges.contains_key(&result) {
            return;
        }
        let wide = |v: Value| -> Vec<usize> {
            kernel.ty(v).shape().iter().enumerate().filter(|(_, n)| **n > 1).map(|(i, _)| i).collect()
        };
        let (from, to) = (wide(x), wide(result));
        let lengths = |v: Value, axes: &[usize]| axes.iter().map(|i| kernel.ty(v).shape()[*i]).collect::<Vec<_>>();
        if lengths(x, &from) == lengths(result, &to) {
            from.iter().zip(&to).for_each(|(i, j)| self.union(result, *j, x, *i));
        } else {
            from.iter().for_each(|i| self.mix(x, *i));
            to.iter().for_each(|i| self.mix(result, *i));
        }
    }
}
