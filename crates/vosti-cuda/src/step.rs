//! A step's metadata on the device: one allocation, its image in host memory, and one upload of the part that the step uses.
//!
//! `vosti-wiring` decides the contents and the place of each array. Read next: [`crate::device`].

use crate::driver::{Address, Driver, DriverError};
use crate::host::HostMemory;
use vosti_core::StepPlan;
use vosti_kernels::Extent;
use vosti_wiring::{Ints, Meta, Metadata, Size};

struct Image(HostMemory);

impl Ints for Image {
    fn cells(&mut self) -> &mut [i32] {
        self.0.ints_mut()
    }
}

/// Filled and uploaded before each step, and waited for before the next is filled.
pub struct Step {
    metadata: Metadata<Image>,
}

impl Step {
    /// With host memory for the whole array.
    pub fn new(driver: &mut dyn Driver, image: vosti_wiring::Image) -> Result<Step, DriverError> {
        let array = Image(driver.host(image.len() * 4)?);
        Ok(Step { metadata: Metadata::new(image, array) })
    }

    /// Bytes that it takes on the device.
    pub fn bytes(&self) -> u64 {
        self.metadata.array().0.bytes().len() as u64
    }

    /// Where an array is, in bytes from the start of all: for launches of the step that was filled, and for those that were
    /// recorded with room for as many rows.
    pub fn start(&self, meta: Meta) -> u64 {
        self.metadata.place(meta).start as u64 * 4
    }

    /// Positions that the longest sequence of the step that was filled reaches.
    pub fn length(&self) -> usize {
        self.metadata.length()
    }

    /// How much a launch of the step that was filled is made for.
    pub fn extent(&self, size: Size) -> Extent {
        self.metadata.extent(size)
    }

    /// Fills everything from a plan, for launches as large as those of `room` rows of one request each, if there is one; what
    /// does not fit is an error, and nothing was filled.
    pub fn fill(&mut self, plan: &StepPlan, room: Option<usize>) -> Result<(), String> {
        self.metadata.pack(plan, room)
    }

    /// Gives each array the place that it has in the largest step.
    pub fn spread(&mut self) {
        self.metadata.spread();
    }

    /// Brings what the step uses to the device.
    pub fn upload(&self, driver: &mut dyn Driver, base: Address) -> Result<(), DriverError> {
        driver.upload(base, &self.metadata.array().0.bytes()[..self.metadata.used() * 4])
    }
}
