//! Copies by descriptor: a compiled product against the tile interpreter, wrong versions of it, and a few lines of PTX each.

use vosti_ptx::{Buffers, Cases, Compiled, Descriptor, Difference, Fault, Kernel, Launch, Map, RunError, count};

const TTIR: &str = include_str!("bulk/linear.ttir");
const PTX: &str = include_str!("bulk/linear.ptx");
const STEM: &str = "linear-bf16-BK64-BM128-BN128-K200-N160-SWAP1";
/// Of the activations and of the weight.
const DESCRIPTORS: [Descriptor; 2] = [
    Descriptor { param: 0, tile: [128, 64], elem: 2, swizzle: 128 },
    Descriptor { param: 2, tile: [128, 64], elem: 2, swizzle: 128 },
];
const SHARED: usize = 98_328;

/// What a text with these changes differs in.
fn changed(edits: &[(&str, &str)], descriptors: &[Descriptor]) -> Result<(), Difference> {
    let mut ptx = PTX.to_string();
    for (from, to) in edits {
        assert!(ptx.contains(from), "{from}");
        ptx = ptx.replace(from, to);
    }
    let spec = vosti_kernels::parse_stem(STEM).unwrap();
    let compiled = Compiled { spec: &spec, ttir: TTIR, ptx: &ptx, threads: 128, shared: SHARED, descriptors };
    Cases::new(&spec, TTIR).unwrap().check(&compiled)
}

#[test]
fn a_product_whose_tiles_are_copied_by_descriptor_has_the_bits_of_its_ttir() {
    changed(&[], &DESCRIPTORS).unwrap();
}

