//! Compares every kernel on the interpreter with the formula of its docstring in FP64, and attention with
//! itself: alone, in a batch, in chunks and row by row it gives the same bits.

mod common;

use common::formulas::*;
use common::{Launch, Random, Sequences, head, heads, int, launch};
use vosti_contract::{Const, Dtype, Role};
use vosti_kernels::Spec;
use vosti_tile::interp::{Buffer, Options, Order, Undefined, run};

const BATCH: &Sequences = &[(3, 61), (1, 200), (67, 0)];

fn ints(launch: &Launch, role: Role) -> Vec<usize> {
    match buffer(launch, role) {
        Buffer::I32(v) => v.iter().map(|x| *x as usize).collect(),
        other => panic!("{:?}", other.elem()),
    }
}

/// `x w^T` in FP64.
fn product(x: &[f64], w: &[f64], k: usize) -> Vec<f64> {
    x.chunks(k).flat_map(|x| w.chunks(k).map(move |w| x.iter().zip(w).map(|(x, w)| x * w).sum())).collect()
}

#[test]
fn linear_kernels_are_matrix_products() {
    for name in ["linear", "linear_bias", "linear_add", "linear_logits", "linear_glu"] {
        for spec in small(name) {
            let mut l = launch(&spec, BATCH, 11);
            let (k, n) = (int(&spec, "K"), int(&spec, "N"));
            let mut y = product(&wide(&l, Role::In(0)), &wide(&l, Role::Weight(0)), k);
            match name {
                "linear_add" => {
                    let scale = float(&spec, "SCALE");
                    y.iter_mut().zip(wide(&l, Role::In(1))).for_each(|(y, r)| *y = r + *y * scale);
                }
                "linear_bias" => {
                    let bias = wide(&l, Role::Weight(1));
                    y.iter_mut().enumerate().for_each(|(i, y)| *y += bias[i % n]);
                }
                "linear_logits" if int(&spec, "CAPPED") == 1 => {
                    let [cap, span, slope] = ["CAP", "SPAN", "SLOPE"].map(|name| float(&spec, name));
                    y.iter_mut().for_each(|y| *y = cap - span / ((*y * slope).exp() + 1.0));
                }
                "linear_glu" => y = gated(&spec, &y, n),
                _ => {}
            }
            execute(&mut l);
            close(&spec, &wide(&l, Role::Out(0)), &y);
        }
    }
}

/// `x / rms(x)` by rows of `h`.
fn normed(x: &[f64], h: usize, eps: f64) -> Vec<f64> {
    let scale = |row: &[f64]| 1.0 / (row.iter().map(|v| v * v).sum::<f64>() / h as f64 + eps).sqrt();
    x.chunks(h).flat_map(|row| row.iter().map(move |v| v * scale(row))).collect()
}

#[test]
fn norms_divide_by_the_root_mean_square() {
    for name in ["rmsnorm", "rmsnorm_add", "rmsnorm_add_scaled"] {
        for spec in small(name) {
            let mut l = launch(&spec, BATCH, 12);
            let h = int(&spec, "H");
            let (w, x) = (wide(&l, Role::Weight(0)), wide(&l, Role::In(usize::from(name.contains("add")))));
            let mut y = normed(&x, h, float(&spec, "EPS"));
            y.iter_mut().enumerate().for_each(|(i, y)| *y *= w[i % h]);
            match name {
                "rmsnorm_add" | "rmsnorm_add_scaled" => {
                    y.iter_mut().zip(wide(&l, Role::In(0))).for_each(|(y, r)| *y += r);
                    if name.ends_with("scaled") {
                        let factor = wide(&l, Role::Weight(1));
                        y.iter_mut().enumerate().for_each(|(i, y)| *y *= factor[i % h]);
                    }
                }
                _ => {}
            }
            execute(&mut l);
            close(&spec, &wide(&l, Role::Out(0)), &y);
        }
    }
}

