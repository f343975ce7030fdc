//! Expanded blocks equal the `gguf` package's NumPy code bit for bit: some blocks that goldens/text.py made, and many random
//! ones.

use rand_xoshiro::SplitMix64;
use rand_xoshiro::rand_core::{Rng as _, SeedableRng as _};
use safetensors::SafeTensors;
use std::process::Command;
use vosti_model::dequantise::GgmlType;

use GgmlType::*;

const QUANTISED: [GgmlType; 13] = [Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, Q2_K, Q3_K, Q4_K, Q5_K, Q6_K, IQ4_NL, IQ4_XS, MXFP4];

fn floats(bytes: &[u8]) -> Vec<u32> {
    bytes.chunks_exact(4).map(|b| u32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect()
}

fn expanded(kind: GgmlType, bytes: &[u8]) -> Vec<u32> {
    let mut out = vec![0.0f32; bytes.len() / kind.block_bytes() * kind.block_elements()];
    kind.expand(bytes, &mut out);
    out.iter().map(|v| v.to_bits()).collect()
}

#[test]
fn every_quantised_type_expands_to_the_references_floats() {
    let golden = SafeTensors::deserialize(include_bytes!("text/blocks.safetensors")).unwrap();
    for kind in [F16, BF16].into_iter().chain(QUANTISED) {
        let bytes = golden.tensor(&format!("{kind:?}.bytes")).unwrap();
        let expected = floats(golden.tensor(&format!("{kind:?}.values")).unwrap().data());
        assert!(expanded(kind, bytes.data()) == expected, "{kind:?}");
    }
}

/// Expands blocks of a type in one file into another.
const REFERENCE: &str = "\
import sys, gguf, numpy
kind = gguf.GGMLQuantizationType[sys.argv[1]]
blocks = numpy.fromfile(sys.argv[2], numpy.uint8).reshape(-1, gguf.GGML_QUANT_SIZES[kind][1])
gguf.dequantize(blocks, kind).astype(numpy.float32).tofile(sys.argv[3])
";

/// Blocks of any bytes whose scales are finite: all halves there are, zero, denormal and negative ones among them.
#[test]
fn random_blocks_of_every_type_expand_to_the_references_floats() {
    let Some(python) = vosti_test_tools::python("gguf") else { return };
    let folder = std::env::temp_dir().join(format!("vosti-blocks-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let mut random = SplitMix64::seed_from_u64(18);
    for kind in QUANTISED {
        let size = kind.block_bytes();
        let mut blocks = Vec::with_capacity(size << 16);
        while blocks.len() < (size << 16).min(4 << 20) {
            let block: Vec<u8> = (0..size).map(|_| random.next_u64() as u8).collect();
            if kind.first_not_finite(&block).is_none() {
                blocks.extend(block);
            }
        }
        let [from, to] = ["blocks", "values"].map(|name| folder.join(name));
        std::fs::write(&from, &blocks).unwrap();
        let ran = Command::new(&python).args(["-c", REFERENCE, kind.name()]).args([&from, &to]).output().unwrap();
        assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
        assert!(expanded(kind, &blocks) == floats(&std::fs::read(&to).unwrap()), "{kind:?}");
    }
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn a_block_is_refused_just_if_some_of_it_is_not_finite() {
    let mut random = SplitMix64::seed_from_u64(19);
    for kind in QUANTISED {
        let mut refused = 0;
        for _ in 0..20_000 {
            let mut block: Vec<u8> = (0..kind.block_bytes()).map(|_| random.next_u64() as u8).collect();
            // Each value of a small table at least once, so that the largest is there.
            if kind == MXFP4 {
                block[1..].iter_mut().enumerate().for_each(|(i, byte)| *byte = (17 * i) as u8);
            }
            let finite = expanded(kind, &block).iter().all(|bits| f32::from_bits(*bits).is_finite());
            assert_eq!(kind.first_not_finite(&block).is_none(), finite, "{kind:?}");
            refused += usize::from(!finite);
        }
        assert!(refused > 50, "{kind:?}: {refused}");
    }
}
