//! Writes down everything that a model's launches read, so that an evaluator elsewhere can compute what they should give.
//!
//! `crates/vosti-tile/tests/numpy/whole.py` says what the files are. Of the device only the logits are recorded.

use serde_json::{Value, json};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use vosti::device::AnyDevice;
use vosti::model_source::ModelSource;
use vosti_contract::Contract;
use vosti_core::{Core, Device, DeviceError, Draw, PAGE, Program, Reads, Sampler, Select, StepPlan, Token};
use vosti_kernels::{Admitted, Proved, Spec};
use vosti_model::ModelPlan;
use vosti_tile::{Kernel, Scalar};
use vosti_wiring::{Bound, Metadata, Size, TensorData, WiringError, caches, image};

struct Text {
    spec: Spec,
    proved: Arc<Proved>,
    kernel: Kernel,
}

impl vosti_wiring::Kernel for Text {
    fn spec(&self) -> &Spec {
        &self.spec
    }

    fn contract(&self) -> &Contract {
        &self.proved.contract
    }

    fn elem(&self, param: usize) -> Scalar {
        self.kernel.params[param].elem
    }
}

/// A device, and the folder to which its launches are written.
struct Recorder {
    device: AnyDevice,
    folder: PathBuf,
    wired: vosti_wiring::Wiring<Text>,
    metadata: Metadata<Vec<i32>>,
    model: Value,
}

/// The sizes of the device that runs the requests: rows a step at most, and KV pages.
pub struct Limits {
    pub rows: usize,
    pub pages: usize,
}

impl Recorder {
    fn new(
        device: AnyDevice,
        source: &ModelSource,
        plan: &ModelPlan,
        admitted: &Admitted,
        limits: &Limits,
        folder: &Path,
    ) -> Self {
        let (program, (rows, selected)) = (&plan.program, (device.rows_max(), device.selected_max()));
        let load = |spec: &Spec| {
            let proved = admitted.kernel(spec).unwrap().clone();
            let kernel = vosti_tile::lift(&proved.text).unwrap();
            Ok::<_, WiringError>(Text { spec: spec.clone(), proved, kernel })
        };
        let wired = vosti_wiring::wire(program, &plan.bindings, None, rows, load).unwrap();
        let image = image(program, &wired.tilings, rows, selected).unwrap();
        let ints = image.len();
        let mut buffers: Vec<Value> = Vec::new();
        let mut places = HashMap::new();
        let mut add = |bound: Bound, elem: Scalar, len: usize, file: Option<String>| {
            places.insert(bound, (buffers.len(), len));
            buffers.push(json!({"elem": elem.to_string(), "len": len, "file": file}));
        };
        for (i, (elem, len)) in wired.rows(rows, selected).into_iter().enumerate() {
            add(Bound::Row(i), elem, len, None);
        }
        for (i, (elem, len)) in wired.scratches(program.context as usize).into_iter().enumerate() {
            add(Bound::Scratch(i), elem, len, None);
        }
        for (bound, len) in caches(program, &vosti_wiring::pool(program, limits.pages, 1)).unwrap() {
            add(bound, wired.elem(bound), len, None);
        }
        for (i, name) in wired.weights.iter().enumerate() {
            let (elem, rows) = (wired.elem(Bound::Weight(i)), plan.weights[name].shape()[0]);
            let bytes: Vec<u8> = match (source.rows(plan, name, 0..rows).unwrap(), elem) {
                (TensorData::Bf16(data), Scalar::Bf16) => data.iter().flat_map(|x| x.to_le_bytes()).collect(),
                (TensorData::Bf16(data), _) => data.iter().flat_map(|x| (u32::from(*x) << 16).to_le_bytes()).collect(),
                (TensorData::F32(data), Scalar::F32) => data.iter().flat_map(|x| x.to_le_bytes()).collect(),
                (TensorData::I8(data), Scalar::I8) => data.iter().map(|x| *x as u8).collect(),
                (TensorData::F32(_) | TensorData::I8(_), _) => {
                    panic!("{name} has another type than its kernels read, {elem}")
                }
            };
            let file = format!("weight.{i}");
            std::fs::write(folder.join(&file), &bytes).unwrap();
            add(Bound::Weight(i), elem, bytes.len() / elem.bytes(), Some(file));
        }
        let meta = buffers.len();
        buffers.push(json!({"elem": "i32", "len": ints, "file": null}));
        let metadata = Metadata::new(image, vec![0; ints]);
        let kernel = |(i, text): (usize, &Text)| {
            let file = format!("kernel.{i}.ttir");
            std::fs::write(folder.join(&file), &text.proved.text).unwrap();
            let param = |p: &vosti_tile::Param| json!({"name": p.name, "elem": p.elem.to_string()});
            json!({"ttir": file, "params": text.kernel.params.iter().map(param).collect::<Vec<_>>()})
        };
        let kernels: Vec<Value> = wired.kernels.iter().enumerate().map(kernel).collect();
        let launches: Vec<Value> = wired
            .launches
            .iter()
            .map(|launch| {
                let param = |bound: &Bound| match bound {
                    Bound::Meta(part) => {
                        let place = metadata.place(*part);
                        json!([meta, place.start, place.end])
                    }
                    bound => {
                        let (number, len) = places[bound];
                        json!([number, launch.start(*bound, program), len])
                    }
                };
                json!({"kernel": launch.kernel, "params": launch.params.iter().map(param).collect::<Vec<_>>()})
            })
            .collect();
        let logits = places[&Bound::Row(program.logits as usize)].0;
        let model = json!({
            "kernels": kernels, "buffers": buffers, "meta": meta, "launches": launches, "logits": logits, "steps": [],
        });
        Self { device, folder: folder.into(), wired, metadata, model }
    }
}