#[test]
fn a_norm_of_queries_and_keys_takes_all_heads_together_and_leaves_values_alone() {
    for spec in small("norm_qk") {
        let mut l = launch(&spec, BATCH, 14);
        let (q, kv, stride, eps) = (int(&spec, "Q"), int(&spec, "KV"), int(&spec, "STRIDE"), float(&spec, "EPS"));
        let (q_w, k_w) = (wide(&l, Role::Weight(0)), wide(&l, Role::Weight(1)));
        let mut y = Vec::new();
        for row in wide(&l, Role::In(0)).chunks(stride) {
            y.extend(normed(&row[..q], q, eps).iter().zip(&q_w).map(|(x, w)| x * w));
            y.extend(normed(&row[q..q + kv], kv, eps).iter().zip(&k_w).map(|(x, w)| x * w));
            y.extend(&row[q + kv..]);
        }
        execute(&mut l);
        close(&spec, &wide(&l, Role::Out(0)), &y);
    }
}

#[test]
fn a_rounded_stream_has_the_same_numbers_in_the_activations_type() {
    for spec in small("round_stream") {
        let mut l = launch(&spec, BATCH, 15);
        let x = wide(&l, Role::In(0));
        execute(&mut l);
        close(&spec, &wide(&l, Role::Out(0)), &x);
    }
}

/// Numbers that comparisons treat specially (NaN, zeros, denormals), and the largest and smallest ones.
const STRANGE: [f32; 12] = [
    f32::NAN,
    f32::NEG_INFINITY,
    -f32::MAX,
    -1.5,
    -f32::MIN_POSITIVE,
    -1e-40,
    -0.0,
    0.0,
    1e-45,
    f32::MIN_POSITIVE,
    2.5,
    f32::INFINITY,
];

/// The rule of greedy choice, value by value: NaN is skipped, a denormal is zero, and the first of equal numbers is chosen.
fn first_largest(row: &[f32]) -> usize {
    let seen = |x: f32| if x.is_subnormal() { 0.0 } else { x };
    let better = |i: usize, best: usize| seen(row[i]) > seen(row[best]) || row[best].is_nan() && !row[i].is_nan();
    (0..row.len()).fold(0, |best, i| if better(i, best) { i } else { best })
}

/// Ordinary numbers; or numbers of every kind; or of few kinds, so that many are equal, with a few others.
fn strange_rows(len: usize, seed: u64) -> Vec<f32> {
    let mut random = Random::new(seed);
    let kinds = &STRANGE[random.below(STRANGE.len())..];
    let kinds = &kinds[..1 + random.below(kinds.len())];
    let value = |_| match seed % 3 {
        0 => random.float(),
        _ if random.below(100) == 0 => STRANGE[random.below(STRANGE.len())],
        _ => kinds[random.below(kinds.len())],
    };
    (0..len).map(value).collect()
}

/// Whether a kernel of this text, with `bm` rows a program, finds the first largest of `v` logits.
fn is_best(text: &str, v: usize, bm: usize) -> Result<(), String> {
    let kernel = vosti_tile::lift(text).unwrap_or_else(|error| panic!("{error}"));
    let options = Options { undefined: Undefined::Poison(3), order: Order::Shuffled(5), operations_max: None };
    for seed in 0..60 {
        let rows = 1 + seed as usize % 11;
        let x = strange_rows(rows * v, seed);
        let wanted: Vec<f32> = x.chunks(v).map(|row| first_largest(row) as f32).collect();
        // Both buffers have one row too many, which must be neither read nor written.
        let more = x.iter().copied().chain(std::iter::repeat_n(f32::INFINITY, v));
        let mut buffers =
            vec![Buffer::F32(more.collect()), Buffer::I32(vec![rows as i32]), Buffer::F32(vec![-1.0; rows + 1])];
        run(&kernel, &mut buffers, [rows.div_ceil(bm) + 1, 1, 1], &options).map_err(|error| error.to_string())?;
        let found: Vec<f32> = (0..=rows).map(|i| f32::from_bits(buffers[2].bits(i) as u32)).collect();
        if found[..rows] != wanted || found[rows] != -1.0 {
            return Err(format!("seed {seed}: {found:?} instead of {wanted:?}"));
        }
    }
    Ok(())
}

