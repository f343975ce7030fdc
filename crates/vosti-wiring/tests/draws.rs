//! Draws on the device: the launches behind a program run only if a step draws, and each selected row gets its own numbers.

#[allow(dead_code)]
mod common;

use common::Idle;
use std::collections::BTreeMap;
use vosti_contract::{Const, Contract};
use vosti_core::*;
use vosti_kernels::{Binding, Draws, Spec, specialise};
use vosti_tile::Scalar;
use vosti_wiring::{Bound, Kernel, Metadata, Size, Wiring, WiringError, drawn, fill_numbers, image, listed, wire};

const VOCAB: u32 = 9;
const ROWS: usize = 64;

fn buffer(width: u32, rows: RowSet) -> BufferDecl {
    BufferDecl { width, dtype: Dtype::F32, rows }
}

fn selected(k: u32, ins: &[u32], outs: &[u32]) -> Op {
    Op::Rowwise { k, ins: ins.into(), outs: outs.into(), rows: RowSet::Selected }
}

/// An embedding, logits (what kernel computes them is of no interest here), the best token, and lists in two ops.
fn program() -> Program {
    Program {
        ops: vec![
            Op::Embed { k: 0, out: 0 },
            selected(1, &[0], &[1]),
            selected(2, &[1], &[2]),
            selected(3, &[1], &[3, 4]),
            selected(4, &[3, 4], &[5, 6]),
        ],
        buffers: [(VOCAB, RowSet::All)]
            .into_iter()
            .chain([VOCAB, 1, 64, 64, 64, 64].map(|width| (width, RowSet::Selected)))
            .map(|(width, rows)| buffer(width, rows))
            .collect(),
        groups: vec![GroupDecl { window: None, entry: vec![], state: vec![] }],
        layers: vec![LayerDecl { group: 0 }],
        logits: 1,
        vocab: VOCAB,
        context: 100,
        kernels: 5,
    }
}

/// Two ops behind it, whose kernels are of no interest either.
fn draws() -> Draws {
    Draws {
        buffers: [1, 1, 1, VOCAB, 1].map(|width| buffer(width, RowSet::Selected)).to_vec(),
        ops: vec![selected(5, &[1, 7, 9], &[10]), selected(6, &[10, 8], &[11])],
        numbers: [7, 8, 9],
        tokens: 11,
    }
}

fn bindings() -> Vec<Binding> {
    let spec = |kernel: &str, dims: &[(&str, i64)]| {
        let dims: Vec<(&str, Const)> = dims.iter().map(|(name, value)| (*name, Const::Int(*value))).collect();
        specialise("cpu", kernel, Dtype::F32, &dims).unwrap()
    };
    let vocab = i64::from(VOCAB);
    let table = BTreeMap::from([("w".to_string(), "embed".to_string())]);
    let embed = specialise(
        "cpu",
        "embed",
        Dtype::F32,
        &[("V", Const::Int(vocab)), ("H", Const::Int(vocab)), ("SCALE", Const::Float(1.0))],
    );
    let best = || Binding::one(spec("argmax", &[("V", vocab)]), BTreeMap::new());
    let part = spec("topk_part", &[("V", vocab), ("PARTS", 1), ("PART", 256), ("K", 64)]);
    let combine = spec("topk_combine", &[("N", 64), ("K", 64)]);
    let [part, combine] = [part, combine].map(|spec| Binding::one(spec, BTreeMap::new()));
    vec![Binding::one(embed.unwrap(), table), best(), best(), part, combine, best(), best()]
}

