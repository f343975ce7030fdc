//! A step's metadata on the device: one allocation, its image in host memory, and the used part of each array uploaded.
//!
//! What they say is `vosti-wiring`'s business. Read next: [`crate::device`].

use crate::driver::{Address, Driver, DriverError};
use vosti_core::{Program, StepPlan};
use vosti_kernels::Extent;
use vosti_wiring::{Ints, Meta, Metadata, Size, Tiling};

/// Arrays start at a multiple of this, in bytes: more than any kernel's premise.
const ALIGN: u64 = 256;

/// An array's place on the device, in bytes from the start of all, and its image.
#[derive(Debug)]
struct Array {
    start: u64,
    image: Vec<i32>,
}

impl Ints for Array {
    fn cells(&mut self) -> &mut [i32] {
        &mut self.image
    }
}

/// Filled and uploaded before each step.
#[derive(Debug)]
pub struct Step {
    metadata: Metadata<Array>,
    bytes: u64,
}

impl Step {
    /// Room for steps of `rows_max` rows of which `selected_max` are selected.
    pub fn new(program: &Program, tilings: &[Tiling], rows_max: usize, selected_max: usize) -> Step {
        let mut bytes = 0;
        let array = |len: usize| {
            let start = bytes;
            bytes += (len as u64 * 4).next_multiple_of(ALIGN);
            Ok::<_, std::convert::Infallible>(Array { start, image: vec![0; len] })
        };
        let Ok(metadata) = Metadata::new(program, tilings, rows_max, selected_max, array);
        Step { metadata, bytes }
    }

    /// Bytes that it takes on the device.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Where an array is, in bytes from the start of all.
    pub fn start(&self, meta: Meta) -> u64 {
        self.metadata.array(meta).start
    }

    /// How much there is to do for a launch of the step that was filled.
    pub fn extent(&self, size: Size) -> Extent {
        self.metadata.extent(size)
    }

    /// Fills everything from a plan; a plan that does not fit is an error, and nothing was filled.
    pub fn fill(&mut self, plan: &StepPlan) -> Result<(), String> {
        self.metadata.fill(plan)
    }

    /// Brings what the step uses to the device.
    pub fn upload(&self, driver: &mut dyn Driver, base: Address) -> Result<(), DriverError> {
        for (array, used) in self.metadata.used().filter(|(_, used)| *used > 0) {
            driver.upload(base + array.start, bytes(&array.image[..used]))?;
        }
        Ok(())
    }
}

/// As the device reads them.
fn bytes(ints: &[i32]) -> &[u8] {
    const { assert!(cfg!(target_endian = "little"), "GPUs are little-endian, and so must be their host") };
    // SAFETY: every byte of an integer is a value, and the length is in bytes.
    unsafe { std::slice::from_raw_parts(ints.as_ptr().cast(), size_of_val(ints)) }
}
