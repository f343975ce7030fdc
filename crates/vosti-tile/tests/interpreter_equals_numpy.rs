//! Compares the interpreter with an evaluator that shares only the TTIR text with it.
//!
//! Results must be equal for data movement, integers, casts and elementwise arithmetic. For the operations
//! of [`loose`], `numpy/eval.py` says how they are compared. Needs Python with NumPy.

mod common;

use common::some_of_each;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use vosti_tile::interp::{self, Buffer, Options};
use vosti_tile::{Binary, OpKind, Unary};

fn python() -> Option<PathBuf> {
    vosti_test_tools::python("numpy")
}

/// The TTIR name of an operation that the evaluator compares within a bound.
fn loose(kind: &OpKind) -> Option<&'static str> {
    Some(match kind {
        // Only operations with a float result are observed, so these are of floats.
        OpKind::Dot { .. } => "tt.dot",
        OpKind::Reduce { .. } => "tt.reduce",
        OpKind::Fma { .. } => "math.fma",
        OpKind::Unary { op: Unary::Exp, .. } => "math.exp",
        OpKind::Unary { op: Unary::Exp2, .. } => "math.exp2",
        OpKind::Unary { op: Unary::Rsqrt, .. } => "math.rsqrt",
        _ => return None,
    })
}

fn bytes(buffer: &Buffer) -> Vec<u8> {
    let mut out = Vec::with_capacity(buffer.len() * buffer.elem().bytes());
    (0..buffer.len()).for_each(|i| out.extend_from_slice(&buffer.bits(i).to_le_bytes()[..buffer.elem().bytes()]));
    out
}

fn write_buffers(launch: &common::Launch, folder: &Path, when: &str) {
    for (param, buffer) in launch.kernel.params.iter().zip(&launch.buffers) {
        std::fs::write(folder.join(format!("{}.{when}", param.name)), bytes(buffer)).unwrap();
    }
}

/// Runs the interpreter and writes the evaluator's input to `folder`.
fn record(launch: &mut common::Launch, folder: &Path) {
    std::fs::create_dir_all(folder).unwrap();
    std::fs::write(folder.join("kernel.ttir"), &*vosti_kernels::ttir(&launch.spec).unwrap()).unwrap();
    write_buffers(launch, folder, "before");
    let (mut trace, mut values) = (vec![], vec![]);
    let mut observe = |op: &vosti_tile::Op, lanes: &[f32]| {
        if let Some(name) = loose(&op.kind) {
            trace.push((name, lanes.len()));
            values.extend(lanes.iter().flat_map(|x| x.to_le_bytes()));
        }
    };
    let options = Options::default();
    interp::run_observed(&launch.kernel, &mut launch.buffers, launch.grid, &options, &mut observe).unwrap();
    write_buffers(launch, folder, "after");
    let params: Vec<_> = launch.kernel.params.iter().map(|p| (p.name.clone(), p.elem.to_string())).collect();
    let params: Vec<_> = params.iter().map(|(name, elem)| serde_json::json!({"name": name, "elem": elem})).collect();
    let case = serde_json::json!({"grid": launch.grid, "params": params, "trace": trace});
    std::fs::write(folder.join("case.json"), case.to_string()).unwrap();
    std::fs::write(folder.join("trace.bin"), values).unwrap();
}

#[test]
fn interpreter_equals_numpy_on_every_kernel() {
    let Some(python) = python() else { return };
    let folder = tempfile::tempdir().unwrap();
    // Evaluators take most of the time, so each processor has one.
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let mut evaluators: Vec<_> = (0..processors).map(|_| Command::new(&python)).collect();
    for evaluator in &mut evaluators {
        evaluator.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/numpy/eval.py"));
        evaluator.stdout(Stdio::piped()).stderr(Stdio::piped());
    }
    for (i, spec) in some_of_each(2).into_iter().enumerate() {
        // A few programs of each row of the grid, first and last rows of the batch included.
        let loops = vosti_kernels::contract(&spec.kernel).unwrap().shape.recurs();
        // A loop over rows takes long to evaluate.
        let last = if loops { 5 } else { 67 };
        let mut launch = common::launch(&spec, &[(3, 61), (1, 200), (last, 0)], 7);
        launch.grid[1] = launch.grid[1].min(3);
        if loops || spec.constants.contains_key("E") {
            // Every head's and every expert's programs are alike.
            launch.grid[2] = launch.grid[2].min(2);
        }
        let case = folder.path().join(spec.to_string());
        record(&mut launch, &case);
        evaluators[i % processors].arg(case);
    }
    let running: Vec<_> = evaluators.iter_mut().map(|evaluator| evaluator.spawn().unwrap()).collect();
    let outputs: Vec<_> = running.into_iter().map(|child| child.wait_with_output().unwrap()).collect();
    for output in outputs {
        println!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "the evaluator found a difference");
    }
}

#[test]
fn the_evaluator_notices_a_changed_operation() {
    let Some(python) = python() else { return };
    let folder = tempfile::tempdir().unwrap();
    let spec = some_of_each(1).into_iter().find(|s| s.kernel == "rope_q").unwrap();
    let mut launch = common::launch(&spec, &[(5, 3)], 1);
    fn flip(ops: &mut [vosti_tile::Op]) -> bool {
        ops.iter_mut().any(|op| match &mut op.kind {
            OpKind::Binary { op, .. } if *op == Binary::SubF => {
                *op = Binary::AddF;
                true
            }
            _ => false,
        })
    }
    assert!(flip(&mut launch.kernel.body));
    record(&mut launch, folder.path());
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/numpy/eval.py");
    let output = Command::new(python).arg(script).arg(folder.path()).output().unwrap();
    assert!(!output.status.success());
}
