//! A layer whose pages have a state is admitted only if its kernels' parts are those that its group declares, all of them, and if
//! its ops show the entries that the kernels' proofs need. Each test breaks one of these, and the message names it.

use std::collections::BTreeMap;
use vosti_admission::Bundle;
use vosti_contract::Const;
use vosti_core::{BufferDecl, Dtype, GroupDecl, LayerDecl, Op, PAGE, PartDecl, Program, RowSet};
use vosti_kernels::{Binding, specialise};
use vosti_model::ModelPlan;

const KEY_HEADS: u32 = 3;
const GROUP: u32 = 2;
const KEY: u32 = 32;
const VALUE: u32 = 16;

/// A store that looks back, and its read.
fn plan() -> ModelPlan {
    let heads = KEY_HEADS * GROUP;
    let buffer = |width| BufferDecl { width, dtype: Dtype::F32, rows: RowSet::All };
    let part = |width| PartDecl { heads, width, dtype: Dtype::F32 };
    let dims = [("KEY_HEADS", KEY_HEADS), ("GROUP", GROUP), ("DK", KEY), ("DV", VALUE), ("PAGE", PAGE as u32)];
    let dims = dims.map(|(name, value)| (name, Const::Int(value.into())));
    let binding = |kernel| Binding::one(specialise("cpu", kernel, Dtype::Bf16, &dims).unwrap(), BTreeMap::new());
    let program = Program {
        ops: vec![
            Op::StoreKv { k: 0, ins: vec![0, 1, 2, 3], layer: 0, back: PAGE as u32 },
            Op::Attend { k: 1, q: 4, layer: 0, out: 5, window: Some(PAGE as u32 + 1) },
        ],
        buffers: [KEY_HEADS * KEY, heads * VALUE, heads, heads, KEY_HEADS * KEY, heads * VALUE].map(buffer).into(),
        groups: vec![GroupDecl {
            window: Some(PAGE as u32 + 1),
            entry: vec![part(KEY), part(VALUE), part(1)],
            state: vec![part(KEY * VALUE)],
        }],
        layers: vec![LayerDecl { group: 0 }],
        logits: 5,
        vocab: 100,
        context: 1_000,
        kernels: 2,
    };
    ModelPlan {
        draws: None,
        program,
        routed: vec![],
        bindings: vec![binding("store_delta"), binding("read_state")],
        weights: BTreeMap::new(),
    }
}

#[test]
fn a_store_and_a_read_of_the_parts_that_the_group_declares_are_admitted() {
    Bundle::built_in().unwrap().admit(&plan()).unwrap();
}

#[test]
fn other_parts_and_other_windows_are_refused_by_name() {
    type Change = fn(&mut Program);
    let changes: [(&str, Change); 14] = [
        ("(StoreKv): its parameter `keys` has pages of", |p| p.groups[0].entry[0].width += 1),
        ("`values` has pages of", |p| p.groups[0].entry[1].heads += 1),
        ("`ends` has pages of", |p| p.groups[0].state[0].width *= 2),
        ("`keys` has pages of", |p| p.groups[0].entry.swap(0, 1)),
        ("`decays` holds f32, the op gives bf16", |p| p.groups[0].entry[2].dtype = Dtype::Bf16),
        ("`decays` has the role Entry(2), which the op does not give", |p| p.groups[0].entry.truncate(2)),
        ("no parameter is part 3 of the layer's entries", |p| {
            let part = p.groups[0].entry[2];
            p.groups[0].entry.push(part);
        }),
        ("no parameter is part 1 of the layer's states", |p| {
            let part = p.groups[0].state[0];
            p.groups[0].state.push(part);
        }),
        ("has the shape RecurStore, the op needs StoreKv", |p| p.groups[0].state.clear()),
        ("its entries depend on 64 entries before them, the op shows it 63", |p| {
            let Op::StoreKv { back, .. } = &mut p.ops[0] else { panic!() };
            *back -= 1;
        }),
        ("(Attend): it is proved for a window of 65, the op has a window of 64", |p| {
            let Op::Attend { window, .. } = &mut p.ops[1] else { panic!() };
            *window = Some(64);
        }),
        ("the op has no window", |p| {
            let Op::Attend { window, .. } = &mut p.ops[1] else { panic!() };
            *window = None;
        }),
        ("`v` is 96 wide, the op's buffer 1 is 97", |p| p.buffers[1].width += 1),
        ("the op needs RecurStore", |p| {
            let Op::StoreKv { k, ins, .. } = &mut p.ops[0] else { panic!() };
            (*k, *ins) = (1, vec![4]);
        }),
    ];
    for (part, change) in changes {
        let mut plan = plan();
        change(&mut plan.program);
        let refusal = Bundle::built_in().unwrap().admit(&plan).map(drop);
        let message = refusal.expect_err(part).to_string();
        assert!(message.contains(part) && !message.contains('\n'), "{part:?} is not in {message}");
    }
}

#[test]
fn a_tile_of_the_read_has_no_more_rows_than_are_proved() {
    let mut plan = plan();
    plan.bindings[1].launches[0].spec.constants.insert("HEIGHT".into(), Const::Int(17));
    let message = Bundle::built_in().unwrap().admit(&plan).map(drop).unwrap_err().to_string();
    assert!(message.contains("it is proved only if HEIGHT <= BQ"), "{message}");
}