/// A kernel that is only looked at.
#[derive(Debug)]
struct Known(Spec, &'static Contract);

impl Kernel for Known {
    fn spec(&self) -> &Spec {
        &self.0
    }

    fn contract(&self) -> &Contract {
        self.1
    }

    fn elem(&self, param: usize) -> Scalar {
        Scalar::from(self.1.params[param].elem(self.0.act))
    }
}

fn wired(draws: Option<&Draws>) -> Result<Wiring<Known>, WiringError> {
    let load = |spec: &Spec| Ok(Known(spec.clone(), vosti_kernels::contract(&spec.kernel).unwrap()));
    wire(&program(), &bindings(), draws, ROWS, load)
}

/// What a request of these tests reads; a guess adds how far it looks ahead to each number.
struct Asks;

impl Sampler for Asks {
    type Logits = ();
    type Top = ();
    type State = Reads;

    fn vocab(&self) -> u32 {
        VOCAB
    }

    fn reads(&self, state: &Reads) -> Reads {
        *state
    }

    fn guess(&self, state: &Reads, ahead: usize) -> Draw {
        let Reads::Drawn(Draw { scale, part, within }) = *state else { unreachable!("nothing is drawn") };
        let ahead = ahead as u32;
        Draw { scale: scale + ahead, part: part + ahead, within: within + ahead }
    }

    fn sample(&self, _: &mut Reads, _: &()) -> (Token, bool) {
        (7, false)
    }

    fn sample_best(&self, _: &mut Reads, _: Token) -> (Token, bool) {
        (7, false)
    }

    fn sample_top(&self, _: &mut Reads, _: &()) -> (Token, bool) {
        (7, false)
    }

    fn sample_drawn(&self, _: &mut Reads, _: Token) -> (Token, bool) {
        (7, false)
    }
}

/// Calls `look` with the plan of a step: of each request what it reads, tokens, rows of this step, drafts and selected rows.
fn planned<T>(requests: &[(Reads, usize, usize, usize, Select)], look: impl FnOnce(&StepPlan) -> T) -> T {
    let mut core = Core::new(Idle { rows: ROWS, pages: 20 }, Asks, program()).unwrap();
    let admit =
        |(reads, tokens, ..): &(Reads, usize, usize, usize, Select)| core.admit(vec![1; *tokens], 0, *reads).unwrap();
    let ids: Vec<RequestId> = requests.iter().map(admit).collect();
    for id in &ids {
        core.take_page(*id, 0).unwrap();
    }
    core.plan_begin().unwrap();
    for (id, (_, _, rows, drafts, select)) in ids.iter().zip(requests) {
        core.plan_rows(*id, *rows, &vec![7; *drafts], *select).unwrap();
    }
    look(core.plan())
}

fn draw(scale: f32, part: f32, within: f32) -> Draw {
    let [scale, part, within] = [scale, part, within].map(f32::to_bits);
    Draw { scale, part, within }
}

const LAST: Select = Select::Last;

#[test]
fn what_draws_is_wired_behind_the_program() {
    let (alone, both) = (wired(None).unwrap(), wired(Some(&draws())).unwrap());
    assert_eq!((&alone.whole, &both.whole), (&program(), &draws().behind(&program())));
    let sizes = |wiring: &Wiring<Known>| wiring.launches.iter().map(|launch| launch.size).collect::<Vec<_>>();
    let own = [Size::Rows, Size::Selected, Size::Selected, Size::Listed, Size::Listed];
    assert_eq!(sizes(&alone), own);
    assert_eq!(sizes(&both), [&own[..], &[Size::Drawn; 2]].concat());
    let rows = |launch: usize| {
        let bound = both.launches[launch].params.iter();
        bound.filter_map(|bound| if let Bound::Row(i) = bound { Some(*i) } else { None }).collect::<Vec<_>>()
    };
    assert_eq!((rows(5), rows(6)), (vec![1, 10], vec![10, 11]), "their buffers are numbered on from the program's");
    let widths = |wiring: &Wiring<Known>| wiring.rows(5, 3).iter().map(|(_, len)| *len).collect::<Vec<_>>();
    assert_eq!(widths(&alone), [45, 27, 3, 192, 192, 192, 192]);
    assert_eq!(widths(&both), [45, 27, 3, 192, 192, 192, 192, 3, 3, 3, 27, 3]);
}

#[test]
fn draws_that_write_a_buffer_of_the_program_or_a_page_are_refused() {
    let refused = |change: fn(&mut Draws)| {
        let mut draws = draws();
        change(&mut draws);
        assert!(matches!(wired(Some(&draws)), Err(WiringError::Draws)), "{draws:?}");
    };
    refused(|draws| draws.ops[1] = selected(6, &[10], &[2]));
    refused(|draws| draws.ops[1] = selected(6, &[10], &[8]));
    refused(|draws| draws.ops.push(Op::StoreKv { k: 6, ins: vec![1], layer: 0, back: 0 }));
    refused(|draws| draws.tokens = 2);
}

#[test]
fn the_launches_that_draw_have_rows_only_in_steps_that_draw() {
    let drawing = Reads::Drawn(draw(1.0, 0.5, 0.25));
    let best = (Reads::Best, 4, 4, 0, LAST);
    for (requests, draws, lists) in [
        (vec![best], false, false),
        (vec![best, (Reads::Top, 4, 4, 1, LAST), (Reads::Row, 4, 4, 0, Select::All)], false, true),
        (vec![best, (drawing, 4, 4, 2, LAST)], true, false),
        (vec![(drawing, 4, 4, 0, Select::All), (Reads::Top, 5, 5, 0, Select::Shown)], true, true),
        // Its history goes on after these rows, so that nothing is selected.
        (vec![best, (drawing, 9, 3, 0, LAST)], false, false),
    ] {
        planned(&requests, |plan| {
            assert_eq!((drawn(plan), listed(plan)), (draws, lists));
            let image = image(&program(), &[], ROWS, ROWS).unwrap();
            let ints = vec![0; image.len()];
            let mut metadata = Metadata::new(image, ints);
            let all = plan.selected().len();
            for room in [None, Some(ROWS)] {
                metadata.pack(plan, room).unwrap();
                let launched = metadata.extent(Size::Selected).rows;
                assert!(launched >= all);
                let rows = [Size::Drawn, Size::Listed].map(|size| metadata.extent(size).rows);
                assert_eq!(rows, [draws, lists].map(|yes| if yes { launched } else { 0 }));
            }
            metadata.widen();
            metadata.fill(plan).unwrap();
            assert_eq!(metadata.extent(Size::Drawn).rows, if draws { all } else { 0 });
        });
    }
    assert_eq!(Size::Drawn.most(64, 20, 100).rows, 20);
}

#[test]
fn each_selected_row_gets_its_own_numbers() {
    let (one, two) = (draw(1.5, 0.5, 0.25), draw(3.0, 0.125, 0.75));
    let requests = [
        (Reads::Drawn(one), 4, 4, 2, LAST),
        (Reads::Best, 4, 4, 1, LAST),
        (Reads::Drawn(two), 7, 3, 0, LAST),
        (Reads::Drawn(two), 3, 3, 1, Select::All),
        (Reads::Drawn(one), 1, 1, 0, Select::Shown),
    ];
    planned(&requests, |plan| {
        let guess = |draw: Draw, ahead| Asks.guess(&Reads::Drawn(draw), ahead);
        let (none, of_one, of_two) = (draw(0.0, 0.0, 0.0), [guess(one, 1), guess(one, 2)], guess(two, 1));
        let wanted = [one, of_one[0], of_one[1], none, none, two, two, two, of_two, one];
        let numbers = |draw: &Draw| [draw.scale, draw.part, draw.within].map(f32::from_bits);
        for number in 0..3 {
            // What the step before left is overwritten, up to the last selected row.
            let mut rows = vec![f32::NAN; wanted.len() + 2];
            fill_numbers(plan, number, &mut rows);
            let wanted: Vec<f32> = wanted.iter().map(|draw| numbers(draw)[number]).collect();
            assert_eq!(rows[..wanted.len()], wanted, "number {number}");
            assert!(rows[wanted.len()..].iter().all(|x| x.is_nan()));
        }
    });
}
