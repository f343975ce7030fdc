//! Products of tensor memory (`tcgen05`): a few lines of PTX each, with what they give and what is wrong about them.

use vosti_ptx::{Buffers, Kernel, Launch, RunError};

/// Rows and columns of a product, and its k.
const ROWS: usize = 64;
const COLUMNS: usize = 8;
const K: usize = 16;

const ALLOCATE: &str = "@%p2 tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [smem+4608], 32;";
const MULTIPLY: &str = "@%p3 tcgen05.mma.cta_group::1.kind::f16 [%r20 + 0], %rd5, %rd6, %r21, %p4;";
const COMMIT: &str = "@%p3 tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%r22];";
const LOAD: &str = "tcgen05.ld.sync.aligned.16x32bx2.x4.b32 {%r10, %r11, %r12, %r13}, [%r23 + 0], 4;";
const FREE: &str = "@%p2 tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r20, 32;";
/// Both operands in shared memory.
const WHOLE: &str = "ALLOCATE; INIT; FILL; FENCE; MULTIPLY; COMMIT; WAIT0; LOAD; WAIT_LD; OUT; MEET; FREE;";
/// The first one in tensor memory.
const BOTH: &str =
    "ALLOCATE; INIT; FILL; FENCE; STORE; WAIT_ST; MEET; FACTOR; COMMIT; WAIT0; LOAD; WAIT_LD; OUT; MEET; FREE;";

/// A kernel of 128 threads with `%r1` the thread, `%rd1` its 16 bytes of `out`, `%rd2` of `in`; `%p1` in thread 0 alone, `%p2` in
/// the first warp, `%p3` in its elected thread. `%r20` is the address of tensor memory, `%r23` the warp's part of it, `%rd5` and `%rd6` are
/// the operands, `%r21` the form, `%r22` the mbarrier; `%p4` is false and `%p5` true.
fn text(body: &str) -> String {
    let wait = |parity: &str| {
        format!(
            "{{\n.reg .pred done;\n@!%p5 bra.uni skip;\nagain:\nmbarrier.try_wait.parity.shared.b64 done, [%r22], {parity};\n\
             @!done bra.uni again;\nskip:\n}}\n"
        )
    };
    let allocated = format!(
        "{ALLOCATE}\nbar.sync 0;\nld.shared.b32 %r20, [smem+4608];\nbar.sync 0;\n\
         @%p2 tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;\nshr.u32 %r23, %r1, 5;\nshl.b32 %r23, %r23, 21;\n\
         add.s32 %r23, %r23, %r20;"
    );
    let lines = [
        ("ALLOCATE;", allocated.as_str()),
        ("INIT;", "@%p1 mbarrier.init.shared::cta.b64 [smem+4616], 1;\nbar.sync 0;"),
        (
            "FILL;",
            "ld.global.v4.b32 {%r2, %r3, %r4, %r5}, [%rd2];\nst.shared.v4.b32 [%r6], {%r2, %r3, %r4, %r5};\n\
          st.shared.v4.b32 [%r6+2048], {%r2, %r3, %r4, %r5};\n@%p6 ld.global.v4.b32 {%r2, %r3, %r4, %r5}, [%rd2 + 2048];\n\
          @%p6 st.shared.v4.b32 [%r6+4096], {%r2, %r3, %r4, %r5};\n@%p6 st.shared.v4.b32 [%r6+4352], {%r2, %r3, %r4, %r5};",
        ),
        ("FENCE;", "fence.proxy.async.shared::cta;\nbar.sync 0;"),
        ("MULTIPLY;", MULTIPLY),
        ("FACTOR;", "@%p3 tcgen05.mma.cta_group::1.kind::f16 [%r20 + 0], [%r20 + 8], %rd6, %r21, %p4;"),
        ("COMMIT;", COMMIT),
        ("WAIT0;", &wait("0")),
        ("WAIT1;", &wait("1")),
        ("LOAD;", LOAD),
        ("WAIT_LD;", "tcgen05.wait::ld.sync.aligned;"),
        // A row of the first operand, as it is, half by half.
        (
            "STORE;",
            "ld.global.v4.b32 {%r2, %r3, %r4, %r5}, [%rd3];\n\
          tcgen05.st.sync.aligned.16x32bx2.x4.b32 [%r23 + 8], 4, {%r2, %r3, %r4, %r5};",
        ),
        ("WAIT_ST;", "tcgen05.wait::st.sync.aligned;"),
        ("OUT;", "st.global.v4.b32 [%rd1], {%r10, %r11, %r12, %r13};"),
        ("MEET;", "bar.sync 0;"),
        ("FREE;", FREE),
    ];
    let body = lines.iter().fold(body.to_string(), |body, (word, line)| body.replace(word, &format!("{line}\n")));
    // Rows of 32 bytes, swizzled so; groups of eight rows are 256 bytes apart.
    let tile = |at: u64| at >> 4 | 1 << 16 | 16 << 32 | 1 << 46 | 6 << 61;
    let form = 1 << 4 | 1 << 7 | 1 << 10 | (COLUMNS >> 3) << 17 | (ROWS >> 4) << 24;
    format!(
        ".version 8.7\n.target sm_100a\n.address_size 64\n.extern .shared .align 16 .b8 smem[];\n\
         .visible .entry k(\n\t.param .u64 .ptr .global .align 1 out,\n\t.param .u64 .ptr .global .align 1 in\n)\n.reqntid 128\n{{\n\
         .reg .pred %p<9>;\n.reg .b32 %r<40>;\n.reg .b64 %rd<9>;\n\
         mov.u32 %r1, %tid.x;\nld.param.b64 %rd0, [out];\nmad.wide.u32 %rd1, %r1, 16, %rd0;\n\
         ld.param.b64 %rd0, [in];\nmad.wide.u32 %rd2, %r1, 16, %rd0;\nadd.s64 %rd3, %rd2, 2304;\n\
         shl.b32 %r6, %r1, 4;\nadd.s32 %r6, %r6, smem;\nmov.b32 %r22, smem;\nadd.s32 %r22, %r22, 4616;\n\
         mov.b64 %rd5, {};\nmov.b64 %rd6, {};\nmov.b32 %r21, {form};\n\
         setp.eq.b32 %p1, %r1, 0;\nsetp.lt.u32 %p2, %r1, 32;\nelect.sync _|%p3, -1;\nand.pred %p3, %p2, %p3;\n\
         mov.pred %p4, 0;\nmov.pred %p5, -1;\nsetp.lt.u32 %p6, %r1, 16;\n{body}\nret;\n}}\n",
        tile(1024),
        tile(1024 + 4096),
    )
}

