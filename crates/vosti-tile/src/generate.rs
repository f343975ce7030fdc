//! Random tile programs from a seed, to compare a fast executor with the interpreter.
//!
//! Every kernel is well typed, reads inside its buffers and observes no undefined lane, and no two programs of a launch write
//! the same cell. So its outputs do not depend on the order of programs. A kernel mixes block pointers and pointer tensors
//! with masks, ragged edges, gathers, loops that carry tiles and block pointers, branches, dots in a loop and of computed
//! tiles, reductions along both axes, integers and casts.

mod tiles;

use crate::build::Builder;
use crate::interp::{Buffer, Random};
use crate::ir::*;

/// A kernel with a launch of it.
#[derive(Clone, Debug)]
pub struct RandomKernel {
    /// Well typed; its text is within the subset that the lifting takes.
    pub kernel: Kernel,
    /// One for each parameter. Outputs begin with arbitrary values, so that a cell that stays unwritten shows.
    pub buffers: Vec<Buffer>,
    /// Programs on each axis.
    pub grid: [usize; 3],
}

/// The kernel of a seed; equal seeds give equal kernels.
pub fn random_kernel(seed: u64) -> RandomKernel {
    let mut random = Random::new(seed);
    let sizes = Sizes::draw(&mut random);
    let mut generator = Generator::new(random, sizes);
    generator.body();
    generator.finish()
}

/// Extents of a program: tiles of `bm` by `bn` over a `rows` by `cols` output, a dot over `k` by `bk`.
#[derive(Clone, Copy, Debug)]
struct Sizes {
    rows: usize,
    cols: usize,
    k: usize,
    bm: usize,
    bn: usize,
    bk: usize,
    act: Scalar,
}

impl Sizes {
    fn draw(random: &mut Random) -> Sizes {
        let mut below = |n: u64| random.next() % n;
        let bm = [1, 2, 4, 8, 16, 32, 64][below(7) as usize];
        let bn = [4, 8, 16, 32, 64][below(5) as usize];
        let bk = [2, 8, 16, 32, 64][below(5) as usize];
        // Often ragged, sometimes exact, sometimes less than one tile.
        let extent = |tile: u64, n: u64, ragged: u64| ((n * tile).saturating_sub(ragged % tile)).max(1) as usize;
        let (tiles_m, tiles_n, tiles_k) = (1 + below(3), 1 + below(3), 1 + below(3));
        Sizes {
            rows: extent(bm, tiles_m, below(2) * below(64)),
            cols: extent(bn, tiles_n, below(2) * below(64)),
            k: extent(bk, tiles_k, below(2) * below(64)),
            bm: bm as usize,
            bn: bn as usize,
            bk: bk as usize,
            act: if below(3) == 0 { Scalar::F32 } else { Scalar::Bf16 },
        }
    }
}

/// Values in scope that later operations may use, by type.
#[derive(Clone, Default)]
struct Pool {
    /// F32 `[bm, bn]`.
    floats: Vec<Value>,
    /// F32 `[bm]`.
    columns: Vec<Value>,
    /// I32 `[bm, bn]`.
    ints: Vec<Value>,
    /// I1 `[bm, bn]`.
    masks: Vec<Value>,
    /// I32 scalars of small absolute value.
    scalars: Vec<Value>,
}

/// Parameters, in the order of the buffers.
struct Params {
    /// `[1]`: rows.
    rows: Value,
    /// `[rows]`: row numbers.
    index: Value,
    /// `[rows, cols]`, activations.
    x: Value,
    /// `[rows, k]`, activations.
    a: Value,
    /// `[cols, k]`, activations.
    b: Value,
    /// `[cols]`, F32.
    w: Value,
    /// `[rows, cols]`, I8.
    bytes: Value,
    /// `[rows, cols]`, activations.
    out: Value,
    /// `[rows, cols]`, I32.
    out_ints: Value,
    /// `[rows]`, F32.
    out_column: Value,
    /// `[rows, cols]`, I8.
    out_bytes: Value,
}

struct Generator {
    random: Random,
    sizes: Sizes,
    builder: Builder,
    params: Params,
    pool: Pool,
    /// I32 scalars: rows in all, first row and column of the tile.
    m: Value,
    row: Value,
    col: Value,
    depth: usize,
}

