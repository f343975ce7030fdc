//! For the probes: executors, kernels of one program, and random operands.

#[path = "../../../vosti-cpu/tests/common/mod.rs"]
mod cpu;

use cpu::{fast, plan};
use vosti_cpu::Isa;
use vosti_tile::interp::{Buffer, Options, run};
use vosti_tile::numerics::{from_bf16, to_bf16};
use vosti_tile::{Kernel, Scalar, lift};
use vosti_verify::replay::Random;

/// A way to execute a kernel.
#[derive(Clone, Copy, Debug)]
pub enum Executor {
    Interpreter,
    Compiled {
        isa: Isa,
        packed: bool,
    },
    /// The interpreter, and then the flaw: a probe must notice it.
    Flawed(Flaw),
}

/// A way to break an assumption.
#[derive(Clone, Copy, Debug)]
pub enum Flaw {
    /// Some lanes have another last bit.
    Lanes,
    /// Results of more lanes than this have another last bit.
    Above(usize),
    /// The parity of all input bits decides the last bit of every lane.
    Inputs,
    /// Where the first operand is a NaN, its last bit decides whether the result is 0.
    Payload,
}

impl Flaw {
    fn spoil(self, inputs: &[Buffer], results: &mut [f32]) {
        let lanes = results.len();
        let ones: u32 = inputs.iter().map(|b| (0..b.len()).map(|e| b.bits(e).count_ones()).sum::<u32>()).sum();
        for (i, x) in results.iter_mut().enumerate() {
            let other = match self {
                Flaw::Lanes => i.count_ones() % 2 == 1,
                Flaw::Above(most) => lanes > most,
                Flaw::Inputs => ones % 2 == 1,
                Flaw::Payload => {
                    let odd = |b: &Buffer| matches!(b, Buffer::F32(v) if v[i].is_nan()) && b.bits(i) % 2 == 1;
                    if inputs.first().is_some_and(odd) {
                        *x = 0.0;
                    }
                    false
                }
            };
            *x = f32::from_bits(x.to_bits() ^ u32::from(other));
        }
    }
}

/// Every executor of this machine.
pub fn executors() -> Vec<Executor> {
    let compiled = |isa: &Isa| [true, false].map(|packed| Executor::Compiled { isa: *isa, packed });
    let all: Vec<Executor> =
        [Executor::Interpreter].into_iter().chain(Isa::tried().iter().flat_map(compiled)).collect();
    assert!(all.len() >= 3, "portable code runs everywhere");
    all
}

impl Executor {
    /// Runs one program and returns the last buffer, the result, as FP32.
    pub fn run(self, kernel: &Kernel, mut buffers: Vec<Buffer>) -> Vec<f32> {
        let inputs = buffers.clone();
        match self {
            Executor::Interpreter | Executor::Flawed(_) => {
                run(kernel, &mut buffers, [1, 1, 1], &Options::default()).unwrap();
            }
            Executor::Compiled { isa, packed } => {
                buffers = fast(kernel, &plan(kernel, isa), &buffers, [1, 1, 1], isa, packed, Some(3)).unwrap();
            }
        }
        let mut results = match buffers.pop() {
            Some(Buffer::F32(values)) => values,
            Some(Buffer::Bf16(values)) => values.into_iter().map(from_bf16).collect(),
            other => panic!("{other:?} is no result"),
        };
        if let Executor::Flawed(flaw) = self {
            flaw.spoil(&inputs[..inputs.len() - 1], &mut results);
        }
        results
    }
}

