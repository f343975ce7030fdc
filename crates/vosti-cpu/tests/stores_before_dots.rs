//! A load that a dot makes in place is not passed by a store to the same memory: a kernel with both has no plan, so it is
//! interpreted. The same kernel with a store elsewhere has a plan with the interpreter's bits.

mod common;
use common::{difference, fast};
use vosti_cpu::Isa;
use vosti_cpu::plan::compile;
use vosti_tile::build::Builder;
use vosti_tile::interp::{Buffer, Options, run};
use vosti_tile::{Kernel, Literal, OpKind, Padding, Scalar, Type, Value};

const SIDE: usize = 16;

/// Parameters: the dot's operands, its result, and another matrix.
const PARAMS: [&str; 4] = ["a", "b", "out", "other"];

fn int(b: &mut Builder, value: i64, elem: Scalar) -> Value {
    b.op(OpKind::Constant { value: Literal::Int(value), ty: Type::scalar(elem) }).unwrap()
}

/// Loads a and b, overwrites parameter `stored` by `other`, then multiplies what was loaded.
fn kernel(stored: usize) -> Kernel {
    let mut b = Builder::new("stores_before_a_dot");
    let windows = PARAMS.map(|name| {
        let base = b.param(name, Scalar::F32, 16);
        let (side, one, zero) =
            (int(&mut b, SIDE as i64, Scalar::I64), int(&mut b, 1, Scalar::I64), int(&mut b, 0, Scalar::I32));
        let (shape, strides, offsets) = (vec![side; 2], vec![side, one], vec![zero; 2]);
        b.op(OpKind::MakeBlock { base, shape, strides, offsets, order: vec![1, 0], block: vec![SIDE; 2] }).unwrap()
    });
    let load = |b: &mut Builder, i: usize| {
        b.op(OpKind::LoadBlock { ptr: windows[i], check: vec![], padding: Padding::Undefined }).unwrap()
    };
    let (x, y, other) = (load(&mut b, 0), load(&mut b, 1), load(&mut b, 3));
    b.push(OpKind::StoreBlock { ptr: windows[stored], value: other, check: vec![] }).unwrap();
    let ty = Type::tile(vec![SIDE; 2], Scalar::F32);
    let acc = b.op(OpKind::Constant { value: Literal::Float(0), ty }).unwrap();
    let value = b.op(OpKind::Dot { a: x, b: y, acc }).unwrap();
    b.push(OpKind::StoreBlock { ptr: windows[2], value, check: vec![] }).unwrap();
    b.finish()
}

fn buffers() -> Vec<Buffer> {
    let matrix = |param| Buffer::F32((0..SIDE * SIDE).map(|i| ((i * 7 + param * 5) % 11) as f32 - 5.0).collect());
    (0..PARAMS.len()).map(matrix).collect()
}

#[test]
fn a_dot_does_not_read_what_a_later_store_writes() {
    let isas = Isa::tried();
    for (stored, name) in PARAMS.iter().enumerate() {
        let (kernel, buffers) = (kernel(stored), buffers());
        let mut want = buffers.clone();
        run(&kernel, &mut want, [1; 3], &Options::default()).unwrap();
        for isa in isas {
            match compile(&kernel, *isa) {
                Ok(plan) => {
                    let got = fast(&kernel, &plan, &buffers, [1; 3], *isa, true, None).unwrap();
                    assert_eq!(difference(&kernel, &got, &want), None, "{name} {isa:?}");
                    assert!(stored >= 2, "{name} is read in place and written");
                }
                Err(refused) => {
                    assert!(stored < 2 && refused.what.contains("from memory that the kernel writes"), "{refused}");
                }
            }
        }
    }
}