impl Generator {
    fn new(random: Random, sizes: Sizes) -> Generator {
        let mut b = Builder::new("generated");
        let act = sizes.act;
        let params = Params {
            rows: b.param("rows", Scalar::I32, 16),
            index: b.param("index", Scalar::I32, 16),
            x: b.param("x", act, 16),
            a: b.param("a", act, 16),
            b: b.param("b", act, 16),
            w: b.param("w", Scalar::F32, 16),
            bytes: b.param("bytes", Scalar::I8, 16),
            out: b.param("out", act, 16),
            out_ints: b.param("out_ints", Scalar::I32, 16),
            out_column: b.param("out_column", Scalar::F32, 16),
            out_bytes: b.param("out_bytes", Scalar::I8, 16),
        };
        let first = params.rows;
        let mut generator = Generator {
            random,
            sizes,
            builder: b,
            params,
            pool: Pool::default(),
            m: first,
            row: first,
            col: first,
            depth: 0,
        };
        generator.m = generator.op(OpKind::Load { ptr: first, mask: None, other: None });
        generator.row = generator.tile_start(0, sizes.bm);
        generator.col = generator.tile_start(1, sizes.bn);
        generator
    }

    fn below(&mut self, n: usize) -> usize {
        (self.random.next() % n as u64) as usize
    }

    fn pick(&mut self, list: &[Value]) -> Value {
        list[self.below(list.len())]
    }

    /// Adds an operation that has a result. The generator makes only well-typed operations.
    fn op(&mut self, kind: OpKind) -> Value {
        self.builder.line.ttir += 1;
        match self.builder.op(kind.clone()) {
            Ok(value) => value,
            Err(error) => panic!("the generator made an ill-typed {kind:?}: {error}"),
        }
    }

    fn effect(&mut self, kind: OpKind) {
        self.builder.line.ttir += 1;
        if let Err(error) = self.builder.push(kind.clone()) {
            panic!("the generator made an ill-typed {kind:?}: {error}");
        }
    }

    fn tile_start(&mut self, axis: usize, tile: usize) -> Value {
        let id = self.op(OpKind::ProgramId { axis });
        let tile = self.int(tile as i64, &[]);
        self.op(OpKind::Binary { op: Binary::Mul, a: id, b: tile })
    }

    /// An I32 constant in every lane of `shape`.
    fn int(&mut self, value: i64, shape: &[usize]) -> Value {
        self.op(OpKind::Constant { value: Literal::Int(value), ty: Type::tile(shape, Scalar::I32) })
    }

    fn long(&mut self, value: i64) -> Value {
        self.op(OpKind::Constant { value: Literal::Int(value), ty: Type::scalar(Scalar::I64) })
    }

    fn float(&mut self, value: f32, shape: &[usize]) -> Value {
        self.op(OpKind::Constant { value: Literal::float(value), ty: Type::tile(shape, Scalar::F32) })
    }

    fn binary(&mut self, op: Binary, a: Value, b: Value) -> Value {
        self.op(OpKind::Binary { op, a, b })
    }

    fn splat(&mut self, x: Value, shape: &[usize]) -> Value {
        self.op(OpKind::Splat { x, shape: shape.to_vec() })
    }

    /// `[n]` at one axis of `[bm, bn]`.
    fn spread(&mut self, x: Value, axis: usize) -> Value {
        let x = self.op(OpKind::ExpandDims { x, axis: 1 - axis });
        self.op(OpKind::Broadcast { x, shape: vec![self.sizes.bm, self.sizes.bn] })
    }

    fn cast(&mut self, op: Cast, x: Value, to: Scalar) -> Value {
        self.op(OpKind::Cast { op, x, to })
    }

    fn widened(&mut self, x: Value) -> Value {
        match self.builder.ty(x).elem() {
            Scalar::Bf16 => self.cast(Cast::ExtF, x, Scalar::F32),
            _ => x,
        }
    }

    fn narrowed(&mut self, x: Value) -> Value {
        match self.sizes.act {
            Scalar::Bf16 => self.cast(Cast::TruncF, x, Scalar::Bf16),
            _ => x,
        }
    }

