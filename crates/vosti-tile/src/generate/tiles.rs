//! The steps of a generated program: loads, arithmetic, reductions, dots, stores.

use super::Generator;
use crate::ir::*;

impl Generator {
    /// A block of a row-major array `[extents]` at `offsets`, as a block pointer.
    fn block(
        &mut self,
        base: Value,
        extents: [Value; 2],
        strides: [i64; 2],
        offsets: [Value; 2],
        block: [usize; 2],
    ) -> Value {
        let strides = strides.map(|s| self.long(s)).to_vec();
        self.op(OpKind::MakeBlock {
            base,
            shape: extents.to_vec(),
            strides,
            offsets: offsets.to_vec(),
            order: vec![1, 0],
            block: block.to_vec(),
        })
    }

    fn long_rows(&mut self) -> Value {
        self.cast(Cast::ExtS, self.m, Scalar::I64)
    }

    /// The tile of x, through a block pointer.
    pub(super) fn load_x(&mut self) -> Value {
        let s = self.sizes;
        let rows = self.long_rows();
        let cols = self.long(s.cols as i64);
        let window = self.block(self.params.x, [rows, cols], [s.cols as i64, 1], [self.row, self.col], [s.bm, s.bn]);
        let padding = if self.below(8) == 0 { Padding::Nan } else { Padding::Zero };
        let x = self.op(OpKind::LoadBlock { ptr: window, check: vec![0, 1], padding });
        self.widened(x)
    }

    /// The tile of w, the same in every row, through a masked pointer tensor or a 1-D block pointer.
    pub(super) fn load_w(&mut self) -> Value {
        let s = self.sizes;
        let w = if self.below(2) == 0 {
            let (extent, stride) = (self.long(s.cols as i64), self.long(1));
            let ptr = self.op(OpKind::MakeBlock {
                base: self.params.w,
                shape: vec![extent],
                strides: vec![stride],
                offsets: vec![self.col],
                order: vec![0],
                block: vec![s.bn],
            });
            self.op(OpKind::LoadBlock { ptr, check: vec![0], padding: Padding::Zero })
        } else {
            let j = self.columns_of_tile();
            let ptr = self.splat(self.params.w, &[s.bn]);
            let ptr = self.op(OpKind::AddPtr { ptr, offset: j });
            let cols = self.int(s.cols as i64, &[s.bn]);
            let mask = self.op(OpKind::CmpInt { op: CmpInt::Slt, a: j, b: cols });
            let other = self.float(0.5, &[s.bn]);
            self.op(OpKind::Load { ptr, mask: Some(mask), other: Some(other) })
        };
        self.spread(w, 1)
    }

    /// `row + 0..bm`
    fn rows_of_tile(&mut self) -> Value {
        let bm = self.sizes.bm;
        let range = self.op(OpKind::Range { start: 0, end: bm as i32 });
        let row = self.splat(self.row, &[bm]);
        self.binary(Binary::Add, row, range)
    }

    /// `col + 0..bn`
    fn columns_of_tile(&mut self) -> Value {
        let bn = self.sizes.bn;
        let range = self.op(OpKind::Range { start: 0, end: bn as i32 });
        let col = self.splat(self.col, &[bn]);
        self.binary(Binary::Add, col, range)
    }

    /// I1 `[bm]`: rows that exist.
    fn rows_live(&mut self, i: Value) -> Value {
        let m = self.splat(self.m, &[self.sizes.bm]);
        self.op(OpKind::CmpInt { op: CmpInt::Slt, a: i, b: m })
    }

    /// Offsets of `[rows, cols]` and the mask of cells that exist, from row and column numbers.
    fn cells(&mut self, i: Value, live: Value) -> (Value, Value) {
        let s = self.sizes;
        let j = self.columns_of_tile();
        let cols = self.int(s.cols as i64, &[s.bn]);
        let in_cols = self.op(OpKind::CmpInt { op: CmpInt::Slt, a: j, b: cols });
        let (i, j) = (self.spread(i, 0), self.spread(j, 1));
        let width = self.int(s.cols as i64, &[s.bm, s.bn]);
        let offset = self.binary(Binary::Mul, i, width);
        let mut offset = self.binary(Binary::Add, offset, j);
        if self.below(2) == 0 {
            offset = self.cast(Cast::ExtS, offset, Scalar::I64);
        }
        let (live, in_cols) = (self.spread(live, 0), self.spread(in_cols, 1));
        (offset, self.binary(Binary::And, live, in_cols))
    }

