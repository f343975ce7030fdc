//! The device laws of `vosti_check::laws` on this device.

mod programs;

use programs::{OVERFLOWING, Random, VOCAB, attending, rowwise};
use vosti_check::laws::{self, Bench, Subject, Verdict};
use vosti_core::Program;
use vosti_cpu::{Config, CpuDevice};
use vosti_kernels::{Admitted, Binding, Spec};

fn subject() -> Subject<CpuDevice> {
    with_texts(&[])
}

/// The subject, with other texts for some specialisations.
fn with_texts(edited: &[(&Spec, String)]) -> Subject<CpuDevice> {
    let bench = |(program, bindings): (Program, Vec<Binding>)| {
        let made = program.clone();
        let admitted = Admitted::unproved(&bindings).unwrap();
        let admitted = edited.iter().fold(admitted, |admitted, (spec, text)| admitted.with_text(spec, text));
        let device = move || {
            // Lanes that nothing defines are filled with NaN, infinities and random bits.
            let config = Config { poison: Some(5), ..Config::new(200, 180, vec![8; 3], 2) };
            Ok(CpuDevice::new(&made, &admitted, &Random, config).unwrap())
        };
        Bench { program, device: Box::new(device) }
    };
    Subject {
        rowwise: bench(rowwise()),
        attending: bench(attending()),
        overflowing: OVERFLOWING..VOCAB,
        refuse: |device, program, plan| {
            // It refuses a program that it was not made for.
            let other = Program { context: program.context - 1, ..program.clone() };
            vosti_core::Device::run(device, &other, plan)
        },
    }
}

vosti_check::device_laws!(subject);

type Law = fn(&Subject<CpuDevice>) -> Verdict;

/// One operation of one kernel, and the law that sees it changed.
#[test]
fn an_edited_kernel_breaks_a_law() {
    let edits: [(&str, &str, &str, Law); 9] = [
        // What is not finite is stored as it is.
        ("rope_store", "arith.cmpf ole", "arith.cmpf une", laws::what_is_stored_is_finite),
        // The last of the lanes' largest is taken.
        ("argmax", "arith.minnumf", "arith.maxnumf", laws::the_best_token_is_the_rows_first_largest),
        // The smallest.
        ("topk_part", "arith.maxnumf", "arith.minnumf", laws::a_list_has_the_rows_largest_in_order),
        ("topk_combine", "arith.maxnumf", "arith.minnumf", laws::a_list_has_the_rows_largest_in_order),
        // Keys that come after the row are seen.
        ("attend", "arith.cmpi sle", "arith.cmpi ne", laws::stored_rows_are_found_again),
        // A row takes another row's partial results.
        ("attend_combine", "tt.addptr %tile_row,", "tt.addptr %tile_pos,", laws::stored_rows_are_found_again),
        // The entries that earlier steps stored in a page, or the state at the page's start, are taken for zeros.
        ("store_delta", "cmpi slt, %j, %old", "cmpi sge, %j, %old", laws::a_store_sees_the_entries_before_it),
        ("store_delta", "cmpi sgt, %begun", "cmpi slt, %begun", laws::a_store_sees_the_entries_before_it),
        // Later rows of a page are seen.
        ("read_state", "arith.cmpi sle", "arith.cmpi ne", laws::a_store_sees_the_entries_before_it),
    ];
    let (_, bindings) = attending();
    for (kernel, from, to, law) in edits {
        let specs = bindings.iter().flat_map(|binding| &binding.launches).map(|launch| &launch.spec);
        let edit = |spec| (spec, vosti_kernels::ttir(spec).unwrap().replace(from, to));
        let edited: Vec<_> = specs.filter(|spec| spec.kernel == kernel).map(edit).collect();
        assert!(edited.iter().all(|(_, text)| text.contains(to)), "{kernel} has no {from}");
        assert!(law(&with_texts(&edited)).is_err(), "no law sees {to} in {kernel}");
    }
}
