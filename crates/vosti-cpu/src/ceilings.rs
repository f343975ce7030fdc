//! Upper limits of this machine, to compare measurements with: how fast the workers read memory, and how fast they compute
//! dots from cache.

use std::time::Instant;

use crate::memory::Region;
use crate::pool::Pool;
use vosti_simd::Isa;
use vosti_simd::micro::{self, Dot, DotFn};

/// The measured limits: the best of a few rounds each. Measuring takes about a second.
#[derive(Clone, Copy, Debug)]
pub struct Ceilings {
    /// Bytes per second that the workers read together, each its own part of a buffer much larger than the caches.
    pub read_bytes_per_s: f64,
    /// Floating-point operations per second (two for a product and its sum) of BF16 dots whose operands stay in cache.
    pub dot_flops_per_s: f64,
}

const ROUNDS: usize = 5;
const COLUMNS: usize = 64;

/// Measures the limits with `threads` workers. Error: memory or threads cannot be had.
pub fn ceilings(threads: usize, isa: Isa) -> std::io::Result<Ceilings> {
    let kernel = micro::kernels(isa).bf16;
    let mut pool = Pool::new(threads)?;
    Ok(Ceilings { read_bytes_per_s: read(&mut pool, kernel)?, dot_flops_per_s: dot(&mut pool, kernel)? })
}

/// One row against a long operand: as few operations for each byte as in a decode step.
fn read(pool: &mut Pool, kernel: DotFn<u16>) -> std::io::Result<f64> {
    const BYTES: usize = 256 << 20;
    let threads = pool.threads();
    let mut memory = Region::zeroed(BYTES)?;
    memory.as_mut_slice::<u8>(BYTES).fill(1);
    let steps = BYTES / threads / (4 * COLUMNS);
    let bytes = steps * 4 * COLUMNS * threads;
    let part = |worker: usize| memory.as_slice::<u16>(BYTES / 2)[worker * steps * 2 * COLUMNS..].as_ptr();
    let seconds = best(pool, |worker, left, out| {
        // Blocks short enough that the left operand stays in cache.
        let block = left.len() / 2;
        for first in (0..steps).step_by(block) {
            let b = part(worker).wrapping_add(first * 2 * COLUMNS);
            dots(kernel, left, b, out, 1, block.min(steps - first));
        }
    });
    Ok(bytes as f64 / seconds)
}

fn dot(pool: &mut Pool, kernel: DotFn<u16>) -> std::io::Result<f64> {
    const ROWS: usize = 12;
    const STEPS: usize = 64;
    const REPEATS: usize = 20_000;
    let right = vec![0x3f80u16; STEPS * 2 * COLUMNS];
    let right = right.as_slice();
    let flops = 4 * ROWS * COLUMNS * STEPS * REPEATS * pool.threads();
    let seconds = best(pool, |_, left, out| {
        for _ in 0..REPEATS {
            dots(kernel, left, right.as_ptr(), out, ROWS, STEPS);
        }
    });
    Ok(flops as f64 / seconds)
}

/// `rows` rows of the left operand, `2 * steps` elements each, times a right operand of 64 columns.
fn dots(kernel: DotFn<u16>, left: &[u16], b: *const u16, out: &mut [f32], rows: usize, steps: usize) {
    assert!(rows * 2 * steps <= left.len() && rows * COLUMNS <= out.len());
    let (a, c) = (left.as_ptr(), out.as_mut_ptr());
    let dot = Dot {
        a,
        a_row: 2 * steps,
        b,
        b_step: 2 * COLUMNS,
        c,
        c_row: COLUMNS,
        rows,
        columns: COLUMNS,
        steps,
        accumulate: true,
    };
    // SAFETY: `a` and `c` are as long as asserted; `b` has `steps` steps of 64 columns in both uses.
    unsafe { kernel(&dot) }
}

/// Seconds of the quickest round.
fn best(pool: &mut Pool, work: impl Fn(usize, &[u16], &mut [f32]) + Sync) -> f64 {
    let round = |_| {
        let start = Instant::now();
        let done = pool.run(&|worker| {
            let (left, mut out) = ([0x3f80u16; 2048], [0f32; 12 * COLUMNS]);
            work(worker.index, &left, &mut out);
            std::hint::black_box(out);
        });
        done.map_or(f64::INFINITY, |()| start.elapsed().as_secs_f64())
    };
    (0..ROUNDS).map(round).fold(f64::INFINITY, f64::min)
}
