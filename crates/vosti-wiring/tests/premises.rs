//! A step's metadata satisfies the premises of kernel proofs. These tests evaluate the kernel verifier's own facts (`World`)
//! on arrays that a core's plans filled. `vosti-core`'s `premises.rs` states the facts that the core proves of the same arrays;
//! if the two differ, a fact is false here.

mod common;

use common::{Idle, Seven};
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};
use std::collections::HashMap;
use vosti_contract::Role;
use vosti_core::*;
use vosti_verify::Problem;
use vosti_verify::problem::{Dim, limit};
use vosti_verify::term::{Bounds, Node, Term, Terms};
use vosti_verify::world::World;
use vosti_wiring::{Metadata, Size, image};

const ROWS: usize = 700;
const CONTEXT: u32 = 2000;
const PAGES: usize = 90;
const VOCAB: u32 = 50;

const WINDOW: u32 = 37;

/// Three groups: all keys, a window of 37, and pages with a state.
fn program() -> Program {
    let buffer = |width, rows| BufferDecl { width, dtype: Dtype::F32, rows };
    let group = |window| GroupDecl { window, entry: vec![], state: vec![] };
    let store = |layer| Op::StoreKv { k: 0, ins: vec![0], layer, back: 0 };
    let attend = |layer, out, window| Op::Attend { k: 0, q: 0, layer, out, window };
    Program {
        ops: vec![
            Op::Embed { k: 0, out: 0 },
            store(0),
            attend(0, 1, None),
            store(1),
            attend(1, 2, Some(WINDOW)),
            Op::StoreKv { k: 0, ins: vec![0], layer: 2, back: PAGE as u32 },
            attend(2, 2, Some(PAGE as u32 + 1)),
            Op::Rowwise { k: 0, ins: vec![2], outs: vec![3], rows: RowSet::Selected },
        ],
        buffers: vec![
            buffer(4, RowSet::All),
            buffer(4, RowSet::All),
            buffer(4, RowSet::All),
            buffer(VOCAB, RowSet::Selected),
        ],
        groups: vec![group(None), group(Some(WINDOW)), group(Some(PAGE as u32 + 1))],
        layers: (0..3).map(|group| LayerDecl { group }).collect(),
        logits: 3,
        vocab: VOCAB,
        context: CONTEXT,
        kernels: 1,
    }
}

/// Any requests, any rows of each, with drafts, with pages behind windows given back.
fn plan_something(core: &mut Core<Idle, Seven>, live: &mut Vec<RequestId>, rng: &mut Xoshiro256PlusPlus) {
    let mut below = |n: usize| (rng.next_u64() % n as u64) as usize;
    if live.len() < 9 && below(2) == 0 {
        let long = below(3) == 0;
        let len = 1 + below(90) + if long { 520 } else { 0 };
        let prompt = (0..len).map(|_| below(VOCAB as usize) as Token).collect();
        live.push(core.admit(prompt, 0, ()).unwrap());
    }
    for id in live.iter().copied() {
        let end = core.request(id).unwrap().history().len() + 3;
        for group in 0..3 {
            if below(2) == 0 {
                core.release_behind(id, group).unwrap();
            }
            while core.request(id).unwrap().table(group).len() * PAGE < end && core.take_page(id, group).is_ok() {}
        }
    }
    core.plan_begin().unwrap();
    for id in live.iter().copied() {
        let request = core.request(id).unwrap();
        let left = request.history().len() - request.cached();
        let rows = if below(3) == 0 { 1 + below(left) } else { left };
        let drafts = vec![7; if rows == left { below(3) } else { 0 }];
        let select = [Select::Last, Select::All][below(2)];
        if below(5) > 0 {
            // Where there is no room the request waits.
            let _ = core.plan_rows(id, rows, &drafts, select);
        }
    }
}

/// A kernel whose premises are evaluated, and the buffers that its parameters are bound to.
struct Reader {
    problem: Problem,
    /// Of its layer.
    group: usize,
    tiling: usize,
    size: Size,
}

fn reader(stem: &str, group: usize, tiling: usize, size: Size) -> Reader {
    Reader { problem: Problem::of_stem(stem).unwrap(), group, tiling, size }
}

/// The first launch of full attention, and attention over a window.
const ATTEND: &str = "attend-f32-BQ16-DP16-GP16-PAGE64-ROWS512-SPLIT64";
const WIDE: &str = "attend-f32-BQ64-DP64-GP2-PAGE64-ROWS512-SPLIT1024";
const COMBINE: &str = "attend_combine-f32-BQ16-DP16-GP16-ROWS512-SPLIT64";
const STORE: &str = "rope_store-f32-BM64-HP32-PAGE64";
const GATHER: &str = "gather-f32-BH64-BM64";
const STORE_DELTA: &str = "store_delta-bf16-ACROSS0-DK32-DV16-PAGE64";
const READ_STATE: &str = "read_state-bf16-BK32-BQ16-DK32-DP16-DV16-PAGE64";
const EMBED: &str = "embed-bf16-BH1024-BM16";

