//! A few lines of PTX each: what an execution gives, and where it stops.

use vosti_ptx::{Buffers, Edit, Fault, Kernel, Kind, Launch};

/// A kernel of one parameter, the address of `out`, with `%rd1` that address plus four bytes for each thread, `%r1` the thread.
fn text(body: &str) -> String {
    format!(
        ".version 8.7\n.target sm_80\n.address_size 64\n.extern .shared .align 16 .b8 smem[];\n\
         .visible .entry k(\n\t.param .u64 .ptr .global .align 1 k_param_0\n)\n.reqntid 64\n{{\n\
         .reg .pred %p<9>;\n.reg .b16 %rs<9>;\n.reg .b32 %r<30>;\n.reg .b64 %rd<9>;\n\
         ld.param.b64 %rd0, [k_param_0];\nmov.u32 %r1, %tid.x;\nmad.wide.u32 %rd1, %r1, 4, %rd0;\n\
         shl.b32 %r2, %r1, 2;\nadd.s32 %r2, %r2, smem;\nxor.b32 %r3, %r1, 32;\nshl.b32 %r3, %r3, 2;\nadd.s32 %r3, %r3, smem;\n\
         {body}\nret;\n}}\n"
    )
}

/// The words of `out` after a block of 64 threads.
fn run(body: &str) -> Result<Vec<u32>, Fault> {
    run_text(&text(body))
}

fn run_text(text: &str) -> Result<Vec<u32>, Fault> {
    let kernel = Kernel::read(text).unwrap();
    let mut memory = Buffers::default();
    let params = [memory.add("out", (0..256).map(|i| i as u8).collect())];
    let launch = Launch {
        grid: [1; 3],
        threads: 64,
        shared: 1024,
        params: &params,
        maps: &[],
        seed: Some(3),
        steps_max: 10_000,
    };
    kernel.run(&launch, &mut memory).map_err(|error| error.fault)?;
    Ok(memory.bytes(0).chunks(4).map(|word| u32::from_le_bytes(word.try_into().unwrap())).collect())
}

/// What each thread computes into `%r9`.
fn lanes(body: &str) -> Vec<u32> {
    run(&format!("{body}\nst.global.b32 [%rd1], {{ %r9 }};")).unwrap()
}

