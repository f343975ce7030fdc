//! Uploads weights to the device: each weight once for all devices of a model, a part at a time, row-major.
//!
//! Several threads read and expand parts. A finished part is copied into page-locked memory while another part is on its way
//! to the GPU. Random weights are made on the GPU.

use crate::driver::{Address, Driver};
use crate::error::CudaError;
use crate::host::{HostMemory, bytes_of};
use crate::uniform::Maker;
use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::mpsc::sync_channel;
use std::sync::{Mutex, MutexGuard};
use std::thread;
use vosti_tile::Scalar;
use vosti_wiring::{TensorData, Weights, weights};

/// Elements that a thread reads at once.
const PART: usize = 1 << 22;
const STAGE: usize = 4 * PART;
/// The most threads that read parts. Each holds one part.
const READERS_MAX: usize = 8;
/// The unit of the driver's allocations, in bytes.
pub(crate) const ALIGN: u64 = 256;

/// Bytes that an allocation of `bytes` takes.
pub(crate) fn rounded(bytes: u64) -> u64 {
    bytes.max(1).next_multiple_of(ALIGN)
}

/// Weights on the GPU. Their memory is freed when the cache is dropped.
pub struct WeightCache {
    held: Mutex<Held>,
}

struct Held {
    driver: Box<dyn Driver + Send>,
    /// Two buffers of page-locked memory, which are used in turn.
    staging: Vec<HostMemory>,
    /// Makes random weights; loaded when the first is needed.
    maker: Option<Maker>,
    /// The address and bytes of each weight.
    weights: HashMap<(String, Scalar), (Address, u64)>,
    bytes: u64,
    /// Bytes of these that the GPU made itself.
    made: u64,
}

impl fmt::Debug for WeightCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WeightCache").field("bytes", &self.bytes()).finish()
    }
}

impl WeightCache {
    /// An empty cache. It allocates from `driver`, which it owns.
    pub fn new(driver: Box<dyn Driver + Send>) -> WeightCache {
        let (staging, weights) = (vec![], HashMap::new());
        WeightCache { held: Mutex::new(Held { driver, staging, maker: None, weights, bytes: 0, made: 0 }) }
    }

    fn lock(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// Bytes on the GPU.
    pub fn bytes(&self) -> u64 {
        self.lock().bytes
    }

    /// Bytes of them that the GPU made itself.
    pub fn made(&self) -> u64 {
        self.lock().made
    }

    /// Bytes that a weight would take; 0 if the cache has it already.
    pub(crate) fn missing(&self, source: &dyn Weights, name: &str, elem: Scalar) -> Result<u64, CudaError> {
        if self.lock().weights.contains_key(&(name.to_string(), elem)) {
            return Ok(0);
        }
        let (rows, columns) = weights::shape(source, name)?;
        Ok(rounded((rows * columns * elem.bytes()) as u64))
    }

    /// The address and bytes of a weight in the kernels' element type. It is made or uploaded if the cache does not have it.
    pub(crate) fn get(&self, source: &dyn Weights, name: &str, elem: Scalar) -> Result<(Address, u64), CudaError> {
        let bytes = self.missing(source, name, elem)?;
        let mut held = self.lock();
        let key = (name.to_string(), elem);
        if let Some(found) = held.weights.get(&key) {
            return Ok(*found);
        }
        let at = held.driver.allocate(bytes)?;
        if held.make(at, source, name, elem)? {
            held.made += bytes;
        } else {
            held.upload(at, source, name, elem)?;
        }
        // Other streams read the weight after this.
        held.driver.synchronise()?;
        held.bytes += bytes;
        held.weights.insert(key, (at, bytes));
        Ok((at, bytes))
    }
}

impl Held {
    /// Makes a random weight on the GPU; false if the weight is not random or the GPU cannot make it.
    fn make(&mut self, at: Address, source: &dyn Weights, name: &str, elem: Scalar) -> Result<bool, CudaError> {
        let Some(numbers) = source.made(name).filter(|_| elem == Scalar::Bf16) else { return Ok(false) };
        let (rows, columns) = weights::shape(source, name)?;
        let Self { driver, maker, .. } = self;
        let maker = maker.get_or_insert_with(|| Maker::new(driver.as_mut()));
        Ok(maker.make(driver.as_mut(), at, rows * columns, numbers)?)
    }