fn windowed(reader: Reader) -> Reader {
    Reader { problem: *reader.problem.uses.windowed.unwrap(), ..reader }
}

fn tilings() -> Vec<Tiling> {
    let tiling = |height, group, first, end| Tiling { height, group, first, end };
    vec![
        tiling(32, 1, 0, usize::MAX),
        tiling(16, 0, 0, 512),
        tiling(16, 0, 512, 1024),
        tiling(ROWS, 2, 0, usize::MAX),
        tiling(16, 2, 0, usize::MAX),
    ]
}

fn readers() -> Vec<Reader> {
    let rope = vosti_kernels::ttir_stems().into_iter().find(|stem| stem.starts_with("rope_q-f32")).unwrap();
    vec![
        windowed(reader(WIDE, 1, 0, Size::Tiles(0))),
        reader(ATTEND, 0, 1, Size::Tiles(1)),
        reader(ATTEND, 0, 2, Size::Tiles(2)),
        reader(COMBINE, 0, 2, Size::Tiles(2)),
        reader(STORE, 0, 0, Size::Rows),
        reader(STORE, 1, 0, Size::Rows),
        reader(EMBED, 0, 0, Size::Rows),
        reader(rope, 0, 0, Size::Rows),
        reader(GATHER, 0, 0, Size::Selected),
        reader(STORE_DELTA, 2, 3, Size::Tiles(3)),
        reader(READ_STATE, 2, 4, Size::Tiles(4)),
    ]
}

/// Metadata roles, the names of their functions in a world, and the arrays that the wiring binds them to.
fn metas(reader: &Reader) -> Vec<(Role, &'static str, Meta)> {
    let Reader { group, tiling, .. } = *reader;
    vec![
        (Role::Tokens, "tokens@L", Meta::Tokens),
        (Role::Positions, "positions@L", Meta::Positions),
        (Role::RowIndex, "row_index@L", Meta::RowIndex),
        (Role::Slots, "slots@L", Meta::Slots { group }),
        (Role::PageTable, "page_table@L", Meta::PageTables),
        (Role::TileTable, "tile_table@L", Meta::TileTable { tiling }),
        (Role::TileRow, "tile_row@L", Meta::TileRow { tiling }),
        (Role::TileRows, "tile_rows@L", Meta::TileRows { tiling }),
        (Role::TilePos, "tile_pos@L", Meta::TilePos { tiling }),
    ]
}

/// The values of one filled array, for the terms of a world.
struct Values<'a> {
    cells: &'a [i32],
    sizes: HashMap<String, i128>,
    arrays: HashMap<&'static str, usize>,
}

impl Values<'_> {
    fn of(&self, t: &Terms, term: Term) -> i128 {
        let of = |term: &Term| self.of(t, *term);
        match t.node(term) {
            Node::Linear { c, parts } => c + parts.iter().map(|(term, k)| of(term) * k).sum::<i128>(),
            Node::Var { name, .. } => self.sizes[name],
            // Facts also mention arrays that the kernel does not have. Any allowed value does for these, here zero.
            Node::Apply { function, args, .. } => self
                .arrays
                .get(function.as_str())
                .map_or(0, |start| self.cells[start + usize::try_from(of(&args[0])).unwrap()].into()),
            Node::Product(factors) => factors.iter().map(of).product(),
            Node::Div(a, d) => of(a).div_euclid(*d),
            Node::Mod(a, d) => of(a).rem_euclid(*d),
            Node::Ite(c, a, b) => of(if of(c) == 1 { a } else { b }),
            Node::Bool(b) => (*b).into(),
            Node::BoolVar(name) => panic!("an unknown fact {name}"),
            Node::Le(a) => (of(a) <= 0).into(),
            Node::Zero(a) => (of(a) == 0).into(),
            Node::Not(a) => 1 - of(a),
            Node::And(all) => all.iter().all(|a| of(a) == 1).into(),
            Node::Or(all) => all.iter().any(|a| of(a) == 1).into(),
        }
    }

    /// Within the bounds that a variable or an array's element is declared with.
    fn bounded(&self, t: &Terms, term: Term) -> bool {
        let (value, (lo, hi)): (i128, Bounds) = match t.node(term) {
            Node::Var { bounds, .. } | Node::Apply { bounds, .. } => (self.of(t, term), *bounds),
            _ => return true,
        };
        lo.is_none_or(|lo| lo <= value) && hi.is_none_or(|hi| value <= hi)
    }
}

