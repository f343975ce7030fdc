//! The bandwidth of a GPU's memory is measured by reads: `read.ptx`, executed thread by thread here, and assembled for every
//! target. It is measured by copies if the driver does not compile the text, or if the sums are wrong.

use vosti_cuda::bandwidth::{Extent, PTX, measure};
use vosti_stand_in::StandIn;

/// Three rounds of two blocks.
const SMALL: Extent = Extent { blocks: 2, bytes_max: 3 * 2 * 256 * 64 };

fn by(ptx: &str) -> (bool, f64, Vec<String>) {
    let mut driver = StandIn::fast();
    driver.ptx = true;
    let found = measure(&mut driver, ptx, SMALL).unwrap();
    (found.read, found.bytes_per_s, driver.log())
}

#[test]
fn all_of_the_memory_is_read() {
    let (read, bytes_per_s, log) = by(PTX);
    assert!(read, "{log:?}");
    // A launch takes the stand-in a microsecond.
    assert!((bytes_per_s / (SMALL.bytes_max as f64 * 1e6) - 1.0).abs() < 1e-9, "{bytes_per_s}");
    assert!(log.iter().any(|line| line.ends_with("grid [2, 1, 1] threads 256")), "{log:?}");
}

/// After each change of the text the sums are wrong or the text does not compile, so copies are measured.
#[test]
fn a_text_that_reads_something_else_is_seen() {
    let changes = [
        ("add.s64 %d7, %d10, %d6;", "add.s64 %d7, %d7, 0;"),
        ("add.s64 %d2, %d2, -1;", "add.s64 %d2, %d2, -3;"),
        ("[%d9]", "[%d8]"),
        ("add.u32 %r18, %r18, %r19;", "add.u32 %r18, %r18, %r18;"),
        ("shl.b64 %d7, %d4, 4;", "shl.b64 %d7, %d4, 3;"),
        ("shl.b64 %d11, %d4, 2;", "shl.b64 %d11, %d4, 1;"),
        ("mov.u32 %r5, 0;", "mov.u32 %r5, 1;"),
        ("@%p1 bra LOOP;", ""),
    ];
    for (from, to) in changes {
        let text = PTX.replace(from, to);
        assert_ne!(text, PTX, "{from}");
        let mut driver = StandIn::fast();
        driver.ptx = true;
        assert!(!matches!(measure(&mut driver, &text, SMALL), Ok(found) if found.read), "{to} is not seen");
    }
}

#[test]
fn without_a_compiler_or_without_room_copies_are_measured() {
    let with = |ptx: bool, free: u64| {
        let mut driver = StandIn::fast();
        (driver.ptx, driver.free) = (ptx, free);
        let found = measure(&mut driver, PTX, SMALL).unwrap();
        (found.read, driver.log().iter().filter(|line| line.starts_with("copy")).count())
    };
    assert_eq!((with(false, 1 << 30), with(true, 1 << 16)), ((false, 28), (false, 28)));
}

#[test]
fn it_assembles_for_every_target() {
    vosti_stand_in::assembles(PTX);
}