    /// I32 `[bm, bn]`: a number for each lane.
    pub(super) fn lane_numbers(&mut self) -> Value {
        let i = self.rows_of_tile();
        let j = self.columns_of_tile();
        let (i, j) = (self.spread(i, 0), self.spread(j, 1));
        let seven = self.int(7, &[self.sizes.bm, self.sizes.bn]);
        let i = self.binary(Binary::Mul, i, seven);
        self.binary(Binary::Sub, i, j)
    }

    /// Rows of x chosen by the index buffer.
    pub(super) fn gather_x(&mut self) -> Value {
        let s = self.sizes;
        let i = self.rows_of_tile();
        let live = self.rows_live(i);
        let ptr = self.splat(self.params.index, &[s.bm]);
        let ptr = self.op(OpKind::AddPtr { ptr, offset: i });
        let zero = self.int(0, &[s.bm]);
        let source = self.op(OpKind::Load { ptr, mask: Some(live), other: Some(zero) });
        let (offset, mask) = self.cells(source, live);
        let ptr = self.splat(self.params.x, &[s.bm, s.bn]);
        let ptr = self.op(OpKind::AddPtr { ptr, offset });
        let other = self.float(0.0, &[s.bm, s.bn]);
        let other = self.narrowed(other);
        let x = self.op(OpKind::Load { ptr, mask: Some(mask), other: Some(other) });
        self.widened(x)
    }

    pub(super) fn elementwise(&mut self) {
        let floats = self.pool.floats.clone();
        let (a, b, c) = (self.latest(), self.pick(&floats), self.pick(&floats));
        let x = match self.below(16) {
            0..3 => self.binary(Binary::AddF, a, b),
            3..5 => self.binary(Binary::SubF, a, b),
            5..8 => self.binary(Binary::MulF, a, b),
            8 => self.binary(Binary::DivF, a, b),
            9 => {
                self.binary([Binary::MaxNumF, Binary::MinNumF, Binary::MaximumF, Binary::MinimumF][b.index() % 4], a, b)
            }
            10 => self.op(OpKind::Fma { a, b, c }),
            11 => self.op(OpKind::Unary { op: [Unary::Neg, Unary::Abs][a.index() % 2], x: a }),
            12 => self.op(OpKind::Unary { op: [Unary::Exp, Unary::Exp2][a.index() % 2], x: a }),
            13 => {
                let x = self.op(OpKind::Unary { op: Unary::Abs, x: a });
                self.op(OpKind::Unary { op: [Unary::Sqrt, Unary::Rsqrt][a.index() % 2], x })
            }
            14 => {
                let columns = self.pool.columns.clone();
                let column = self.pick(&columns);
                let column = self.spread(column, 0);
                self.binary(Binary::MulF, a, column)
            }
            _ => {
                let constant = self.float([0.0, -1.5, 0.125, 3.0][a.index() % 4], &[self.sizes.bm, self.sizes.bn]);
                self.binary(Binary::AddF, a, constant)
            }
        };
        self.pool.floats.push(x);
    }