impl Device for Recorder {
    type Logits = [f32];
    type Top = [(Token, f32)];

    vosti_engine::forward_device!(device in [Self { device, .. }]: limits, clear, rows);

    fn run(&mut self, program: &Program, plan: &StepPlan) -> Result<(), DeviceError> {
        self.metadata.fill(plan).unwrap();
        let ints = self.metadata.array().iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<u8>>();
        self.device.run(program, plan)?;
        let grid = |launch: &vosti_wiring::Wired| {
            let text = &self.wired.kernels[launch.kernel];
            text.proved.grid.at(self.metadata.extent(launch.size)).unwrap()
        };
        let grids: Vec<[usize; 3]> = self.wired.launches.iter().map(grid).collect();
        let selected = self.metadata.extent(Size::Selected).rows;
        let logits = (0..selected).flat_map(|row| self.device.logits(row)).flat_map(|x| x.to_le_bytes());
        let logits: Vec<u8> = logits.collect();
        let steps = self.model["steps"].as_array_mut().unwrap();
        let step = json!({
            "meta": format!("meta.{}", steps.len()), "grids": grids, "logits": format!("logits.{}", steps.len()),
        });
        std::fs::write(self.folder.join(step["meta"].as_str().unwrap()), ints).unwrap();
        std::fs::write(self.folder.join(step["logits"].as_str().unwrap()), logits).unwrap();
        steps.push(step);
        Ok(())
    }
}

/// Reads every row of logits and takes the largest.
struct Best(u32);

impl Sampler for Best {
    type Logits = [f32];
    type Top = [(Token, f32)];
    type State = ();

    fn vocab(&self) -> u32 {
        self.0
    }

    fn reads(&self, (): &()) -> Reads {
        Reads::Best
    }

    fn sample(&self, (): &mut (), _: &[f32]) -> (Token, bool) {
        unreachable!("only best tokens are read")
    }

    fn guess(&self, (): &(), _: usize) -> Draw {
        unreachable!("only best tokens are read")
    }

    fn sample_best(&self, (): &mut (), best: Token) -> (Token, bool) {
        (best, false)
    }

    fn sample_drawn(&self, (): &mut (), _: Token) -> (Token, bool) {
        unreachable!("only best tokens are read")
    }

    fn sample_top(&self, (): &mut (), _: &[(Token, f32)]) -> (Token, bool) {
        unreachable!("only best tokens are read")
    }
}

/// Runs two requests on a device and records every step: a prompt in two chunks, the second in a batch with the other prompt,
/// then both decode twice in one batch.
pub fn record(
    device: AnyDevice,
    source: &ModelSource,
    plan: &ModelPlan,
    admitted: &Admitted,
    prompt: usize,
    limits: &Limits,
    folder: &Path,
) {
    let recorder = Recorder::new(device, source, plan, admitted, limits, folder);
    let program = &plan.program;
    let mut core = Core::new(recorder, Best(program.vocab), program.clone()).unwrap();
    let [a, b] = [(prompt, 7), (3, 11)].map(|(length, step)| {
        let tokens = (0..length as u32).map(|i| (i * 37 + step) % program.vocab).collect();
        let request = core.admit(tokens, 0, ()).unwrap();
        for group in 0..program.groups.len() {
            for _ in 0..(length + 2).div_ceil(PAGE) {
                core.take_page(request, group).unwrap();
            }
        }
        request
    });
    for rows in [vec![(a, prompt - 2)], vec![(a, 2), (b, 3)], vec![(a, 1), (b, 1)], vec![(b, 1), (a, 1)]] {
        core.plan_begin().unwrap();
        rows.iter().for_each(|(request, rows)| core.plan_rows(*request, *rows, &[], Select::Last).unwrap());
        core.run().unwrap();
        core.commit().unwrap();
    }
    let recorder = core.device();
    std::fs::write(folder.join("model.json"), recorder.model.to_string()).unwrap();
}
