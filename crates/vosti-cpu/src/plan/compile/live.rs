//! Finds the lanes of an axis that at least one store writes, before anything else is computed.
//!
//! For every axis whose lanes are never mixed, the plan first computes the bounds and masks of the stores along it, for all
//! lanes. From then on it computes only the lanes that a store writes. Omitting a bound is safe: it only makes more lanes
//! live.

use std::collections::HashMap;

use vosti_tile::{Binary, CmpInt, OpKind, Scalar, Value};

use super::tile::{Sym, wide};
use super::{Compiler, Result};
use crate::plan::code::{ChosenCode, ChosenStore, Coordinate, Instr, LiveBound, LiveCode, LiveStore};

/// One store's limits on one axis, before anything is compiled.
struct Limits {
    class: usize,
    extent: usize,
    bounds: Vec<(usize, usize, Value, Value)>,
    masks: Vec<Value>,
}

impl<'k> Compiler<'k> {
    pub(super) fn find_live(&mut self) -> Result<()> {
        let mut limits = Vec::new();
        let kernel = self.kernel;
        kernel.walk(&mut |op| match &op.kind {
            OpKind::StoreBlock { ptr, value, check } => limits.push(self.block_limits(*ptr, *value, check)),
            OpKind::Store { value, mask, .. } => limits.push(self.mask_limits(*value, *mask)),
            _ => {}
        });
        self.find_chosen(&limits)?;
        let mut classes: HashMap<usize, Vec<Limits>> = HashMap::new();
        let mut order = Vec::new();
        for limit in limits.into_iter().flatten() {
            if !order.contains(&limit.class) {
                order.push(limit.class);
            }
            classes.entry(limit.class).or_default().push(limit);
        }
        let mut found = Vec::new();
        for class in order {
            let stores = &classes[&class];
            let limited = stores.iter().all(|s| !s.bounds.is_empty() || !s.masks.is_empty());
            if limited && !self.axes.is_mixed(class) && self.axes.extent(class) > 1 {
                found.push((class, self.live_code(stores)?));
            }
        }
        for (class, mut code) in found {
            let number = self.live_axes.len() as u16;
            code.axis = number;
            let count = self.counts.len() as u16;
            self.counts.extend([code.extent as u32, code.extent.div_ceil(16) as u32]);
            self.live_axes.push((count, code.extent));
            self.live.insert(class, number);
            self.code.push(Instr::Live(Box::new(code)));
        }
        // Values computed for all lanes are computed again for the live ones; scalars stay.
        self.env.retain(|_, sym| match sym {
            Sym::Tile(tile) => tile.stored == super::StoredLanes::Cell,
            Sym::Const(_) | Sym::Block(_) => true,
            Sym::Pointer(pointer) => pointer.parts.is_empty(),
            _ => false,
        });
        // A program with the same live lanes as the last one begins behind them, and finds these where they are.
        self.kept = self.env.values().cloned().collect();
        Ok(())
    }

    /// Finds the grid axis whose programs the lanes name: every store needs a lane's number to be the program's.
    fn find_chosen(&mut self, limits: &[Option<Limits>]) -> Result<()> {
        let mut code: Option<ChosenCode> = None;
        let mut stores = Vec::new();
        for limit in limits {
            let mut masks = Vec::new();
            limit.iter().flat_map(|limit| &limit.masks).for_each(|mask| self.split(*mask, &mut masks));
            let named = masks.iter().find_map(|mask| self.program_named_by(*mask));
            let Some((axis, number)) = named.filter(|(axis, number)| !self.varies(*number, *axis)) else {
                return Ok(());
            };
            masks.retain(|mask| !self.varies(*mask, axis));
            let extent = self.kernel.ty(number).shape().iter().product();
            let code = code.get_or_insert(ChosenCode { axis, by: [false; 3], extent, stores: vec![] });
            if (code.axis, code.extent) != (axis, extent) {
                return Ok(());
            }
            for by in 0..3 {
                code.by[by] |= self.varies(number, by) || masks.iter().any(|mask| self.varies(*mask, by));
            }
            stores.push((number, masks));
        }
        let Some(mut code) = code else { return Ok(()) };
        for (number, masks) in stores {
            self.slice(number)?;
            let mut store = ChosenStore { at: self.full(number)?.memory.at, masks: vec![] };
            for mask in masks {
                self.slice(mask)?;
                store.masks.push(self.full(mask)?.memory.at);
            }
            code.stores.push(store);
        }
        self.code.push(Instr::Chosen(Box::new(code)));
        Ok(())
    }