    pub(super) fn int_step(&mut self) {
        let shape = [self.sizes.bm, self.sizes.bn];
        let ints = self.pool.ints.clone();
        let (a, b) = (self.pick(&ints), self.pick(&ints));
        let x = match self.below(10) {
            0 => self.binary(Binary::Add, a, b),
            1 => self.binary(Binary::Sub, a, b),
            2 => self.binary(Binary::Mul, a, b),
            3 => self.binary([Binary::And, Binary::Or, Binary::Xor][b.index() % 3], a, b),
            4 => self.binary([Binary::MaxS, Binary::MinS, Binary::MaxU, Binary::MinU][b.index() % 4], a, b),
            5 => {
                let by = self.int([3, -5, 64][a.index() % 3], &shape);
                self.binary([Binary::DivS, Binary::RemS][b.index() % 2], a, by)
            }
            6 => {
                let by = self.int(1 + a.index() as i64 % 31, &shape);
                self.binary([Binary::Shl, Binary::ShrS, Binary::ShrU][b.index() % 3], a, by)
            }
            7 => {
                let scalars = self.pool.scalars.clone();
                let scalar = self.pick(&scalars);
                let scalar = self.splat(scalar, &shape);
                self.binary(Binary::Add, a, scalar)
            }
            8 => {
                let x = self.latest();
                self.cast(if a.index() % 2 == 0 { Cast::FloatToIntS } else { Cast::Bits }, x, Scalar::I32)
            }
            _ => {
                let wide = self.cast(Cast::ExtS, a, Scalar::I64);
                let square = self.binary(Binary::Mul, wide, wide);
                self.cast(Cast::Trunc, square, Scalar::I32)
            }
        };
        self.pool.ints.push(x);
    }

    pub(super) fn mask_step(&mut self) {
        let (floats, ints, masks) = (self.pool.floats.clone(), self.pool.ints.clone(), self.pool.masks.clone());
        let x = match self.below(3) {
            0 => {
                use CmpFloat::*;
                let op = [Oeq, Ogt, Oge, Olt, Ole, One, Ord, Ueq, Ugt, Uge, Ult, Ule, Une, Uno][self.below(14)];
                let (a, b) = (self.pick(&floats), self.pick(&floats));
                self.op(OpKind::CmpFloat { op, a, b })
            }
            1 => {
                use CmpInt::*;
                let op = [Eq, Ne, Slt, Sle, Sgt, Sge, Ult, Ule, Ugt, Uge][self.below(10)];
                let (a, b) = (self.pick(&ints), self.pick(&ints));
                self.op(OpKind::CmpInt { op, a, b })
            }
            _ => {
                let op = [Binary::And, Binary::Or, Binary::Xor][self.below(3)];
                let (a, b) = (self.pick(&masks), self.pick(&masks));
                self.binary(op, a, b)
            }
        };
        self.pool.masks.push(x);
    }

    pub(super) fn select_step(&mut self) {
        let masks = self.pool.masks.clone();
        let cond = self.pick(&masks);
        if self.below(3) == 0 {
            let ints = self.pool.ints.clone();
            let (a, b) = (self.pick(&ints), self.pick(&ints));
            let x = self.op(OpKind::Select { cond, a, b });
            self.pool.ints.push(x);
            return;
        }
        let floats = self.pool.floats.clone();
        let (a, b) = (self.latest(), self.pick(&floats));
        let x = self.op(OpKind::Select { cond, a, b });
        self.pool.floats.push(x);
    }

    pub(super) fn reduce_step(&mut self) {
        let x = self.latest();
        let op = [Binary::AddF, Binary::AddF, Binary::MaxNumF, Binary::MinNumF][self.below(4)];
        if self.below(3) == 0 {
            // Along the rows, padding included: the result depends on the tile's rows alone.
            let line = self.op(OpKind::Reduce { op, x, axis: 0 });
            let line = self.spread(line, 1);
            self.pool.floats.push(line);
            return;
        }
        let column = self.op(OpKind::Reduce { op, x, axis: 1 });
        self.pool.columns.push(column);
        let spread = self.spread(column, 0);
        self.pool.floats.push(spread);
    }

    /// Through BF16 and back, or through integers.
    pub(super) fn round_trip(&mut self) {
        let x = self.latest();
        let x = if self.below(3) == 0 {
            let ints = self.pool.ints.clone();
            let ints = self.pick(&ints);
            self.cast(Cast::IntToFloatS, ints, Scalar::F32)
        } else {
            let x = self.cast(Cast::TruncF, x, Scalar::Bf16);
            self.cast(Cast::ExtF, x, Scalar::F32)
        };
        self.pool.floats.push(x);
    }