/// 40 logits in blocks of 16, four rows a program: there are lanes behind the last logit and the last row.
fn ragged() -> String {
    vosti_test_tools::filetests::one("argmax").ttir
}

#[test]
fn best_is_where_the_first_largest_logit_stands() {
    for spec in small("argmax") {
        is_best(&vosti_kernels::ttir(&spec).unwrap(), int(&spec, "V"), int(&spec, "BM")).unwrap();
    }
    is_best(&ragged(), 40, 4).unwrap();
}

#[test]
fn a_best_that_does_something_else_is_seen() {
    let wrong = [
        ("what is smaller", "arith.cmpf ole", "arith.cmpf oge"),
        ("the last of the lanes' equals", "arith.minnumf", "arith.maxnumf"),
        ("zeros behind the last logit", "padding = 2", "padding = 1"),
        ("small numbers as zeros", "dense<1.17549435E-38>", "dense<2.000000e+00>"),
        ("the smallest", "arith.maxnumf", "arith.minnumf"),
        ("columns from the first block on", "dense<32> : tensor<16xi32>", "dense<0> : tensor<16xi32>"),
    ];
    for (what, from, to) in wrong {
        let text = ragged().replace(from, to);
        assert_ne!(text, ragged(), "{what}: no {from}");
        assert!(is_best(&text, 40, 4).is_err(), "{what}");
    }
}

/// The rule of top-k: the largest in order, the first of equal numbers first; places behind them have -inf and no column.
fn top(row: &[f32], k: usize) -> Vec<(f32, f32)> {
    let seen = |x: f32| if x.is_subnormal() { 0.0 } else { x };
    let mut numbers: Vec<(usize, f32)> =
        row.iter().map(|x| seen(*x)).enumerate().filter(|(_, x)| !x.is_nan()).collect();
    numbers.sort_by(|a, b| b.1.partial_cmp(&a.1).unwrap());
    let nothing = std::iter::repeat((f32::NEG_INFINITY, NO_COLUMN));
    numbers.into_iter().map(|(i, x)| (x, i as f32)).chain(nothing).take(k).collect()
}

const NO_COLUMN: f32 = 16_777_216.0;

/// Whether kernels of these texts, one row a program, list the `k` largest of `v` logits, `part` of them at a time.
fn is_top(texts: [&str; 2], v: usize, part: usize, k: usize) -> Result<(), String> {
    let kernels = texts.map(|text| vosti_tile::lift(text).unwrap_or_else(|error| panic!("{error}")));
    let options = Options { undefined: Undefined::Poison(3), order: Order::Shuffled(5), operations_max: None };
    let found = v.div_ceil(part) * k;
    for seed in 0..60 {
        let rows = 1 + seed as usize % 4;
        let x = strange_rows(rows * v, seed);
        // The buffers have one row too many, which must be neither read nor written.
        let more = x.iter().copied().chain(std::iter::repeat_n(f32::INFINITY, v));
        let (count, own) = (Buffer::I32(vec![rows as i32]), |width: usize| Buffer::F32(vec![-1.0; (rows + 1) * width]));
        let mut first = vec![Buffer::F32(more.collect()), count.clone(), own(found), own(found)];
        run(&kernels[0], &mut first, [rows + 1, v.div_ceil(part), 1], &options).map_err(|error| error.to_string())?;
        let columns = first.pop().unwrap();
        let mut second = vec![first.pop().unwrap(), columns, count, own(k), own(k)];
        run(&kernels[1], &mut second, [rows + 1, 1, 1], &options).map_err(|error| error.to_string())?;
        let number = |buffer: usize, i: usize| f32::from_bits(second[buffer].bits(i) as u32);
        for (i, row) in x.chunks(v).enumerate() {
            let given: Vec<(f32, f32)> = (i * k..(i + 1) * k).map(|at| (number(3, at), number(4, at))).collect();
            let wanted = top(row, k);
            // Compared as numbers, because a zero may have either sign.
            if given != wanted {
                return Err(format!("seed {seed}: {given:?} instead of {wanted:?}"));
            }
        }
        if (rows * k..(rows + 1) * k).any(|at| number(3, at) != -1.0 || number(4, at) != -1.0) {
            return Err(format!("seed {seed}: a row that is not there was written"));
        }
    }
    Ok(())
}