/// How many of a kernel's premises were evaluated; the first that does not hold is an error.
fn premises(reader: &Reader, plan: &StepPlan, metadata: &Metadata<Vec<i32>>, cells: &[i32]) -> Result<usize, String> {
    let (mut t, extent) = (Terms::default(), metadata.extent(reader.size));
    let world = World::new(&mut t, &reader.problem, "L");
    let metas: Vec<_> = metas(reader).into_iter().filter(|(role, ..)| reader.problem.role(*role).is_some()).collect();
    let tiles = reader.problem.shape.attends() || reader.problem.shape.recurs();
    let tiling = &tilings()[reader.tiling];
    let rows = match reader.size {
        Size::Selected => plan.selected().len(),
        _ if tiles => plan.rows().min(tiling.end).saturating_sub(tiling.first),
        _ => plan.rows(),
    };
    if rows == 0 {
        assert_eq!(extent.tiles, 0, "launches without rows have no programs");
        return Ok(0);
    }
    let table_len = metadata.used() - metadata.place(Meta::PageTables).start;
    let size = |name: &str, value: usize| (name.to_string(), value as i128);
    let sizes = HashMap::from([
        size("rows@L", rows),
        size("packed@L", plan.rows()),
        size("context", CONTEXT as usize),
        size("pages@L", PAGES),
        size("tiles@L", extent.tiles.max(1)),
        size("table_len@L", if metas.iter().any(|m| m.0 == Role::PageTable) { table_len } else { TABLE_MAX }),
        size("length@L", extent.length.max(1)),
        size("dim WINDOW", WINDOW as usize),
        size("dim V", VOCAB as usize),
    ]);
    let arrays = metas.iter().map(|(_, name, meta)| (*name, metadata.place(*meta).start)).collect();
    let values = Values { cells, sizes, arrays };
    // Every element of every array that the kernel may load. Only few tiles, because each is compared with each.
    let mut question = vec![world.rows, world.packed, world.context, world.table_len, world.length];
    question.extend(reader.problem.premises.page().map(|page| world.dim(&mut t, Dim::Pages(page))));
    for (role, _, meta) in &metas {
        let len = match role {
            Role::PageTable => table_len,
            Role::TileTable | Role::TileRow | Role::TileRows | Role::TilePos => extent.tiles,
            _ => rows,
        };
        assert!(len <= metadata.place(*meta).len(), "{role:?}");
        let most = if matches!(role, Role::PageTable) { len } else { len.min(60) };
        for i in (len - most..len).chain(0..most.min(4)) {
            let index = t.int(i as i128);
            question.push(world.read(&mut t, *role, index).unwrap());
        }
    }
    let facts = world.facts(&mut t, &question);
    for term in t.reachable(&question) {
        if !values.bounded(&t, term) {
            return Err(format!("{:?} is {}", t.node(term), values.of(&t, term)));
        }
    }
    match facts.iter().find(|fact| values.of(&t, **fact) != 1) {
        Some(fact) => Err(format!("{:?}", t.node(*fact))),
        None => Ok(facts.len() + question.len()),
    }
}

/// A core's plans, each filled in and packed, with room for more rows and without.
fn filled(steps: usize, seed: u64, mut look: impl FnMut(&StepPlan, &Metadata<Vec<i32>>)) {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
    let mut core = Core::new(Idle { rows: ROWS, pages: PAGES }, Seven { vocab: VOCAB }, program()).unwrap();
    let image = image(&program(), &tilings(), ROWS, ROWS).unwrap();
    let len = image.len();
    let mut metadata = Metadata::new(image, vec![-9; len]);
    let mut live = vec![];
    for _ in 0..steps {
        plan_something(&mut core, &mut live, &mut rng);
        if core.plan().sequences().is_empty() {
            core.plan_cancel().unwrap();
            live.drain(..).for_each(|id| core.abort(id).unwrap());
            continue;
        }
        let plan = core.plan();
        let single = plan.rows().max(plan.selected().len());
        metadata.fill(plan).unwrap();
        look(plan, &metadata);
        for room in [None, Some(single), Some((single + 20).min(ROWS))] {
            metadata.pack(plan, room).unwrap();
            look(plan, &metadata);
        }
        core.run().unwrap();
        core.commit().unwrap();
        live.retain(|id| !core.complete(*id));
    }
}

#[test]
fn what_kernels_are_proved_under_holds_of_every_filled_step() {
    let readers = readers();
    let mut seen = vec![0; readers.len()];
    filled(40, 1, |plan, metadata| {
        for (reader, seen) in readers.iter().zip(&mut seen) {
            *seen += premises(reader, plan, metadata, metadata.array())
                .unwrap_or_else(|why| panic!("{}: {why}", reader.problem.name));
        }
    });
    assert!(seen.iter().all(|seen| *seen > 100), "premises that were looked at: {seen:?}");
}

