//! What the engine asks of a device beyond the core: rows of logits are numbers.

use vosti_core::{Device, Token};

/// A device whose rows of logits are FP32, and whose lists are the largest of them with their tokens.
pub trait FloatDevice: Device<Logits = [f32], Top = [(Token, f32)]> {}

impl<D: Device<Logits = [f32], Top = [(Token, f32)]>> FloatDevice for D {}