    /// Another shape and back: through rank 3, or transposed twice; or a sum of a half of each row.
    pub(super) fn shape_step(&mut self) {
        let (bm, bn) = (self.sizes.bm, self.sizes.bn);
        let x = self.latest();
        let x = match self.below(3) {
            0 => {
                let x = self.op(OpKind::Transpose { x, perm: vec![1, 0] });
                let two = self.float(2.0, &[bn, bm]);
                let x = self.binary(Binary::MulF, x, two);
                self.op(OpKind::Transpose { x, perm: vec![1, 0] })
            }
            1 => {
                let x = self.op(OpKind::Reshape { x, shape: vec![bm, bn / 2, 2] });
                let one = self.float(1.0, &[bm, bn / 2, 2]);
                let x = self.binary(Binary::AddF, x, one);
                self.op(OpKind::Reshape { x, shape: vec![bm, bn] })
            }
            _ => {
                let x = self.op(OpKind::Reshape { x, shape: vec![bm, 2, bn / 2] });
                let x = self.op(OpKind::Transpose { x, perm: vec![0, 2, 1] });
                let [a, b] = [0, 1].map(|which| self.op(OpKind::Half { x, which }));
                let x = self.binary(Binary::SubF, a, b);
                let column = self.op(OpKind::Reduce { op: Binary::AddF, x, axis: 1 });
                self.spread(column, 0)
            }
        };
        self.pool.floats.push(x);
    }

    /// `acc += a b^T` over blocks of k, as a linear layer does it.
    pub(super) fn dot_loop(&mut self) {
        let s = self.sizes;
        let rows = self.long_rows();
        let (k, cols) = (self.long(s.k as i64), self.long(s.cols as i64));
        let zero = self.int(0, &[]);
        let a = self.block(self.params.a, [rows, k], [s.k as i64, 1], [self.row, zero], [s.bm, s.bk]);
        let b = self.block(self.params.b, [k, cols], [1, s.k as i64], [zero, self.col], [s.bk, s.bn]);
        let acc = if self.below(3) == 0 { self.latest() } else { self.float(0.0, &[s.bm, s.bn]) };
        let (hi, step) = (self.int(s.k as i64, &[]), self.int(s.bk as i64, &[]));
        let open = match self.builder.begin_for(zero, hi, step, vec![a, b, acc]) {
            Ok(open) => open,
            Err(error) => panic!("the generator made an ill-typed loop: {error}"),
        };
        let check = || vec![0, 1];
        let [a, b, acc] = open.args[..] else { unreachable!("three arguments") };
        let x = self.op(OpKind::LoadBlock { ptr: a, check: check(), padding: Padding::Zero });
        let y = self.op(OpKind::LoadBlock { ptr: b, check: check(), padding: Padding::Zero });
        let acc = self.op(OpKind::Dot { a: x, b: y, acc });
        let (zero, by) = (self.int(0, &[]), self.int(s.bk as i64, &[]));
        let a = self.op(OpKind::Advance { ptr: a, offsets: vec![zero, by] });
        let b = self.op(OpKind::Advance { ptr: b, offsets: vec![by, zero] });
        match self.builder.end_for(open, vec![a, b, acc]) {
            Ok(results) => self.pool.floats.push(results[2]),
            Err(error) => panic!("the generator made an ill-typed loop: {error}"),
        }
    }

    /// A product of two computed tiles: `x x^T y`, as attention does it.
    pub(super) fn dot_of_tiles(&mut self) {
        let s = self.sizes;
        let floats = self.pool.floats.clone();
        let (x, y) = (self.latest(), self.pick(&floats));
        let x = self.narrowed(x);
        let right = self.op(OpKind::Transpose { x, perm: vec![1, 0] });
        let zero = self.float(0.0, &[s.bm, s.bm]);
        let scores = self.op(OpKind::Dot { a: x, b: right, acc: zero });
        if !s.bm.is_multiple_of(2) {
            // A BF16 dot needs an even k, so a single k is folded instead.
            let column = self.op(OpKind::Reduce { op: Binary::AddF, x: scores, axis: 1 });
            self.pool.columns.push(column);
            return;
        }
        let weights = self.narrowed(scores);
        let y = self.narrowed(y);
        let acc = self.latest();
        let acc = self.op(OpKind::Dot { a: weights, b: y, acc });
        self.pool.floats.push(acc);
    }

