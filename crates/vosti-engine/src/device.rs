//! The engine's demands on a device beyond the core's: rows of logits are numbers. [`forward_device`](crate::forward_device)
//! passes every call on to an inner device, for devices that wrap another one.

use vosti_core::{Device, Token};

/// A device whose rows of logits are FP32, and whose lists are the largest of them with their tokens.
pub trait FloatDevice: Device<Logits = [f32], Top = [(Token, f32)]> {}

impl<D: Device<Logits = [f32], Top = [(Token, f32)]>> FloatDevice for D {}

/// Methods of `Device` that a device passes on to the one that it holds: of `limits` (all that a device says of itself),
/// `clear`, `run` and `rows` (what the last step left), those that are named. The name before `in` is what each pattern
/// binds: the device that is held.
///
/// ```
/// use vosti_core::{Device, DeviceError, Program, StepPlan, Token};
/// struct Counting<D> {
///     inner: D,
///     steps: usize,
/// }
///
/// impl<D: Device> Device for Counting<D> {
///     type Logits = D::Logits;
///     type Top = D::Top;
///
///     vosti_engine::forward_device!(device in [Self { inner: device, .. }]: limits, clear, rows);
///
///     fn run(&mut self, program: &Program, plan: &StepPlan) -> Result<(), DeviceError> {
///         self.steps += 1;
///         self.inner.run(program, plan)
///     }
/// }
/// ```
#[macro_export]
macro_rules! forward_device {
    ($device:ident in $held:tt: $($part:ident),+) => {
        $($crate::forward_device!(@$part $device $held);)+
    };
    (@limits $device:ident [$($held:pat),+]) => {
        fn rows_max(&self) -> usize {
            match self { $($held => $device.rows_max(),)+ }
        }

        fn selected_max(&self) -> usize {
            match self { $($held => $device.selected_max(),)+ }
        }

        fn pages(&self, group: usize) -> usize {
            match self { $($held => $device.pages(group),)+ }
        }

        fn top_max(&self) -> usize {
            match self { $($held => $device.top_max(),)+ }
        }
    };
    (@clear $device:ident [$($held:pat),+]) => {
        fn clear(&mut self) {
            match self { $($held => $device.clear(),)+ }
        }
    };
    (@run $device:ident [$($held:pat),+]) => {
        fn run(&mut self, program: &::vosti_core::Program, plan: &::vosti_core::StepPlan) -> Result<(), ::vosti_core::DeviceError> {
            match self { $($held => $device.run(program, plan),)+ }
        }
    };
    (@rows $device:ident [$($held:pat),+]) => {
        fn logits(&self, selected: usize) -> &Self::Logits {
            match self { $($held => $device.logits(selected),)+ }
        }

        fn best(&self, selected: usize) -> ::vosti_core::Token {
            match self { $($held => $device.best(selected),)+ }
        }

        fn top(&self, selected: usize) -> &Self::Top {
            match self { $($held => $device.top(selected),)+ }
        }
    };
}
