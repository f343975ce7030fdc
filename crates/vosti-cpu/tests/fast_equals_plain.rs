//! Compiled plans give the interpreter's bits: ragged shapes, every instruction set, packed and row-major
//! buffers, lanes that nothing defines poisoned.

mod common;
use common::*;
use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use vosti_contract::{Const, Dtype, Role};
use vosti_cpu::Isa;
use vosti_cpu::Layout;
use vosti_kernels::quantised::FORMATS;
use vosti_kernels::{Format, Part, Quantised, TensorData, capped, specialise};
use vosti_simd::micro;
use vosti_simd::storage::{Form, Packed, Writer, blocks, exponents};
use vosti_tile::interp::Buffer;

#[test]
fn every_specialisation_has_a_plan() {
    let (isas, mut failures) = (Isa::tried(), Vec::new());
    for spec in vosti_kernels::examples() {
        let kernel = vosti_tile::fold(&vosti_tile::lift(&vosti_kernels::ttir(&spec).unwrap()).unwrap());
        for isa in isas {
            if let Err(e) = vosti_cpu::plan::compile(&kernel, *isa) {
                failures.push(format!("{spec} {isa:?}: {e}"));
            }
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

/// A tile has room for 16 to 64 rows, and a step that decodes has one: the others must cost nothing.
#[test]
fn programs_compute_only_the_rows_that_there_are() {
    let mut all: Vec<String> = vec![];
    for spec in vosti_kernels::examples() {
        let kernel = vosti_tile::fold(&vosti_tile::lift(&vosti_kernels::ttir(&spec).unwrap()).unwrap());
        let plan = plan(&kernel, Isa::detect());
        let several = ["BM", "BQ"].iter().any(|name| matches!(spec.constants.get(*name), Some(Const::Int(2..))));
        // Only for a GPU.
        let swapped = matches!(spec.constants.get("SWAP"), Some(Const::Int(1)));
        if several && !swapped && plan.live.is_empty() && !all.contains(&spec.kernel) {
            all.push(spec.kernel.clone());
        }
    }
    assert!(all.is_empty(), "these compute rows that nothing writes: {all:?}");
}

/// Blocks of columns that are tried of a large matrix.
const COLUMNS_MAX: usize = 4;

/// Rows of the cases of a specialisation: of one that takes long to interpret fewer.
fn row_counts(stem: &str) -> &'static [usize] {
    let spec = parse_stem(stem);
    let at_most = |name: &str, limit: i64| match spec.constants.get(name) {
        Some(Const::Int(v)) => *v <= limit,
        _ => true,
    };
    let count = |name: &str| match spec.constants.get(name) {
        Some(Const::Int(v)) => *v,
        _ => 1,
    };
    // Numbers of a row in all heads.
    let heads = if spec.constants.contains_key("HEADS") { count("HEADS") } else { count("KV_HEADS") * count("GROUP") };
    let d = if spec.constants.contains_key("HALF") { 2 * count("HALF") } else { count("D") };
    // The interpreter multiplies every lane of a tile, whatever the row chose.
    let chosen = spec.constants.get("TOPK").is_some_and(|_| spec.constants.contains_key("N"))
        && count("K").max(32 * count("BLOCKS")) * count("TOPK") > 200;
    let quick = !chosen
        && heads * d <= 256
        && at_most("DK", 64)
        && at_most("K", 1536)
        && at_most("H", 1024)
        && (at_most("K", 100) || at_most("N", 3072));
    match quick {
        // Whoever looks through a row of logits does so for each row.
        true if !["argmax", "topk", "draw"].iter().any(|name| spec.kernel.starts_with(name))
            || at_most("V", 256) && at_most("PART", 256) && at_most("BN", 64) =>
        {
            &[1, 3, 67]
        }
        true => &[1],
        false => &[3],
    }
}

#[test]
fn plans_have_the_interpreters_bits() {
    let only = std::env::var("VOSTI_STEM").unwrap_or_default();
    let stems = vosti_kernels::examples().into_iter().map(|spec| spec.to_string());
    let stems: Vec<String> = stems.filter(|stem| stem.contains(&only)).collect();
    assert!(!stems.is_empty(), "VOSTI_STEM: no specialisation has {only:?} in its name");
    Isa::tried();
    let (next, failures) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some(stem) = stems.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let found = differences(stem);
                    failures.lock().unwrap().extend(found);
                }
            });
        }
    });
    let failures = failures.into_inner().unwrap();
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

