//! What a GPU's memory gives at most: the ceiling that decoding is set against. See `read.ptx`.
//!
//! It is no kernel of a model, so nothing is proved of it: the sums of what it read are compared with the host's.

use crate::driver::{Address, Call, Driver, DriverError, Function};
use serde::Serialize;

/// What the driver compiles. A zero ends it there.
pub const PTX: &str = concat!(include_str!("read.ptx"), "\0");
/// The kernel's name in it.
pub const NAME: &str = "read";
/// Threads of a block.
const THREADS: u32 = 256;
/// Bytes that a thread reads in a round, and a block.
const ROUND: u64 = 64;
const PIECE: usize = THREADS as usize * ROUND as usize;
/// How often everything is read for one measurement of several.
const LAUNCHES: usize = 4;
const TIMES: usize = 7;

/// How much is read.
#[derive(Clone, Copy, Debug)]
pub struct Extent {
    /// Many more than a GPU has room for at once, so that few wait for the last. An even number.
    pub blocks: u32,
    /// Many times a second-level cache.
    pub bytes_max: u64,
}

/// Of a GPU.
pub const WHOLE: Extent = Extent { blocks: 8192, bytes_max: 2 << 30 };

/// A rate and how it was found.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Bandwidth {
    /// Bytes read, and written where it copies, a second.
    pub bytes_per_s: f64,
    /// By reading alone; else by copies, each byte read and written, which is the less of the two.
    pub read: bool,
}

/// Measures a GPU that does nothing else, by a text such as [`PTX`].
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

/// None if what was read is not what is there.
fn reads(driver: &mut dyn Driver, function: Function, blocks: u32, rounds: u64) -> Result<Option<f64>, DriverError> {
    let threads = u64::from(blocks) * u64::from(THREADS);
    let bytes = rounds * threads * ROUND;
    let at = driver.allocate(bytes)?;
    let pieces = [piece(1), piece(2)];
    for (half, piece) in pieces.iter().enumerate() {
        fill(driver, at + half as u64 * bytes / 2, bytes / 2, piece)?;
    }
    let to = driver.allocate(threads * 4)?;
    let (pointers, grid) = ([at, rounds, to], [blocks, 1, 1]);
    let call = Call { function, grid, threads: THREADS, shared: 0, pointers: &pointers };
    let rate = best(driver, bytes, |driver| driver.launch(&call))?;
    let mut sums = vec![0; threads as usize * 4];
    driver.download(&mut [(to, &mut sums)])?;
    let each = (bytes / 2 / PIECE as u64) as u32;
    let wanted = pieces.iter().fold(0u32, |all, piece| all.wrapping_add(sum(piece).wrapping_mul(each)));
    Ok((sum(&sums) == wanted).then_some(rate))
}

/// Each byte is read and written.
fn copies(driver: &mut dyn Driver, bytes: u64) -> Result<f64, DriverError> {
    let (from, to) = (driver.allocate(bytes)?, driver.allocate(bytes)?);
    driver.zero(from, bytes)?;
    best(driver, 2 * bytes, |driver| driver.copy(from, to, bytes))
}

/// The best of several times by the device's clock.
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

/// Fills memory with copies of a piece, which it is a multiple of.
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

/// Bytes that look like any: zeros may be read sooner than what is real.
fn piece(seed: u32) -> Vec<u8> {
    let word = |i: u32| ((i + 1).wrapping_mul(0x9e37_79b9) ^ seed.wrapping_mul(0x85eb_ca6b)).to_le_bytes();
    (0..PIECE as u32 / 4).flat_map(word).collect()
}

/// Of 32-bit words, modulo 2^32.
fn sum(bytes: &[u8]) -> u32 {
    let words = bytes.as_chunks::<4>().0.iter().map(|word| u32::from_le_bytes(*word));
    words.fold(0, u32::wrapping_add)
}