/// 40 logits in three parts of 16, four of each: there are lanes behind the last logit, and behind the last candidate.
fn small_texts() -> [String; 2] {
    ["topk_part", "topk_combine"].map(|name| vosti_test_tools::filetests::one(name).ttir)
}

#[test]
fn lists_are_the_largest_logits_in_order() {
    is_top(small_texts().each_ref().map(String::as_str), 40, 16, 4).unwrap();
    let text = |kernel: &str, tiles: (&str, usize), dims: &[(&str, usize)]| {
        let mut spec = small(kernel).into_iter().find(|spec| int(spec, tiles.0) == tiles.1).unwrap();
        spec.constants.extend(dims.iter().map(|(name, value)| (name.to_string(), Const::Int(*value as i64))));
        vosti_kernels::ttir(&spec).unwrap()
    };
    for (v, tile) in [(256usize, 64), (1, 64), (97, 64), (257, 1024), (700, 1024)] {
        let parts = v.div_ceil(256);
        let first = text("topk_part", ("PART", 256), &[("V", v), ("PARTS", parts)]);
        let second = text("topk_combine", ("BN", tile), &[("N", parts * 64)]);
        is_top([&first, &second], v, 256, 64).unwrap();
    }
}

#[test]
fn a_list_of_something_else_is_seen() {
    let wrong = [
        ("what is smaller", "arith.cmpf ole", "arith.cmpf oge"),
        ("the smallest", "arith.maxnumf", "arith.minnumf"),
        ("the last of equals", "arith.minnumf", "arith.maxnumf"),
        ("one and the same", "arith.cmpf oeq, %column", "arith.cmpf une, %column"),
        ("zeros behind the last logit", "padding = 2", "padding = 1"),
        ("small numbers as zeros", "dense<1.17549435E-38>", "dense<2.000000e+00>"),
    ];
    for (what, from, to) in wrong {
        let texts = small_texts();
        let right = texts.each_ref().map(String::as_str);
        let edited = right.map(|text| text.replace(from, to));
        let texts = [[&edited[0], right[1]], [right[0], &edited[1]]];
        let changed = texts.into_iter().zip(right).enumerate().filter(|(i, (texts, text))| texts[*i] != *text);
        let mut seen = 0;
        for (i, (texts, _)) in changed {
            seen += 1;
            assert!(is_top(texts, 40, 16, 4).is_err(), "{what}, in launch {i}");
        }
        assert!(seen > 0, "{what}: no {from}");
    }
}

#[test]
fn gather_copies_chosen_rows() {
    for spec in small("gather") {
        let mut l = launch(&spec, BATCH, 16);
        let chosen = ints(&l, Role::RowIndex);
        let rows = |x: Vec<f64>, width: usize| -> Vec<f64> {
            chosen.iter().flat_map(|r| x[r * width..(r + 1) * width].to_vec()).collect()
        };
        let x = rows(wide(&l, Role::In(0)), int(&spec, "K"));
        let residual = rows(wide(&l, Role::In(1)), int(&spec, "H"));
        execute(&mut l);
        assert_eq!(wide(&l, Role::Out(0)), x, "{spec}");
        assert_eq!(wide(&l, Role::Out(1)), residual, "{spec}");
    }
}