#[test]
fn instructions_are_those_of_the_isa() {
    let one = |body: &str| lanes(body)[37];
    let cases: &[(&str, u32)] = &[
        ("bfe.u32 %r9, 0x12345678, 8, 12;", 0x456),
        ("bfe.s32 %r9, 0x12345678, 4, 8;", 0x67),
        ("bfe.s32 %r9, 0x00000f00, 8, 4;", 0xffff_ffff),
        ("bfe.s32 %r9, 0x80000000, 28, 8;", 0xffff_fff8),
        ("mov.b64 %rd3, 0x1234567890; bfe.s64 %rd3, %rd3, 28, 4; cvt.u32.u64 %r9, %rd3;", 3),
        ("mov.b64 %rd3, -5; bfe.s64 %rd3, %rd3, 60, 9; shr.u64 %rd3, %rd3, 32; cvt.u32.u64 %r9, %rd3;", 0xffff_ffff),
        (
            "mov.b64 %rd3, 0xf00000000; bfe.s64 %rd3, %rd3, 32, 3; shr.u64 %rd3, %rd3, 8; cvt.u32.u64 %r9, %rd3;",
            0xffff_ffff,
        ),
        ("prmt.b32 %r9, 0x33221100, 0x77665544, 0x7610U;", 0x7766_1100),
        ("prmt.b32 %r9, 0x000000f0, 0, 0x8888U;", 0xffff_ffff),
        ("shl.b32 %r9, 1, 32;", 0),
        ("shr.s32 %r9, -8, 40;", 0xffff_ffff),
        ("mov.b16 %rs1, 0x8F00; shr.s16 %rs1, %rs1, 8; cvt.u32.u16 %r9, %rs1;", 0xff8f),
        ("mov.b16 %rs1, 0x8F00; shr.s16 %rs1, %rs1, 99; cvt.u32.u16 %r9, %rs1;", 0xffff),
        ("mov.b16 %rs1, 0x8F00; shr.u16 %rs1, %rs1, 8; cvt.u32.u16 %r9, %rs1;", 0x8f),
        ("min.xorsign.abs.f32 %r9, 0fC0000000, 0f3F800000;", 0xbf80_0000),
        ("min.xorsign.abs.f32 %r9, 0fC0000000, 0fBF800000;", 0x3f80_0000),
        ("min.xorsign.abs.f32 %r9, 0fFFC00000, 0f3F800000;", 0xbf80_0000),
        ("max.f32 %r9, 0f80000000, 0f00000000;", 0),
        ("max.f32 %r9, 0f7FC00000, 0fBF800000;", 0xbf80_0000),
        ("max.NaN.f32 %r9, 0f7FC00001, 0fBF800000;", 0x7fff_ffff),
        // A subnormal sum is kept.
        ("sub.rn.f32 %r9, 0f00800000, 0f00000001;", 0x007f_ffff),
        ("cvt.rzi.s32.f32 %r9, 0f7FC00000;", 0),
        ("cvt.rzi.s32.f32 %r9, 0f4F800000;", 0x7fff_ffff),
        ("cvt.rn.bf16x2.f32 %r9, 0f3F800000, 0f3F808000;", 0x3f80_3f80),
        ("cvt.rn.bf16x2.f32 %r9, 0f3F818000, 0f7F800001;", 0x3f82_7fff),
        ("mov.b32 {%rs1, %rs2}, 0x12345678; mov.b32 %r9, {%rs2, %rs1};", 0x5678_1234),
        ("div.s32 %r9, -7, 2;", 0xffff_fffd),
        ("rem.s32 %r9, -7, 2;", 0xffff_ffff),
        ("div.u32 %r9, -7, 2;", 0x7fff_fffc),
        ("rem.u32 %r9, -6, 7;", 5),
        ("mul.wide.s32 %rd3, -3, 5; cvt.u32.u64 %r9, %rd3;", 0xffff_fff1),
        ("setp.lt.f32 %p1, 0f7FC00000, 0f3F800000; selp.b32 %r9, 1, 2, %p1;", 2),
        ("setp.num.f32 %p1, 0f7FC00000, 0f3F800000; selp.b32 %r9, 1, 2, %p1;", 2),
        ("setp.gtu.f32 %p1, 0f7FC00000, 0f3F800000; selp.b32 %r9, 1, 2, %p1;", 1),
        ("setp.gtu.f32 %p1, 0f3F800000, 0fFFC00000; selp.b32 %r9, 1, 2, %p1;", 1),
        ("setp.gtu.f32 %p1, 0f3F800000, 0f3F800000; selp.b32 %r9, 1, 2, %p1;", 2),
        ("setp.gtu.f32 %p1, 0f40000000, 0f3F800000; selp.b32 %r9, 1, 2, %p1;", 1),
        ("setp.geu.f32 %p1, 0f80000000, 0f00000000; selp.b32 %r9, 1, 2, %p1;", 1),
        ("setp.ltu.f32 %p1, 0f40000000, 0f3F800000; selp.b32 %r9, 1, 2, %p1;", 2),
        ("setp.leu.f32 %p1, 0f3F800000, 0f7FC00000; selp.b32 %r9, 1, 2, %p1;", 1),
        ("setp.equ.f32 %p1, 0f3F800000, 0f40000000; selp.b32 %r9, 1, 2, %p1;", 2),
        ("setp.neu.f32 %p1, 0f3F800000, 0f3F800000; selp.b32 %r9, 1, 2, %p1;", 2),
        ("setp.neu.f32 %p1, 0f7FC00000, 0f7FC00000; selp.b32 %r9, 1, 2, %p1;", 1),
        ("shfl.sync.bfly.b32 %r9, %r1, 3, 31, -1;", 38),
        ("shfl.sync.idx.b32 %r9, %r1, 9, 31, -1;", 41),
        ("shfl.sync.up.b32 %r9, %r1, 3, 0, -1;", 34),
        ("shfl.sync.up.b32 %r9, %r1, 6, 0, -1;", 37),
        ("shfl.sync.down.b32 %r9, %r1, 3, 31, -1;", 40),
        ("shfl.sync.down.b32 %r9, %r1, 27, 31, -1;", 37),
        ("sqrt.rn.f32 %r9, 0f40000000;", 0x3fb5_04f3),
        ("div.rn.f32 %r9, 0f3F800000, 0f40400000;", 0x3eaa_aaab),
        ("abs.ftz.f32 %r9, 0f80000001;", 0),
        ("mov.b16 %rs1, 0x3F80; mov.b16 %rs2, 0x3B80; add.rn.bf16 %rs1, %rs1, %rs2; cvt.u32.u16 %r9, %rs1;", 0x3f80),
        ("mov.b16 %rs1, 0x3F81; mov.b16 %rs2, 0x3B80; add.rn.bf16 %rs1, %rs1, %rs2; cvt.u32.u16 %r9, %rs1;", 0x3f82),
        ("mov.b16 %rs1, 0x3FC0; mul.rn.bf16 %rs1, %rs1, %rs1; cvt.u32.u16 %r9, %rs1;", 0x4010),
        ("cvt.rn.f16.f32 %rs1, 0f3DCCCCCD; cvt.f32.f16 %r9, %rs1;", 0x3dcc_c000),
        // A half of the last place is rounded to even; what is too large is infinite; subnormal numbers are kept.
        ("cvt.rn.f16.f32 %rs1, 0f3F801000; cvt.u32.u16 %r9, %rs1;", 0x3c00),
        ("cvt.rn.f16.f32 %rs1, 0f3F803000; cvt.u32.u16 %r9, %rs1;", 0x3c02),
        ("cvt.rn.f16.f32 %rs1, 0fC77FF000; cvt.u32.u16 %r9, %rs1;", 0xfc00),
        ("cvt.rn.f16.f32 %rs1, 0fC77FE000; cvt.u32.u16 %r9, %rs1;", 0xfbff),
        ("cvt.rn.f16.f32 %rs1, 0f33800000; cvt.f32.f16 %r9, %rs1;", 0x3380_0000),
        ("cvt.rn.f16.f32 %rs1, 0f7FC00000; cvt.u32.u16 %r9, %rs1;", 0x7fff),
        ("cvt.rn.satfinite.e4m3x2.f32 %rs1, 0f3F800000, 0f43E40000; cvt.u32.u16 %r9, %rs1;", 0x387e),
        ("cvt.rn.satfinite.e4m3x2.f32 %rs1, 0fBF880000, 0f3B000000; cvt.u32.u16 %r9, %rs1;", 0xb801),
        ("cvt.rn.satfinite.e4m3x2.f32 %rs1, 0f7FC00000, 0f3A800000; cvt.u32.u16 %r9, %rs1;", 0x7f00),
        // Zeros fill what a load leaves of a register.
        ("st.shared.b32 [%r2], 0xfedcba98;\nld.shared.b16 %r9, [%r2+2];", 0xfedc),
        ("st.shared.b32 [%r2], 0xfedcba98;\nmov.b32 %r9, -1;\nld.shared.b8 %r9, [%r2];", 0x98),
        ("mov.b32 %r9, -1;\nld.global.b8 %r9, [%rd1];", 0x94),
        // Segments of eight: the source is in the thread's own.
        ("shfl.sync.idx.b32 %r9, %r1, 1, 0x181f, -1;", 33),
    ];
    for (body, wanted) in cases {
        assert_eq!(one(body), *wanted, "{body}");
    }
}

