//! A few lines of PTX each, and what they ask of a GPU, counted by hand.

use vosti_ptx::{Banks, Buffers, Class, Counts, Kernel, Launch, Traffic};

/// What a block of 32 threads does. `%r1` is the thread, `%rd0` a buffer of 4,096 bytes, `%r2` and `%rd1` are `by`
/// times the thread in shared and in global memory.
fn counts(by: u32, body: &str) -> Counts {
    let text = format!(
        ".version 8.7\n.target sm_80\n.address_size 64\n.extern .shared .align 16 .b8 smem[];\n\
         .visible .entry k(\n\t.param .u64 .ptr .global .align 1 k_param_0\n)\n.reqntid 32\n{{\n\
         .reg .pred %p<9>;\n.reg .b16 %rs<9>;\n.reg .b32 %r<30>;\n.reg .b64 %rd<9>;\n\
         ld.param.b64 %rd0, [k_param_0];\nmov.u32 %r1, %tid.x;\nmad.wide.u32 %rd1, %r1, {by}, %rd0;\n\
         mad.lo.s32 %r2, %r1, {by}, smem;\n{body}\nret;\n}}\n"
    );
    let kernel = Kernel::read(&text).unwrap();
    let mut memory = Buffers::default();
    let params = [memory.add_zeros("all", 4096)];
    let launch =
        Launch { grid: [1; 3], threads: 32, shared: 4096, params: &params, maps: &[], seed: None, steps_max: 10_000 };
    kernel.run(&launch, &mut memory).unwrap()
}

fn loads(by: u32, body: &str) -> [u64; 4] {
    let Traffic { requests, bytes, sectors, lines } = counts(by, body).loads;
    [requests, bytes, sectors, lines]
}

#[test]
fn a_request_moves_the_sectors_that_its_threads_touch() {
    let word = "ld.global.b32 %r9, [%rd1];";
    let vector = "ld.global.v4.b32 {%r9, %r10, %r11, %r12}, [%rd1];";
    let cases: &[(&str, u32, [u64; 4])] = &[
        (word, 4, [1, 128, 4, 1]),
        // From a word on: a part of one line more.
        ("ld.global.b32 %r9, [%rd1+4];", 4, [1, 128, 5, 2]),
        // Every other word; a word of each sector; of each line.
        (word, 8, [1, 128, 8, 2]),
        (word, 32, [1, 128, 32, 8]),
        (word, 124, [1, 128, 32, 31]),
        (word, 0, [1, 4, 1, 1]),
        (vector, 16, [1, 512, 16, 4]),
        (vector, 112, [1, 512, 32, 28]),
        // Some threads, and none.
        ("setp.lt.u32 %p1, %r1, 9;\n@%p1 ld.global.b32 %r9, [%rd1];", 4, [1, 36, 2, 1]),
        ("setp.lt.u32 %p1, %r1, 0;\n@%p1 ld.global.b32 %r9, [%rd1];", 4, [0; 4]),
        // Two halves of a warp at different places of the code are two requests.
        (
            "setp.lt.u32 %p1, %r1, 16;\n@%p1 bra A;\nld.global.b32 %r9, [%rd1];\nbra B;\nA:\nld.global.b32 %r9, [%rd1];\nB:",
            4,
            [2, 128, 4, 2],
        ),
        // A copy reads its first bytes.
        ("cp.async.cg.shared.global [%r2], [%rd1], 0x10, 16;", 16, [1, 512, 16, 4]),
        ("cp.async.cg.shared.global [%r2], [%rd1], 0x10, 8;", 16, [1, 256, 16, 4]),
        ("cp.async.cg.shared.global [%r2], [%rd1], 0x10, 0;", 16, [0; 4]),
    ];
    for (body, by, wanted) in cases {
        assert_eq!(loads(*by, body), *wanted, "{body} by {by}");
    }
    let stores = counts(4, "st.global.b32 [%rd1], %r1;\nst.global.b32 [%rd1], %r1;");
    assert_eq!(stores.stores, Traffic { requests: 2, bytes: 256, sectors: 8, lines: 2 });
    assert_eq!(stores.loads, Traffic::default());
}

