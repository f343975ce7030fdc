//! Tensor maps of launches, and those that are refused. On a stand-in: nothing here runs on a GPU.

use std::collections::BTreeMap;
use std::sync::Arc;
use vosti_contract::Extent;
use vosti_cubin::{Arch, Descriptor};
use vosti_cuda::driver::Driver;
use vosti_cuda::launch::Code;
use vosti_kernels::{Admitted, Binding, Proved, parse_stem};
use vosti_stand_in::{StandIn, cubin};

/// A high tile of the product of gate and up, whose weight has 2 * 1536 rows of 576 numbers.
const COPIED: &str = "linear_glu-bf16-ACT0-BK64-BM128-BN128-K576-N1536-SWAP1";

/// Its parameters: input, rows, weight, output. A row has 1,152 bytes.
const ROW: u64 = 1152;

#[test]
fn what_is_copied_by_descriptor_is_a_matrix_within_its_buffer() {
    let spec = parse_stem(COPIED).unwrap();
    let mut driver = dry();
    let code = Code::load(&mut driver, &cubin(&spec), &proved(), Arch::Sm90).unwrap();
    let [x, w] = [200 * ROW, 3072 * ROW].map(|bytes| driver.allocate(bytes).unwrap());
    let pointers = |x, w| [x, 0x2000, w, 0x4000, 0, 0];
    let mut launch = |x: (u64, u64), w: (u64, u64)| {
        let pointers = pointers(x.0, w.0);
        let maps = code.maps(&mut driver, &pointers, |param| if param == 0 { x.1 } else { w.1 })?;
        let launched = code.launch(&mut driver, Extent { rows: 9, tiles: 0, length: 0 }, &pointers, &maps);
        launched.map(|()| driver.log().pop().unwrap())
    };
    let line = launch((x, 200 * ROW), (w, 3072 * ROW)).unwrap();
    let shown = "params #0[200x576 by 128x64, 128] 0x2000? #1[3072x576 by 128x64, 128] 0x4000? 0 0";
    assert!(line.ends_with(shown), "{line}");
    // From the third row on, and with a part of a row behind the last.
    let line = launch((x + 2 * ROW, 198 * ROW), (w, 3072 * ROW)).unwrap();
    assert!(line.contains("#0+2304[198x576"), "{line}");
    assert!(launch((x, 9 * ROW + 8), (w, 3072 * ROW)).unwrap().contains("#0[9x576"));
    let refused = [
        ((0, 200 * ROW), (w, 3072 * ROW), "a map of 200 rows of 1152 bytes of `x`, 230400 bytes at 0x0"),
        ((x + 8, 199 * ROW), (w, 3072 * ROW), "of `x`"),
        ((x, ROW - 2), (w, 3072 * ROW), "a map of 0 rows"),
        ((x, 200 * ROW), (w, 3072 * ROW - 2), "a map of 3072 rows of 1152 bytes of `w`, 3538942 bytes"),
        // The stand-in sees that a map leaves its allocation.
        ((x, 201 * ROW), (w, 3072 * ROW), "it leaves its allocation"),
    ];
    for (x, w, says) in refused {
        let message = launch(x, w).unwrap_err().to_string();
        assert!(message.contains(says), "{says}: {message}");
    }
    let without = code.launch(&mut driver, Extent { rows: 9, tiles: 0, length: 0 }, &pointers(x, w), &[]);
    assert!(without.unwrap_err().to_string().contains("0 tensor maps"));
}

/// The record says what the launcher encodes. The stand-in has what the kernel was compiled for in front of its text.
#[test]
fn a_record_with_another_descriptor_than_the_kernels_is_refused() {
    type Change = fn(&mut Vec<Descriptor>);
    let load: [(&str, Change); 5] = [
        ("no tensor map can be", |list| list[0].param = 1),
        ("no tensor map can be", |list| list[0].param = 3),
        ("no tensor map can be", |list| list[0].swizzle = 48),
        ("no tensor map can be", |list| list[0].tile[0] = 257),
        ("no tensor map can be", |list| list[0].elem = 4),
    ];
    let launched: [(&str, Change); 5] = [
        ("another tensor map than the kernel's", |list| list[0].tile = [64, 64]),
        ("another tensor map than the kernel's", |list| list[1].tile = [128, 32]),
        ("another tensor map than the kernel's", |list| list[1].swizzle = 0),
        ("a tensor map in the place of an address, or the reverse", |list| _ = list.pop()),
        ("a tensor map in the place of an address, or the reverse", |list| list.clear()),
    ];
    let spec = parse_stem(COPIED).unwrap();
    for (at, (says, change)) in load.into_iter().chain(launched).enumerate() {
        let (mut driver, mut cubin) = (dry(), cubin(&spec));
        change(&mut cubin.record.metadata.descriptors);
        let code = Code::load(&mut driver, &cubin, &proved(), Arch::Sm90);
        let found = code.and_then(|code| {
            assert!(at >= load.len(), "{says}");
            let [x, w] = [200 * ROW, 3072 * ROW].map(|bytes| driver.allocate(bytes).unwrap());
            let pointers = [x, 0x2000, w, 0x4000, 0, 0];
            let maps = code.maps(&mut driver, &pointers, |param| if param == 0 { 200 * ROW } else { 3072 * ROW })?;
            code.launch(&mut driver, Extent { rows: 9, tiles: 0, length: 0 }, &pointers, &maps)
        });
        let message = found.unwrap_err().to_string();
        assert!(message.contains(says), "{says}: {message}");
    }
}

fn dry() -> StandIn {
    let mut driver = StandIn::default();
    driver.dry = true;
    driver
}

fn proved() -> Arc<Proved> {
    let spec = parse_stem(COPIED).unwrap();
    Admitted::unproved(&[Binding::one(spec.clone(), BTreeMap::new())]).unwrap().kernel(&spec).unwrap().clone()
}