/// A parameter of 32 bits is read with 32 bits, and in no other width.
#[test]
fn numbers_of_32_bits_are_parameters_too() {
    let with = |load: &str| {
        text(&format!("{load}\nst.global.b32 [%rd1], {{ %r9 }};"))
            .replace("k_param_0\n)", "k_param_0,\n\t.param .u32 k_param_1,\n\t.param .f32 k_param_2\n)")
    };
    let kernel =
        Kernel::read(&with("ld.param.b32 %r4, [k_param_1];\nld.param.b32 %r5, [k_param_2];\nadd.s32 %r9, %r4, %r5;"));
    let mut memory = Buffers::default();
    let params = [memory.add("out", vec![0; 256]), 7, u64::from(1f32.to_bits())];
    let launch =
        Launch { grid: [1; 3], threads: 64, shared: 1024, params: &params, maps: &[], seed: None, steps_max: 10_000 };
    kernel.unwrap().run(&launch, &mut memory).unwrap();
    assert_eq!(memory.bytes(0)[..4], (1f32.to_bits() + 7).to_le_bytes());
    let kernel =
        Kernel::read(&with("ld.param.s32 %rd2, [k_param_1];\nshr.u64 %rd2, %rd2, 32;\ncvt.u32.u64 %r9, %rd2;"));
    let params = [params[0], u64::from(-7i32 as u32), 0];
    kernel.unwrap().run(&Launch { params: &params, ..launch }, &mut memory).unwrap();
    assert_eq!(memory.bytes(0)[..4], [255; 4]);
    for wrong in
        ["ld.param.b64 %rd2, [k_param_1];", "ld.param.b32 %r4, [k_param_0];", "ld.param.b16 %rs1, [k_param_1];"]
    {
        assert!(Kernel::read(&with(wrong)).is_err(), "{wrong}");
    }
}