#[test]
fn embed_copies_scaled_rows_of_the_table() {
    for spec in small("embed") {
        let mut l = launch(&spec, BATCH, 13);
        let h = int(&spec, "H");
        let table = wide(&l, Role::Weight(0));
        let scale = float(&spec, "SCALE");
        let y: Vec<f64> =
            ints(&l, Role::Tokens).iter().flat_map(|t| table[t * h..(t + 1) * h].iter().map(|x| x * scale)).collect();
        execute(&mut l);
        close(&spec, &wide(&l, Role::Out(0)), &y);
    }
}

/// A head of a projection after its norm and rotation with the tables from weight `first` on, in FP64.
fn rotated(l: &Launch, first: usize, at: usize, row: usize) -> Vec<f64> {
    let (d, packed) = (head(&l.spec), int(&l.spec, "PACKED"));
    let mut x = wide(l, Role::In(0))[(row * packed + at) * d..][..d].to_vec();
    if int(&l.spec, "NORM") == 1 {
        let w = wide(l, Role::Weight(first + 2));
        x = normed(&x, d, float(&l.spec, "EPS"));
        x.iter_mut().zip(w).for_each(|(x, w)| *x *= w);
    }
    let at = ints(l, Role::Positions)[row] * d / 2;
    let (cos, sin) = (wide(l, Role::Weight(first)), wide(l, Role::Weight(first + 1)));
    let half = d / 2;
    (0..d)
        .map(|i| match i < half {
            true => x[i] * cos[at + i] - x[i + half] * sin[at + i],
            false => x[i] * cos[at + i - half] + x[i - half] * sin[at + i - half],
        })
        .collect()
}

#[test]
fn rope_rotates_halves_by_position() {
    for spec in small("rope_q").into_iter().chain(small("rope_store")) {
        let mut l = launch(&spec, &[(2, 61), (1, 200), (4, 0)], 14);
        let heads = int(&spec, "HEADS");
        let y: Vec<f64> =
            (0..7 * heads).flat_map(|i| rotated(&l, 0, int(&spec, "FIRST") + i % heads, i / heads)).collect();
        execute(&mut l);
        close(&spec, &wide(&l, Role::Out(0)), &y);
    }
}

#[test]
fn rope_store_writes_its_slots_with_finite_numbers_and_nothing_else() {
    for spec in small("rope_store") {
        let mut l = launch(&spec, &[(2, 61), (1, 200), (4, 0)], 15);
        let [heads, page, packed] = ["KV_HEADS", "PAGE", "PACKED"].map(|n| int(&spec, n));
        let d = head(&spec);
        let qkv = l.roles.iter().position(|r| *r == Role::In(0)).unwrap();
        let [k_first, v_first] = ["K_FIRST", "V_FIRST"].map(|n| int(&spec, n));
        // The third row has an infinite value and a key of NaN.
        let cell = |first| (2 * packed + first) * d;
        l.buffers[qkv].set_bits(cell(v_first), if spec.act == Dtype::Bf16 { 0x7f80 } else { 0x7f80_0000 });
        l.buffers[qkv].set_bits(cell(k_first), if spec.act == Dtype::Bf16 { 0x7fc0 } else { 0x7fc0_0000 });
        let (mut keys, mut values) = (wide(&l, Role::CacheK), wide(&l, Role::CacheV));
        for (row, slot) in ints(&l, Role::Slots).into_iter().enumerate() {
            for head in 0..heads {
                let cell = (slot / page * heads + head) * page * d + slot % page * d;
                let k = rotated(&l, 3, k_first + head, row);
                let mut v = wide(&l, Role::In(0))[(row * packed + v_first + head) * d..][..d].to_vec();
                if int(&spec, "V_NORM") == 1 {
                    v = normed(&v, d, float(&spec, "EPS"));
                }
                for i in 0..d {
                    keys[cell + i] = if k[i].is_finite() { k[i] } else { 0.0 };
                    values[cell + i] = if v[i].is_finite() { v[i] } else { 0.0 };
                }
            }
        }
        execute(&mut l);
        close(&spec, &wide(&l, Role::CacheK), &keys);
        close(&spec, &wide(&l, Role::CacheV), &values);
    }
}

