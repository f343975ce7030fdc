//! The names of element types in contracts, in specialisations' names and in Triton. The type itself is the core's.
//!
//! Read next: [`mod@crate::contract`].

pub use vosti_core::Dtype;

/// All element types.
const ALL: [Dtype; 4] = [Dtype::I8, Dtype::I32, Dtype::Bf16, Dtype::F32];

/// The name of a type in a contract and in a specialisation's name.
pub fn name(dtype: Dtype) -> &'static str {
    match dtype {
        Dtype::I8 => "i8",
        Dtype::I32 => "i32",
        Dtype::Bf16 => "bf16",
        Dtype::F32 => "f32",
    }
}

/// The type of this name; None for a text that is no name.
pub fn named(text: &str) -> Option<Dtype> {
    ALL.into_iter().find(|dtype| name(*dtype) == text)
}

/// Triton's name of a type.
pub fn triton(dtype: Dtype) -> &'static str {
    match dtype {
        Dtype::F32 => "fp32",
        Dtype::I8 | Dtype::I32 | Dtype::Bf16 => name(dtype),
    }
}