    /// Sources, then a few random steps, then the stores.
    fn body(&mut self) {
        let shape = [self.sizes.bm, self.sizes.bn];
        let x = self.load_x();
        self.pool.floats.push(x);
        let w = self.load_w();
        self.pool.floats.push(w);
        let positions = self.lane_numbers();
        self.pool.ints.push(positions);
        let (m, three) = (self.m, self.int(3, &[]));
        self.pool.scalars.extend([three, m]);
        let zero = self.int(0, &shape);
        let mask = self.op(OpKind::CmpInt { op: CmpInt::Sgt, a: positions, b: zero });
        self.pool.masks.push(mask);
        let column = self.op(OpKind::Reduce { op: Binary::AddF, x, axis: 1 });
        self.pool.columns.push(column);
        for _ in 0..2 + self.below(10) {
            self.step();
        }
        self.store_all();
    }

    /// One random addition to the pool.
    fn step(&mut self) {
        match self.below(if self.depth < 2 { 18 } else { 14 }) {
            0..3 => self.elementwise(),
            3 => self.int_step(),
            4 => self.mask_step(),
            5 => self.select_step(),
            6 => self.reduce_step(),
            7 => self.round_trip(),
            8 => self.shape_step(),
            9 => {
                let x = self.load_x();
                self.pool.floats.push(x);
            }
            10 => {
                let x = self.gather_x();
                self.pool.floats.push(x);
            }
            11 => self.dot_of_tiles(),
            12 => self.dot_of_integers(),
            13 => {
                let x = self.load_bytes();
                self.pool.ints.push(x);
            }
            14 | 15 => self.dot_loop(),
            16 => self.loop_step(),
            _ => self.branch_step(),
        }
    }

    /// A loop that carries two tiles and maybe a column, its bounds constant or from memory.
    fn loop_step(&mut self) {
        let lo = self.below(2) as i64;
        let lo = self.int(lo, &[]);
        let bound = match self.below(3) {
            // At most `rows`, which is small, and at least zero trips.
            0 => {
                let limit = self.int(3, &[]);
                self.binary(Binary::MinS, self.m, limit)
            }
            1 => self.int(0, &[]),
            _ => {
                let trips = 2 + self.below(2) as i64;
                self.int(trips, &[])
            }
        };
        let step = 1 + self.below(2) as i64;
        let step = self.int(step, &[]);
        let floats = self.pool.floats.clone();
        let columns = self.pool.columns.clone();
        let inits = vec![self.pick(&floats), self.pick(&floats), self.pick(&columns)];
        let open = match self.builder.begin_for(lo, bound, step, inits) {
            Ok(open) => open,
            Err(error) => panic!("the generator made an ill-typed loop: {error}"),
        };
        let outer = self.pool.clone();
        self.depth += 1;
        self.pool.floats.extend(&open.args[..2]);
        self.pool.columns.push(open.args[2]);
        self.pool.scalars.push(open.index);
        for _ in 0..1 + self.below(4) {
            self.step();
        }
        let (first, second) = (self.latest(), self.latest());
        let column = *self.pool.columns.last().expect("the argument at least");
        self.depth -= 1;
        self.pool = outer;
        match self.builder.end_for(open, vec![first, second, column]) {
            Ok(results) => {
                self.pool.floats.extend(&results[..2]);
                self.pool.columns.push(results[2]);
            }
            Err(error) => panic!("the generator made an ill-typed loop: {error}"),
        }
    }

    /// One of the last few float tiles.
    fn latest(&mut self) -> Value {
        let n = self.pool.floats.len();
        let back = self.below(n.min(3));
        self.pool.floats[n - 1 - back]
    }

    fn branch_step(&mut self) {
        let scalars = self.pool.scalars.clone();
        let (a, b) = (self.pick(&scalars), self.int(2, &[]));
        let cond = self.op(OpKind::CmpInt { op: CmpInt::Slt, a, b });
        let line = self.builder.line;
        let outer = self.pool.clone();
        self.depth += 1;
        let regions = [0, 1].map(|_| {
            self.builder.begin();
            for _ in 0..1 + self.below(2) {
                self.step();
            }
            let result = self.latest();
            self.pool = outer.clone();
            self.builder.end(vec![result])
        });
        self.depth -= 1;
        let [then, otherwise] = regions;
        match self.builder.branch(cond, then, otherwise, line) {
            Ok(results) => self.pool.floats.extend(results),
            Err(error) => panic!("the generator made an ill-typed branch: {error}"),
        }
    }