    /// I32 `[bm, bn]`: the tile of bytes.
    pub(super) fn load_bytes(&mut self) -> Value {
        let s = self.sizes;
        let (rows, cols) = (self.long_rows(), self.long(s.cols as i64));
        let ptr = self.block(self.params.bytes, [rows, cols], [s.cols as i64, 1], [self.row, self.col], [s.bm, s.bn]);
        let x = self.op(OpKind::LoadBlock { ptr, check: vec![0, 1], padding: Padding::Zero });
        self.cast(Cast::ExtS, x, Scalar::I32)
    }

    /// `acc + x x^T y` of integers: the inner product is cut to 8 bits, and the outer one may wrap.
    pub(super) fn dot_of_integers(&mut self) {
        let s = self.sizes;
        let ints = self.pool.ints.clone();
        let (x, y, acc) = (self.pick(&ints), self.pick(&ints), self.pick(&ints));
        let (x, y) = (self.cast(Cast::Trunc, x, Scalar::I8), self.cast(Cast::Trunc, y, Scalar::I8));
        let right = self.op(OpKind::Transpose { x, perm: vec![1, 0] });
        let zero = self.int(0, &[s.bm, s.bm]);
        let inner = self.op(OpKind::Dot { a: x, b: right, acc: zero });
        let inner = self.cast(Cast::Trunc, inner, Scalar::I8);
        let sum = self.op(OpKind::Dot { a: inner, b: y, acc });
        self.pool.ints.push(sum);
    }

    /// One float tile, one integer tile, the same cut to bytes and, in the first column of the grid, one column.
    pub(super) fn store_all(&mut self) {
        let s = self.sizes;
        let i = self.rows_of_tile();
        let live = self.rows_live(i);
        let value = self.latest();
        let value = self.narrowed(value);
        if self.below(2) == 0 {
            let rows = self.long_rows();
            let cols = self.long(s.cols as i64);
            let ptr = self.block(self.params.out, [rows, cols], [s.cols as i64, 1], [self.row, self.col], [s.bm, s.bn]);
            self.effect(OpKind::StoreBlock { ptr, value, check: vec![0, 1] });
        } else {
            let (offset, mask) = self.cells(i, live);
            let ptr = self.splat(self.params.out, &[s.bm, s.bn]);
            let ptr = self.op(OpKind::AddPtr { ptr, offset });
            self.effect(OpKind::Store { ptr, value, mask: Some(mask) });
        }

        let (offset, mask) = self.cells(i, live);
        let ptr = self.splat(self.params.out_ints, &[s.bm, s.bn]);
        let ptr = self.op(OpKind::AddPtr { ptr, offset });
        let value = *self.pool.ints.last().expect("one from the start");
        self.effect(OpKind::Store { ptr, value, mask: Some(mask) });
        let value = self.cast(Cast::Trunc, value, Scalar::I8);
        let rows = self.long_rows();
        let cols = self.long(s.cols as i64);
        let base = self.params.out_bytes;
        let ptr = self.block(base, [rows, cols], [s.cols as i64, 1], [self.row, self.col], [s.bm, s.bn]);
        self.effect(OpKind::StoreBlock { ptr, value, check: vec![0, 1] });

        let zero = self.int(0, &[]);
        let first = self.op(OpKind::CmpInt { op: CmpInt::Eq, a: self.col, b: zero });
        let first = self.splat(first, &[s.bm]);
        let mask = self.binary(Binary::And, live, first);
        let ptr = self.splat(self.params.out_column, &[s.bm]);
        let ptr = self.op(OpKind::AddPtr { ptr, offset: i });
        let value = *self.pool.columns.last().expect("one from the start");
        self.effect(OpKind::Store { ptr, value, mask: Some(mask) });
    }
}