/// Two blocks of 64 threads, after an earlier launch of the same; `%r10` is the block.
fn run_blocks(body: &str) -> Result<(), Fault> {
    let kernel = Kernel::read(&text(&format!("mov.u32 %r10, %ctaid.x;\n{body}"))).unwrap();
    let mut memory = Buffers::default();
    let params = [memory.add("out", vec![0; 512])];
    let launch =
        Launch { grid: [2, 1, 1], threads: 64, shared: 0, params: &params, maps: &[], seed: None, steps_max: 10_000 };
    let mut run = || kernel.run(&launch, &mut memory).map(|_| ()).map_err(|error| error.fault);
    run().and_then(|()| run())
}

#[test]
fn no_block_stores_or_loads_what_another_one_stores() {
    let own = "mad.wide.u32 %rd1, %r10, 256, %rd1;";
    let one = "st.global.b32 [%rd1], { %r1 };";
    for right in [
        one,
        &format!("{own}\nst.global.b32 [%rd1], {{ %r10 }};"),
        &format!("{own}\n{one}\nld.global.b32 %r9, [%rd1];"),
    ] {
        assert_eq!(run_blocks(right), Ok(()), "{right}");
    }
    for (wrong, has) in [
        ("st.global.b32 [%rd1], { %r10 };", "stored"),
        (&format!("ld.global.b32 %r9, [%rd1];\n{own}\n{one}\nld.global.b32 %r9, [%rd0];"), "stored"),
        (
            &format!("mov.b64 %rd2, %rd1;\n{own}\nld.global.b32 %r9, [%rd1];\nst.global.b32 [%rd2], {{ %r1 }};"),
            "loaded from",
        ),
    ] {
        let Err(Fault::Global { why, .. }) = run_blocks(wrong) else { panic!("{wrong}") };
        assert_eq!(why, format!("block [0, 0, 0] of this launch has {has} there"), "{wrong}");
    }
}

#[test]
fn threads_that_part_meet_again() {
    let body = "setp.lt.u32 %p1, %r1, 40;\n@%p1 bra LOW;\nmov.u32 %r9, 7;\nbra.uni END;\nLOW:\nmov.u32 %r9, 5;\nEND:\n\
                shfl.sync.bfly.b32 %r9, %r9, 8, 31, -1;";
    let found = lanes(body);
    assert_eq!((found[0], found[39], found[40], found[47], found[48]), (5, 7, 5, 5, 7));
}

#[test]
fn what_is_shared_is_seen_behind_a_barrier() {
    let found = lanes("st.shared.b32 [%r2], %r1;\nbar.sync 0;\nld.shared.b32 %r9, [%r3];");
    assert_eq!((found[0], found[63]), (32, 31));
}

