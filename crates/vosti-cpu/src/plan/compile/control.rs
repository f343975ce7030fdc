//! Loops and branches.

use std::rc::Rc;

use vosti_tile::{Literal, Op, OpKind, Region, Scalar, Value};

use super::tile::{Block, StoredLanes, Sym, Tile, Whole};
use super::{Compiler, Result, all_stored};
use crate::plan::code::{Instr, Int, IntOp, Test};

/// How a loop carries a value.
enum Carried {
    Tile(Tile),
    /// The window, and per axis the place of an offset that changes.
    Block(Block, Vec<Option<Tile>>),
}

impl<'k> Compiler<'k> {
    pub(super) fn for_loop(&mut self, op: &'k Op) -> Result<()> {
        if self.fuse(op)? || self.fuse_blocks(op)? {
            return Ok(());
        }
        let OpKind::For { lo, hi, step, index, args, inits, body } = &op.kind else { unreachable!("a loop") };
        let (lo, hi, step) = (self.whole(*lo)?, self.whole(*hi)?, self.whole(*step)?);
        let counter = self.fresh(*index);
        let wide = counter.elem == Scalar::I64;
        let mut carried = Vec::with_capacity(args.len());
        for i in 0..args.len() {
            let mut times = 0;
            super::reads(op, &mut |v| times += usize::from(v == inits[i]));
            let once = times == 1;
            carried.push(self.enter_argument(args[i], inits[i], body.yields[i], once)?);
        }
        let enter = self.code.len();
        self.code.push(Instr::Enter { index: counter.memory.at, wide, lo: lo.int(), hi: hi.int(), end: 0 });
        self.define(*index, Sym::Tile(counter.clone()));
        for (arg, carried) in args.iter().zip(&carried) {
            let sym = match carried {
                Carried::Tile(tile) => Sym::Tile(tile.clone()),
                Carried::Block(block, _) => Sym::Block(block.clone()),
            };
            self.define(*arg, sym);
        }
        let own: Vec<Value> = args.iter().copied().chain([*index]).collect();
        let before = self.env.clone();
        let mut jump = None;
        if let Some(other) = self.unmasked.get(index)
            && let Some(flag) = self.all_true(&other.masks)?
        {
            let unless = self.code.len();
            self.code.push(Instr::Unless { cond: flag.memory.at, to: 0 });
            let inside = self.env.clone();
            self.body(&other.body, &carried, args, &own)?;
            jump = Some(self.code.len());
            self.code.push(Instr::Jump { to: 0 });
            self.code[unless] = Instr::Unless { cond: flag.memory.at, to: self.code.len() };
            self.env = inside;
        }
        self.body(body, &carried, args, &own)?;
        self.env = before;
        own.iter().for_each(|v| _ = self.env.remove(v));
        if let Some(jump) = jump {
            self.code[jump] = Instr::Jump { to: self.code.len() };
        }
        let again = Instr::Again { index: counter.memory.at, wide, hi: hi.int(), step: step.int(), start: enter + 1 };
        self.code.push(again);
        let end = self.code.len();
        if let Instr::Enter { end: target, .. } = &mut self.code[enter] {
            *target = end;
        }
        for (i, carried) in carried.into_iter().enumerate() {
            let sym = match carried {
                Carried::Tile(tile) => Sym::Tile(tile),
                Carried::Block(block, _) => Sym::Block(block),
            };
            self.define(op.results[i], sym);
        }
        Ok(())
    }

    /// Compiles one body of a loop, up to the next values of its arguments.
    fn body(&mut self, body: &'k Region, carried: &[Carried], args: &[Value], own: &[Value]) -> Result<()> {
        let outer = self.hints.clone();
        for (i, carried) in carried.iter().enumerate() {
            if let Carried::Tile(tile) = carried {
                let unique = body.yields.iter().filter(|y| **y == body.yields[i]).count() == 1;
                if unique && !args.contains(&body.yields[i]) {
                    self.hints.insert(body.yields[i], (tile.clone(), args[i]));
                    // The dot's accumulator may be in the argument's place already.
                    let starts = body.ops.iter().find(|op| op.results.contains(&body.yields[i])).map(|op| &op.kind);
                    if let Some(OpKind::Dot { acc, .. }) = starts
                        && self.uses.get(acc) == Some(&1)
                    {
                        self.hints.insert(*acc, (tile.clone(), args[i]));
                    }
                }
            }
        }
        self.region(&body.ops, &body.yields, own)?;
        self.hints = outer;
        self.yield_arguments(carried, args, &body.yields)
    }

