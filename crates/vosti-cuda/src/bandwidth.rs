//! Measures the bandwidth of a GPU's memory, the upper limit for decoding. See `read.ptx`.
//!
//! Its kernel is no kernel of a model, and nothing is proved about it. Its sums are compared with the host's.

use crate::driver::{Address, Call, Driver, DriverError, Function, Param};
use serde::Serialize;

/// The PTX that the driver compiles. It ends with a zero byte.
pub const PTX: &str = concat!(include_str!("read.ptx"), "\0");
/// The kernel's name in the PTX.
pub const NAME: &str = "read";
/// Threads of a block.
const THREADS: u32 = 256;
/// Bytes that a thread reads in a round.
const ROUND: u64 = 64;
const PIECE: usize = THREADS as usize * ROUND as usize;
/// Launches of one measurement. Each reads everything.
const LAUNCHES: usize = 4;
const TIMES: usize = 7;

/// The size of a measurement.
#[derive(Clone, Copy, Debug)]
pub struct Extent {
    /// Blocks of a launch, an even number. Many more than a GPU runs at once, so that its multiprocessors end together.
    pub blocks: u32,
    /// The most bytes that are read: many times a second-level cache. At most a quarter of free memory is used.
    pub bytes_max: u64,
}

/// The size for a GPU.
pub const WHOLE: Extent = Extent { blocks: 8192, bytes_max: 2 << 30 };

/// A measured bandwidth.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Bandwidth {
    /// Bytes per second. A copied byte counts twice: once read, once written.
    pub bytes_per_s: f64,
    /// True if it was measured by reads; false if by copies, which are slower.
    pub read: bool,
}

/// Measures an idle GPU with the kernel of a PTX text such as [`PTX`]; by copies if the driver does not compile the text or the
/// kernel's sums are wrong.
pub fn measure(driver: &mut dyn Driver, ptx: &str, extent: Extent) -> Result<Bandwidth, DriverError> {
    let most = (driver.free_bytes()? / 4).min(extent.bytes_max);
    let round = PIECE as u64 * u64::from(extent.blocks);
    // A driver may lack its PTX compiler.
    let read = match driver.load(ptx.as_bytes(), NAME) {
        Ok(function) if most >= round => reads(driver, function, extent.blocks, most / round)?,
        _ => None,
    };
    match read {
        Some(bytes_per_s) => Ok(Bandwidth { bytes_per_s, read: true }),
        None => Ok(Bandwidth { bytes_per_s: copies(driver, (most / 8).max(256))?, read: false }),
    }
}

/// Bytes per second of reads; `None` if the kernel's sums are not those of the memory.
fn reads(driver: &mut dyn Driver, function: Function, blocks: u32, rounds: u64) -> Result<Option<f64>, DriverError> {
    let threads = u64::from(blocks) * u64::from(THREADS);
    let bytes = rounds * threads * ROUND;
    let at = driver.allocate(bytes)?;
    let pieces = [piece(1), piece(2)];
    for (half, piece) in pieces.iter().enumerate() {
        fill(driver, at + half as u64 * bytes / 2, bytes / 2, piece)?;
    }
    let to = driver.allocate(threads * 4)?;
    let (params, grid) = ([at, rounds, to].map(Param::Word), [blocks, 1, 1]);
    let call = Call { function, grid, threads: THREADS, shared: 0, early: false, params: &params };
    let rate = best(driver, bytes, |driver| driver.launch(&call))?;
    let mut sums = vec![0; threads as usize * 4];
    driver.download(&mut [(to, &mut sums)])?;
    let each = (bytes / 2 / PIECE as u64) as u32;
    let wanted = pieces.iter().fold(0u32, |all, piece| all.wrapping_add(sum(piece).wrapping_mul(each)));
    Ok((sum(&sums) == wanted).then_some(rate))
}

/// Bytes per second of copies. Each byte is read and written.
fn copies(driver: &mut dyn Driver, bytes: u64) -> Result<f64, DriverError> {
    let (from, to) = (driver.allocate(bytes)?, driver.allocate(bytes)?);
    driver.zero(from, bytes)?;
    best(driver, 2 * bytes, |driver| driver.copy(from, to, bytes))
}

/// Bytes per second of the fastest of several measurements, by the device's clock.
fn best(
    driver: &mut dyn Driver,
    bytes: u64,
    mut work: impl FnMut(&mut dyn Driver) -> Result<(), DriverError>,
) -> Result<f64, DriverError> {
    let mut least = f64::INFINITY;
    for _ in 0..TIMES {
        driver.mark()?;
        for _ in 0..LAUNCHES {
            work(driver)?;
        }
        driver.mark()?;
        least = driver.laps()?.into_iter().fold(least, f64::min);
    }
    Ok(LAUNCHES as f64 * bytes as f64 / least.max(1e-9))
}

/// Fills memory with copies of a piece. `bytes` is a multiple of its length.
fn fill(driver: &mut dyn Driver, at: Address, bytes: u64, piece: &[u8]) -> Result<(), DriverError> {
    driver.upload(at, piece)?;
    driver.synchronise()?;
    let mut done = piece.len() as u64;
    while done < bytes {
        let more = done.min(bytes - done);
        driver.copy(at, at + done, more)?;
        done += more;
    }
    Ok(())
}

/// Bytes that look random, because a GPU may read zeros faster.
fn piece(seed: u32) -> Vec<u8> {
    let word = |i: u32| ((i + 1).wrapping_mul(0x9e37_79b9) ^ seed.wrapping_mul(0x85eb_ca6b)).to_le_bytes();
    (0..PIECE as u32 / 4).flat_map(word).collect()
}

/// The sum of 32-bit words, modulo 2^32.
fn sum(bytes: &[u8]) -> u32 {
    let words = bytes.as_chunks::<4>().0.iter().map(|word| u32::from_le_bytes(*word));
    words.fold(0, u32::wrapping_add)
}