#[test]
fn an_execution_stops_where_a_gpu_would_compute_something() {
    let store = "st.shared.b32 [%r2], %r1;";
    let copy = "cp.async.ca.shared.global [%r2 + 0], [%rd1 + 0], 0x4, 4;\ncp.async.commit_group;";
    let cases: &[(&str, &str)] = &[
        (&format!("{store}\nld.shared.b32 %r9, [%r3];"), "a race"),
        (&format!("ld.shared.b32 %r9, [%r3];\n{store}"), "a race"),
        // Within a warp too, unless it has a barrier of its own.
        (&format!("{store}\nxor.b32 %r4, %r2, 4;\nld.shared.b32 %r9, [%r4];"), "a race"),
        ("st.shared.b32 [smem], %r1;", "a race"),
        ("ld.shared.b32 %r9, [%r2];\nst.global.b32 [%rd1], %r9;", "a number in global memory"),
        ("st.global.b32 [%rd1], %r9;", "a number in global memory"),
        ("@%p5 st.global.b32 [%rd1], %r1;", "a predicate"),
        ("ld.shared.b32 %r9, [%r8];", "the address of a load"),
        ("st.global.b32 [%rd1+1], %r1;", "no multiple"),
        ("st.shared.b32 [%r2+2], %r1;", "no multiple"),
        ("ld.shared.v4.b32 {%r9, %r10, %r11, %r12}, [%r2];", "no multiple"),
        ("st.global.b32 [%rd1+4], %r1;", "`out`, which has 256"),
        ("prefetch.global.L2 [%rd1+128];", "`out`, which has 256"),
        ("prefetch.global.L2 [%rd7];", "the address of a prefetch"),
        ("st.shared.b32 [%r2+900], %r1;", "a block has 1024 bytes"),
        ("st.shared.b32 [64], %r1;", "a block has 1024 bytes"),
        (&format!("{copy}\nld.shared.b32 %r9, [%r2];"), "under way"),
        (&format!("{copy}\ncp.async.wait_group 1;\nld.shared.b32 %r9, [%r2];"), "under way"),
        (&format!("{copy}\n{store}"), "under way"),
        (&format!("{copy}\ncp.async.wait_group 0;\nld.shared.b32 %r9, [%r3];"), "a race"),
        (&format!("xor.b32 %r4, %r2, 4;\nld.shared.b32 %r9, [%r4];\n{copy}"), "a race"),
        (&copy.replace("0x4, 4;", "0x4, 8;"), "a copy of 8 bytes into room for 4"),
        ("setp.lt.u32 %p1, %r1, 40;\n@%p1 bar.sync 0;", "a divergent `bar.sync`"),
        ("setp.lt.u32 %p1, %r1, 32;\n@%p1 bar.sync 0;", "not all threads of the block"),
        ("setp.lt.u32 %p1, %r1, 32;\n@%p1 bra A;\nbar.sync 0;\nret;\nA:\nbar.sync 0;", "not all threads of the block"),
        ("setp.lt.u32 %p1, %r1, 5;\n@%p1 shfl.sync.bfly.b32 %r9, %r1, 1, 31, -1;", "a divergent `shfl`"),
        ("A:\nbra A;", "more than 10000 instructions"),
    ];
    for (body, wanted) in cases {
        let found = run(body).expect_err(body).to_string();
        assert!(found.contains(wanted), "{body}: {found}");
    }
    // The same with what orders them.
    for body in [
        format!("{store}\nbar.sync 0;\nld.shared.b32 %r9, [%r3];"),
        format!("{store}\nbar.warp.sync -1;\nxor.b32 %r4, %r2, 4;\nld.shared.b32 %r9, [%r4];"),
        "st.shared.b32 [smem], 5;".into(),
        format!("{copy}\ncp.async.wait_group 0;\nld.shared.b32 %r9, [%r2];"),
        format!("{copy}\ncp.async.wait_group 0;\nbar.sync 0;\nld.shared.b32 %r9, [%r3];"),
    ] {
        run(&body).unwrap_or_else(|error| panic!("{body}: {error}"));
    }
}