/// A kernel of one program: `tiles` (element type and shape) are loaded as `%t0`, `%t1`, ..; `body` makes `%result`, of the
/// element type and shape of `result`. An empty body stores `%t0`.
pub fn kernel(tiles: &[(&str, &[usize])], body: &str, result: (&str, &[usize])) -> Kernel {
    let ty = |elem: &str, shape: &[usize]| format!("tensor<{}{elem}>", extents(shape));
    let (mut params, mut loads) = (vec![], String::new());
    let pointer = |name: &str, param: &str, elem: &str, shape: &[usize]| {
        let extents: Vec<String> = shape.iter().map(|n| format!("%c{n}")).collect();
        let strides = if shape.len() == 2 { format!("%c{}, %c1", shape[1]) } else { "%c1".into() };
        let (zeros, order) = if shape.len() == 2 { ("%zero, %zero", "1, 0") } else { ("%zero", "0") };
        let list = extents.join(", ");
        format!(
            "    %{name} = tt.make_tensor_ptr %{param}, [{list}], [{strides}], [{zeros}] {{order = array<i32: {order}>}} : <{}>\n",
            ty(elem, shape)
        )
    };
    for (i, (elem, shape)) in tiles.iter().enumerate() {
        params.push(format!("%p{i}: !tt.ptr<{elem}>"));
        loads += &pointer(&format!("a{i}"), &format!("p{i}"), elem, shape);
        loads += &format!("    %t{i} = tt.load %a{i} : !tt.ptr<{}>\n", ty(elem, shape));
    }
    let (elem, shape) = result;
    params.push(format!("%out: !tt.ptr<{elem}>"));
    let mut sizes: Vec<usize> = tiles.iter().flat_map(|(_, shape)| shape.to_vec()).chain(shape.to_vec()).collect();
    sizes.push(1);
    sizes.sort_unstable();
    sizes.dedup();
    let constants: String = sizes.iter().map(|n| format!("    %c{n} = arith.constant {n} : i64\n")).collect();
    let value = if body.is_empty() { "t0" } else { "result" };
    let store =
        pointer("to", "out", elem, shape) + &format!("    tt.store %to, %{value} : !tt.ptr<{}>\n", ty(elem, shape));
    let text = format!(
        "module {{\n  tt.func public @kernel({}) attributes {{noinline = false}} {{\n    %zero = arith.constant 0 : i32\n{constants}{loads}{body}{store}    tt.return\n  }}\n}}\n",
        params.join(", ")
    );
    lift(&text).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

/// The extents of a tile's type: `16x64x`.
fn extents(shape: &[usize]) -> String {
    shape.iter().map(|n| format!("{n}x")).collect()
}

pub fn dot_kernel(rows: usize, depth: usize, columns: usize, bf16: bool) -> Kernel {
    let elem = if bf16 { "bf16" } else { "f32" };
    let body = format!(
        "    %result = tt.dot %t0, %t1, %t2 : tensor<{rows}x{depth}x{elem}> * tensor<{depth}x{columns}x{elem}> -> tensor<{rows}x{columns}xf32>\n"
    );
    let tiles: [(&str, &[usize]); 3] = [(elem, &[rows, depth]), (elem, &[depth, columns]), ("f32", &[rows, columns])];
    kernel(&tiles, &body, ("f32", &[rows, columns]))
}

/// The operations by which rows are reduced: of FP32, and the last two of integers.
pub const REDUCTIONS: [&str; 6] =
    ["arith.addf", "arith.maxnumf", "arith.minnumf", "arith.maximumf", "arith.addi", "arith.maxsi"];

pub fn reduce_kernel(rows: usize, length: usize, operation: &str) -> Kernel {
    let reduced = |result: &str, x: &str, elem: &str| {
        format!(
            "    %{result} = \"tt.reduce\"(%{x}) <{{axis = 1 : i32}}> ({{\n    ^bb0(%x: {elem}, %y: {elem}):\n      %z = {operation} %x, %y : {elem}\n      tt.reduce.return %z : {elem}\n    }}) : (tensor<{rows}x{length}x{elem}>) -> tensor<{rows}x{elem}>\n"
        )
    };
    // Integers are made of the numbers, and the FP32 nearest to the result is stored.
    let body = match operation.ends_with('i') {
        true => {
            let made =
                format!("    %i = arith.fptosi %t0 : tensor<{rows}x{length}xf32> to tensor<{rows}x{length}xi32>\n");
            let number = format!("    %result = arith.sitofp %sum : tensor<{rows}xi32> to tensor<{rows}xf32>\n");
            [made, reduced("sum", "i", "i32"), number].concat()
        }
        false => reduced("result", "t0", "f32"),
    };
    kernel(&[("f32", &[rows, length])], &body, ("f32", &[rows]))
}

/// A map over lanes: the element types of its operands, its body (`#` stands for the extents), and its result's type.
pub struct Map {
    pub operands: Vec<&'static str>,
    pub body: String,
    pub result: &'static str,
}

impl Map {
    pub fn kernel(&self, shape: &[usize]) -> Kernel {
        let tiles: Vec<(&str, &[usize])> = self.operands.iter().map(|elem| (*elem, shape)).collect();
        kernel(&tiles, &self.body.replace('#', &extents(shape)), (self.result, shape))
    }
}

/// Maps in which each elementwise operation of the shipped kernels occurs.
pub fn maps() -> Vec<Map> {
    let map = |operands: &[&'static str], lines: &[&str]| {
        let body = lines.iter().map(|line| format!("    {line}\n")).collect();
        Map { operands: operands.to_vec(), body, result: "f32" }
    };
    let mut all = vec![];
    for name in ["absf", "exp", "exp2", "sqrt", "rsqrt"] {
        all.push(map(&["f32"], &[&format!("%result = math.{name} %t0 : tensor<#f32>")]));
    }
    for name in ["addf", "subf", "mulf", "divf", "maxnumf", "minnumf"] {
        all.push(map(&["f32", "f32"], &[&format!("%result = arith.{name} %t0, %t1 : tensor<#f32>")]));
    }
    all.push(map(&["f32", "f32", "f32"], &["%result = math.fma %t0, %t1, %t2 : tensor<#f32>"]));
    // Constants are chosen, because a choice between two NaNs would hide the comparison's result.
    let (zeros, ones) =
        ("%zeros = arith.constant dense<0.0> : tensor<#f32>", "%ones = arith.constant dense<1.0> : tensor<#f32>");
    for name in ["oeq", "oge", "ogt", "ole", "olt"] {
        let compared = format!("%c = arith.cmpf {name}, %t0, %t1 : tensor<#f32>");
        let chosen = "%result = arith.select %c, %ones, %zeros : tensor<#i1>, tensor<#f32>";
        all.push(map(&["f32", "f32"], &[zeros, ones, &compared, chosen]));
    }
    let [less, positive] =
        ["%a = arith.cmpf olt, %t0, %t1 : tensor<#f32>", "%b = arith.cmpf ole, %zeros, %t0 : tensor<#f32>"];
    for name in ["andi", "ori"] {
        let joined = format!("%c = arith.{name} %a, %b : tensor<#i1>");
        let chosen = "%result = arith.select %c, %t0, %t1 : tensor<#i1>, tensor<#f32>";
        all.push(map(&["f32", "f32"], &[zeros, less, positive, &joined, chosen]));
    }
    all.push(map(&["bf16"], &["%result = arith.extf %t0 : tensor<#bf16> to tensor<#f32>"]));
    let rounded = map(&["f32"], &["%result = arith.truncf %t0 : tensor<#f32> to tensor<#bf16>"]);
    all.push(Map { result: "bf16", ..rounded });
    // An integer is stored as the FP32 nearest to it.
    let number = "%result = arith.sitofp %i : tensor<#i32> to tensor<#f32>";
    for name in ["addi", "subi", "muli", "maxsi", "minsi", "andi"] {
        all.push(map(&["i32", "i32"], &[&format!("%i = arith.{name} %t0, %t1 : tensor<#i32>"), number]));
    }
    for name in ["shli", "shrsi"] {
        let eights = "%eights = arith.constant dense<8> : tensor<#i32>";
        all.push(map(&["i32"], &[eights, &format!("%i = arith.{name} %t0, %eights : tensor<#i32>"), number]));
    }
    all.push(map(&["f32"], &["%i = arith.fptosi %t0 : tensor<#f32> to tensor<#i32>", number]));
    let bytes = ["a", "b"]
        .map(|name| format!("%{name} = arith.trunci %t{} : tensor<#i32> to tensor<#i8>", u8::from(name == "b")));
    let compared = "%c = arith.cmpi slt, %t0, %t1 : tensor<#i32>";
    let chosen = "%i = arith.select %c, %a, %b : tensor<#i1>, tensor<#i8>";
    let number_of_byte = "%result = arith.sitofp %i : tensor<#i8> to tensor<#f32>";
    all.push(map(&["i32", "i32"], &[&bytes[0], &bytes[1], compared, chosen, number_of_byte]));
    for name in ["addi", "muli"] {
        let wide =
            ["a", "b"].map(|w| format!("%{w} = arith.extsi %t{} : tensor<#i32> to tensor<#i64>", u8::from(w == "b")));
        let made = format!("%i = arith.{name} %a, %b : tensor<#i64>");
        let number = "%result = arith.sitofp %i : tensor<#i64> to tensor<#f32>";
        all.push(map(&["i32", "i32"], &[&wide[0], &wide[1], &made, number]));
    }
    for name in ["divsi", "remsi"] {
        let sevens = "%sevens = arith.constant dense<7> : tensor<#i32>";
        all.push(map(&["i32"], &[sevens, &format!("%i = arith.{name} %t0, %sevens : tensor<#i32>"), number]));
    }
    for name in ["eq", "sge", "sgt", "sle", "slt"] {
        let compared = format!("%c = arith.cmpi {name}, %t0, %t1 : tensor<#i32>");
        let chosen = "%i = arith.select %c, %t0, %t1 : tensor<#i1>, tensor<#i32>";
        all.push(map(&["i32", "i32"], &[&compared, chosen, number]));
    }
    let compared = "%c = arith.cmpi slt, %t0, %t1 : tensor<#i32>";
    all.push(map(&["i32", "i32"], &[compared, "%i = arith.extui %c : tensor<#i1> to tensor<#i32>", number]));
    all
}

pub fn number(random: &mut Random) -> f32 {
    let x = (random.draw() >> 40) as f32 / (1u64 << 24) as f32 * 4.0 - 2.0;
    match random.below(12) {
        0 => 0.0,
        1 => -0.0,
        2 => x * 1e-30,
        3 => x * 1e30,
        4 => f32::MIN_POSITIVE * x,
        _ => x,
    }
}

pub fn numbers(random: &mut Random, n: usize, bf16: bool) -> Vec<f32> {
    (0..n).map(|_| number(random)).map(|x| if bf16 { from_bf16(to_bf16(x)) } else { x }).collect()
}

pub fn wild(random: &mut Random) -> f32 {
    [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 3e38, -0.0][random.below(5)]
}

/// The bits of a random element.
pub fn element(random: &mut Random, elem: &str) -> u64 {
    let x = if random.below(8) == 0 { wild(random) } else { number(random) };
    match elem {
        "f32" => x.to_bits().into(),
        "bf16" => to_bf16(x).into(),
        _ => (random.draw() as u32 >> [0, 16, 28][random.below(3)]).into(),
    }
}

/// `lanes` elements of a type, given their bits.
pub fn elements(elem: &str, lanes: usize, mut bits: impl FnMut(usize) -> u64) -> Buffer {
    let mut buffer = match elem {
        "f32" => Buffer::F32(vec![0.0; lanes]),
        "bf16" => Buffer::Bf16(vec![0; lanes]),
        _ => Buffer::I32(vec![0; lanes]),
    };
    (0..lanes).for_each(|lane| buffer.set_bits(lane, bits(lane)));
    buffer
}

/// The bits of NaNs: quiet and signalling, of both signs, with many payloads.
pub fn nans(elem: &str) -> &'static [u64] {
    match elem {
        "f32" => &[0x7fc0_0000, 0xffc0_0001, 0x7f80_0001, 0xff80_0000 | 0x3f_ffff, 0x7fff_ffff, 0x7fa0_0000],
        "bf16" => &[0x7fc0, 0xffc1, 0x7f81, 0xffbf, 0x7fff, 0x7fa0],
        _ => &[],
    }
}