#[test]
fn wrong_copies_of_a_product_are_found_by_name() {
    let wait = "mbarrier.try_wait.parity.shared.b64 complete, [%r21], %r210;";
    let behind_products = "wgmma.wait_group.sync.aligned 1;";
    let (first, second) =
        ("add.s32 \t%r26, %r41, 98304;\n\tbar.sync \t0;", "add.s32 \t%r27, %r9, %r42;\n\tbar.sync \t0;");
    let cases: &[(&[(&str, &str)], &str)] = &[
        (&[(wait, "mov.pred complete, -1;")], "while a copy to it is under way"),
        (
            &[
                ("waitLoop:", ".reg .b32 other;\nxor.b32 other, %r210, 1;\nwaitLoop:"),
                (wait, &wait.replace("%r210", "other")),
            ],
            "under way|nobody ends",
        ),
        (&[("[%r26], 32768;", "[%r26], 32784;")], "told of 32784 bytes in a phase, and 32768 came"),
        (&[("[%r26], 32768;", "[%r26], 32752;")], "told of 32752 bytes in a phase, and 32768 came"),
        (&[("{%r28, %r1}", "{%r1, %r28}")], "`out`"),
        (&[("[%r29], [%rd4, {%r28, %r2}]", "[%r29], [%rd4, {%r28, %r1}]")], "`out`"),
        // Into the stage that is read now, with the other one's counter.
        (&[("add.s32 \t%r27, %r9, %r42;", "add.s32 \t%r27, %r9, %r34;")], "under way|a read by thread"),
        (&[("@%p22 mbarrier.init.shared::cta.b64 [%r7], 1;", "")], "no mbarrier"),
        (
            &[("@%p22 mbarrier.init.shared::cta.b64 [%r7], 1;", "@%p22 mbarrier.init.shared::cta.b64 [%r7], 2;")],
            "nobody ends",
        ),
        (
            &[("@%p22 mbarrier.init.shared::cta.b64 [%r7]", "@%p22 mbarrier.init.shared::cta.b64 [%r6]")],
            "where a valid mbarrier is",
        ),
        (&[("and.pred \t%p12, %p6, %p18;", "and.pred \t%p12, %p6, %p14;")], "while a copy to it is under way"),
        // Each of the two orders a copy behind the products that read its stage.
        (&[(first, &first[..first.len() - 12]), (second, &second[..second.len() - 12])], "a race"),
        (&[(behind_products, "")], "while a matrix product was reading|under way"),
        (&[("@%p22 mbarrier.inval.shared::cta.b64 [%r6];", "mbarrier.inval.shared::cta.b64 [%r6];")], "no mbarrier"),
        (&[("cvta.param.u64 \t%rd4, %rd6;", "cvta.param.u64 \t%rd4, %rd5;")], "`out`"),
        (&[("cvta.param.u64 \t%rd4, %rd6;", "mov.b64 %rd4, %rd6;")], "no tensor map"),
        (&[("griddepcontrol.wait;", "griddepcontrol.launch_dependents;")], "with no `griddepcontrol.wait`"),
    ];
    let mut wrong = vec![];
    for (edits, wanted) in cases {
        let found = changed(edits, &DESCRIPTORS).err().map_or("nothing".into(), |difference| difference.to_string());
        if !wanted.split('|').any(|wanted| found.contains(wanted)) {
            wrong.push(format!("{edits:?}: {found}, not {wanted}"));
        }
    }
    let [x, w] = DESCRIPTORS;
    for (descriptors, wanted) in [
        ([Descriptor { swizzle: 0, ..x }, w], "`out`"),
        ([x, Descriptor { swizzle: 64, tile: [128, 32], ..w }], "bytes in a phase"),
        ([Descriptor { tile: [64, 64], ..x }, w], "told of 32768 bytes in a phase, and 24576 came"),
        ([x, x], "a tensor map for each parameter"),
    ] {
        let found = changed(&[], &descriptors).err().map_or("nothing".into(), |difference| difference.to_string());
        if !found.contains(wanted) {
            wrong.push(format!("{descriptors:?}: {found}, not {wanted}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn copies_by_descriptor_are_counted() {
    let (spec, kernel) = (vosti_kernels::parse_stem(STEM).unwrap(), Kernel::read(PTX).unwrap());
    let counts = count(&kernel, &spec, (128, SHARED, &DESCRIPTORS), &[(100, 0)]).unwrap().counts;
    // Two blocks: each reads 100 rows of K for its step and its 128 or 32 rows of the weight, and the number of rows once a warp.
    let rows = [2 * 100, 128 + 32].iter().sum::<u64>();
    assert_eq!(counts.loads.bytes, 400 * rows + 2 * 4 * 4);
    assert_eq!(counts.loads.requests, 2 * (2 * 4 + 4));
    // A box of 128 bytes of K touches four sectors of a row or five: rows are 12 and a half sectors apart. The last has 16 bytes.
    assert_eq!(counts.loads.sectors, rows / 2 * (4 + 4 + 4 + 1 + 5 + 5 + 5 + 1) + 2 * 4);
    // Each warp's instructions, and the turns of boxes, of stores of matrices and of loads.
    assert_eq!(counts.shared.wavefronts, 2 * (4 * 256 + 2 * 16 * 4 * 4));
}

const EXPECT: &str = "@%p1 mbarrier.arrive.expect_tx.shared.b64 _, [smem+1024], 512;";

/// A kernel of 64 threads with `%r1` the thread, `%r2` the address of its word in shared memory, `%rd1` in `out`, `%rd2` the
/// address of a tensor map, `%p1` in thread 0 alone; `%p3` in the elected thread of the first warp.
fn text(body: &str) -> String {
    let wait = |counter: &str, parity: &str| {
        format!(
            "{{\n.reg .pred done;\nagain:\nmbarrier.try_wait.parity.shared.b64 done, [smem+{counter}], {parity};\n\
             @!done bra.uni again;\n}}\n"
        )
    };
    let copy = "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes";
    let body = body
        .replace("INIT;", "@%p1 mbarrier.init.shared::cta.b64 [smem+1024], 1;\nbar.sync 0;")
        .replace("EXPECT;", EXPECT)
        .replace("BOX;", "@%p3 COPY [smem], [%rd2, {8, 16}], [smem+1024];")
        .replace("COPY", copy)
        .replace("WAIT0;", &wait("1024", "0"))
        .replace("WAIT1;", &wait("1024", "1"))
        .replace("WAIT2;", &wait("1024", "2"))
        .replace("OTHER0;", &wait("1032", "0"))
        .replace("OUT;", "st.global.b32 [%rd1], %r9;");
    format!(
        ".version 8.7\n.target sm_90a\n.address_size 64\n.extern .shared .align 16 .b8 smem[];\n\
         .visible .entry k(\n\t.param .u64 .ptr .global .align 1 out,\n\t.param .align 64 .b8 map[128]\n)\n.reqntid 64\n{{\n\
         .reg .pred %p<9>;\n.reg .b32 %r<30>;\n.reg .b64 %rd<9>;\n\
         ld.param.b64 %rd0, [out];\nmov.u32 %r1, %tid.x;\nmad.wide.u32 %rd1, %r1, 4, %rd0;\n\
         shl.b32 %r2, %r1, 2;\nadd.s32 %r2, %r2, smem;\nmov.b64 %rd2, map;\ncvta.param.u64 %rd2, %rd2;\n\
         setp.eq.b32 %p1, %r1, 0;\nsetp.lt.u32 %p2, %r1, 32;\nelect.sync _|%p3, -1;\nand.pred %p3, %p2, %p3;\n\
         {body}\nret;\n}}\n"
    )
}

/// Rows and columns of the tensor, whose elements are their places.
const TENSOR: [u64; 2] = [20, 48];

fn run_with(body: &str, seed: Option<u64>, descriptor: Descriptor) -> Result<Vec<u32>, RunError> {
    let mut memory = Buffers::default();
    let tensor = (0..TENSOR[0] * TENSOR[1]).flat_map(|place| (place as u16).to_le_bytes()).collect();
    let params = [memory.add("out", vec![0; 256]), memory.add("tensor", tensor)];
    let maps = [Map { descriptor, extents: TENSOR }];
    let launch =
        Launch { grid: [1; 3], threads: 64, shared: 1040, params: &params, maps: &maps, seed, steps_max: 10_000 };
    let kernel = Kernel::read(&text(body)).unwrap_or_else(|error| panic!("{body}: {error}"));
    kernel.run(&launch, &mut memory)?;
    Ok(memory.bytes(0).chunks(4).map(|word| u32::from_le_bytes(word.try_into().unwrap())).collect())
}

/// Eight rows of 64 bytes.
const DESCRIPTOR: Descriptor = Descriptor { param: 1, tile: [8, 32], elem: 2, swizzle: 0 };

/// What a body does in several orders.
fn run(body: &str) -> Result<Vec<u32>, Fault> {
    let runs: Vec<_> =
        [None].into_iter().chain((0..12).map(Some)).map(|seed| run_with(body, seed, DESCRIPTOR)).collect();
    let all = runs.into_iter().collect::<Result<Vec<_>, _>>().map_err(|error| error.fault)?;
    assert!(all.iter().all(|words| *words == all[0]), "{body}");
    Ok(all[0].clone())
}

const WHOLE: &str = "INIT;\nEXPECT;\nBOX;\nWAIT0;\nld.shared.b32 %r9, [%r2];\nOUT;";

#[test]
fn a_box_has_its_elements_where_its_swizzle_says() {
    let element = |row: u32, column: u32| {
        let inside = u64::from(row) < TENSOR[0] && u64::from(column) < TENSOR[1];
        if inside { row * TENSOR[1] as u32 + column } else { 0 }
    };
    // PTX ISA, "Swizzling Modes": the piece of 16 bytes of a span changes with each 128 bytes.
    for (swizzle, width) in [(0, 64), (0, 32), (32, 32), (64, 64)] {
        let descriptor = Descriptor { swizzle, tile: [8, width / 2], ..DESCRIPTOR };
        let body = WHOLE.replace("EXPECT;", &EXPECT.replace("512", &(8 * width).to_string()));
        let out = run_with(&body, None, descriptor).unwrap();
        for at in (0..256).step_by(4) {
            let turned = if swizzle == 0 { 0 } else { at / 128 % (swizzle / 16) };
            let within = (at % width / 16) ^ turned;
            let (row, column) = (16 + at / width, 8 + within * 8 + at % 16 / 2);
            let wanted = element(row, column) | element(row, column + 1) << 16;
            assert_eq!(out[at as usize / 4], wanted, "{swizzle}, {width} at {at}");
        }
    }
}

#[test]
fn an_execution_stops_where_a_copy_is_not_ordered() {
    let behind = |lines: &str| WHOLE.replace("EXPECT;", &format!("{lines}\nEXPECT;"));
    let (expect, store) = ("@%p1 mbarrier.arrive.expect_tx.shared.b64 _, [smem+1024],", "st.shared.b32 [%r2], %r1;");
    let half = "setp.ge.u32 %p4, %r1, 32;\n@%p4 bra B;\nWAIT0;\nB:\n";
    let again = "bar.sync 0;\nEXPECT;\nBOX;";
    let cases: &[(&str, &str)] = &[
        (&WHOLE.replace("WAIT0;", ""), "under way"),
        (&WHOLE.replace("WAIT0;", "bar.sync 0;"), "under way"),
        (&WHOLE.replace("WAIT0;", "WAIT1;"), "under way"),
        (&WHOLE.replace("ld.shared.b32 %r9, [%r2];\nOUT;", store).replace("WAIT0;", ""), "under way"),
        (&WHOLE.replace("WAIT0;", half), "under way"),
        (&WHOLE.replace("EXPECT;", &format!("{expect} 528;")), "told of 528 bytes in a phase, and 512 came"),
        (&WHOLE.replace("EXPECT;", &format!("{expect} 496;")), "told of 496 bytes in a phase, and 512 came"),
        (&WHOLE.replace("EXPECT;", ""), "told of 0 bytes in a phase, and 512 came"),
        (&WHOLE.replace("BOX;", ""), "told of 512 bytes in a phase, and 0 came"),
        (&WHOLE.replace("EXPECT;", "mbarrier.arrive.expect_tx.shared.b64 _, [smem+1024], 8;"), "one more comes"),
        (&WHOLE.replace("EXPECT;", &format!("{expect} 1048576;")), "out of range"),
        (&WHOLE.replace("INIT;", "@%p1 mbarrier.init.shared.b64 [smem+1024], 0;"), "out of range"),
        (&WHOLE.replace("WAIT0;", "WAIT2;"), "out of range"),
        (&WHOLE.replace("INIT;", ""), "no mbarrier"),
        (&WHOLE.replace("INIT;", "INIT;\nINIT;"), "where a valid mbarrier is"),
        (&WHOLE.replace("INIT;", "@%p1 mbarrier.init.shared::cta.b64 [smem+1024], 1;"), "mbarrier.init by thread 0"),
        (&behind("@%p1 mbarrier.init.shared::cta.b64 [smem+1032], 1;\nbar.sync 0;\nOTHER0;"), "nobody ends this wait"),
        (&WHOLE.replace("BOX;", "@%p2 COPY [smem], [%rd2, {8, 16}], [smem+1024];"), "under way"),
        (&WHOLE.replace("BOX;", "BOX;\nBOX;"), "under way"),
        (&WHOLE.replace("BOX;", "@%p3 COPY [smem+64], [%rd2, {8, 16}], [smem+1024];"), "no multiple"),
        (&WHOLE.replace("BOX;", "@%p3 COPY [smem+640], [%rd2, {8, 16}], [smem+1024];"), "is used as memory"),
        (&WHOLE.replace("BOX;", "@%p3 COPY [smem], [%rd0, {8, 16}], [smem+1024];"), "no tensor map"),
        (&WHOLE.replace("BOX;", "@%p3 COPY [smem], [%rd2, {%r8, 16}], [smem+1024];"), "the place of a box"),
        (&behind("ld.shared.b32 %r9, [smem+1024];"), "is used as memory"),
        (&behind("st.shared.b32 [smem+1028], 0;"), "is used as memory"),
        (&behind(store), "a race|was stored by thread 0"),
        (&behind(&format!("{store}\nbar.sync 0;")), "was stored by thread 0"),
        (&behind("ld.shared.b32 %r9, [%r2];\nbar.sync 0;"), "was read by thread 0"),
        (&format!("{WHOLE}\n{again}\nWAIT1;"), "was read by thread 0"),
        (&format!("{WHOLE}\nfence.proxy.async.shared::cta;\n{again}"), "nobody has waited for a copy"),
        (&WHOLE.replace("WAIT0;\nld.shared.b32 %r9, [%r2];\nOUT;", ""), "nobody has waited for a copy"),
        (
            &WHOLE.replace("WAIT0;", "bar.sync 0;\n@%p1 mbarrier.inval.shared::cta.b64 [smem+1024];"),
            "nobody has waited for a copy",
        ),
        (&format!("{WHOLE}\n@%p1 mbarrier.inval.shared::cta.b64 [smem+1024];"), "by thread"),
        (
            &format!("{WHOLE}\nbar.sync 0;\n@%p1 mbarrier.inval.shared::cta.b64 [smem+1024];\nbar.sync 0;\nWAIT0;"),
            "no mbarrier",
        ),
        (&behind("setp.lt.u32 %p4, %r1, 5;\n@%p4 elect.sync _|%p5, -1;"), "a divergent `elect.sync`"),
    ];
    let mut wrong = vec![];
    for (body, wanted) in cases {
        let found = run(body).map_or_else(|fault| fault.to_string(), |_| "nothing".into());
        if !wanted.split('|').any(|wanted| found.contains(wanted)) {
            wrong.push(format!("{body}: {found}, not {wanted}\n"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    // The same with what orders them.
    for body in [
        WHOLE,
        &WHOLE.replace("EXPECT;\nBOX;", "BOX;\nEXPECT;"),
        &WHOLE.replace("WAIT0;", &format!("{half}bar.sync 0;")),
        &behind(&format!("{store}\nfence.proxy.async.shared::cta;\nbar.sync 0;")),
        &format!("{WHOLE}\nfence.proxy.async.shared::cta;\n{again}\nWAIT1;\nld.shared.b32 %r9, [%r2];\nOUT;"),
        &format!(
            "{WHOLE}\nbar.sync 0;\n@%p1 mbarrier.inval.shared::cta.b64 [smem+1024];\nbar.sync 0;\nst.shared.b32 [smem+1024], 7;"
        ),
        &behind(
            "@%p1 mbarrier.init.shared::cta.b64 [smem+1032], 1;\n@%p1 mbarrier.inval.shared::cta.b64 [smem+1032];\n@%p1 mbarrier.init.shared::cta.b64 [smem+1032], 3;",
        ),
    ] {
        let wanted = 16 * TENSOR[1] as u32 + 8;
        assert_eq!(
            run(body).unwrap_or_else(|fault| panic!("{body}: {fault}"))[0],
            wanted | (wanted + 1) << 16,
            "{body}"
        );
    }
}

#[test]
fn a_map_is_one_that_can_be_encoded() {
    for wrong in [
        Descriptor { swizzle: 48, ..DESCRIPTOR },
        Descriptor { swizzle: 32, ..DESCRIPTOR },
        Descriptor { tile: [257, 32], ..DESCRIPTOR },
        Descriptor { tile: [8, 4], ..DESCRIPTOR },
        Descriptor { elem: 3, ..DESCRIPTOR },
        Descriptor { param: 0, ..DESCRIPTOR },
    ] {
        let found = run_with(WHOLE, None, wrong).unwrap_err().to_string();
        assert!(found.contains("a tensor map for each parameter"), "{wrong:?}: {found}");
    }
}

#[test]
fn names_in_braces_are_their_own() {
    let words = |body: &str| run(&format!("{body}\nOUT;")).unwrap()[5];
    assert_eq!(words("mov.b32 %r9, 1;\n{\n.reg .b32 %r<12>;\nmov.b32 %r9, 7;\n}"), 1);
    assert_eq!(
        words("{\n.reg .b32 one;\nmov.b32 one, 3;\n{\n.reg .b32 two;\nadd.s32 two, one, 1;\nmov.b32 %r9, two;\n}\n}"),
        4
    );
    assert_eq!(
        words(
            "mov.b32 %r9, 1;\n{\nbra L;\nmov.b32 %r9, 2;\nL:\nadd.s32 %r9, %r9, 4;\n}\n{\nbra L;\nmov.b32 %r9, 2;\nL:\nadd.s32 %r9, %r9, 8;\n}"
        ),
        13
    );
    for (body, wanted) in [
        ("{\nL:\nmov.b32 %r9, 2;\n}\nbra L;", "`bra"),
        ("L:\nmov.b32 %r9, 2;\nL:\nmov.b32 %r9, 2;", "a label twice"),
        ("{\n.reg .b32 one;\nmov.b32 one, 3;\n}\nmov.b32 %r9, one;", "`mov.b32"),
        ("{\nmov.b32 %r9, 2;", "a brace too few"),
        ("}\nmov.b32 %r9, 2;", "a brace too many"),
    ] {
        let found = Kernel::read(&text(body)).unwrap_err().to_string();
        assert!(found.contains(wanted), "{body}: {found}");
    }
}

/// The first lines of what Triton 3.6.0 makes of a product whose warps have tasks of their own: barriers of 128 threads while
/// the others wait at one of all, and an `mbarrier.init` where an mbarrier is. PTX ISA, "mbarrier.init": "The behavior of
/// performing an mbarrier.init operation on a memory location containing a valid mbarrier object is undefined".
#[test]
fn tasks_of_warps_begin_with_what_the_isa_leaves_undefined() {
    let begin = |again: &str| {
        format!(
            "setp.lt.u32 %p4, %r1, 32;\n@%p4 bra DEFAULT;\nsetmaxnreg.dec.sync.aligned.u32 120;\nbarrier.sync 1;\nbra.uni END;\n\
             DEFAULT:\nsetmaxnreg.inc.sync.aligned.u32 256;\n\
             @%p1 mbarrier.init.shared::cta.b64 [smem], 1;\n@%p1 mbarrier.init.shared::cta.b64 [smem+1024], 32;\nbar.sync 0, 32;\n\
             {again}\n@%p1 mbarrier.init.shared::cta.b64 [smem+1032], 32;\nbar.sync 0, 32;\nbarrier.sync 1;\nEND:"
        )
    };
    run(&begin("")).unwrap();
    let again = "@%p1 mbarrier.init.shared::cta.b64 [smem], 1;";
    assert_eq!(run(&begin(again)), Err(Fault::Again { at: 1024 }));
    // And tiles come to the same place.
    let tile = "@%p1 cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [smem], [%rd2, {8, 16}], [smem+1024];";
    assert_eq!(run(&begin(tile)), Err(Fault::Counter { at: 1024 }));
    // What else orders them is not known.
    let store = "st.shared.b32 [smem+512], %r1;\nbar.sync 0, 32;\nld.shared.b32 %r9, [smem+516];";
    assert_eq!(run(&begin(&store.replace("[smem+512]", "[%r2+512]"))), Err(Fault::Parted { at: 1540 }));
    let arrive =
        "@%p1 mbarrier.arrive.shared::cta.b64 _, [smem+1024];\n@%p1 mbarrier.arrive.shared::cta.b64 _, [smem+1024], 2;";
    assert_eq!(run(&begin(arrive)), Ok(vec![0; 64]));
    for (wrong, wanted) in [
        ("bar.sync 0, 64;", "not all threads of the block"),
        ("setp.lt.u32 %p5, %r1, 9;\n@%p5 setmaxnreg.inc.sync.aligned.u32 240;", "a divergent `setmaxnreg`"),
        ("@%p1 mbarrier.arrive.shared::cta.b64 _, [smem+1024], 33;", "one more comes"),
    ] {
        let found = run(&begin(wrong)).unwrap_err().to_string();
        assert!(found.contains(wanted), "{wrong}: {found}");
    }
}