/// The proof of a store that looks back takes it that a tile has all rows that the step has of its request.
#[test]
fn a_tile_as_high_as_a_step_has_all_rows_of_its_request() {
    let (mut long, mut several) = (0, 0);
    filled(40, 3, |plan, metadata| {
        let column = |meta: Meta| &metadata.array()[metadata.place(meta).start..];
        let (row, rows) = (column(Meta::TileRow { tiling: 3 }), column(Meta::TileRows { tiling: 3 }));
        let tiles = metadata.extent(Size::Tiles(3)).tiles;
        let live = (0..tiles).filter(|tile| rows[*tile] > 0).map(|tile| (row[tile] as usize, rows[tile] as usize));
        let wanted: Vec<_> = plan.sequences().iter().map(|s| (s.first_row, s.rows)).collect();
        assert_eq!(live.collect::<Vec<_>>(), wanted);
        long += wanted.iter().filter(|(_, rows)| *rows > 500).count();
        several += usize::from(wanted.len() > 2);
    });
    assert!(long > 0 && several > 0, "{long} long ones, {several} steps of several");
}

/// A damage: the array, the element, and the value that replaces it.
type Damage = fn(&StepPlan, &Metadata<Vec<i32>>) -> (Meta, usize, i32);

#[test]
fn a_damaged_array_breaks_a_premise() {
    let all = readers();
    // Reader, and its damage.
    let damages: [(usize, &str, Damage); 8] = [
        (1, "a page outside the pool", |_, _| (Meta::PageTables, 0, PAGES as i32)),
        (1, "no page where one is seen", |_, m| {
            (Meta::PageTables, m.array()[m.place(Meta::TileTable { tiling: 1 }).start] as usize, -1)
        }),
        (0, "a table past the end", |_, m| {
            (Meta::TileTable { tiling: 0 }, 0, (m.used() - m.place(Meta::PageTables).start) as i32)
        }),
        (0, "a row in two tiles", |p, _| {
            (Meta::TileRow { tiling: 0 }, 0, i32::from(p.sequences().len() > 1 || p.rows() > 32))
        }),
        (0, "too many rows", |_, _| (Meta::TileRows { tiling: 0 }, 0, 33)),
        (1, "a position past the context", |_, _| (Meta::TilePos { tiling: 1 }, 0, CONTEXT as i32)),
        (4, "a slot outside the pool", |_, _| (Meta::Slots { group: 0 }, 0, (PAGES * PAGE) as i32)),
        (4, "two rows of one slot", |p, m| {
            (Meta::Slots { group: 0 }, 0, m.array()[m.place(Meta::Slots { group: 0 }).start + p.rows() - 1])
        }),
    ];
    let mut broken = [0; 8];
    filled(12, 2, |plan, metadata| {
        if plan.rows() < 2 || plan.sequences().len() < 2 {
            return;
        }
        for ((reader, _, damage), broken) in damages.iter().zip(&mut broken) {
            let (meta, element, value) = damage(plan, metadata);
            let mut cells = metadata.array().clone();
            cells[metadata.place(meta).start + element] = value;
            *broken += usize::from(premises(&all[*reader], plan, metadata, &cells).is_err());
        }
    });
    for ((_, what, _), broken) in damages.iter().zip(broken) {
        assert!(broken > 0, "{what}: every premise still holds");
    }
}

#[test]
fn the_bounds_of_both_provers_are_one_and_the_core_refuses_what_is_above_them() {
    assert_eq!((ROWS_MAX as i128, CONTEXT_MAX as i128, TABLE_MAX as i128), (limit::ROWS, limit::CONTEXT, limit::TABLE));
    // A tile has a row: there are no more tiles than rows. Slots and pages are `i32`.
    assert_eq!((limit::TILES, limit::SLOTS), (limit::ROWS, i128::from(i32::MAX)));
    let made = |context: usize, rows: usize, selected: usize| {
        let program = Program { context: context as u32, ..program() };
        image(&program, &tilings(), rows, selected).is_ok()
    };
    assert!(made(PAGE, ROWS_MAX, ROWS_MAX));
    assert!(!made(PAGE, ROWS_MAX + 1, 1));
    assert!(!made(PAGE, 1, ROWS_MAX + 1));
    assert!(made(CONTEXT_MAX, 1, 1));
    assert!(!made(CONTEXT_MAX + 1, 1, 1));
    // The page tables of the three groups are one array.
    let most = TABLE_MAX / 3 / (CONTEXT_MAX / PAGE);
    assert!(made(CONTEXT_MAX, most, 1));
    assert!(!made(CONTEXT_MAX, most + 1, 1));
}