    /// The parts of a conjunction whose lanes run along one axis.
    fn split(&self, mask: Value, parts: &mut Vec<Value>) {
        match self.made.get(&mask).map(|op| &op.kind) {
            Some(OpKind::Binary { op: Binary::And, a, b }) => {
                [a, b].into_iter().for_each(|part| self.split(*part, parts))
            }
            Some(OpKind::ExpandDims { x, .. } | OpKind::Broadcast { x, .. }) => self.split(*x, parts),
            _ => parts.push(mask),
        }
    }

    /// The grid axis and the numbers of a comparison of a lane's number with the program's.
    fn program_named_by(&self, mask: Value) -> Option<(usize, Value)> {
        let OpKind::CmpInt { op: CmpInt::Eq, a, b } = &self.made.get(&mask)?.kind else { return None };
        let coordinate = |value: &Value| match &self.made.get(value)?.kind {
            OpKind::Splat { x, .. } => match self.made.get(x)?.kind {
                OpKind::ProgramId { axis } => Some(axis),
                _ => None,
            },
            _ => None,
        };
        let own = |a: &Value, b: &Value| coordinate(a).map(|axis| (axis, *b));
        own(a, b).or_else(|| own(b, a)).filter(|(_, number)| self.elem(*number) == Scalar::I32)
    }

    /// True if a value that can be sliced depends on the program's coordinate on an axis.
    fn varies(&self, value: Value, axis: usize) -> bool {
        self.made.get(&value).is_some_and(|op| match op.kind {
            OpKind::ProgramId { axis: of } => of == axis,
            _ => op.kind.operands().iter().any(|operand| self.varies(*operand, axis)),
        })
    }

    fn live_code(&mut self, stores: &[Limits]) -> Result<LiveCode> {
        let mut code = LiveCode { axis: 0, extent: stores[0].extent, stores: Vec::new() };
        for store in stores {
            let mut live = LiveStore::default();
            for (divide, extent, offset, shape) in &store.bounds {
                self.slice(*offset)?;
                self.slice(*shape)?;
                let (offset, shape) = (self.whole(*offset)?.int(), self.whole(*shape)?.int());
                live.bounds.push(LiveBound { axis: Coordinate::new(*divide, *extent), offset, shape });
            }
            for mask in &store.masks {
                self.slice(*mask)?;
                let tile = self.full(*mask)?;
                // The place is held until the program has read it.
                live.masks.push(tile.memory.at);
            }
            code.stores.push(live);
        }
        Ok(code)
    }

    /// Compiles a value and its operands, at the start of the program.
    pub(super) fn slice(&mut self, value: Value) -> Result<()> {
        if self.env.contains_key(&value) {
            return Ok(());
        }
        let Some(op) = self.made.get(&value).copied() else { return self.unsupported("a limit from inside a loop") };
        if let OpKind::ProgramId { axis } = op.kind {
            self.live_by[axis] = true;
        }
        for operand in op.kind.operands() {
            self.slice(operand)?;
        }
        self.line = op.line.ttir;
        self.op(op)
    }

    /// True if a value can be computed before the program: no loop carries it, and it reads no memory that the kernel writes.
    fn can_slice(&self, value: Value) -> bool {
        if self.env.contains_key(&value) {
            return true;
        }
        let Some(op) = self.made.get(&value) else { return false };
        let plain =
            !matches!(op.kind, OpKind::For { .. } | OpKind::If { .. } | OpKind::LoadBlock { .. } | OpKind::Dot { .. });
        plain && !self.reads_own_output(&op.kind) && op.kind.operands().iter().all(|v| self.can_slice(*v))
    }

    /// True for a load from a parameter that the kernel also stores to.
    fn reads_own_output(&self, kind: &OpKind) -> bool {
        let OpKind::Load { ptr, .. } = kind else { return false };
        let from = self.root(*ptr);
        let mut own = false;
        self.kernel.walk(&mut |op| match &op.kind {
            OpKind::Store { ptr, .. } | OpKind::StoreBlock { ptr, .. } => own |= self.root(*ptr) == from,
            _ => {}
        });
        own || from.is_none()
    }

