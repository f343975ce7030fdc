//! The input of `kernels/ttir.py`: specialisations as JSON, with the element type of each parameter.

use crate::error::KernelError;
use crate::inventory::kernel;
use crate::spec::Spec;
use std::fmt::Write;
use vosti_contract::{Const, Number, dtype};

/// A JSON list of `{stem, kernel, act, scalars, constants, pointers}`, one for each specialisation. An error if a kernel does not
/// exist.
pub fn request(specs: &[Spec]) -> Result<String, KernelError> {
    let mut out = String::from("[");
    for (i, spec) in specs.iter().enumerate() {
        let act = dtype::triton(spec.act);
        let separator = if i == 0 { "" } else { "," };
        write!(
            out,
            "{separator}\n{{\"stem\": \"{}\", \"kernel\": \"{}\", \"act\": \"{act}\", ",
            spec.text(),
            spec.kernel
        )
        .ok();
        let numbers = &kernel(&spec.kernel)?.contract.numbers;
        let scalar = |number: &Number| format!("\"{}\": \"{}\"", number.name, number.triton());
        write!(out, "\"scalars\": {{{}}}, ", numbers.iter().map(scalar).collect::<Vec<_>>().join(", ")).ok();
        let text = spec.text();
        let constants = text.constants.iter().map(|(name, value)| match value {
            Const::Int(v) => format!("\"{name}\": {v}"),
            Const::Float(v) => format!("\"{name}\": {v:?}"),
        });
        write!(out, "\"constants\": {{{}}}, ", constants.collect::<Vec<_>>().join(", ")).ok();
        write!(out, "\"pointers\": {{{}}}}}", pointers(spec)?.join(", ")).ok();
    }
    Ok(out + "\n]\n")
}

fn pointers(spec: &Spec) -> Result<Vec<String>, KernelError> {
    let params = &kernel(&spec.kernel)?.contract.params;
    Ok(params.iter().map(|p| format!("\"{}\": \"{}\"", p.name, dtype::triton(p.elem(spec.act)))).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use vosti_contract::Dtype;

    #[test]
    fn a_request_names_every_parameter() {
        let dims =
            [("HEADS", 2), ("HALF", 8), ("PACKED", 4), ("FIRST", 0), ("NORM", 0)].map(|(n, v)| (n, Const::Int(v)));
        let dims = [&dims[..], &[("EPS", Const::Float(1e-6))]].concat();
        let spec = crate::specialise("cpu", "rope_q", Dtype::F32, &dims).unwrap();
        let json = request(&[spec]).unwrap();
        // A model's number is a parameter of the text; a tile constant is a constant of the text.
        for part in
            ["\"norm_w\": \"fp32\"", "\"qkv\": \"fp32\"", "\"EPS\": \"fp32\"", "\"NORM\": \"i32\"", "\"HP\": 32"]
        {
            assert!(json.contains(part), "{part}: {json}");
        }
    }
}
