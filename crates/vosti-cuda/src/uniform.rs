//! Random weights, made on the GPU that uses them. See `uniform.ptx`.

use crate::driver::{Address, Call, Driver, DriverError, Function, Param};
use vosti_wiring::Uniform;

/// The text that the driver compiles. It ends with a zero byte there.
pub const PTX: &str = concat!(include_str!("uniform.ptx"), "\0");
/// The kernel's name in the PTX.
pub const NAME: &str = "uniform";
/// Threads of a block. Each makes one element.
const THREADS: u32 = 256;
/// Elements of each of the three stretches that are compared with the host's.
const COMPARED: usize = 64;

/// The kernel, if this driver compiles it.
pub struct Maker(Option<Function>);

impl Maker {
    /// Loads the kernel. If the driver does not compile it, the host makes the numbers.
    pub fn new(driver: &mut dyn Driver) -> Maker {
        Maker::of(driver, PTX)
    }

    /// Loads the kernel of another text: for tests.
    pub fn of(driver: &mut dyn Driver, ptx: &str) -> Maker {
        // A driver may lack its PTX compiler; weights are then made on the host.
        Maker(driver.load(ptx.as_bytes(), NAME).ok())
    }

    /// Makes `count` elements at an address, in BF16. False if the kernel is not loaded, if the elements do not fit into a grid,
    /// or if the first, middle or last elements differ from the host's. The contents of the memory are then undefined.
    pub fn make(
        &self,
        driver: &mut dyn Driver,
        at: Address,
        count: usize,
        numbers: Uniform,
    ) -> Result<bool, DriverError> {
        let blocks = u32::try_from((count as u64).div_ceil(THREADS.into())).ok().filter(|blocks| *blocks > 0);
        let (Some(function), Some(blocks)) = (self.0, blocks) else { return Ok(false) };
        let params = [at, count as u64, numbers.seed, numbers.scale.to_bits().into()].map(Param::Word);
        let grid = [blocks, 1, 1];
        driver.launch(&Call { function, grid, threads: THREADS, shared: 0, early: false, params: &params })?;
        let many = count.min(COMPARED);
        for first in [0, (count - many) / 2, count - many] {
            let mut bytes = vec![0; many * 2];
            driver.download(&mut [(at + first as u64 * 2, &mut bytes)])?;
            let made = bytes.as_chunks::<2>().0.iter().map(|two| u16::from_le_bytes(*two));
            if !made.eq((first..first + many).map(|index| numbers.bf16(index))) {
                return Ok(false);
            }
        }
        Ok(true)
    }
}
