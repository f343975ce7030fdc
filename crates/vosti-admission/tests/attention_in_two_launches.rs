//! Attention in two launches is admitted only if the two contracts together are the op's. Each test breaks one condition of
//! the composition rule, and the rule refuses it by name.

use vosti_admission::{Bundle, launch_pair, op_contract};
use vosti_contract::{Const, Role, Shape, USE};
use vosti_core::Op;
use vosti_kernels::{Binding, Launch, Scratch, Spec};
use vosti_model::{ModelPlan, Target};
use vosti_tile::Scalar;
use vosti_verify::certificate::StandsFor;
use vosti_verify::problem::Dim;
use vosti_verify::{Certificate, Problem};

fn plan(target: &str) -> ModelPlan {
    let path = format!("{}/../vosti-model/configs/smollm2-135m.json", env!("CARGO_MANIFEST_DIR"));
    let config = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    let decoder = vosti_model::families::from_config("smollm2-135m", &config).unwrap();
    vosti_model::plan(&decoder, &Target::named(target), Some(1024)).unwrap()
}

fn attends(op: &Op) -> bool {
    matches!(op, Op::Attend { .. })
}

fn binding(plan: &mut ModelPlan) -> &mut Binding {
    let op = plan.program.ops.iter().find(|op| attends(op)).unwrap();
    &mut plan.bindings[op.uses().binding as usize]
}

fn halves() -> (Problem, Problem) {
    let mut plan = plan("cpu");
    let [part, combine] = &binding(&mut plan).launches[..] else { panic!("attention is two launches") };
    let problem =
        |spec: &vosti_kernels::Spec| Problem::of_stem(&spec.text().to_string()).unwrap().at(&spec.constants).unwrap();
    (problem(&part.spec), problem(&combine.spec))
}

#[track_caller]
fn refused<T, E: std::fmt::Display>(result: Result<T, E>, part: &str) {
    let Err(why) = result else { panic!("it must be refused: {part}") };
    assert!(why.to_string().contains(part), "{part:?} is not in {why}");
}

#[test]
fn both_launches_of_every_target_are_admitted() {
    for target in ["cpu", "cuda-sm90"] {
        let plan = &mut plan(target);
        Bundle::built_in().unwrap().admit(plan).unwrap();
        let own = binding(plan);
        assert_eq!(
            own.launches.iter().map(|l| l.spec.kernel.as_str()).collect::<Vec<_>>(),
            ["attend", "attend_combine"]
        );
        let keys = if target == "cpu" { 1024 } else { 512 };
        let of = |width| Scratch { keys, rows: 512, width };
        assert_eq!(own.scratch, [of(9), of(9), of(9 * 64)]);
    }
}

