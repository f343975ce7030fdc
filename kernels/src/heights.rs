//! Which of a product's row tiles suits a step: high tiles read less, and low ones leave fewer multiprocessors idle.

use crate::spec::Spec;
use vosti_contract::Const;

/// What a multiprocessor reads alone in the time in which it reads a number while all others read too: 64 bytes a clock and 40.
const CROWD: f64 = 64.0 / 40.0;
/// Products of a multiprocessor in the time in which it reads a number alone, on an H200.
const PRODUCTS: f64 = 57.0;

/// What a matrix product of so many rows costs with the row tiles of `spec`, compared with other heights of the same product:
/// the longest of what all blocks read from the second-level cache, what the multiprocessor with the most blocks reads, and what
/// it multiplies. A device runs the height that costs least, and of equals the lowest. All are proved to give the same bits.
pub fn cost(spec: &Spec, programs: [usize; 3], rows: usize, multiprocessors: u32) -> f64 {
    let side = |name: &str| match spec.constants.get(name) {
        Some(Const::Int(numbers)) => *numbers as f64,
        _ => 0.0,
    };
    let (blocks, units) = (programs.iter().product::<usize>() as f64, f64::from(multiprocessors.max(1)));
    // Rows without a request are multiplied, and not read.
    let reads = side("BN") + rows as f64 / programs[0].max(1) as f64;
    let most = (blocks / units).ceil();
    (CROWD * blocks / units * reads).max(most * reads).max(most * side("BM") * side("BN") / PRODUCTS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{higher, specialise};
    use vosti_contract::Dtype;

    #[test]
    fn the_row_tile_follows_the_rows_of_a_step_and_the_columns_of_the_matrix() {
        let chosen = |rows: usize, columns: i64| {
            let dims = [("K", Const::Int(4096)), ("N", Const::Int(columns))];
            let first = specialise("cuda-sm90", "linear", Dtype::Bf16, &dims).unwrap();
            let heights = [vec![first.clone()], higher("cuda-sm90", &first).unwrap()].concat();
            let size = |spec: &Spec, name: &str| match spec.constants[name] {
                Const::Int(size) => size as usize,
                Const::Float(_) => unreachable!(),
            };
            let programs =
                |spec: &Spec| [rows.div_ceil(size(spec, "BM")), (columns as usize).div_ceil(size(spec, "BN")), 1];
            let of = |spec: &&Spec| cost(spec, programs(spec), rows, 132);
            size(heights.iter().min_by(|a, b| of(a).total_cmp(&of(b))).unwrap(), "BM")
        };
        let of = |columns: i64| [1, 16, 32, 64, 128, 300, 512, 768, 1024, 1536, 2048].map(|rows| chosen(rows, columns));
        // 32 blocks of 128 columns. Row tiles of 256 need four of them to fill a card of 132 multiprocessors.
        assert_eq!(of(4096), [16, 16, 64, 64, 64, 128, 128, 256, 256, 256, 256]);
        // 48 blocks: three row tiles of 256 would be one turn and a tenth.
        assert_eq!(of(6144), [16, 16, 64, 64, 128, 128, 256, 128, 256, 256, 256]);
        assert_eq!(of(576), [16, 16, 16, 16, 16, 64, 64, 64, 64, 128, 128]);
    }
}
