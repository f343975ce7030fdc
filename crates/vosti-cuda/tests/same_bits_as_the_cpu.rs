//! The device on a stand-in that executes TTIR gives the CPU device's logits, bit for bit: every buffer is bound to the
//! right parameter, every step's metadata says what the plan says, and recorded launches are the right ones. It says
//! nothing of a GPU's arithmetic.

mod common;

use common::{StandIn, TARGET, images, numbers, plan};
use std::ops::Range;
use vosti_core::Device;
use vosti_cpu::CpuDevice;
use vosti_cuda::{CudaDevice, TensorData, WeightError, Weights};
use vosti_engine::{Engine, Event, Policy, Request, Sampling};
use vosti_model::{ModelPlan, Recipe};

/// Both devices' source of weights.
struct Random<'a>(&'a ModelPlan);

impl Random<'_> {
    fn part(&self, name: &str, rows: Range<usize>) -> (Vec<f32>, bool) {
        let shape = self.0.weights[name].shape();
        let width: usize = shape[1..].iter().product();
        let all = numbers(name, shape.iter().product());
        let matrix = matches!(self.0.weights[name], Recipe::Matrix { .. });
        // Norms are around one.
        let shift = if shape.len() == 1 { 1.0 } else { 0.0 };
        (all[rows.start * width..rows.end * width].iter().map(|x| x + shift).collect(), matrix)
    }
}

fn bf16(values: Vec<f32>) -> Vec<u16> {
    values.into_iter().map(|x| (x.to_bits() >> 16) as u16).collect()
}

impl Weights for Random<'_> {
    fn shape(&self, name: &str) -> Result<Vec<usize>, WeightError> {
        Ok(self.0.weights[name].shape())
    }
    fn rows(&self, name: &str, rows: Range<usize>) -> Result<TensorData, WeightError> {
        Ok(match self.part(name, rows) {
            (values, true) => TensorData::Bf16(bf16(values)),
            (values, false) => TensorData::F32(values),
        })
    }
}

fn pages(plan: &ModelPlan) -> Vec<usize> {
    vec![8; plan.program.groups.len()]
}

fn cuda(plan: &ModelPlan, graphs: bool) -> CudaDevice<StandIn> {
    let config = vosti_cuda::Config { graphs, ..vosti_cuda::Config::new(96, 96, pages(plan)) };
    let (program, bindings) = (&plan.program, &plan.bindings);
    CudaDevice::new(StandIn::new(), TARGET, program, bindings, &images(plan), &Random(plan), config).unwrap()
}

fn cpu(plan: &ModelPlan) -> CpuDevice {
    let config = vosti_cpu::Config::new(96, 96, pages(plan), 1);
    CpuDevice::new(&plan.program, &plan.bindings, &Random(plan), config).unwrap()
}

/// Prompts that cross pages and chunks, together, then decoding; the bits of every row of logits.
fn serve<D: Device<Logits = [f32]>>(device: D, plan: &ModelPlan) -> Vec<(u64, usize, Vec<u32>)> {
    let policy = Policy { rows_step_max: 96, rows_sequence_max: 50, ..Policy::default() };
    let mut engine = Engine::new(device, plan.program.clone(), policy).unwrap();
    for (i, length) in [70usize, 3, 90].into_iter().enumerate() {
        let prompt = (0..length).map(|t| ((t * 37 + i * 11) % 256) as u32).collect();
        engine.submit(Request::new(prompt, Sampling::greedy(4))).unwrap();
    }
    let mut seen = vec![];
    let mut note = |event: Event<'_>| {
        if let Event::Token { request, index, logits, .. } = event {
            seen.push((request.0, index, logits.iter().map(|x| x.to_bits()).collect()));
        }
    };
    engine.run_until_idle(&mut note).unwrap();
    seen.sort();
    seen
}

fn check(config: &str) {
    let plan = plan(config, "cpu", None);
    let wanted = serve(cpu(&plan), &plan);
    assert_eq!(wanted.len(), 12, "three requests of four tokens");
    let spread = wanted.iter().flat_map(|(_, _, row)| row).map(|bits| f32::from_bits(*bits));
    let (low, high) = spread.fold((f32::MAX, f32::MIN), |(low, high), x| (low.min(x), high.max(x)));
    assert!(low.is_finite() && high - low > 1.0, "logits of {low} to {high} would be equal for no reason");
    for graphs in [false, true] {
        assert!(serve(cuda(&plan, graphs), &plan) == wanted, "{config}, graphs {graphs}: other bits than the CPU's");
    }
}

#[test]
fn a_llama_has_the_cpu_devices_bits() {
    check("tests/tiny/llama/config.json");
}

#[test]
fn a_gemma_with_windows_has_the_cpu_devices_bits() {
    check("tests/tiny/gemma3/config.json");
}
