//! The engine's demands on a device beyond the core's: logits are FP32. [`forward_device`](crate::forward_device) writes methods
//! of a device that wraps another one.

use vosti_core::{Device, Token};

/// A device whose rows of logits are FP32, and whose lists are the largest of them with their tokens.
pub trait FloatDevice: Device<Logits = [f32], Top = [(Token, f32)]> {}

impl<D: Device<Logits = [f32], Top = [(Token, f32)]>> FloatDevice for D {}

/// Implements methods of `Device` as calls to an inner device. The macro takes names of groups of methods: `limits` (`rows_max`,
/// `selected_max`, `pages`, `top_max`, `draws`), `clear`, `run` and `rows` (`logits`, `best`, `top`, `drawn`). Each pattern binds the inner
/// device to the name before `in`.
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

        fn draws(&self) -> bool {
            match self { $($held => $device.draws(),)+ }
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

        fn drawn(&self, selected: usize, draw: ::vosti_core::Draw) -> ::vosti_core::Token {
            match self { $($held => $device.drawn(selected, draw),)+ }
        }
    };
}