#[test]
fn a_second_launch_that_does_not_go_on_where_the_first_stops_is_refused() {
    type Change = fn(&mut Problem, &mut Problem);
    fn set(problem: &mut Problem, name: &str) {
        let value = problem.int(name).unwrap() as i64;
        problem.constants.insert(name.into(), Const::Int(2 * value));
    }
    fn at(problem: &Problem, role: Role) -> usize {
        problem.role(role).unwrap()
    }
    fn forget(problem: &mut Problem, role: Role) {
        let i = at(problem, role);
        problem.buffers.remove(i);
        problem.kernel.params.remove(i);
    }
    let changes: [(&str, Change); 19] = [
        ("SPLIT is 1024 in the first launch and 2048", |_, c| set(c, "SPLIT")),
        ("SPLIT is none", |p, _| _ = p.constants.remove("SPLIT")),
        ("ROWS is 1024 in the first launch and 512", |p, _| set(p, "ROWS")),
        ("GROUP is 3 in the first launch and 6", |_, c| set(c, "GROUP")),
        ("GROUP is 6 in the first launch and 3", |p, _| set(p, "GROUP")),
        ("GROUP is none", |p, _| _ = p.constants.remove("GROUP")),
        ("KV_HEADS is 3 in the first launch and 6", |_, c| set(c, "KV_HEADS")),
        ("D is 64 in the first launch and 128", |_, c| set(c, "D")),
        ("`tile_pos` (Positions) is nothing that the first launch promises", |_, c| {
            let i = at(c, Role::TilePos);
            c.buffers[i].role = Role::Positions;
        }),
        ("`tile_row` (In(0)) is nothing", |_, c| {
            let i = at(c, Role::TileRow);
            c.buffers[i].role = Role::In(0);
        }),
        ("`tops` (CacheK) is nothing", |_, c| {
            let i = at(c, Role::Scratch(0));
            c.buffers[i].role = Role::CacheK;
        }),
        ("`accs` (Scratch(3)) is nothing that the first launch writes", |_, c| {
            let i = at(c, Role::Scratch(2));
            c.buffers[i].role = Role::Scratch(3);
        }),
        ("`totals` (Scratch(1)) is nothing that the first launch writes", |p, _| {
            forget(p, Role::Scratch(1));
        }),
        ("`out` (Out(0)) is nothing that the first launch writes", |p, _| {
            forget(p, Role::Out(0));
        }),
        ("`out` has the extents", |p, _| {
            let i = at(p, Role::Out(0));
            p.buffers[i].dims[1] = Dim::Const(15);
        }),
        ("does not go on with `totals` (Scratch(1))", |_, c| {
            forget(c, Role::Scratch(1));
        }),
        ("`tops` has the extents", |_, c| {
            let i = at(c, Role::Scratch(0));
            c.buffers[i].dims[1] = Dim::Const(15);
        }),
        ("`accs` has another element type", |_, c| {
            let i = at(c, Role::Scratch(2));
            c.buffers[i].elem = Scalar::Bf16;
        }),
        ("a AttendPart after a AttendCombine is no attention", std::mem::swap),
    ];
    let (part, combine) = halves();
    launch_pair::check(&part, &combine).unwrap();
    // Tiles of another height have the same rows.
    let (part, mut other) = halves();
    set(&mut other, "HEIGHT");
    launch_pair::check(&part, &other).unwrap();
    for (why, change) in changes {
        let (mut part, mut combine) = halves();
        change(&mut part, &mut combine);
        refused(launch_pair::check(&part, &combine), why);
    }
}

#[test]
fn launches_that_are_not_those_two_in_that_order_are_refused() {
    type Change = fn(&mut Binding);
    let changes: [(&str, Change); 9] = [
        ("the shape AttendCombine, the op needs AttendPart", |b| b.launches.reverse()),
        ("the shape AttendPart, the op needs Attend", |b| _ = b.launches.pop()),
        ("the shape AttendPart, the op needs AttendCombine", |b| b.launches[1] = b.launches[0].clone()),
        ("3 launches", |b| b.launches.push(b.launches[1].clone())),
        ("numbers for each 1024 keys", |b| b.scratch[2].width += 1),
        ("scratch 511 rows of 9 numbers", |b| b.scratch[0].rows -= 1),
        ("numbers for each 2048 keys", |b| b.scratch[1].keys *= 2),
        ("the role Scratch(2), which the op does not give", |b| _ = b.scratch.pop()),
        ("no parameter is the op's scratch 3", |b| b.scratch.push(b.scratch[0])),
    ];
    let bundle = Bundle::built_in().unwrap();
    for (why, change) in changes {
        let mut plan = plan("cpu");
        change(binding(&mut plan));
        refused(bundle.admit(&plan), why);
    }
    // No op but attention has two launches.
    let mut plan = plan("cpu");
    let split = plan.program.ops.iter().find(|op| attends(op)).unwrap().uses().binding;
    let Op::Embed { k, .. } = &mut plan.program.ops[0] else { panic!("the first op embeds") };
    *k = split;
    refused(bundle.admit(&plan), "op 0 (Embed) runs 2 launches");
}

#[test]
fn each_of_the_two_needs_its_own_certificate() {
    let plan = plan("cpu");
    let own = plan.bindings.iter().find(|b| b.launches.len() == 2).unwrap();
    for launch in &own.launches {
        let kernel = launch.spec.text().to_string();
        let mut certificates = Bundle::built_in().unwrap().certificates().clone();
        certificates.remove(&kernel);
        refused(Bundle::built_in().unwrap().with_certificates(certificates).admit(&plan), &kernel);
    }
}

