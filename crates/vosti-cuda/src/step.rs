//! A step's metadata on the device: one allocation, its image in host memory, and one upload of the part that the step uses.
//!
//! `vosti-wiring` decides the contents and the place of each array. Read next: [`crate::device`].

use crate::driver::{Address, Driver, DriverError};
use crate::host::HostMemory;
use vosti_contract::Extent;
use vosti_core::{PAGE, StepPlan};
use vosti_wiring::{Ints, Meta, Metadata, Size};

struct Image(HostMemory);

impl Ints for Image {
    fn cells(&mut self) -> &mut [i32] {
        self.0.ints_mut()
    }
}

/// A step's metadata. It is filled and uploaded before each step; the next one is filled only after the device has read it.
pub struct Step {
    metadata: Metadata<Image>,
}

impl Step {
    /// Allocates host memory for the whole array.
    pub fn new(driver: &mut dyn Driver, image: vosti_wiring::Image) -> Result<Step, DriverError> {
        let array = Image(driver.host(image.len() * 4)?);
        Ok(Step { metadata: Metadata::new(image, array) })
    }

    /// Bytes of the whole array on the device.
    pub fn bytes(&self) -> u64 {
        self.metadata.array().0.bytes().len() as u64
    }

    /// The byte offset of an array, for launches of the filled step and for recordings with the same room.
    pub fn start(&self, meta: Meta) -> u64 {
        self.metadata.place(meta).start as u64 * 4
    }

    /// Positions of the longest sequence of the filled step.
    pub fn length(&self) -> usize {
        self.metadata.length()
    }

    /// The extent of a launch of the filled step.
    pub fn extent(&self, size: Size) -> Extent {
        self.metadata.extent(size)
    }

    /// The pages of keys that the rows of each query tile of a tiling see, in a launch of the filled step.
    pub fn pages(&self, tiling: usize) -> impl Iterator<Item = usize> {
        let ints = self.metadata.array().0.ints();
        let of = |meta| ints[self.metadata.place(meta)].iter().map(|n| *n as usize);
        let ends = of(Meta::TilePos { tiling }).zip(of(Meta::TileRows { tiling })).map(|(first, rows)| first + rows);
        ends.map(|end| end.div_ceil(PAGE))
    }

    /// Fills everything from a plan; with `room`, for launches with room for so many rows of one request each. Error: the plan
    /// does not fit, and nothing was filled.
    pub fn fill(&mut self, plan: &StepPlan, room: Option<usize>) -> Result<(), String> {
        self.metadata.pack(plan, room)
    }

    /// Gives each array its place in the largest step.
    pub fn widen(&mut self) {
        self.metadata.widen();
    }

    /// Uploads the part that the step uses.
    pub fn upload(&self, driver: &mut dyn Driver, base: Address) -> Result<(), DriverError> {
        driver.upload(base, &self.metadata.array().0.bytes()[..self.metadata.used() * 4])
    }
}