pub fn same(a: f32, b: f32) -> bool {
    a.to_bits() == b.to_bits() || (a.is_nan() && b.is_nan())
}

pub fn buffer(values: Vec<f32>, bf16: bool) -> Buffer {
    match bf16 {
        true => Buffer::Bf16(values.into_iter().map(to_bf16).collect()),
        false => Buffer::F32(values),
    }
}

/// The elementwise operations and reductions of a kernel, each with its element types.
pub fn operations(kernel: &Kernel) -> std::collections::BTreeSet<String> {
    use vosti_tile::OpKind::*;
    let mut all = std::collections::BTreeSet::new();
    kernel.walk(&mut |op| {
        let elem = |value: &vosti_tile::Value| -> Scalar { kernel.ty(*value).elem() };
        all.extend(match &op.kind {
            Unary { op, x } => Some(format!("{op:?} of {}", elem(x))),
            Binary { op, a, .. } => Some(format!("{op:?} of {}", elem(a))),
            Fma { a, .. } => Some(format!("Fma of {}", elem(a))),
            CmpInt { op, a, .. } => Some(format!("{op:?} of {}", elem(a))),
            CmpFloat { op, a, .. } => Some(format!("{op:?} of {}", elem(a))),
            Select { a, .. } => Some(format!("Select of {}", elem(a))),
            Cast { op, x, to } => Some(format!("{op:?} of {} to {to}", elem(x))),
            Reduce { op, x, .. } => Some(format!("Reduce by {op:?} of {}", elem(x))),
            ProgramId { .. } | NumPrograms { .. } | Constant { .. } | Poison { .. } | Range { .. } => None,
            Splat { .. } | Broadcast { .. } | ExpandDims { .. } | Reshape { .. } | Transpose { .. } | Half { .. } => {
                None
            }
            AddPtr { .. } | MakeBlock { .. } | Advance { .. } => None,
            Load { .. } | LoadBlock { .. } | Store { .. } | StoreBlock { .. } => None,
            Dot { .. } | For { .. } | If { .. } => None,
        });
    });
    all
}
