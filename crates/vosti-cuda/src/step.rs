//! A step's metadata on the device: one allocation, its image in host memory, and the used part of each array uploaded.
//!
//! What they say is `vosti-wiring`'s business. Read next: [`crate::device`].

use crate::driver::{Address, Driver, DriverError};
use crate::host::HostMemory;
use vosti_core::{Program, StepPlan};
use vosti_kernels::Extent;
use vosti_wiring::{Ints, Meta, Metadata, Size, Tiling};

/// Arrays start at a multiple of this, in bytes: more than any kernel's premise.
const ALIGN: u64 = 256;

/// An array's place on the device, in bytes from the start of all, and its image.
struct Array {
    start: u64,
    image: HostMemory,
}

impl Ints for Array {
    fn cells(&mut self) -> &mut [i32] {
        self.image.ints_mut()
    }
}

/// Filled and uploaded before each step, and waited for before the next is filled.
pub struct Step {
    metadata: Metadata<Array>,
    bytes: u64,
}

impl Step {
    /// Room for steps of `rows_max` rows of which `selected_max` are selected.
    pub fn new(
        driver: &mut dyn Driver,
        program: &Program,
        tilings: &[Tiling],
        rows_max: usize,
        selected_max: usize,
    ) -> Result<Step, DriverError> {
        let mut bytes = 0;
        let array = |len: usize| {
            let start = bytes;
            bytes += (len as u64 * 4).next_multiple_of(ALIGN);
            Ok::<_, DriverError>(Array { start, image: driver.host(len * 4)? })
        };
        let metadata = Metadata::new(program, tilings, rows_max, selected_max, array)?;
        Ok(Step { metadata, bytes })
    }

    /// Bytes that it takes on the device.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Where an array is, in bytes from the start of all.
    pub fn start(&self, meta: Meta) -> u64 {
        self.metadata.array(meta).start
    }

    /// How much a launch of the step that was filled is made for.
    pub fn extent(&self, size: Size) -> Extent {
        self.metadata.extent(size)
    }

    /// Fills everything from a plan; a plan that does not fit is an error, and nothing was filled.
    pub fn fill(&mut self, plan: &StepPlan) -> Result<(), String> {
        self.metadata.fill(plan)
    }

    /// Makes its launches as large as those of `room` rows of one request each; false if that does not hold them.
    pub fn pad(&mut self, room: usize) -> bool {
        self.metadata.pad(room)
    }

    /// Brings what the step uses to the device.
    pub fn upload(&self, driver: &mut dyn Driver, base: Address) -> Result<(), DriverError> {
        for (array, used) in self.metadata.used().filter(|(_, used)| *used > 0) {
            driver.upload(base + array.start, &array.image.bytes()[..used * 4])?;
        }
        Ok(())
    }
}