    fn upload(&mut self, at: Address, source: &dyn Weights, name: &str, elem: Scalar) -> Result<(), CudaError> {
        while self.staging.len() < 2 {
            self.staging.push(self.driver.host(STAGE)?);
        }
        let mut turn = 0;
        parts(source, name, elem, |first, data| {
            let bytes = match &data {
                TensorData::Bf16(data) => bytes_of(data),
                TensorData::F32(data) => bytes_of(data),
                TensorData::I8(data) => bytes_of(data),
            };
            let mut to = at + (first * elem.bytes()) as u64;
            for part in bytes.chunks(STAGE) {
                let stage = &mut self.staging[turn % 2];
                turn += 1;
                stage.bytes_mut()[..part.len()].copy_from_slice(part);
                // Waits for the upload of the other buffer, which is then free for the next part.
                self.driver.synchronise()?;
                self.driver.upload(to, &stage.bytes()[..part.len()])?;
                to += part.len() as u64;
            }
            Ok(())
        })
    }
}

/// Calls `put` with every part of a weight and the flat index of its first element, in the order in which the parts were read.
/// The first error ends it.
fn parts(
    source: &dyn Weights,
    name: &str,
    elem: Scalar,
    mut put: impl FnMut(usize, TensorData) -> Result<(), CudaError>,
) -> Result<(), CudaError> {
    let (rows, columns) = weights::shape(source, name)?;
    let part = (PART / columns.max(1)).max(1);
    let threads = thread::available_parallelism().map_or(2, usize::from).clamp(2, READERS_MAX);
    let next = AtomicUsize::new(0);
    thread::scope(|scope| {
        let (send, receive) = sync_channel(1);
        for _ in 0..threads.min(rows.div_ceil(part)) {
            let (send, next) = (send.clone(), &next);
            scope.spawn(move || {
                loop {
                    let start = next.fetch_add(part, Relaxed);
                    if start >= rows {
                        return;
                    }
                    let mut read = None;
                    let range = start..rows.min(start + part);
                    let done = weights::read_rows(source, name, elem, range, |data| {
                        read = Some(data);
                        Ok::<_, CudaError>(())
                    });
                    // After an error there is no receiver.
                    if send.send(done.map(|()| read.map(|data| (start * columns, data)))).is_err() {
                        return;
                    }
                }
            });
        }
        drop(send);
        for read in receive {
            if let Some((first, data)) = read? {
                put(first, data)?;
            }
        }
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ops::Range;
    use std::sync::Barrier;
    use vosti_wiring::WeightError;

    /// Four parts of two rows, each row its index; two are read at once or not at all.
    struct Rows {
        both: Barrier,
        broken: Option<usize>,
    }

    impl Weights for Rows {
        fn shape(&self, _: &str) -> Result<Vec<usize>, WeightError> {
            Ok(vec![8, PART / 2])
        }

        fn rows(&self, _: &str, rows: Range<usize>) -> Result<TensorData, WeightError> {
            self.both.wait();
            if self.broken == Some(rows.start) {
                return Err("a bad block".into());
            }
            Ok(TensorData::Bf16(rows.flat_map(|row| vec![row as u16; PART / 2]).collect()))
        }
    }

    #[test]
    fn parts_are_read_by_several_threads_and_each_comes_once_with_its_place() {
        // Always two threads, because the barrier is for two.
        let source = Rows { both: Barrier::new(2), broken: None };
        let mut seen = vec![];
        parts(&source, "w", Scalar::Bf16, |first, data| {
            let TensorData::Bf16(data) = data else { panic!("BF16") };
            assert_eq!((data[0] as usize * (PART / 2), data.len()), (first, PART));
            assert_eq!(data[PART - 1], data[0] + 1);
            seen.push(first);
            Ok(())
        })
        .unwrap();
        seen.sort_unstable();
        assert_eq!(seen, [0, PART, 2 * PART, 3 * PART]);
    }

    #[test]
    fn one_part_that_cannot_be_read_is_the_error_of_the_weight() {
        let source = Rows { both: Barrier::new(1), broken: Some(4) };
        let error = parts(&source, "w", Scalar::Bf16, |_, _| Ok(())).unwrap_err().to_string();
        assert!(error.contains("a bad block"), "{error}");
    }
}