/// Matrix products of every kind whose rows have K elements and that have N columns.
fn products(act: Dtype, k: i64, n: i64) -> Vec<String> {
    let dims = [("K", Const::Int(k)), ("N", Const::Int(n))];
    let with = |more: &[(&'static str, Const)]| [&dims[..], more].concat();
    let all = [
        ("linear", with(&[])),
        ("linear_add", with(&[("SCALE", Const::Float(1.0))])),
        ("linear_glu", with(&[("ACT", Const::Int(0))])),
        ("linear_logits", with(&capped(0.0, 1.0))),
    ];
    all.map(|(kernel, dims)| specialise("cpu", kernel, act, &dims).unwrap().to_string()).to_vec()
}

#[test]
fn matrices_with_ragged_rows_and_columns_have_the_interpreters_bits() {
    Isa::tried();
    let mut failures = Vec::new();
    for act in [Dtype::Bf16, Dtype::F32] {
        for k in [1, 2, 3, 63, 64, 66, 131] {
            for n in [1, 63, 64, 65, 130] {
                products(act, k, n).iter().for_each(|stem| failures.extend(differences(stem)));
            }
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn a_sum_that_underflows_has_the_interpreters_sign_whatever_the_rows_length() {
    let (isas, mut negative, mut positive) = (Isa::tried(), 0, 0);
    for (k, act) in [1, 2, 3, 30, 63, 64, 65, 128].into_iter().flat_map(|k| [(k, Dtype::Bf16), (k, Dtype::F32)]) {
        let mut case = case(&products(act, k, 70)[0], 3, 5);
        for (param, buffer) in case.contract.params.iter().zip(&mut case.buffers) {
            let value: f32 = match param.role {
                Role::In(0) => 1e-30,
                Role::Weight(0) => -1e-30,
                _ => continue,
            };
            match buffer {
                Buffer::Bf16(data) => data.fill((value.to_bits() >> 16) as u16),
                Buffer::F32(data) => data.fill(value),
                _ => unreachable!("activations are floats"),
            }
        }
        let want = plain(&case);
        let out = case.contract.params.iter().position(|param| param.role == Role::Out(0)).unwrap();
        // A zero that is added last makes the sum +0. None is for 64 and 128, nor for 63 in BF16: its last pair begins with it.
        *(if want[out].bits(0) == 0 { &mut positive } else { &mut negative }) += 1;
        for (isa, packed) in isas.iter().flat_map(|isa| [(*isa, true), (*isa, false)]) {
            let got =
                fast(&case.kernel, &plan(&case.kernel, isa), &case.buffers, case.grid, isa, packed, None).unwrap();
            assert_eq!(difference(&case.kernel, &got, &want), None, "{k} {isa:?} {packed}");
        }
    }
    assert_eq!((negative, positive), (5, 11));
}

/// The words of a weight in panels, and how many of its panels are not in BF16.
fn in_panels(layout: Layout, rows: usize, row_len: usize, panel: impl Fn(Range<usize>) -> Packed) -> (Vec<u64>, usize) {
    let mut words = vec![0u64; layout.bytes(rows * row_len, 2).div_ceil(8)];
    // SAFETY: as many bytes.
    let out = unsafe { std::slice::from_raw_parts_mut(words.as_mut_ptr().cast::<u8>(), 8 * words.len()) };
    let (panels, writer) = (layout.panels(rows), Writer::new(layout.panels(rows), out));
    let small = (0..panels).filter(|i| {
        let packed = panel(layout.panel_rows(*i, rows));
        writer.put(*i, &packed);
        packed.form != Form::Bf16
    });
    let small = small.count();
    (words, small)
}

/// Products with a weight in panels of their own forms against the interpreter's with its BF16 elements.
fn compare_stored(stem: &str, rows: &[usize], data: &[u16], k: usize, panel: impl Fn(Range<usize>, Isa) -> Packed) {
    let glu = stem.starts_with("linear_glu");
    for (rows, isa) in rows.iter().flat_map(|rows| Isa::available().iter().map(move |isa| (*rows, *isa))) {
        let mut case = case(stem, rows, 3);
        let weight = case.contract.params.iter().position(|param| param.role == Role::Weight(0)).unwrap();
        case.buffers[weight] = Buffer::Bf16(data.to_vec());
        let (want, plan) = (plain(&case), plan(&case.kernel, isa));
        let Some(Layout::RowPanels { row_len, cut, .. }) = plan.wanted[weight] else { panic!("{stem}: no panels") };
        assert!(row_len == k && (!glu || cut > 0 && 2 * cut * k == data.len()), "{stem}");
        let layout = Layout::StoredPanels { row_len, cut, part: None };
        let (words, small) = in_panels(layout, data.len() / k, k, |rows| panel(rows, isa));
        assert!(small > 0 || isa != Isa::Avx512Bf16, "{stem}: every panel is in BF16");
        let given = [(weight, layout, &words[..])];
        let got = fast_with(&case.kernel, &plan, &case.buffers, case.grid, isa, true, Some(3), &given).unwrap();
        assert_eq!(difference(&case.kernel, &got, &want), None, "{stem} {rows} {isa:?}");
    }
}

/// Random rows of a format, each the same whichever others there are.
fn quantised_rows(format: &'static Format, k: usize, rows: Range<usize>) -> Quantised {
    let mut all = Quantised::new(format, k);
    for row in rows {
        let mut rng = Rng::new(row as u64 + 1);
        let groups = if format.two_levels() { k / format.group } else { 0 };
        all.codes.extend((0..k).map(|_| rng.below(1 << format.bits) as u8));
        all.scales.extend((0..k / format.chunk).map(|_| 0x1c00 + rng.below(0x800) as u16));
        all.group_scales.extend((0..groups).map(|_| rng.below(63) as i8));
        if format.minimum {
            all.minima.extend((0..k / format.chunk).map(|_| 0x1800 + rng.below(0x800) as u16));
            all.group_minima.extend((0..groups).map(|_| rng.below(63) as i8));
        }
    }
    all
}

#[test]
fn ragged_weights_in_forms_of_their_own_have_the_interpreters_bits() {
    Isa::tried();
    let mut rng = Rng::new(11);
    for format in &FORMATS {
        // One chunk and a half of a tile where a format allows it.
        let k = if format.chunk == 32 { 96 } else { format.chunk };
        for (stem, rows) in products(Dtype::Bf16, k as i64, 70).iter().zip([70, 70, 140, 70]) {
            let panel = |rows: Range<usize>| Packed::blocks(&quantised_rows(format, k, rows));
            let one = |row: usize| panel(row..row + 1).bytes;
            // SAFETY: a panel has its first row.
            let element = |row: &[u8], k: usize| unsafe { blocks::Shape::of(format).element(row.as_ptr(), 0, k) };
            let data: Vec<u16> = (0..rows)
                .flat_map(|row| {
                    let bytes = one(row);
                    (0..k).map(move |k| element(&bytes, k)).collect::<Vec<_>>()
                })
                .collect();
            compare_stored(stem, &[1, 67], &data, k, |rows, _| panel(rows));
        }
    }
    for k in [1, 7, 64, 131] {
        for (stem, rows) in products(Dtype::Bf16, k as i64, 70).iter().zip([70, 70, 140, 70]) {
            let data: Vec<u16> = (0..rows * k).map(|_| 0x3c00 + rng.below(0x300) as u16).collect();
            compare_stored(stem, &[1, 3, 67], &data, k, |rows, isa| {
                let order = Layout::RowPanels { row_len: k, pair: 2, cut: 0 };
                let mut panel = vec![0; order.footprint(64 * k)];
                order.pack(0, &data[rows.start * k..rows.end * k], &mut panel);
                let mut bytes = vec![0; exponents::panel_bytes(k)];
                match micro::kernels(isa).encode.is_some_and(|encode| encode(&panel, &mut bytes)) {
                    true => Packed { form: Form::Exponents, bytes },
                    false => Packed::plain(&panel),
                }
            });
        }
    }
}

/// Products in integers of every form that a format allows.
fn products_in_integers(format: &Format, k: usize, n: i64) -> Vec<String> {
    let mut all = vec![];
    for (halves, offsets, wide) in (0..8).map(|i| (i & 1, i >> 1 & 1, i >> 2)) {
        if (format.group == 16 && halves == 0) || (format.minimum && offsets == 0) {
            continue;
        }
        let flags = [("HALVES", halves), ("OFFSETS", offsets), ("WIDE", wide)];
        let dims = [&[("BLOCKS", k as i64 / 32), ("N", n)], &flags[..]].concat();
        let dims: Vec<(&str, Const)> = dims.into_iter().map(|(name, value)| (name, Const::Int(value))).collect();
        let (act, two) = (("ACT", Const::Int(0)), [("E", Const::Int(EXPERTS)), ("TOPK", Const::Int(2))]);
        let mut kernels = vec![("linear_int", vec![]), ("linear_int_glu", vec![act])];
        // Experts multiply with the same instruction: one form of each format is enough.
        if halves == i64::from(format.group == 16) && offsets == i64::from(format.minimum) && wide == 1 {
            kernels.push(("expert_int_down", two.to_vec()));
            kernels.push(("expert_int_glu", [&two[..], &[act]].concat()));
        }
        for (kernel, more) in kernels {
            let dims: Vec<_> = dims.iter().cloned().chain(more).collect();
            all.push(specialise("cpu", kernel, Dtype::Bf16, &dims).unwrap().to_string());
        }
    }
    all
}

/// Experts of a layer.
const EXPERTS: i64 = 3;

#[test]
fn weights_in_blocks_times_integers_have_the_interpreters_bits() {
    Isa::tried();
    for format in &FORMATS {
        let k = if format.chunk == 32 { 96 } else { format.chunk };
        for (i, stem) in products_in_integers(format, k, 70).iter().enumerate() {
            let matrices = if stem.starts_with("expert") { EXPERTS as usize } else { 1 };
            let height = matrices * if stem.contains("_glu") { 140 } else { 70 };
            let weight = quantised_rows(format, k, 0..height);
            let mut case = case(stem, [1, 3, 67][i % 3], i as u64);
            let at =
                |part: usize| case.contract.params.iter().position(|param| param.role == Role::Weight(part)).unwrap();
            let places: Vec<(usize, Part)> = Part::ALL.iter().enumerate().map(|(i, part)| (at(i), *part)).collect();
            for (place, part) in &places {
                case.buffers[*place] = match weight.part(*part) {
                    TensorData::I8(codes) => Buffer::I8(codes),
                    TensorData::F32(numbers) => Buffer::F32(numbers),
                    TensorData::Bf16(_) => unreachable!("no part is in BF16"),
                };
            }
            let want = plain(&case);
            for isa in Isa::available() {
                let plan = plan(&case.kernel, *isa);
                let Some(Layout::StoredPanels { row_len, cut, .. }) = plan.wanted[places[0].0] else {
                    panic!("{stem}")
                };
                assert_eq!((row_len, cut), (k, 70), "{stem}");
                let whole = Layout::StoredPanels { row_len, cut, part: None };
                let (words, _) = in_panels(whole, height, k, |rows| Packed::integers(&quantised_rows(format, k, rows)));
                let given = places.iter().map(|(place, part)| {
                    (*place, Layout::StoredPanels { row_len, cut, part: Some(*part) }, &words[..])
                });
                let given: Vec<_> = given.collect();
                let got =
                    fast_with(&case.kernel, &plan, &case.buffers, case.grid, *isa, true, Some(3), &given).unwrap();
                assert_eq!(difference(&case.kernel, &got, &want), None, "{stem} {} {isa:?}", format.name);
            }
        }
    }
}

#[test]
fn an_expert_that_no_row_chose_is_not_read() {
    let flags = [("HALVES", 0), ("OFFSETS", 1), ("WIDE", 1)];
    for kernel in ["expert_glu", "expert_down", "expert_int_glu", "expert_int_down"] {
        let depth = if kernel.contains("_int_") { ("BLOCKS", 2) } else { ("K", 64) };
        let mut dims = vec![depth, ("N", 70), ("E", EXPERTS), ("TOPK", 2), ("ACT", 0)];
        dims.extend(flags);
        let named = |name: &str| vosti_kernels::contract(kernel).unwrap().numbers.iter().any(|n| n.name == name);
        let given = |name: &str| named(name) || name == "TOPK";
        let dims = dims.into_iter().filter(|(name, _)| given(name)).map(|(name, value)| (name, Const::Int(value)));
        let dims: Vec<_> = dims.collect();
        let stem = specialise("cpu", kernel, Dtype::Bf16, &dims).unwrap().to_string();
        let mut case = case(&stem, 5, 9);
        let experts = case.buffers.iter().position(|b| matches!(b, Buffer::I32(v) if v.len() > 1)).unwrap();
        let Buffer::I32(ids) = &mut case.buffers[experts] else { unreachable!("just found") };
        (0..).zip(&mut ids[..]).for_each(|(i, id)| *id = i % (EXPERTS as i32 - 1));
        // The memory of the last expert is missing.
        let short = |buffers: &[Buffer]| -> Vec<Buffer> {
            let cut = |(param, buffer): (&vosti_contract::Param, &Buffer)| {
                let keep = |len: usize| len / EXPERTS as usize * (EXPERTS as usize - 1);
                match (param.role, buffer) {
                    (Role::Weight(_), Buffer::Bf16(v)) => Buffer::Bf16(v[..keep(v.len())].to_vec()),
                    (Role::Weight(_), Buffer::F32(v)) => Buffer::F32(v[..keep(v.len())].to_vec()),
                    (Role::Weight(_), Buffer::I8(v)) => Buffer::I8(v[..keep(v.len())].to_vec()),
                    _ => buffer.clone(),
                }
            };
            case.contract.params.iter().zip(buffers).map(cut).collect()
        };
        let (want, given) = (short(&plain(&case)), short(&case.buffers));
        for isa in Isa::available() {
            let plan = plan(&case.kernel, *isa);
            assert!(plan.chosen.is_some(), "{stem}: the launch runs programs of experts that no row chose");
            let got = fast(&case.kernel, &plan, &given, case.grid, *isa, false, Some(3)).unwrap();
            assert_eq!(difference(&case.kernel, &got, &want), None, "{stem} {isa:?}");
            let mut given = given.clone();
            let Buffer::I32(ids) = &mut given[experts] else { unreachable!("just found") };
            ids[3] = EXPERTS as i32 - 1;
            let read = fast(&case.kernel, &plan, &given, case.grid, *isa, false, Some(3));
            assert!(read.is_err(), "{stem} {isa:?}: a row of the last expert");
        }
    }
}

/// What a specialisation's plans give otherwise than the interpreter, in words.
fn differences(stem: &str) -> Vec<String> {
    let mut failures = Vec::new();
    for &rows in row_counts(stem) {
        let mut case = case(stem, rows, 7 + rows as u64);
        if rows == 3 && row_counts(stem).len() == 1 {
            // A large one: all of its columns take long to interpret, and each program does the same.
            case.grid[1] = case.grid[1].min(COLUMNS_MAX);
        }
        let want = plain(&case);
        for (isa, packed) in Isa::available().iter().flat_map(|isa| [(*isa, true), (*isa, false)]) {
            if !packed && isa != Isa::detect() {
                continue;
            }
            let plan = plan(&case.kernel, isa);
            match fast(&case.kernel, &plan, &case.buffers, case.grid, isa, packed, Some(3)) {
                Ok(got) => {
                    if let Some(d) = difference(&case.kernel, &got, &want) {
                        failures.push(format!("{stem} rows {rows} {isa:?} packed {packed}: {d}"));
                    }
                }
                Err(e) => failures.push(format!("{stem} rows {rows} {isa:?}: {e}")),
            }
        }
    }
    failures
}
