//! A product in integers that computes something else is not compiled as the instruction that computes the right thing: the
//! broken kernels of `filetests/broken` have the interpreter's bits, as the proved one has, and so have kernels with one number of
//! the proved one's loop changed.

mod common;
use common::*;
use std::collections::BTreeMap;
use vosti_cpu::Isa;
use vosti_tile::interp::{Buffer, Options, run};
use vosti_tile::{Literal, Scalar, bind, fold, lift};

/// The texts of the proved kernel and of its broken siblings, by their names, and those with one number changed.
fn texts() -> Vec<(String, String)> {
    let of = |folder: &str| {
        let tests = vosti_test_tools::filetests::folder(folder).into_iter();
        let named = tests.filter(|test| test.name.starts_with("any_linear_int"));
        named.map(|test| (test.name, test.ttir)).collect::<Vec<(String, String)>>()
    };
    let proved = of("pass");
    let changed = proved.iter().flat_map(|(name, text)| changed(name, text)).collect::<Vec<_>>();
    proved.into_iter().chain(of("broken")).chain(changed).collect()
}

/// The texts in which one integer of the loop is another one: how far a window moves, where a half of a block is.
fn changed(name: &str, text: &str) -> Vec<(String, String)> {
    let lines: Vec<&str> = text.lines().collect();
    let start = lines.iter().position(|line| line.contains("scf.for")).unwrap();
    let end = start + lines[start..].iter().position(|line| *line == "    }").unwrap();
    let mut all = vec![];
    for i in start..end {
        for (from, to) in [
            ("constant 1 : i32", "constant 2 : i32"),
            ("constant 2 : i32", "constant 1 : i32"),
            ("constant 32 : i32", "constant 16 : i32"),
        ] {
            if lines[i].ends_with(from) {
                let mut own: Vec<String> = lines.iter().map(|line| line.to_string()).collect();
                own[i] = own[i].replace(from, to);
                all.push((format!("{name}:{}", i + 1), own.join("\n")));
            }
        }
    }
    all
}

#[test]
fn broken_products_of_integers_have_the_interpreters_bits() {
    const BLOCKS: usize = 3;
    const N: usize = 37;
    let texts = texts();
    assert!(texts.len() > 20, "{}", texts.len());
    let mut compared = 0;
    for (name, text) in &texts {
        let text = lift(text).unwrap();
        for (rows, halves, wide) in [(1, 0, 1), (40, 1, 1), (40, 0, 0), (7, 1, 0)] {
            let flags =
                [("BLOCKS", BLOCKS as i64), ("N", N as i64), ("HALVES", halves), ("OFFSETS", 1), ("WIDE", wide)];
            let values: BTreeMap<String, Literal> =
                flags.into_iter().map(|(name, value)| (name.to_string(), Literal::Int(value))).collect();
            let kernel = fold(&bind(&text, &values).unwrap());
            let mut rng = Rng::new(rows as u64 + 10 * halves as u64);
            // Room for every parameter, so that a kernel that leaves its matrix stays in its buffer.
            let len = 128 * 32 * BLOCKS;
            let buffers: Vec<Buffer> = kernel
                .params
                .iter()
                .map(|param| match (param.name.as_str(), param.elem) {
                    ("rows", _) => Buffer::I32(vec![rows]),
                    (_, Scalar::I8) => Buffer::I8((0..len).map(|_| rng.below(255) as i32 as i8).collect()),
                    (_, Scalar::Bf16) => Buffer::Bf16((0..len).map(|_| 0x3c00 + rng.below(0x300) as u16).collect()),
                    _ => Buffer::F32((0..len).map(|_| rng.float()).collect()),
                })
                .collect();
            let grid = [(rows as usize).div_ceil(16), N.div_ceil(16), 1];
            let mut want = buffers.clone();
            if run(&kernel, &mut want, grid, &Options::default()).is_err() {
                continue; // It left even these buffers.
            }
            for isa in Isa::available() {
                let got = fast(&kernel, &plan(&kernel, *isa), &buffers, grid, *isa, true, Some(3)).unwrap();
                assert_eq!(difference(&kernel, &got, &want), None, "{name} {rows} {halves} {isa:?}");
                compared += 1;
            }
        }
    }
    assert!(compared > 4 * texts.len(), "{compared} of {} texts", texts.len());
}
