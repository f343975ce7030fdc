//! Grids that are too large for the interpreter.

use vosti_tile::interp::{Buffer, Fault, Options, Order, run};
use vosti_tile::lift;

#[test]
fn too_many_programs_are_refused_and_a_limit_of_operations_ends_a_large_grid_at_once() {
    let text = "module {\n  tt.func public @k(%x: !tt.ptr<i32>) attributes {noinline = false} {\n    %v = tt.load %x : !tt.ptr<i32>\n    tt.return\n  }\n}\n";
    let kernel = lift(text).unwrap();
    let stopped = |grid, order| {
        let options = Options { order, operations_max: Some(10), ..Options::default() };
        run(&kernel, &mut vec![Buffer::I32(vec![1])], grid, &options).unwrap_err().reason
    };
    for grid in [[1 << 31, 1, 1], [1 << 16, 1 << 15, 1], [1 << 30, 1 << 30, 1 << 30]] {
        assert_eq!(stopped(grid, Order::Shuffled(1)), Fault::Grid { grid });
    }
    for order in [Order::Ascending, Order::Descending] {
        assert_eq!(stopped([(1 << 31) - 1, 1, 1], order), Fault::Operations { max: 10 });
    }
}