fn first(row: usize, k: usize) -> f32 {
    ((row + 3 * k) % 7) as f32
}

fn second(column: usize, k: usize) -> f32 {
    ((2 * column + k) % 5) as f32 - 1.0
}

fn bf16(number: f32) -> [u8; 2] {
    ((number.to_bits() >> 16) as u16).to_le_bytes()
}

/// Rows of an operand, as their swizzle wants them: in every second group of four rows the halves of a row change places.
fn swizzled(rows: usize, number: fn(usize, usize) -> f32) -> Vec<u8> {
    let half = |row: usize, half: usize| (0..8).flat_map(move |k| bf16(number(row, 8 * half + k)));
    (0..rows).flat_map(|row| (0..2).flat_map(move |at| half(row, at ^ (row / 4 % 2)))).collect()
}

fn run_with(body: &str, seed: Option<u64>) -> Result<Vec<f32>, RunError> {
    let mut memory = Buffers::default();
    let mut input = swizzled(ROWS, first);
    input.extend(swizzled(COLUMNS, second));
    // What each thread stores to tensor memory: half of a row.
    let of_thread = |thread: usize| (thread / 32 * 16 + thread % 16, thread % 32 / 16);
    for (row, half) in (0..128).map(of_thread) {
        input.extend((0..8).flat_map(|k| bf16(first(row, 8 * half + k))));
    }
    let params = [memory.add("out", vec![0; 2048]), memory.add("in", input)];
    let launch =
        Launch { grid: [2, 1, 1], threads: 128, shared: 4624, params: &params, maps: &[], seed, steps_max: 10_000 };
    let kernel = Kernel::read(&text(body)).unwrap_or_else(|error| panic!("{body}: {error}"));
    kernel.run(&launch, &mut memory)?;
    Ok(memory.bytes(0).chunks(4).map(|word| f32::from_le_bytes(word.try_into().unwrap())).collect())
}

