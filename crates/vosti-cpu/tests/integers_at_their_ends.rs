//! Integer arithmetic at the ends of the types has the interpreter's bits: sums, products and shifts wrap, quotients round
//! towards zero, in tiles and in scalars. (An undefined operation, such as a division by zero, does not lift.)

mod common;
use common::{difference, fast, plan};
use vosti_cpu::Isa;
use vosti_tile::build::Builder;
use vosti_tile::interp::{Buffer, Options, run};
use vosti_tile::{Binary, Kernel, Literal, OpKind, Scalar, Type};

const LANES: usize = 64;
const BETWEEN: [Binary; 10] = [
    Binary::Add,
    Binary::Sub,
    Binary::Mul,
    Binary::And,
    Binary::Or,
    Binary::Xor,
    Binary::MaxS,
    Binary::MinS,
    Binary::MaxU,
    Binary::MinU,
];
const DIVISIONS: [Binary; 4] = [Binary::DivS, Binary::RemS, Binary::DivU, Binary::RemU];
const SHIFTS: [Binary; 3] = [Binary::Shl, Binary::ShrS, Binary::ShrU];

/// out[i] = a[i] op b[i], or a[i] op `by`: all lanes in one tile, or one scalar in each program.
fn kernel(op: Binary, elem: Scalar, by: Option<i64>, tile: bool) -> Kernel {
    let mut b = Builder::new("ends");
    let params = ["a", "b", "out"].map(|name| b.param(name, elem, 16));
    let index = match tile {
        true => b.op(OpKind::Range { start: 0, end: LANES as i32 }).unwrap(),
        false => b.op(OpKind::ProgramId { axis: 0 }).unwrap(),
    };
    let shape = if tile { vec![LANES] } else { vec![] };
    let [x, y, out] = params.map(|param| {
        let ptr = if tile { b.op(OpKind::Splat { x: param, shape: shape.clone() }).unwrap() } else { param };
        b.op(OpKind::AddPtr { ptr, offset: index }).unwrap()
    });
    let mut load = |ptr| b.op(OpKind::Load { ptr, mask: None, other: None }).unwrap();
    let (x, y) = (load(x), load(y));
    let ty = Type::tile(shape, elem);
    let y = by.map_or(y, |by| b.op(OpKind::Constant { value: Literal::Int(by), ty }).unwrap());
    let value = b.op(OpKind::Binary { op, a: x, b: y }).unwrap();
    b.push(OpKind::Store { ptr: out, value, mask: None }).unwrap();
    b.finish()
}

fn operands(elem: Scalar) -> [Buffer; 3] {
    let bits = elem.bits();
    let ends = [0, 1, 2, 7, i64::MAX >> (64 - bits), i64::MIN >> (64 - bits), -1, -2];
    let pairs: Vec<(i64, i64)> = ends.iter().flat_map(|a| ends.map(|b| (*a, b))).collect();
    assert_eq!(pairs.len(), LANES);
    let of = |values: Vec<i64>| match elem {
        Scalar::I32 => Buffer::I32(values.iter().map(|v| *v as i32).collect()),
        _ => Buffer::I64(values),
    };
    let (a, b) = pairs.into_iter().unzip();
    [of(a), of(b), of(vec![0; LANES])]
}

#[test]
fn integers_at_the_ends_of_their_types_have_the_interpreters_bits() {
    let (options, isas) = (Options::default(), Isa::tried());
    let mut cases: Vec<(Binary, Option<i64>)> = BETWEEN.iter().map(|op| (*op, None)).collect();
    cases.extend(DIVISIONS.iter().flat_map(|op| [1, 3, -5, 64].map(|by| (*op, Some(by)))));
    cases.extend(SHIFTS.iter().flat_map(|op| [0, 1, 31].map(|by| (*op, Some(by)))));
    for elem in [Scalar::I32, Scalar::I64] {
        let buffers = operands(elem);
        for (op, by) in &cases {
            for tile in [true, false] {
                let kernel = kernel(*op, elem, *by, tile);
                let grid = [if tile { 1 } else { LANES }, 1, 1];
                let mut want = buffers.to_vec();
                run(&kernel, &mut want, grid, &options).unwrap();
                for isa in isas {
                    let got = fast(&kernel, &plan(&kernel, *isa), &buffers, grid, *isa, false, None).unwrap();
                    let found = difference(&kernel, &got, &want);
                    assert_eq!(found, None, "{op:?} {by:?} {elem:?} tile {tile} {isa:?}");
                }
            }
        }
    }
}
