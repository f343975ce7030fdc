//! The launch of a store rotates the queries of the op after it, which has no launch of its own. It is admitted only if it does both.

use vosti_admission::Bundle;
use vosti_core::Op;
use vosti_model::{ModelPlan, Target};

fn plan() -> ModelPlan {
    let path = format!("{}/../vosti-model/configs/gemma-3-270m.json", env!("CARGO_MANIFEST_DIR"));
    let config = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    let decoder = vosti_model::families::from_config("gemma-3-270m", &config).unwrap();
    vosti_model::plan(&decoder, &Target::named("cpu"), Some(1024)).unwrap()
}

#[test]
fn two_ops_in_one_launch_are_refused_unless_it_is_both() {
    type Change = fn(&mut ModelPlan, usize);
    fn second(plan: &mut ModelPlan, at: usize) -> (&mut u32, &mut Vec<u32>, &mut Vec<u32>) {
        let Op::Rowwise { k, ins, outs, .. } = &mut plan.program.ops[at + 1] else { panic!("the queries come next") };
        (k, ins, outs)
    }
    let changes: [(&[&str], Change); 6] = [
        (&["(Rowwise)", "no launch"], |plan, at| plan.program.ops.swap(at, at + 1)),
        (&["(Rowwise)", "no launch"], |plan, at| {
            let other = plan.program.logits;
            second(plan, at).1[0] = other;
        }),
        (&["`out`", "Out(0)", "(StoreKv)"], |plan, at| _ = plan.program.ops.remove(at + 1)),
        (&["`out`", "Out(0)", "(StoreKv)"], |plan, at| {
            let other = plan.program.ops[0].uses().binding;
            *second(plan, at).0 = other;
        }),
        (&["(Rowwise)", "no launch"], |plan, at| {
            let (_, ins, outs) = second(plan, at);
            *outs = ins.clone();
        }),
        (&["`out`", "holds bf16"], |plan, at| {
            let other = plan.program.logits;
            second(plan, at).2[0] = other;
        }),
    ];
    let bundle = Bundle::built_in().unwrap();
    bundle.admit(&plan()).unwrap();
    for (parts, change) in changes {
        let mut plan = plan();
        let at = plan.program.ops.iter().position(|op| matches!(op, Op::StoreKv { .. })).unwrap();
        change(&mut plan, at);
        let message = bundle.admit(&plan).expect_err("it must be refused").to_string();
        for part in parts {
            assert!(message.contains(part), "{part:?} is not in {message}");
        }
    }
}
