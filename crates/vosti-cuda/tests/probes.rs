//! The probes of a GPU's kernels, on a stand-in: they pass on correct kernels, and they notice each way in which the stand-in
//! can be made to break a contract. This shows nothing about a GPU.

use std::collections::BTreeMap;
use std::ops::Range;
use vosti_cubin::Cubin;
use vosti_cuda::probe::{Hooks, ProbeOptions, Probed};
use vosti_cuda::{Config, CudaDevice, TensorData, WeightError, Weights};
use vosti_kernels::Admitted;
use vosti_model::{ModelPlan, Recipe};
use vosti_stand_in::{Flaw, StandIn, TARGET, cubins, numbers, plan};
use vosti_tile::interp::{Buffer, run};

struct Random<'a>(&'a ModelPlan);

impl Weights for Random<'_> {
    fn shape(&self, name: &str) -> Result<Vec<usize>, WeightError> {
        Ok(self.0.weights[name].shape())
    }
    fn rows(&self, name: &str, rows: Range<usize>) -> Result<TensorData, WeightError> {
        let shape = self.0.weights[name].shape();
        let width: usize = shape[1..].iter().product();
        let values = &numbers(name, shape.iter().product())[rows.start * width..rows.end * width];
        Ok(match self.0.weights[name].recipe {
            Recipe::Matrix { .. } => TensorData::Bf16(values.iter().map(|x| (x.to_bits() >> 16) as u16).collect()),
            _ => TensorData::F32(values.iter().map(|x| 1.0 + x).collect()),
        })
    }
}

/// Executes all programs of a launch by the interpreter.
fn interpreted(
    cubins: &BTreeMap<String, Cubin>,
    name: &str,
    bytes: &mut [Vec<u8>],
    grid: [usize; 3],
) -> Result<(), String> {
    let kernel = vosti_tile::lift(&cubins[name].ttir).map_err(|error| error.to_string())?;
    let size = |i: usize| kernel.params[i].elem.bytes();
    let mut buffers: Vec<Buffer> = bytes
        .iter()
        .enumerate()
        .map(|(i, bytes)| Buffer::zeros(kernel.params[i].elem, bytes.len() / size(i)))
        .collect();
    for (i, (buffer, bytes)) in buffers.iter_mut().zip(bytes.iter()).enumerate() {
        for (at, cell) in bytes.chunks_exact(size(i)).enumerate() {
            let mut bits = [0; 8];
            bits[..cell.len()].copy_from_slice(cell);
            buffer.set_bits(at, u64::from_le_bytes(bits));
        }
    }
    run(&kernel, &mut buffers, grid, &Default::default()).map_err(|error| error.to_string())?;
    for (i, (buffer, bytes)) in buffers.iter().zip(bytes.iter_mut()).enumerate() {
        for (at, cell) in bytes.chunks_exact_mut(size(i)).enumerate() {
            cell.copy_from_slice(&buffer.bits(at).to_le_bytes()[..cell.len()]);
        }
    }
    Ok(())
}

fn probe(config: &str, flaw: Flaw, cases: usize) -> Vec<Probed> {
    let plan = plan(config, "cpu", None);
    let cubins = cubins(&plan);
    let driver = StandIn::with(flaw);
    let config = Config { graphs: false, ..Config::new(100, 100, vec![16; plan.program.groups.len()]) };
    let (program, admitted) =
        (&plan.program, Admitted::unproved(&plan.bindings).unwrap().with_draws(plan.draws.clone()));
    let mut device = CudaDevice::new(driver, TARGET, program, &admitted, &cubins, &Random(&plan), config).unwrap();
    // The stand-in's flaw is the device's, not the reference's.
    let mut reference = |spec: &vosti_kernels::Spec, bytes: &mut [Vec<u8>], grid: [usize; 3]| {
        interpreted(&cubins, &spec.to_string(), bytes, grid)
    };
    let options = ProbeOptions { cases, references: 1, seed: 3 };
    let mut probed = vec![];
    let mut done = |kernel, _| probed.push(kernel);
    let hooks = Hooks { reference: &mut reference, keep: &mut |_| Ok(()), done: &mut done, ended: &|| false };
    device.probe(options, hooks).unwrap();
    probed
}

const LLAMA: &str = "tests/tiny/llama/config.json";

#[test]
fn sound_kernels_pass_with_no_error_at_all() {
    for config in [LLAMA, "tests/tiny/gemma3/config.json"] {
        let probed = probe(config, Flaw::None, 40);
        assert!(probed.len() > 8, "{probed:?}");
        for kernel in probed {
            assert!(kernel.passed() && kernel.cases >= 40, "{kernel:?}");
            assert_eq!(kernel.error_max, 0.0, "the reference is what the stand-in does: {kernel:?}");
        }
    }
}

#[test]
fn bits_that_depend_on_the_batch_are_seen_in_every_kernel() {
    for kernel in probe(LLAMA, Flaw::Batch, 200) {
        let seen = kernel.differs.as_ref().is_some_and(|why| why.contains("lane"));
        assert!(seen && !kernel.passed(), "{kernel:?}");
    }
}

/// Rows that are not chosen hold huge numbers, beside which an error would not show, so they are not compared.
#[test]
fn a_chosen_row_that_is_a_tenth_off_is_seen_in_every_kernel() {
    for config in [LLAMA, "tests/tiny/gemma3/config.json"] {
        for kernel in probe(config, Flaw::Tenth, 8) {
            assert!(kernel.differs.is_none() && kernel.error_max > 0.05 && !kernel.passed(), "{kernel:?}");
        }
    }
}

#[test]
fn stray_writes_and_wrong_values_are_seen_in_every_kernel() {
    let stray = probe(LLAMA, Flaw::Padding, 60);
    let unseen: Vec<&Probed> = stray.iter().filter(|kernel| kernel.passed() || kernel.differs.is_none()).collect();
    assert!(unseen.is_empty(), "{unseen:?}");
    for kernel in probe(LLAMA, Flaw::Off, 8) {
        assert!(kernel.differs.is_none() && kernel.error_max > 0.03 && !kernel.passed(), "{kernel:?}");
    }
}