/// Threads whose launch may begin early wait before they touch global memory and before they end.
#[test]
fn launches_before_are_waited_for() {
    let (wait, few) = ("griddepcontrol.wait;", "setp.lt.u32 %p1, %r1, 40;");
    let store = "st.global.b32 [%rd1], %r1;";
    for (body, wanted) in [
        (format!("{store}\n{wait}"), "a store to global memory with no"),
        (format!("ld.global.b32 %r9, [%rd1];\n{wait}"), "a load of global memory with no"),
        (
            format!("cp.async.ca.shared.global [%r2 + 0], [%rd1 + 0], 0x4, 4;\n{wait}"),
            "a copy of global memory with no",
        ),
        (format!("griddepcontrol.launch_dependents;\n{wait}\n{store}"), "griddepcontrol.launch_dependents with no"),
        (format!("{few}\n@%p1 {wait}\n{store}"), "a store to global memory with no"),
        (format!("{few}\n@%p1 {wait}"), "the end of a thread with no"),
        (format!("{few}\n@%p1 ret;\n{wait}"), "the end of a thread with no"),
    ] {
        let found = run(&body).expect_err(&body).to_string();
        assert!(found.contains(wanted), "{body}: {found}");
    }
    for body in [
        format!("{wait}\ngriddepcontrol.launch_dependents;\n{store}"),
        // A prefetch gives no number that could be too old.
        format!("prefetch.global.L2 [%rd1];\n{wait}\n{store}"),
        format!("st.shared.b32 [%r2], %r1;\n{few}\n@%p1 bra A;\n{wait}\nbra.uni B;\nA:\n{wait}\nB:\n{store}"),
    ] {
        assert_eq!(run(&body).unwrap()[..2], [0, 1], "{body}");
    }
}

#[test]
fn a_reduction_of_floats_skips_what_is_no_number() {
    let of = |set: &str, action: &str| {
        let body = format!(
            "setp.eq.b32 %p1, %r1, 5;\nsetp.eq.b32 %p2, %r1, 37;\nor.pred %p1, %p1, %p2;\n{set}\nmov.b32 %r8, -1;\n\
                            redux.sync.{action}.f32 %r9, %r7, %r8;"
        );
        lanes(&body)[37]
    };
    let one = |rest: &str, one: &str| format!("mov.b32 %r7, {rest};\n@%p1 mov.b32 %r7, {one};");
    let (nan, least, zero) = ("0x7fc00000", "0xbf800000", "0x80000000");
    assert_eq!(of(&one("1065353216", "1073741824"), "max"), 1_073_741_824);
    assert_eq!(of(&one("1065353216", "1073741824"), "min"), 1_065_353_216);
    assert_eq!(of(&one(nan, least), "max"), 0xbf80_0000);
    assert_eq!(of(&one(least, nan), "min"), 0xbf80_0000);
    assert_eq!(of(&one(nan, nan), "max"), 0x7fff_ffff);
    // +0 is more than -0.
    assert_eq!(of(&one(zero, "0"), "max"), 0);
    assert_eq!(of(&one("0", zero), "min"), 0x8000_0000);
}

/// A tile of which a part was never written may be moved, as long as nothing comes of that part.
#[test]
fn what_was_never_written_stays_so_in_a_matrix() {
    let moved = |own: &str| {
        format!(
            "setp.lt.u32 %p1, %r1, 32;\n@!%p1 bra END;\nshl.b32 %r5, %r1, 4;\nadd.s32 %r5, %r5, smem;\n{own}\n\
             stmatrix.sync.aligned.m8n8.x1.shared.b16 [%r5], {{%r6}};\nbar.warp.sync -1;\n\
             ldmatrix.sync.aligned.m8n8.x1.shared.b16 {{%r9}}, [%r5];\nsetp.lt.u32 %p2, %r1, 4;\n\
             @%p2 st.global.b32 [%rd1], {{ %r9 }};\nEND:"
        )
    };
    // The first row of the matrix is the first four threads'.
    assert_eq!(run(&moved("setp.lt.u32 %p3, %r1, 4;\n@%p3 mov.b32 %r6, 7;")).unwrap()[..4], [7; 4]);
    let other = run(&moved("setp.lt.u32 %p3, %r1, 3;\n@%p3 mov.b32 %r6, 7;"));
    assert_eq!(other, Err(Fault::Poison { what: "a number in global memory" }));
}