/// Each launch is checked for its own part, and refused for another.
#[test]
fn a_launch_that_is_not_its_part_of_the_op_is_refused() {
    let plan = plan("cpu");
    let Binding { launches, scratch, .. } = plan.bindings.iter().find(|b| b.launches.len() == 2).unwrap().clone();
    // Both have the same weights.
    let own = &launches[0].weights;
    let bound = |stage| op_contract::Bound { stage, bound: own, weights: &plan.weights, scratch: &scratch };
    let op = plan.program.ops.iter().find(|op| attends(op)).unwrap();
    let (mut part, mut combine) = halves();
    op_contract::check(&plan.program, &op.uses(), &part, &bound(Shape::AttendPart)).unwrap();
    op_contract::check(&plan.program, &op.uses(), &combine, &bound(Shape::AttendCombine)).unwrap();

    let Op::Attend { k, q, layer, out, .. } = op else { panic!("it attends") };
    let windowed = Op::Attend { k: *k, q: *q, layer: *layer, out: *out, window: Some(64) };
    for (problem, stage) in [(&part, Shape::AttendPart), (&combine, Shape::AttendCombine)] {
        refused(
            op_contract::check(&plan.program, &windowed.uses(), problem, &bound(stage)),
            "no window, the op has a window of 64",
        );
    }
    // The core makes tiles of up to HEIGHT rows, whatever the contract says of it.
    for (problem, stage) in [(&mut part, Shape::AttendPart), (&mut combine, Shape::AttendCombine)] {
        let most = problem.premises.tile_rows().unwrap() as i64;
        let own = problem.constants.insert("HEIGHT".into(), Const::Int(most + 1)).unwrap();
        let rows = format!("a tile has up to {} rows, and it is proved for tiles of up to {most}", most + 1);
        refused(op_contract::check(&plan.program, &op.uses(), problem, &bound(stage)), &rows);
        problem.constants.insert("HEIGHT".into(), own);
    }
    // Both launches write the output, each for its rows.
    let out = part.role(Role::Out(0)).unwrap();
    part.buffers.remove(out);
    refused(
        op_contract::check(&plan.program, &op.uses(), &part, &bound(Shape::AttendPart)),
        "no parameter is the op's output 0",
    );
    let out = combine.role(Role::Out(0)).unwrap();
    combine.buffers.remove(out);
    refused(
        op_contract::check(&plan.program, &op.uses(), &combine, &bound(Shape::AttendCombine)),
        "no parameter is the op's output 0",
    );
}

/// One launch in the place of the two, which folds its own splits.
fn folding() -> (ModelPlan, String) {
    let mut plan = plan("cuda-sm90");
    let folded = binding(&mut plan).folded[0].clone();
    (plan, folded.text().to_string())
}

