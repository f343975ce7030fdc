//! What the interpreter makes of integers of 8 bits: they are signed, stores keep the low bits, and their dot wraps at 32 bits.

use vosti_tile::interp::{Buffer, run};
use vosti_tile::lift;

#[test]
fn bytes_are_signed_and_a_dot_of_them_wraps() {
    let text = "module {
  tt.func public @k(%x: !tt.ptr<i8>, %out: !tt.ptr<i32>, %low: !tt.ptr<i8>) {
    %c0 = arith.constant 0 : i32
    %n = arith.constant 4 : i64
    %one = arith.constant 1 : i64
    %x_tile = tt.make_tensor_ptr %x, [%n, %n], [%n, %one], [%c0, %c0] {order = array<i32: 1, 0>} : <tensor<4x4xi8>>
    %out_tile = tt.make_tensor_ptr %out, [%n, %n], [%n, %one], [%c0, %c0] {order = array<i32: 1, 0>} : <tensor<4x4xi32>>
    %low_tile = tt.make_tensor_ptr %low, [%n, %n], [%n, %one], [%c0, %c0] {order = array<i32: 1, 0>} : <tensor<4x4xi8>>
    %a = tt.load %x_tile : !tt.ptr<tensor<4x4xi8>>
    %start = arith.constant dense<2147430000> : tensor<4x4xi32>
    %sum = tt.dot %a, %a, %start : tensor<4x4xi8> * tensor<4x4xi8> -> tensor<4x4xi32>
    tt.store %out_tile, %sum : !tt.ptr<tensor<4x4xi32>>
    %bytes = arith.trunci %sum : tensor<4x4xi32> to tensor<4x4xi8>
    tt.store %low_tile, %bytes : !tt.ptr<tensor<4x4xi8>>
    tt.return
  }
}
";
    let kernel = lift(text).unwrap();
    let mut x = vec![-128; 16];
    x[0] = 127;
    let mut memory = vec![Buffer::I8(x.clone()), Buffer::I32(vec![0; 16]), Buffer::I8(vec![0; 16])];
    run(&kernel, &mut memory, [1; 3], &Default::default()).unwrap();
    let lane = |i: usize, j: usize| {
        let products = (0..4).map(|k| i64::from(x[i * 4 + k]) * i64::from(x[k * 4 + j]));
        (2147430000 + products.sum::<i64>()) as i32
    };
    let wanted: Vec<i32> = (0..16).map(|at| lane(at / 4, at % 4)).collect();
    assert!(wanted.iter().any(|sum| *sum < 0), "some sum wraps: {wanted:?}");
    assert_eq!(memory[2], Buffer::I8(wanted.iter().map(|sum| *sum as i8).collect()));
    assert_eq!(memory[1], Buffer::I32(wanted));
}