/// Attention of one row and head in FP64.
fn attended(l: &Launch, row: usize, head: usize, position: usize, pages: &[usize]) -> Vec<f64> {
    let spec = &l.spec;
    let [kv_heads, group, d, page] = ["KV_HEADS", "GROUP", "D", "PAGE"].map(|n| int(spec, n));
    let heads = kv_heads * group;
    let window = if int(spec, "USE") == 1 { int(spec, "WINDOW") } else { 0 };
    let (q, keys, values) = (wide(l, Role::In(0)), wide(l, Role::CacheK), wide(l, Role::CacheV));
    let q = &q[(row * heads + head) * d..][..d];
    let first = if window > 0 { (position + 1).saturating_sub(window) } else { 0 };
    let cell = |j: usize| (pages[j / page] * kv_heads + head / group) * page * d + j % page * d;
    let [slope, cap, span] = ["SLOPE", "CAP", "SPAN"].map(|n| float(spec, n));
    let weight = |j: usize| {
        let s: f64 = q.iter().zip(&keys[cell(j)..]).map(|(q, k)| q * k).sum::<f64>() * slope;
        if int(spec, "CAPPED") == 1 { (cap - span / (s.exp2() + 1.0)).exp() } else { s.exp2() }
    };
    let weights: Vec<f64> = (first..=position).map(weight).collect();
    let sink = if int(spec, "SINKS") == 1 { wide(l, Role::Weight(0))[head].exp2() } else { 0.0 };
    let total = weights.iter().sum::<f64>() + sink;
    (0..d)
        .map(|i| (first..=position).zip(&weights).map(|(j, w)| w * values[cell(j) + i]).sum::<f64>() / total)
        .collect()
}

/// Attention in one launch, and the first launch of attention in two.
fn attentions() -> Vec<Spec> {
    small("attend").into_iter().filter(|s| int(s, "D") <= 64 && heads(s) < 30).collect()
}

/// Runs attention, with the second launch if it has one, over the same sequences; its output.
fn attend(first: &mut Launch, sequences: &Sequences) -> Launch {
    execute(first);
    if int(&first.spec, "USE") > 0 {
        return first.clone();
    }
    // Tiles of the second launch may have other rows than the first one's.
    let same = |combine: &Spec| {
        let shared = |(name, c): (&String, &Const)| name == "BQ" || first.spec.constants[name] == *c;
        combine.act == first.spec.act && combine.constants.iter().all(shared)
    };
    let combines = vosti_kernels::ttir_stems().into_iter().filter(|s| s.starts_with("attend_combine-"));
    let mut combine = combines.filter_map(vosti_kernels::parse_stem).find(same).unwrap();
    let shared = ["KV_HEADS", "GROUP", "D", "SINKS"].map(|name| (name, int(&first.spec, name)));
    let own = [("HEIGHT", int(&combine, "BQ"))];
    for (name, value) in own.into_iter().chain(shared) {
        combine.constants.insert(name.into(), Const::Int(value as i64));
    }
    let mut second = launch(&combine, sequences, 1);
    for (role, buffer) in second.roles.iter().zip(&mut second.buffers) {
        if let Role::Scratch(_) | Role::Out(_) | Role::Weight(_) = role {
            *buffer = self::buffer(first, *role).clone();
        }
    }
    execute(&mut second);
    second
}

