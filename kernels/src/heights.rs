//! Which of the row tiles of a product or of attention suits a step: high tiles read less, and low ones leave fewer
//! multiprocessors idle.

use crate::spec::Spec;
use vosti_contract::Const;

/// What a multiprocessor reads alone in the time in which it reads a number while all others read too: 64 bytes a clock and 40.
const CROWD: f64 = 64.0 / 40.0;
/// Products of a multiprocessor in the time in which it reads a number alone, on an H200.
const PRODUCTS: f64 = 57.0;

/// What a matrix product or an attention of so many rows costs with the row tiles of `spec`, compared with other heights of the
/// same launch: the longest of what all blocks read from the second-level cache, what the multiprocessor with the most blocks
/// reads, and what it multiplies. A device runs the height that costs least, and of equals the lowest. All are proved to give the same bits.
pub fn cost(spec: &Spec, programs: [usize; 3], rows: usize, multiprocessors: u32) -> f64 {
    let side = |name: &str| match spec.constants.get(name) {
        Some(Const::Int(numbers)) => *numbers as f64,
        _ => 0.0,
    };
    let (blocks, units) = (programs.iter().product::<usize>() as f64, f64::from(multiprocessors.max(1)));
    // Rows without a request are multiplied, and not read. A program of attention reads page after page of keys, and its queries once.
    let (lanes, columns, read) = match side("PAGE") {
        0.0 => (side("BM"), side("BN"), rows as f64 / programs[0].max(1) as f64),
        keys => (side("BQ") * side("GP"), keys, 0.0),
    };
    let (reads, most) = (columns + read, (blocks / units).ceil());
    (CROWD * blocks / units * reads).max(most * reads).max(most * lanes * columns / PRODUCTS)
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

    #[test]
    fn attention_has_high_tiles_where_they_fill_the_multiprocessors() {
        // Tiles of 16 and 32 rows of a request, for eight KV heads.
        let chosen = |requests: &[usize]| {
            let dims = [("KV_HEADS", 8), ("GROUP", 4), ("D", 128), ("PAGE", 64), ("SINKS", 0)];
            let dims =
                [&dims.map(|(n, v)| (n, Const::Int(v)))[..], &crate::window(None), &crate::scores(1.0, 0.0)].concat();
            let first = specialise("cuda-sm90", "attend", Dtype::Bf16, &dims).unwrap();
            let height = |spec: &Spec| match spec.constants["HEIGHT"] {
                Const::Int(height) => height as usize,
                Const::Float(_) => unreachable!(),
            };
            let tiles = |spec: &Spec| requests.iter().map(|rows| rows.div_ceil(height(spec))).sum::<usize>();
            let of = |spec: &&Spec| cost(spec, [tiles(spec), 8, 1], requests.iter().sum(), 132);
            let heights = [vec![first.clone()], higher("cuda-sm90", &first).unwrap()].concat();
            height(heights.iter().min_by(|a, b| of(a).total_cmp(&of(b))).unwrap())
        };
        assert_eq!([1, 16, 64, 256, 512].map(|rows| chosen(&[rows])), [16, 16, 16, 16, 32]);
        // A decode step, and one beside half of a prefill.
        assert_eq!([chosen(&[1; 64]), chosen(&[&[1; 32][..], &[480]].concat())], [16, 16]);
    }
}