    /// The parameter that a pointer points into.
    fn root(&self, ptr: Value) -> Option<Value> {
        if self.kernel.params.iter().any(|p| p.value == ptr) {
            return Some(ptr);
        }
        match &self.made.get(&ptr)?.kind {
            OpKind::AddPtr { ptr, .. } | OpKind::Advance { ptr, .. } => self.root(*ptr),
            OpKind::MakeBlock { base, .. } => self.root(*base),
            OpKind::Splat { x, .. } | OpKind::Broadcast { x, .. } | OpKind::ExpandDims { x, .. } => self.root(*x),
            _ => None,
        }
    }

    fn block_limits(&self, ptr: Value, value: Value, check: &[usize]) -> Option<Limits> {
        let source = self.axes.merges.get(&value).copied().unwrap_or(value);
        let shape = self.kernel.ty(source).shape();
        let axis = *wide(shape).first()?;
        let window = self.kernel.ty(value).shape();
        // The window's axes that make up the tile's first wide axis. Its leading axes are merged into the tile's first one, which
        // may have one lane.
        let merged = window.len() - shape.len();
        let (first, last) = match source == value || axis > 0 {
            true => (axis + merged, axis + merged),
            false => (0, merged),
        };
        let mut limits =
            Limits { class: self.axes.class(source, axis), extent: shape[axis], bounds: vec![], masks: vec![] };
        for i in (first..=last).filter(|i| check.contains(i)) {
            let divide = window[i + 1..=last].iter().product();
            if let Some((offset, extent)) = self.limit_values(ptr, i)
                && self.can_slice(offset)
                && self.can_slice(extent)
            {
                limits.bounds.push((divide, window[i], offset, extent));
            }
        }
        Some(limits)
    }

    /// Offset and extent of a window on an axis, if the window never moves along it.
    fn limit_values(&self, ptr: Value, axis: usize) -> Option<(Value, Value)> {
        let mut value = ptr;
        loop {
            match self.made.get(&value).map(|op| &op.kind) {
                Some(OpKind::MakeBlock { shape, offsets, .. }) => return Some((offsets[axis], shape[axis])),
                Some(OpKind::Advance { ptr, offsets }) => {
                    let by = self.made.get(&offsets[axis]).map(|op| &op.kind);
                    if !matches!(by, Some(OpKind::Constant { value: vosti_tile::Literal::Int(0), .. })) {
                        return None;
                    }
                    value = *ptr;
                }
                _ => {
                    let (init, next) = self.carried(value)?;
                    if !self.stays(value, next, axis) {
                        return None;
                    }
                    value = init;
                }
            }
        }
    }

    /// First and next value of a loop argument.
    fn carried(&self, arg: Value) -> Option<(Value, Value)> {
        let mut found = None;
        self.kernel.walk(&mut |op| {
            if let OpKind::For { args, inits, body, .. } = &op.kind
                && let Some(i) = args.iter().position(|a| *a == arg)
            {
                found = Some((inits[i], body.yields[i]));
            }
        });
        found
    }

    fn stays(&self, arg: Value, next: Value, axis: usize) -> bool {
        self.never_moves(arg, next, axis)
    }

    fn mask_limits(&self, value: Value, mask: Option<Value>) -> Option<Limits> {
        let shape = self.kernel.ty(value).shape();
        let axis = *wide(shape).first()?;
        let mut masks = Vec::new();
        if let Some(mask) = mask {
            self.conjuncts(mask, axis, &mut masks);
        }
        Some(Limits { class: self.axes.class(value, axis), extent: shape[axis], bounds: vec![], masks })
    }

    /// Parts of a conjunction that depend on one axis only and can be computed first.
    fn conjuncts(&self, mask: Value, axis: usize, found: &mut Vec<Value>) {
        let shape = self.kernel.ty(mask).shape();
        if shape.get(axis).is_none_or(|n| *n == 1) {
            return;
        }
        if wide(shape) == [axis] && self.can_slice(mask) {
            found.push(mask);
            return;
        }
        match self.made.get(&mask).map(|op| &op.kind) {
            Some(OpKind::Binary { op: Binary::And, a, b }) => {
                self.conjuncts(*a, axis, found);
                self.conjuncts(*b, axis, found);
            }
            Some(OpKind::Broadcast { x, .. }) => self.conjuncts(*x, axis, found),
            Some(OpKind::ExpandDims { x, axis: new }) if *new != axis => {
                self.conjuncts(*x, axis - usize::from(axis > *new), found);
            }
            _ => {}
        }
    }
}