#[test]
fn a_launch_that_folds_is_refused_unless_it_is_the_first_of_the_two_and_their_numbers_and_weights_are_equal() {
    type Change = fn(&mut Binding);
    fn set(spec: &mut Spec, name: &str, value: i64) {
        assert!(spec.constants.insert(name.into(), Const::Int(value)).is_some(), "{name}");
    }
    fn folded(binding: &mut Binding) -> &mut Spec {
        &mut binding.folded[0]
    }
    let changes: [(&str, Change); 9] = [
        ("the shape AttendPart, the op needs Attend", |b| set(folded(b), USE, 0)),
        ("the shape AttendFolded, the op needs Attend", |b| set(folded(b), USE, 3)),
        ("for a window of 512, the op has no window", |b| {
            set(folded(b), USE, 1);
            set(folded(b), "WINDOW", 512);
        }),
        ("it is not the launch in whose place it folds", |b| set(folded(b), "WINDOW", 2)),
        ("it is not the launch in whose place it folds", |b| set(folded(b), "HEIGHT", 1)),
        ("the shape AttendCombine, the op needs Attend", |b| b.folded[0] = b.launches[1].spec.clone()),
        ("SINKS is 0 in it, and 1 in attend_combine", |b| set(&mut b.launches[1].spec, "SINKS", 1)),
        ("have the weights", |b| {
            b.launches[1].weights.insert("sinks".into(), "another".into());
        }),
        ("the shape AttendPart, the op needs Attend", |b| _ = b.launches.pop()),
    ];
    let (plan, _) = folding();
    Bundle::built_in().unwrap().admit(&plan).unwrap();
    for (why, change) in changes {
        let (mut plan, _) = folding();
        let sinks = binding(&mut plan).launches[1].weights["sinks"].clone();
        plan.weights.insert("another".into(), plan.weights[&sinks].clone());
        change(binding(&mut plan));
        refused(Bundle::built_in().unwrap().admit(&plan), why);
    }
    // Where keys are split, one launch is not in the place of another one.
    let (mut plan, _) = folding();
    let own = binding(&mut plan);
    own.launches = vec![Launch { spec: own.folded[0].clone(), higher: vec![], ..own.launches[0].clone() }];
    own.scratch.clear();
    refused(Bundle::built_in().unwrap().admit(&plan), "it runs in the place of one launch");
}

/// High query tiles need the bits of the low ones where keys are split, and those of the two launches where they fold.
#[test]
fn a_query_tile_of_another_height_is_refused_unless_its_certificate_says_so() {
    let (mut plan, _) = folding();
    let own = binding(&mut plan).clone();
    let [low, high] = [&own.launches[0].spec, &own.launches[0].higher[0]];
    assert_eq!(own.folded, [low.folding(), high.folding()]);
    let second = own.launches[1].spec.text().to_string();
    let text = high.text().to_string();
    for of in [low.text().to_string(), second] {
        let mut certificates = Bundle::built_in().unwrap().certificates().clone();
        certificates.get_mut(&text).unwrap().stands_for.retain(|other| other.kernel != of);
        let bundle = Bundle::built_in().unwrap().with_certificates(certificates);
        refused(bundle.admit(&plan), &format!("does not say that it gives the bits of {of}"));
    }
    // The core makes tiles of up to HEIGHT rows, which may be fewer than there is room for, and not more. All else is equal.
    let with = |name: &str, value: i64| {
        let mut plan = plan.clone();
        let own = binding(&mut plan);
        own.launches[0].higher[0].constants.insert(name.into(), Const::Int(value));
        own.folded.pop();
        Bundle::built_in().unwrap().admit(&plan)
    };
    with("HEIGHT", 3).unwrap();
    refused(with("HEIGHT", 33), "only if HEIGHT <= BQ");
    refused(with("SINKS", 1), "SINKS is 1 in it, and 0 in");
}

#[test]
fn a_launch_that_folds_is_refused_unless_its_certificate_says_that_it_gives_the_bits_of_the_two() {
    let (mut plan, text) = folding();
    let second = binding(&mut plan).launches[1].spec.text().to_string();
    let with = |change: fn(&mut Certificate)| {
        let mut certificates = Bundle::built_in().unwrap().certificates().clone();
        change(certificates.get_mut(&text).unwrap());
        Bundle::built_in().unwrap().with_certificates(certificates).admit(&plan)
    };
    with(|_| ()).unwrap();
    let says = format!("does not say that it gives the bits of {second}");
    refused(with(|c| c.stands_for[0].kernel.push('0')), &says);
    refused(with(|c| c.stands_for[0].ttir_hash = "0".repeat(64)), &says);
    // Its own proof, which the first of the two has too, is not enough.
    let other =
        |c: &mut Certificate| c.stands_for[0] = StandsFor { kernel: c.kernel.clone(), ttir_hash: c.ttir_hash.clone() };
    refused(with(other), &says);
    // A second launch of another text is not the one that was compared.
    let combine = &mut binding(&mut plan).launches[1].spec;
    combine.constants.insert("GP".to_string(), Const::Int(16));
    let other = combine.text().to_string();
    refused(Bundle::built_in().unwrap().admit(&plan), &format!("gives the bits of {other}"));
}