/// What a body gives in several orders, which is the same.
fn run(body: &str) -> Result<Vec<f32>, String> {
    let runs = [None].into_iter().chain((0..12).map(Some)).map(|seed| run_with(body, seed));
    let all = runs.collect::<Result<Vec<_>, _>>().map_err(|error| error.fault.to_string())?;
    assert!(all.iter().all(|words| *words == all[0]), "{body}");
    Ok(all[0].clone())
}

/// The product so many times, as threads have it.
fn product(times: f32) -> Vec<f32> {
    let sum = |row: usize, column: usize| (0..K).map(|k| first(row, k) * second(column, k)).sum::<f32>() * times;
    let of_thread = |thread: usize| (thread / 32 * 16 + thread % 16, thread % 32 / 16 * 4);
    (0..128).map(of_thread).flat_map(|(row, column)| (0..4).map(move |i| sum(row, column + i))).collect()
}

#[test]
fn a_product_has_its_sums_where_the_isa_says() {
    let kept = MULTIPLY.replace("%p4", "%p5");
    for (body, times) in [
        (WHOLE.to_string(), 1.0),
        (BOTH.to_string(), 1.0),
        // Products of one thread to the same sums need no wait between.
        (WHOLE.replace("COMMIT;", &format!("{kept}\n{kept}\nCOMMIT;")), 3.0),
        (BOTH.replace("COMMIT;", "FACTOR; COMMIT;"), 1.0),
        (BOTH.replace("COMMIT;", &format!("{kept}\nCOMMIT;")), 2.0),
        // One commit for two, and one for the second alone.
        (WHOLE.replace("WAIT0;", &format!("WAIT0; MEET; {kept}\nCOMMIT; WAIT1;")), 2.0),
        // Whoever meets a thread that has waited may read.
        (WHOLE.replace("WAIT0;", "@!%p2 bra A;\nWAIT0;\nA:\nMEET;"), 1.0),
        // A number that was loaded may be used at once.
        (WHOLE.replace("WAIT_LD; OUT;", "OUT; WAIT_LD;"), 1.0),
        // Memory that a product has read may be written behind its wait.
        (WHOLE.replace("WAIT0;", "WAIT0; FILL;"), 1.0),
        // An mbarrier may count others when it has gone.
        (
            WHOLE.replace(
                "WAIT0;",
                &format!("WAIT0; MEET; @%p1 mbarrier.inval.shared::cta.b64 [smem+4616];\nINIT; {kept}\nCOMMIT; WAIT0;"),
            ),
            2.0,
        ),
    ] {
        assert_eq!(run(&body), Ok(product(times)), "{body}");
    }
}

#[test]
fn a_wide_product_has_a_row_in_each_lane() {
    // Rows and columns are there twice.
    let form = 1 << 4 | 1 << 7 | 1 << 10 | ((2 * COLUMNS) >> 3) << 17 | ((2 * ROWS) >> 4) << 24;
    let load = "tcgen05.ld.sync.aligned.32x32b.x4.b32 {%r10, %r11, %r12, %r13}, [%r23 + 8];\n";
    let found = run(&format!("mov.b32 %r21, {form};\n{}", WHOLE.replace("LOAD;", load))).unwrap();
    let sum = |row: usize, column: usize| (0..K).map(|k| first(row % ROWS, k) * second(column, k)).sum::<f32>();
    let wanted: Vec<f32> = (0..128).flat_map(|row| (0..4).map(move |column| sum(row, column))).collect();
    assert_eq!(found, wanted);
}