    /// A truth value: whether these comparisons hold in all lanes. `None` if one compares more than vectors or scalars.
    fn all_true(&mut self, masks: &[Value]) -> Result<Option<Tile>> {
        let dying = std::mem::take(&mut self.dying);
        let hints = std::mem::take(&mut self.hints);
        let mut tests = Vec::new();
        for mask in masks {
            let Some(OpKind::CmpInt { op, a, b }) = self.made.get(mask).map(|op| &op.kind) else { continue };
            let mut sides = Vec::new();
            for side in [a, b] {
                self.slice(*side)?;
                let tile = self.tile(*side)?;
                let count = match tile.stored {
                    StoredLanes::Cell => self.count(1),
                    StoredLanes::Vector(axis) => self.lanes(*side, axis).count,
                    StoredLanes::Matrix => break,
                };
                sides.push((tile.ints(), count, tile.stored, tile.consecutive));
            }
            let [(a, a_count, stored, a_rises), (b, b_count, other, b_rises)] = sides[..] else { continue };
            let paired = stored == other && stored != StoredLanes::Cell;
            tests.push(Test { op: *op, a, a_count, b, b_count, paired, a_rises, b_rises });
        }
        self.dying = dying;
        self.hints = hints;
        if tests.len() != masks.len() {
            return Ok(None);
        }
        let memory = self.scratch.take(64);
        self.code.push(Instr::AllTrue { at: memory.at, tests });
        Ok(Some(Tile { memory, elem: Scalar::I1, stored: StoredLanes::Cell, consecutive: false }))
    }

    /// Removes the values that a body defined.
    fn leave(&mut self, ops: &[Op], own: &[Value]) {
        own.iter().chain(ops.iter().flat_map(|op| &op.results)).for_each(|v| _ = self.env.remove(v));
    }

    fn enter_argument(&mut self, arg: Value, init: Value, next: Value, once: bool) -> Result<Carried> {
        if let Some(Sym::Block(block)) = self.env.get(&init) {
            let mut block = block.clone();
            let mut cells = Vec::new();
            for axis in 0..block.offsets.len() {
                let fixed = self.never_moves(arg, next, axis);
                cells.push(if fixed { None } else { Some(self.offset_cell(&block.offsets[axis])?) });
                if let Some(cell) = &cells[axis] {
                    block.offsets[axis] = Whole::Cell(cell.clone());
                }
            }
            return Ok(Carried::Block(block, cells));
        }
        if !self.kernel.ty(arg).is_tile() {
            return self.unsupported("a loop that carries pointers");
        }
        let tile = self.tile(init)?;
        let full = all_stored(self.kernel.ty(arg).shape());
        let constant = matches!(self.env.get(&init), Some(Sym::Const(_)));
        // Only the environment and this function hold the place, so the loop may overwrite it.
        let alone = once && !constant && Rc::strong_count(&tile.memory) == 2 && self.dying.contains(&init);
        if alone && tile.stored == full {
            self.env.remove(&init);
            return Ok(Carried::Tile(Tile { consecutive: false, ..tile }));
        }
        let target = self.fresh(arg);
        self.copy(arg, &tile, &target)?;
        Ok(Carried::Tile(target))
    }

    /// True if no iteration changes the window's offset on this axis.
    pub(super) fn never_moves(&self, arg: Value, next: Value, axis: usize) -> bool {
        let mut value = next;
        while value != arg {
            let Some(OpKind::Advance { ptr, offsets }) = self.made.get(&value).map(|op| &op.kind) else { return false };
            let zero = matches!(
                self.made.get(&offsets[axis]).map(|op| &op.kind),
                Some(OpKind::Constant { value: Literal::Int(0), .. })
            );
            if !zero {
                return false;
            }
            value = *ptr;
        }
        true
    }

    /// A place of its own for an offset.
    fn offset_cell(&mut self, offset: &Whole) -> Result<Tile> {
        let memory = self.scratch.take(64);
        let cell = Tile { memory, elem: Scalar::I32, stored: StoredLanes::Cell, consecutive: false };
        self.set_cell(&cell, offset);
        Ok(cell)
    }