#[test]
fn what_is_not_known_is_refused_with_its_line() {
    for (body, wanted) in [
        ("atom.global.add.f32 %r9, [%rd1], %r1;", "line 22: `atom.global.add.f32"),
        ("\nadd.s32 %rd1, %r1, %r1;", "line 23: `add.s32"),
        ("add.s32 %r99, %r1, %r1;", "`add.s32"),
        ("add.s32 %r9, %r1;", "`add.s32"),
        ("bra NOWHERE;", "`bra"),
        ("bar.sync 16;", "`bar.sync"),
        ("bar.sync 1, 40;", "`bar.sync"),
        ("shfl.sync.bfly.b32 %r9, %r1, 1, 31, 0xff;", "`shfl.sync.bfly.b32"),
        ("tcgen05.shift.cta_group::1.down [%r1];", "`tcgen05.shift"),
    ] {
        let found = Kernel::read(&text(body)).unwrap_err().to_string();
        assert!(found.contains(wanted), "{body}: {found}");
    }
    for (from, to, wanted) in [
        (".visible .entry k(", "", "no kernel"),
        (".version 8.7", "", "no .version"),
        (".param .u64", ".param .u16", "no parameter of 64 or 32 bits"),
        (".reqntid 64", ".reqntid 8, 8", "more than one axis"),
        (".reg .b16", ".reg .b128", "cannot be read"),
    ] {
        let found = Kernel::read(&text("").replacen(from, to, 1)).unwrap_err().to_string();
        assert!(found.contains(wanted), "{to}: {found}");
    }
}

#[test]
fn a_launch_must_fit_its_text() {
    let kernel = Kernel::read(&text("")).unwrap();
    let launch =
        Launch { grid: [1; 3], threads: 32, shared: 0, params: &[1 << 36], maps: &[], seed: None, steps_max: 100 };
    let mut memory = Buffers::default();
    assert!(kernel.run(&launch, &mut memory).unwrap_err().to_string().contains("the threads that the text names"));
    let launch = Launch { threads: 64, params: &[], ..launch };
    assert!(kernel.run(&launch, &mut memory).unwrap_err().to_string().contains("a value for each parameter"));
}

#[test]
fn an_edit_that_nothing_notices_is_one_with_the_same_numbers_or_of_what_nobody_uses() {
    let (copied, sum) = ("mov.b32 %r4, %r1;", "add.s32 %r9, %r1, 1;");
    let ptx = text(&format!(
        "setp.ne.b32 %p1, %r1, 0;\n{copied}\n{sum}\n@%p1 add.s32 %r9, %r9, 0;\nst.global.b32 [%rd1], %r9;"
    ));
    let edit = |was: &str, is: &str| {
        let line = ptx.lines().position(|line| line == was).unwrap();
        Edit { kind: Kind::Register, line, was: was.into(), is: is.into() }
    };
    let same = |was: &str, is: &str| run_text(&edit(was, is).beside(&ptx).unwrap()).is_ok();
    assert!(same(sum, "add.s32 %r9, %r4, 1;"));
    assert!(!same(sum, "add.s32 %r9, %r2, 1;"));
    assert!(same("@%p1 add.s32 %r9, %r9, 0;", "@!%p1 add.s32 %r9, %r9, 0;"));
    assert!(same("@%p1 add.s32 %r9, %r9, 0;", ""));
    assert!(!same("@%p1 add.s32 %r9, %r9, 0;", "@%p1 add.s32 %r9, %r9, 1;"));
    assert_eq!(edit("st.global.b32 [%rd1], %r9;", "").beside(&ptx), None);
    let unused = |was: &str| run_text(&edit(was, "").unwritten(&ptx).unwrap()).is_ok();
    assert!(unused(copied));
    assert!(!unused(sum));
}
