//! Expanded blocks equal the `gguf` package's NumPy code bit for bit (made by goldens/text.py).

use safetensors::SafeTensors;
use vosti_model::dequantise::GgmlType;

fn floats(bytes: &[u8]) -> Vec<u32> {
    bytes.chunks_exact(4).map(|b| u32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect()
}

#[test]
fn every_quantised_type_expands_to_the_references_floats() {
    use GgmlType::*;
    let golden = SafeTensors::deserialize(include_bytes!("text/blocks.safetensors")).unwrap();
    for kind in [F16, BF16, Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, Q4_K, Q5_K, Q6_K] {
        let bytes = golden.tensor(&format!("{kind:?}.bytes")).unwrap();
        let expected = floats(golden.tensor(&format!("{kind:?}.values")).unwrap().data());
        let mut out = vec![0.0f32; expected.len()];
        kind.expand(bytes.data(), &mut out);
        let got: Vec<u32> = out.iter().map(|v| v.to_bits()).collect();
        assert_eq!(got, expected, "{kind:?}");
    }
}