#[test]
fn an_execution_stops_where_tensor_memory_is_not_ordered() {
    let cases = [
        (WHOLE.replace("FENCE;", "MEET;"), "with no `fence.proxy.async`"),
        (WHOLE.replace("FENCE;", "fence.proxy.async.shared::cta;"), "a race"),
        (WHOLE.replace("WAIT0;", ""), "a matrix product is using it"),
        (WHOLE.replace("WAIT0;", "MEET;"), "a matrix product is using it"),
        (WHOLE.replace("WAIT0;", "WAIT1;"), "a matrix product is using it"),
        (WHOLE.replace("WAIT0;", "WAIT0; WAIT1;"), "nobody ends this wait"),
        (WHOLE.replace("WAIT0;", "@!%p2 bra A;\nWAIT0;\nA:"), "a matrix product is using it"),
        (WHOLE.replace("COMMIT;", ""), "nobody ends this wait"),
        (WHOLE.replace("COMMIT; WAIT0; LOAD; WAIT_LD; OUT;", ""), "a matrix product is using it"),
        (WHOLE.replace("COMMIT;", "COMMIT; COMMIT;"), "nobody ends this wait|nobody has waited for the one before"),
        (WHOLE.replace("COMMIT;", "COMMIT; COMMIT; COMMIT;"), "nobody has waited for the one before"),
        (WHOLE.replace("MULTIPLY; COMMIT;", "COMMIT; MULTIPLY;"), "a matrix product is using it"),
        (WHOLE.replace("INIT;", ""), "no mbarrier"),
        (WHOLE.replace("WAIT0;", "MEET; @%p1 mbarrier.inval.shared::cta.b64 [smem+4616];\nMEET;"), "nobody has waited"),
        (WHOLE.replace("WAIT0;", "FILL; WAIT0;"), "while a matrix product was reading it"),
        (WHOLE.replace("WAIT0;", "MEET; FILL; WAIT0;"), "while a matrix product was reading it"),
        (WHOLE.replace("MULTIPLY;", &MULTIPLY.replace("@%p3", "@%p2")), "a matrix product is using it"),
        (WHOLE.replace("MULTIPLY;", &MULTIPLY.replace("%p4", "%p5")), "an accumulator depends on"),
        (WHOLE.replace("MULTIPLY;", &MULTIPLY.replace("%p4", "%p8")), "a scale of a matrix product depends on"),
        (WHOLE.replace("MULTIPLY;", &MULTIPLY.replace("%r20 + 0", "%r20 + 32")), "it is not allocated"),
        (
            WHOLE.replace("MULTIPLY;", &MULTIPLY.replace("%r20 + 0", "%r20 + 524288")),
            "no rows of a product begin there",
        ),
        (
            WHOLE.replace("MULTIPLY;", &MULTIPLY.replace("%r20 + 0", "%r20 + 2097152")),
            "no rows of a product begin there",
        ),
        // Two columns further: not the same sums.
        (
            WHOLE.replace("COMMIT;", &format!("{}\nCOMMIT;", MULTIPLY.replace("+ 0", "+ 2"))),
            "a matrix product is using it",
        ),
        (WHOLE.replace("ALLOCATE;", "ALLOCATE; xor.b32 %r21, %r21, 128;\n"), "of a form that is not known"),
        (WHOLE.replace("ALLOCATE;", "ALLOCATE; xor.b32 %r21, %r21, 16;\n"), "of a form that is not known"),
        (WHOLE.replace("ALLOCATE;", "ALLOCATE; xor.b32 %r21, %r21, 8192;\n"), "of a form that is not known"),
        (WHOLE.replace("ALLOCATE;", "ALLOCATE; add.s64 %rd5, %rd5, 70368744177664;\n"), "of a form that is not known"),
        (WHOLE.replace("ALLOCATE;", "ALLOCATE; add.s64 %rd5, %rd5, 562949953421312;\n"), "of a form that is not known"),
        (WHOLE.replace("FILL;", "st.shared.b32 [%r6], 0;\n"), "an element of a matrix depends on"),
        (
            WHOLE.replace(
                "ALLOCATE;",
                "ALLOCATE; @%p2 tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [smem+4612], 32;\n",
            ),
            "given up the right",
        ),
        (WHOLE.replace("ALLOCATE;", &allocate(", 24;")), "no power of two"),
        (WHOLE.replace("ALLOCATE;", &allocate(", 1024;")), "no power of two"),
        (WHOLE.replace("ALLOCATE;", &allocate(", 64;")), "no allocation begins there"),
        (
            WHOLE.replace("ALLOCATE;", &format!("{}\nALLOCATE;", ALLOCATE.replace(", 32;", ", 512;"))),
            "there is no room",
        ),
        (WHOLE.replace("ALLOCATE;", &allocate(", 32;").replace("@%p2", "@%p1")), "a divergent `tcgen05.alloc`"),
        (WHOLE.replace("LOAD;", &LOAD.replace("%r23", "%r20")), "it is not of the warp's part"),
        (WHOLE.replace("LOAD;", &LOAD.replace("+ 0], 4", "+ 0], 8")), "tensor memory|depends on"),
        (WHOLE.replace("WAIT_LD;", ""), "a load of it is under way"),
        (WHOLE.replace("OUT; MEET;", "OUT;"), "a race with a load"),
        (WHOLE.replace("FREE;", ""), "the block ends with them"),
        (WHOLE.replace("FREE;", &FREE.replace(", 32;", ", 64;")), "no allocation begins there"),
        (WHOLE.replace("FREE;", "FREE; FREE;"), "no allocation begins there"),
        (WHOLE.replace("LOAD; WAIT_LD; OUT; MEET;", ""), "nothing"),
        (WHOLE.replace("WAIT0; LOAD; WAIT_LD; OUT; MEET; FREE;", ""), "nobody has waited for this matrix product"),
        (BOTH.replace("WAIT_ST;", ""), "a store to it is under way"),
        (BOTH.replace("WAIT_ST; MEET;", "WAIT_ST;"), "a race with a store"),
        (BOTH.replace("STORE;", ""), "an element of a matrix depends on"),
        (BOTH.replace("WAIT0;", "STORE; WAIT_ST; WAIT0;"), "a matrix product is using it"),
        (
            BOTH.replace(
                "FACTOR;",
                "FACTOR; @%p3 tcgen05.mma.cta_group::1.kind::f16 [%r20 + 8], %rd5, %rd6, %r21, %p4;\n",
            ),
            "a matrix product is using it",
        ),
        (BOTH.replace("STORE;", "STORE; STORE;"), "a store to it is under way"),
        (
            format!("{}griddepcontrol.wait;", WHOLE.replace("FREE;", "FREE; ")),
            "an allocation of tensor memory with no `griddepcontrol.wait`",
        ),
    ];
    let mut wrong = vec![];
    for (body, wanted) in &cases {
        let found = run(body).map_or_else(|fault| fault, |_| "nothing".into());
        if !wanted.split('|').any(|wanted| found.contains(wanted)) {
            wrong.push(format!("{body}: {found}, not {wanted}\n"));
        }
    }
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), cases.len(), wrong.join("\n"));
}