#[test]
fn attention_is_a_softmax_over_the_window() {
    for spec in attentions() {
        let sequences: &Sequences = &[(3, 61), (1, 200), (9, 0)];
        let mut l = launch(&spec, sequences, 16);
        let (heads, page) = (heads(&spec), int(&spec, "PAGE"));
        let table = ints(&l, Role::PageTable);
        let (mut y, mut row, mut start) = (vec![], 0, 0);
        for (count, first) in sequences {
            let pages = &table[start..start + (first + count).div_ceil(page)];
            for t in 0..*count {
                (0..heads).for_each(|head| y.extend(attended(&l, row + t, head, first + t, pages)));
            }
            row += count;
            start += pages.len();
        }
        let l = attend(&mut l, sequences);
        close(&spec, &wide(&l, Role::Out(0)), &y);
    }
}

/// Runs attention for rows `rows` of one request of `total` tokens; each row's query and the request's KV are
/// functions of their position alone, physical pages and the pool's other content are not.
fn chunk(spec: &Spec, rows: std::ops::Range<usize>, companions: &Sequences, seed: u64) -> Vec<u64> {
    let mut sequences = companions.to_vec();
    sequences.push((rows.len(), rows.start));
    let mut l = launch(spec, &sequences, seed);
    let [kv_heads, d, page] = ["KV_HEADS", "D", "PAGE"].map(|n| int(spec, n));
    let heads = heads(spec);
    let before: usize = companions.iter().map(|s| s.0).sum();
    let table = ints(&l, Role::PageTable);
    let pages = table[table.len() - rows.end.div_ceil(page)..].to_vec();
    let of = |role: Role, l: &Launch| l.roles.iter().position(|r| *r == role).unwrap();
    let (q, k, v) = (of(Role::In(0), &l), of(Role::CacheK, &l), of(Role::CacheV, &l));
    let elem = l.buffers[q].elem();
    let line = |what: u64, p: usize, n: usize| common::floats(elem, n, &mut Random::new(what << 32 | p as u64));
    let sinks = of(Role::Weight(0), &l);
    l.buffers[sinks] = common::floats(l.buffers[sinks].elem(), heads, &mut Random::new(4 << 32));
    for p in rows.clone() {
        let at = (before + p - rows.start) * heads * d;
        let query = line(1, p, heads * d);
        (0..heads * d).for_each(|i| l.buffers[q].set_bits(at + i, query.bits(i)));
    }
    for p in 0..rows.end {
        for (buffer, what) in [(k, 2), (v, 3)] {
            let values = line(what, p, kv_heads * d);
            for i in 0..kv_heads * d {
                let cell = ((pages[p / page] * kv_heads + i / d) * page + p % page) * d + i % d;
                l.buffers[buffer].set_bits(cell, values.bits(i));
            }
        }
    }
    let l = attend(&mut l, &sequences);
    let out = buffer(&l, Role::Out(0));
    (before * heads * d..(before + rows.len()) * heads * d).map(|i| out.bits(i)).collect()
}

#[test]
fn attention_gives_a_row_the_same_bits_alone_in_a_batch_in_chunks_and_in_decode() {
    for spec in attentions() {
        let whole = chunk(&spec, 0..150, &[], 1);
        let batched = chunk(&spec, 0..150, &[(5, 100), (33, 7)], 2);
        assert_eq!(whole, batched, "{spec}: in a batch");
        let mut chunks = vec![];
        for (i, range) in [0..1, 1..63, 63..64, 64..65, 65..130, 130..150].into_iter().enumerate() {
            chunks.extend(chunk(&spec, range, &[(1, 70)], 3 + i as u64));
        }
        assert_eq!(whole, chunks, "{spec}: in chunks");
        let width = whole.len() / 150;
        for p in [0, 62, 63, 64, 127, 128, 149] {
            let row = chunk(&spec, p..p + 1, &[], 20 + p as u64);
            assert_eq!(whole[p * width..][..width], row[..], "{spec}: position {p} alone");
        }
    }
}
