//! The device laws of `vosti_check::laws` on this device, over a stand-in that executes TTIR. They test the device's own
//! part (buffers, metadata, recordings, failures), and nothing of a GPU's arithmetic.

#[path = "../../vosti-cpu/tests/programs/mod.rs"]
mod programs;

use programs::{OVERFLOWING, Random, VOCAB, attending, rowwise};
use std::collections::BTreeMap;
use vosti_check::laws::{self, Bench, Subject};
use vosti_core::Program;
use vosti_cuda::{Config, CudaDevice};
use vosti_kernels::{Admitted, Binding};
use vosti_stand_in::{Flaw, StandIn, TARGET, cubin};

fn subject() -> Subject<CudaDevice<StandIn>> {
    with_flaw(Flaw::None)
}

fn with_flaw(flaw: Flaw) -> Subject<CudaDevice<StandIn>> {
    let bench = |(program, bindings): (Program, Vec<Binding>)| {
        let specs = bindings.iter().flat_map(|binding| &binding.launches).map(|launch| &launch.spec);
        let cubins: BTreeMap<String, _> = specs.map(|spec| (spec.to_string(), cubin(spec))).collect();
        let (made, admitted) = (program.clone(), Admitted::unproved(&bindings).unwrap());
        let device = move || {
            let driver = StandIn::with(flaw);
            let config = Config::new(200, 180, vec![8; 3]);
            Ok(CudaDevice::new(driver, TARGET, &made, &admitted, &cubins, &Random, config).unwrap())
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

#[test]
fn a_device_whose_bits_depend_on_the_batch_breaks_a_law() {
    assert!(laws::rowwise_depends_on_its_row(&with_flaw(Flaw::Batch)).is_err());
    assert!(laws::stored_rows_are_found_again(&with_flaw(Flaw::Batch)).is_err());
}