/// The first lines of an allocation of other columns, and the rest as it is.
fn allocate(columns: &str) -> String {
    format!(
        "{}\nbar.sync 0;\nld.shared.b32 %r20, [smem+4608];\nbar.sync 0;\nshr.u32 %r23, %r1, 5;\nshl.b32 %r23, %r23, 21;\nadd.s32 %r23, %r23, %r20;\n",
        ALLOCATE.replace(", 32;", columns)
    )
}

#[test]
fn forms_that_are_not_known_are_refused() {
    for (from, to) in [
        (COMMIT, COMMIT.replace(".shared::cluster", "")),
        (COMMIT, COMMIT.replace("cta_group::1", "cta_group::2")),
        (MULTIPLY, MULTIPLY.replace("kind::f16", "kind::tf32")),
        (MULTIPLY, MULTIPLY.replace(", %p4", "")),
        (LOAD, LOAD.replace("], 4", "]")),
        (LOAD, LOAD.replace(".x4", ".x8")),
        (LOAD, LOAD.replace("16x32bx2", "16x64b")),
        (FREE, FREE.replace("%r20, 32", "%r20, %r21")),
    ] {
        let found = Kernel::read(&text(WHOLE).replace(from, &to)).unwrap_err().to_string();
        assert!(found.contains("is not known in this form"), "{to}: {found}");
    }
}