    fn set_cell(&mut self, cell: &Tile, value: &Whole) {
        let (a, b) = (value.int(), Int::Const(0));
        self.code.push(Instr::Int { at: cell.memory.at, wide: false, op: IntOp::Add, a, b });
    }

    fn yield_arguments(&mut self, carried: &[Carried], args: &[Value], yields: &[Value]) -> Result<()> {
        // Values in another argument's place are copied to a new place before any argument changes.
        let mut moves = Vec::new();
        for (i, item) in carried.iter().enumerate() {
            match item {
                Carried::Tile(target) => {
                    let mut from = self.tile(yields[i])?;
                    if Rc::ptr_eq(&from.memory, &target.memory) && from.stored == target.stored {
                        continue;
                    }
                    let shared =
                        carried.iter().any(|c| matches!(c, Carried::Tile(t) if Rc::ptr_eq(&t.memory, &from.memory)));
                    if shared {
                        let aside = self.fresh(args[i]);
                        self.copy(args[i], &from, &aside)?;
                        from = aside;
                    }
                    moves.push((i, from, target.clone()));
                }
                Carried::Block(block, cells) => {
                    let Some(Sym::Block(next)) = self.env.get(&yields[i]).cloned() else {
                        return self.unsupported("a loop that carries a computed window");
                    };
                    if !Rc::ptr_eq(&next.array, &block.array) {
                        return self.unsupported("a loop that carries windows of different arrays");
                    }
                    for (cell, offset) in cells.iter().zip(&next.offsets) {
                        if let Some(cell) = cell {
                            let own = matches!(offset, Whole::Cell(tile) if Rc::ptr_eq(&tile.memory, &cell.memory));
                            if !own {
                                self.set_cell(cell, offset);
                            }
                        }
                    }
                }
            }
        }
        for (i, from, to) in moves {
            self.copy(args[i], &from, &to)?;
        }
        Ok(())
    }

    pub(super) fn branch(&mut self, op: &'k Op, cond: Value, then: &'k Region, otherwise: &'k Region) -> Result<()> {
        let cond = self.tile(cond)?;
        let targets: Vec<Tile> = match op.results[..] {
            // One arm may leave what a loop carries as it is, in its place.
            [only] => {
                let stored = all_stored(self.kernel.ty(only).shape());
                vec![self.hinted(only, stored).unwrap_or_else(|| self.fresh(only))]
            }
            _ => op.results.iter().map(|r| self.fresh(*r)).collect(),
        };
        if op.results.iter().any(|r| !self.kernel.ty(*r).is_tile()) {
            return self.unsupported("a branch that chooses a pointer");
        }
        let unless = self.code.len();
        self.code.push(Instr::Unless { cond: cond.memory.at, to: 0 });
        let lazy = self.lazy_values();
        self.arm(op, then, &targets)?;
        let jump = self.code.len();
        self.code.push(Instr::Jump { to: 0 });
        self.code[unless] = Instr::Unless { cond: cond.memory.at, to: jump + 1 };
        self.restore(&lazy);
        self.arm(op, otherwise, &targets)?;
        self.restore(&lazy);
        self.code[jump] = Instr::Jump { to: self.code.len() };
        for (result, tile) in op.results.iter().zip(targets) {
            self.define(*result, Sym::Tile(tile));
        }
        Ok(())
    }

    fn arm(&mut self, op: &'k Op, region: &'k Region, targets: &[Tile]) -> Result<()> {
        self.region(&region.ops, &region.yields, &[])?;
        for ((result, value), target) in op.results.iter().zip(&region.yields).zip(targets) {
            let tile = self.tile(*value)?;
            if !Rc::ptr_eq(&tile.memory, &target.memory) || tile.stored != target.stored {
                self.copy(*result, &tile, target)?;
            }
        }
        self.leave(&region.ops, &[]);
        Ok(())
    }

    /// The lazy values. One arm of a branch may spell out a value that the other arm must not use.
    pub(super) fn lazy_values(&self) -> Vec<(Value, Sym)> {
        let lazy = |sym: &Sym| matches!(sym, Sym::Sum(_) | Sym::And(_) | Sym::Pending { .. } | Sym::Difference(..));
        self.env.iter().filter(|(_, sym)| lazy(sym)).map(|(v, sym)| (*v, sym.clone())).collect()
    }

    fn restore(&mut self, lazy: &[(Value, Sym)]) {
        for (value, sym) in lazy {
            self.env.insert(*value, sym.clone());
        }
    }
}
