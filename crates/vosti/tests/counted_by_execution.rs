//! The bytes that a report's arithmetic gives a launch are those that its PTX moves when it is executed. Needs Triton,
//! and no GPU.

use std::collections::BTreeMap;
use vosti::estimate::card::Card;
use vosti::estimate::counted;
use vosti::estimate::{Step, estimate};
use vosti_cubin::execute::SECTOR;
use vosti_cubin::toolchain::REQUIREMENT;
use vosti_cubin::{Arch, Counter, Cubin, Toolchain};
use vosti_engine::progress::NoProgress;
use vosti_model::{Target, plan};

const TARGET: &str = "cuda-sm80";

#[test]
fn what_blocks_move_by_execution_is_what_the_arithmetic_says() {
    let Some(python) = vosti_test_tools::python(REQUIREMENT) else { return };
    let path = format!("{}/../vosti-model/configs/smollm2-135m.json", env!("CARGO_MANIFEST_DIR"));
    let mut config: serde_json::Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    config["num_hidden_layers"] = 1.into();
    config["vocab_size"] = 1000.into();
    let decoder = vosti_model::families::from_config("config.json", &config).unwrap();
    let plan = plan(&decoder, &Target::named(TARGET), Some(2048)).unwrap();
    let steps = [
        Step { sequences: 4, tokens: 1, depth: 1500, draws: true },
        Step { sequences: 1, tokens: 130, depth: 0, draws: false },
    ];
    let specs = vosti_model::plan::specs(&plan);
    let artifacts = Toolchain::with_python(python).compile_checked_in(TARGET, &specs).unwrap();
    let counters: BTreeMap<String, Counter> =
        artifacts.iter().map(|artifact| (artifact.spec.to_string(), Counter::of(artifact).unwrap())).collect();
    let of = |artifact: vosti_cubin::Artifact| {
        let contract = vosti_kernels::contract(&artifact.spec.kernel).unwrap();
        (artifact.spec.to_string(), Cubin::of(artifact, contract, Arch::Sm80).unwrap())
    };
    let cubins: BTreeMap<String, Cubin> = artifacts.into_iter().map(of).collect();
    let card = Card::find(Arch::Sm80, None).unwrap();
    let counts = counted::of(&plan, &cubins, &card, &counters, &steps, &NoProgress).unwrap();
    assert!(counts.values().all(Result::is_ok), "{counts:?}");
    let mut compared = vec![];
    for step in steps {
        let found = estimate(&plan, &cubins, &counts, &card, step).unwrap();
        for kernel in &found.kernels {
            let (name, tally) = (kernel.name.split('-').next().unwrap(), kernel.tally.unwrap());
            let read = (tally.counts().loads.sectors * SECTOR) as f64 / tally.arithmetic();
            // Attention reads whole pages, and queries; the others what a tile has of rows and columns, and the number
            // of rows.
            let most = match name {
                "attend" if step.tokens == 1 => 1.06,
                // The rows that it adds to are read too.
                "linear_add" => 1.03,
                name if name.starts_with("linear") => 1.01,
                // A norm reads its row twice.
                "rmsnorm" => {
                    assert!(tally.differs(), "{}", found.table());
                    continue;
                }
                _ => continue,
            };
            assert!((1.0..most).contains(&read), "{}: {read}\n{}", kernel.name, found.table());
            compared.push(name.to_string());
        }
    }
    let mut wanted = vec!["linear", "attend", "linear_add", "linear_glu", "linear_add", "linear_logits"];
    wanted.extend(["linear", "linear_add", "linear_glu", "linear_add", "linear_logits"]);
    assert_eq!(compared, wanted);
}
