//! What draws tokens behind a program is admitted as the program's ops are.

use vosti_admission::{Bundle, BundleError};
use vosti_core::Op;
use vosti_kernels::Admitted;
use vosti_model::Target;

/// Changes what the first op reads, what it writes and its binding.
type Change<'c> = &'c dyn Fn(&mut Vec<u32>, &mut Vec<u32>, &mut u32);

/// One line that says all of these.
fn refused(result: Result<Admitted, BundleError>, parts: &[&str]) {
    let message = result.expect_err("it must be refused").to_string();
    assert!(parts.iter().all(|part| message.contains(part)) && !message.contains('\n'), "{message}");
}

/// What draws tokens is admitted as ops are: each kernel has a certificate that fits. And it leaves the program alone.
#[test]
fn what_draws_tokens_is_proved_and_writes_nothing_of_the_program() {
    let path = format!("{}/../vosti-model/configs/gemma-3-270m.json", env!("CARGO_MANIFEST_DIR"));
    let config = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    let decoder = vosti_model::families::from_config("gemma", &config).unwrap();
    let plan = vosti_model::plan(&decoder, &Target::named("cpu").with_choices(), Some(1024)).unwrap();
    let bundle = Bundle::built_in().unwrap();
    let admitted = bundle.admit(&plan).unwrap();
    assert_eq!(admitted.draws, plan.draws);
    let draws = plan.draws.as_ref().unwrap();
    let first = plan.program.buffers.len() as u32;
    assert!(draws.leave_alone(&plan.program) && draws.numbers == [first, first + 1, first + 2]);
    let changed = |change: Change| {
        let mut plan = plan.clone();
        let Op::Rowwise { k, ins, outs, .. } = &mut plan.draws.as_mut().unwrap().ops[0] else {
            panic!("it is row-wise")
        };
        change(ins, outs, k);
        bundle.admit(&plan)
    };
    for buffer in [0, plan.program.logits, draws.numbers[0], 999] {
        refused(changed(&|_, outs, _| outs[1] = buffer), &["what draws tokens writes a buffer of the program"]);
    }
    // Another op's kernel; rows of another width; a number fewer.
    let name = plan.bindings[draws.ops[0].uses().binding as usize].launches[0].spec.to_string();
    refused(changed(&|_, _, k| *k += 1), &["draw_combine", "does not fit op"]);
    refused(changed(&|ins, _, _| ins[0] = 0), &[&name, "does not fit op"]);
    refused(changed(&|ins, _, _| ins.truncate(2)), &[&name, "does not fit op"]);
}