    fn finish(mut self) -> RandomKernel {
        let Sizes { rows, cols, k, bm, bn, act, .. } = self.sizes;
        let index = (0..rows).map(|_| self.below(rows) as i32).collect();
        let bytes = (0..rows * cols).map(|_| self.below(256) as u8 as i8).collect();
        let buffers = vec![
            Buffer::I32(vec![rows as i32]),
            Buffer::I32(index),
            self.floats(act, rows * cols),
            self.floats(act, rows * k),
            self.floats(act, cols * k),
            self.floats(Scalar::F32, cols),
            Buffer::I8(bytes),
            self.floats(act, rows * cols),
            Buffer::I32(vec![-7; rows * cols]),
            self.floats(Scalar::F32, rows),
            Buffer::I8(vec![-7; rows * cols]),
        ];
        let grid = [rows.div_ceil(bm), cols.div_ceil(bn), 1];
        RandomKernel { kernel: self.builder.finish(), buffers, grid }
    }

    /// Mostly small numbers; sometimes one that overflows, is denormal or is NaN.
    fn floats(&mut self, elem: Scalar, len: usize) -> Buffer {
        let strange = self.below(4) == 0;
        let mut value = || {
            let bits = self.random.next();
            match bits % 64 {
                0 => 0.0f32,
                1 => -0.0,
                2 if strange => [f32::NAN, f32::INFINITY, 1e38, 1e-38, f32::from_bits(3)][(bits >> 8) as usize % 5],
                _ => (bits >> 40) as f32 / (1 << 23) as f32 - 1.0,
            }
        };
        match elem {
            Scalar::Bf16 => Buffer::Bf16((0..len).map(|_| half::bf16::from_f32(value()).to_bits()).collect()),
            _ => Buffer::F32((0..len).map(|_| value()).collect()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::interp::{Options, Order, Undefined, run};

    #[test]
    fn generated_programs_run_and_depend_on_no_order_and_no_undefined_lane() {
        let mut written = 0;
        for seed in 0..300 {
            let RandomKernel { kernel, buffers, grid } = random_kernel(seed);
            let mut plain = buffers.clone();
            run(&kernel, &mut plain, grid, &Options::default())
                .unwrap_or_else(|error| panic!("seed {seed}: {error}\n{kernel}"));
            let mut other = buffers.clone();
            let options =
                Options { undefined: Undefined::Poison(seed), order: Order::Shuffled(seed), operations_max: None };
            run(&kernel, &mut other, grid, &options).unwrap();
            let same = plain.iter().zip(&other).all(|(a, b)| a.same_bits(b));
            assert!(same, "seed {seed}\n{kernel}");
            written += usize::from(!plain[7].same_bits(&buffers[7]));
        }
        assert!(written > 290, "{written} of 300 programs write");
    }

    #[test]
    fn generated_programs_use_every_kind_of_operation() {
        let mut seen = std::collections::BTreeSet::new();
        for seed in 0..300 {
            random_kernel(seed).kernel.walk(&mut |op| {
                let name = format!("{:?}", op.kind);
                seen.insert(name.split([' ', '{', '(']).next().unwrap_or("").to_string());
            });
        }
        for kind in [
            "ProgramId",
            "Constant",
            "Unary",
            "Binary",
            "Fma",
            "CmpInt",
            "CmpFloat",
            "Select",
            "Cast",
            "Splat",
            "Broadcast",
            "ExpandDims",
            "Reshape",
            "Transpose",
            "Half",
            "Range",
            "AddPtr",
            "MakeBlock",
            "Advance",
            "Load",
            "LoadBlock",
            "Store",
            "StoreBlock",
            "Dot",
            "Reduce",
            "For",
            "If",
        ] {
            assert!(seen.contains(kind), "{kind} is never generated: {seen:?}");
        }
    }
}