#[test]
fn a_request_takes_as_many_turns_as_a_bank_has_words_to_give() {
    let word = "st.shared.b32 [%r2], 5;";
    let pair = "st.shared.v2.b32 [%r2], {5, 5};";
    let four = "st.shared.v4.b32 [%r2], {5, 5, 5, 5};";
    let matrices = "st.shared.v4.b32 [%r2], {5, 5, 5, 5};\nbar.sync 0;\n\
                    ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r9, %r10, %r11, %r12}, [%r2];";
    let cases: &[(&str, u32, [u64; 2])] = &[
        (word, 4, [1, 1]),
        (word, 8, [2, 1]),
        (word, 12, [1, 1]),
        (word, 16, [4, 1]),
        (word, 124, [1, 1]),
        // All in one bank; all one word; two words of one bank.
        ("shl.b32 %r3, %r1, 7;\nadd.s32 %r3, %r3, smem;\nst.shared.b32 [%r3], 5;", 4, [32, 1]),
        (word, 0, [1, 1]),
        ("shr.u32 %r3, %r1, 4;\nshl.b32 %r3, %r3, 7;\nadd.s32 %r3, %r3, smem;\nst.shared.b32 [%r3], 5;", 4, [2, 1]),
        // Bytes of a word belong together.
        ("mov.b16 %rs1, 5;\nst.shared.b8 [%r2], %rs1;", 1, [1, 1]),
        // Halves and quarters of a warp.
        (pair, 8, [2, 2]),
        (pair, 16, [4, 2]),
        (four, 16, [4, 4]),
        (four, 32, [8, 4]),
        (four, 128, [32, 4]),
        (four, 112, [4, 4]),
        ("setp.lt.u32 %p1, %r1, 9;\n@%p1 st.shared.v4.b32 [%r2], {5, 5, 5, 5};", 16, [2, 2]),
        // The same store once more, and matrices of rows side by side and 128 bytes apart.
        (matrices, 16, [8, 8]),
        (matrices, 128, [64, 8]),
        ("cp.async.cg.shared.global [%r2], [%rd0], 0x10, 16;", 32, [8, 4]),
    ];
    for (body, by, [wavefronts, least]) in cases {
        let found = counts(*by, body);
        let Banks { wavefronts: found_wavefronts, least: found_least, .. } = found.shared;
        assert_eq!([found_wavefronts, found_least], [*wavefronts, *least], "{body} by {by}");
        assert_eq!(found.conflicts(), wavefronts - least);
    }
}

#[test]
fn instructions_count_as_often_as_a_warp_executes_them() {
    let body = "mov.b32 %r4, 0;\nA:\nadd.rn.f32 %r9, 0f3F800000, 0f3F800000;\nex2.approx.f32 %r9, %r9;\n\
                mul.lo.s32 %r5, %r4, 3;\nadd.s32 %r4, %r4, 1;\nsetp.lt.u32 %p1, %r4, 5;\n@%p1 bra A;\n\
                shfl.sync.bfly.b32 %r9, %r9, 1, 31, -1;\nst.shared.b32 [smem], 5;\nst.global.b32 [%rd0], 5;\nbar.sync 0;\n\
                cvt.rn.bf16x2.f32 %r9, %r9, %r9;\n@!%p1 mov.b32 %r9, 0;\n@%p1 mov.b32 %r9, 0;";
    let found = counts(4, body);
    let of = |class: Class| found.instructions[Class::ALL.iter().position(|known| *known == class).unwrap()];
    // The text's first four, a mov, three of each turn, a conversion and two moves, of which none moves in the second.
    assert_eq!(of(Class::Integer), 4 + 1 + 15 + 1 + 2);
    assert_eq!([Class::Float, Class::Special, Class::Control].map(of), [5, 5, 5 + 2]);
    assert_eq!([Class::Shuffle, Class::Shared, Class::Global, Class::Matrix].map(of), [1, 1, 1, 0]);
    assert_eq!(found.issued(), 23 + 17 + 3);
    assert_eq!(Class::ALL.map(|class| class as usize), [0, 1, 2, 3, 4, 5, 6, 7]);
}
