//! A kernel in a few lines that passes every check, then one breach of each check: every check can fail.

use super::*;
use vosti_kernels::{CompileOptions, parse_stem};
use vosti_ptx::Descriptor;

const STEM: &str = "linear-bf16-BK64-BM64-BN64-K576-N960-SWAP1";

const PTX: &str = "\
.version 8.7
.target sm_90a
.address_size 64

	// .globl	linear
.extern .shared .align 16 .b8 global_smem[];
.visible .entry linear(
	.param .u64 .ptr .global .align 1 linear_param_0,
	.param .u64 .ptr .global .align 1 linear_param_1,
	.param .u64 .ptr .global .align 1 linear_param_2,
	.param .u64 .ptr .global .align 1 linear_param_3,
	.param .u64 .ptr .global .align 1 linear_param_4,
	.param .u64 .ptr .global .align 1 linear_param_5
)
.reqntid 128
{
	.reg .pred 	%p<44>;
// %bb.0:
	ld.param.b64 	%rd6, [linear_param_3]; // atom. in a comment
$L__BB0_2:
	@%p9 ld.global.v4.b32 { %r8, %r9, %r10, %r11 }, [ %rd7 + 0 ];
	cp.async.cg.shared.global [ %r1 + 0 ], [ %rd1 + 0 ], 0x10, %r2;
	wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {%r422}, %rd90, %rd91, %p12, 1, 1, 0, 0;
	redux.sync.add.s32 %r3, %r4, 0xffffffff;
	mad.lo.s32 %r3, %r4, %r5, %r6;
	@%p11 bra 	$L__BB0_2;
	ret;
}
";

const SASS: &str = "\
	.headerflags	@\"EF_CUDA_64BIT_ADDRESS EF_CUDA_ACCELERATORS EF_CUDA_SM90 EF_CUDA_VIRTUAL_SM(EF_CUDA_SM90)\"
.text.linear:
        /*0000*/                   LDC R1, c[0x0][0x28] ;
        /*0010*/                   ACQBULK ;
        /*0020*/                   PREEXIT ;
        /*0030*/              @!P0 HGMMA.64x128x16.F32.BF16 R24, gdesc[UR4] ;
        /*0040*/                   REDUX.SUM UR4, R3 ;
";

const LOG: &str = "\
ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'linear' for 'sm_90a'
ptxas info    : Function properties for linear
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 96 registers, used 1 barriers
";

const TTGIR: &str = "\
#blocked = #ttg.blocked<{sizePerThread = [1, 8]}>
module {
    %8 = scf.for %arg4 = %c0_i32 to %c576_i32 step %c64_i32 iter_args(%arg5 = %7) -> (i64) : i32 {
      %9 = ttg.async_wait %arg5 {num = 1 : i32}
      %10 = ttng.warp_group_dot %1, %2, %arg6 {isAsync = true} : tensor<64x16xf32, #mma>
      %11 = ttg.async_copy_global_to_local %3, %4 : tensor<64x64x!tt.ptr<bf16>> -> <64x64xbf16, #shared, #smem, mutable>
      %12 = ttg.async_commit_group tokens %11
    }
    %21 = \"tt.reduce\"(%20#1) <{axis = 1 : i32}> ({
    ^bb0(%arg4: f32, %arg5: f32):
      tt.reduce.return %32 : f32
    }) : (tensor<4x8xf32, #ttg.slice<{dim = 2, parent = #blocked}>>) -> tensor<4xf32, #blocked1>
}
";

fn contract() -> &'static Contract {
    vosti_kernels::contract("linear").unwrap()
}

fn sound() -> Artifact {
    let spec = parse_stem(STEM).unwrap();
    let start =
        start::start(&spec, contract(), CompileOptions { num_warps: 4, num_stages: 4, descriptors: false }, Arch::Sm90);
    Artifact {
        ttir: vosti_kernels::ttir(&spec).unwrap().into(),
        spec,
        ttgir: TTGIR.into(),
        ptx: PTX.replace("// %bb.0:\n", &start),
        cubin: vec![],
        sass: SASS.into(),
        log: LOG.into(),
        metadata: Metadata {
            name: "linear".into(),
            shared: 98_304,
            num_warps: 4,
            num_ctas: 1,
            num_stages: 4,
            global_scratch_size: 0,
            global_scratch_align: 1,
            profile_scratch_size: 0,
            profile_scratch_align: 1,
            tmem_size: 0,
            launch_pdl: true,
            launch_cooperative_grid: false,
            enable_fp_fusion: false,
            ptxas_level: 3,
            target: "sm_90a".into(),
            triton: "3.6.0".into(),
            descriptors: vec![],
        },
    }
}

fn refusal(artifact: &Artifact) -> Refusal {
    match inspect(artifact, contract(), Arch::Sm90) {
        Err(CubinError::Refused { refusal, .. }) => refusal,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_sound_kernel_passes_and_is_described() {
    let facts = inspect(&sound(), contract(), Arch::Sm90).unwrap();
    let tile = "tensor<4x8xf32, #ttg.slice<{dim = 2, parent = #ttg.blocked<{sizePerThread = [1, 8]}>}>>";
    let wanted = Facts {
        params: 6,
        threads: 128,
        registers: 96,
        shared_dynamic: 98_304,
        shared_static: 0,
        matrix_instructions: 1,
        matrix_kinds: vec!["wgmma.mma_async.sync.aligned.m64n*k16.f32.bf16.bf16".into()],
        async_copies: 1,
        in_flight: 8192,
        ahead: 32_768,
        blocks: 2,
        reductions: vec![Reduction { axis: 1, tile: tile.into() }],
    };
    assert_eq!(facts, wanted);
}

#[test]
fn each_breach_in_the_texts_is_refused_by_name() {
    type Field = fn(&mut Artifact) -> &mut String;
    let (ttir, ptx): (Field, Field) = (|a| &mut a.ttir, |a| &mut a.ptx);
    let (sass, log, ttgir): (Field, Field, Field) = (|a| &mut a.sass, |a| &mut a.log, |a| &mut a.ttgir);
    let cases: [(Field, &str, &str, &str); 50] = [
        (ttir, "tt.func public @linear(", "tt.func public @linear(%", "TTIR cannot be parsed"),
        (
            ttir,
            "%x: !tt.ptr<bf16> {tt.divisibility = 16",
            "%x: !tt.ptr<bf16> {tt.divisibility = 4",
            "parameter x is not",
        ),
        (ttir, "%rows: !tt.ptr<i32> {tt.divisibility = 16 : i32}", "%rows: !tt.ptr<i32>", "parameter rows is not"),
        (ttir, "%w: !tt.ptr<bf16>", "%w: !tt.ptr<f32>", "TTIR cannot be parsed"),
        (ttir, "%out", "%result", "takes `result: bf16` where the contract has `out: bf16`"),
        (ptx, ".target sm_90a", ".target sm_90", "assembled for sm_90, not for sm_90a"),
        (ptx, ".target", ".tarmac", "no .target"),
        (ptx, ".visible .entry linear(", ".visible .entry other() { }\n.visible .entry linear(", "several kernels"),
        (ptx, ".param .u64 .ptr .global .align 1 linear_param_0,", "", "takes 5 ("),
        (ptx, ".param .u64 .ptr .global .align 1 linear_param_5", ".param .u32 linear_param_5", "u64 .u32"),
        (ptx, ".reqntid 128", "", "no .reqntid"),
        (ptx, ".reqntid 128", ".reqntid 256", "blocks of [256] threads, and 4 warps have 128"),
        (ptx, ".reqntid 128", ".reqntid 64, 2, 1", "[64, 2, 1]"),
        (ptx, "\tret;", "\t@%p1 atom.global.add.f32 %f1, [%rd1], %f2;\n\tret;", "contains `atom.global.add.f32`"),
        (ptx, "\tret;", "\t{ red.global.add.f32 [%rd1], %f2; }\n\tret;", "contains `red.global.add.f32`"),
        (sass, "REDUX.SUM", "REDG.E.ADD.F32", "contains `REDG.E.ADD.F32`"),
        (ptx, "\tret;", "\tfma.rn.f32 %f1, %f2, %f3, %f4;\n\tret;", "its PTX contains 1 fused"),
        (ptx, "\tret;", "\tfma.rn.f64 %f1, %f2, %f3, %f4;\n\tret;", "contains `fma.rn.f64`"),
        (ptx, "\tret;", "\tdiv.rn.f32 %f1, %f2, %f3;\n\tret;", "contains `div.rn.f32`"),
        (sass, "REDUX.SUM UR4,", "FFMA.FTZ R4,", "its machine code contains 1 fused"),
        (sass, "EF_CUDA_SM90", "EF_CUDA_SM9", "assembled for .headerflags"),
        (ptx, "ld.global.v4.b32", "ld.global.b16", "by `ld.global.b16`"),
        (ptx, "wgmma.mma_async", "wgmma.fence", "its 1 dots did not become wgmma.mma_async"),
        (ptx, "\tret;", "\tmma.sync.aligned.m16n8k16 %f1;\n\tret;", "contains `mma.sync` instructions"),
        (ptx, "griddepcontrol.wait;", "", "PTX does not begin with"),
        (ptx, "griddepcontrol.wait;", "@%p1 griddepcontrol.wait;", "PTX does not begin with"),
        (ptx, "griddepcontrol.wait;", "ld.global.b32 %r1, [%rd1]; griddepcontrol.wait;", "PTX does not begin with"),
        (ptx, "griddepcontrol.wait;", "$L: griddepcontrol.wait;", "PTX does not begin with"),
        (ptx, "prefetch.global.L2", "prefetch.global.L1", "PTX does not begin with"),
        (ptx, "griddepcontrol.launch_dependents;", "", "PTX does not begin with"),
        (ptx, "\tret;", "\tgriddepcontrol.launch_dependents;\n\tret;", "PTX does not begin with"),
        (sass, "ACQBULK", "NOP", "waits 0 times and lets the next launch begin 1 times"),
        (sass, "REDUX.SUM UR4, R3", "PREEXIT", "waits 1 times and lets the next launch begin 2 times"),
        (sass, "     ACQBULK", "@P0 ACQBULK", "does not wait first, in every thread"),
        (sass, "LDC R1, c[0x0][0x28]", "LDG.E R1, desc[UR4][R2.64]", "has `LDG.E` before it waits"),
        (sass, "LDC R1, c[0x0][0x28]", "CCTL.IV [R2]", "has `CCTL.IV` before it waits"),
        (sass, "LDC R1, c[0x0][0x28]", "STS [R1+0x10], R2", "has `STS` before it waits"),
        (sass, "LDC R1, c[0x0][0x28]", "@P0 EXIT", "has `EXIT` before it waits"),
        (sass, "LDC R1, c[0x0][0x28]", "BRA `(.L_x_0)", "has `BRA` before it waits"),
        (ptx, "ld.global.v4.b32", "ld.global.nc.v4.b32", "`ld.global.nc.v4.b32` may give what was in memory"),
        (
            sass,
            "REDUX.SUM UR4, R3",
            "LDG.E.CONSTANT R1, desc[UR4][R2.64]",
            "`LDG.E.CONSTANT` may give what was in memory",
        ),
        (ptx, "cp.async.cg.shared", "cp.async.wait_group", "of 4 stages loads nothing asynchronously"),
        (log, "0 bytes spill loads", "8 bytes spill loads", "spills 8 bytes"),
        (log, "0 bytes stack", "16 bytes stack", "spills 16 bytes"),
        (log, "Used 96 registers", "Used 520 registers", "uses 520 registers a thread, and 128 threads have 255 each"),
        (log, "1 barriers", "1 barriers, 140000 bytes smem", "needs 238304 bytes of shared memory, a block has 232448"),
        (log, "Compiling", "Skipping", "not about one kernel"),
        (ttgir, "num = 1 :", "num = 0 :", "waits for all of its loads first"),
        (ttgir, "-> <64x64xbf16", "-> <64x?xbf16", "a load that cannot be parsed"),
        (ttgir, "#blocked = ", "#other = ", "layout `#blocked` of its reductions"),
    ];
    for (field, from, to, says) in cases {
        let mut broken = sound();
        let text = field(&mut broken);
        assert!(text.contains(from), "{from}");
        *text = text.replace(from, to);
        let refused = refusal(&broken).to_string();
        assert!(refused.contains(says), "{to}: {refused}");
    }
    let mut integers = sound();
    integers.ttgir = TTGIR.replace("4x8xf32", "4x8xi32").replace("#blocked = ", "#other = ");
    assert_eq!(inspect(&integers, contract(), Arch::Sm90).unwrap().reductions, [], "their order decides no bit");
    let mut broken = sound();
    broken.log += "ptxas info    : (C7510) Potential Performance Loss: wgmma.mma_async instructions are serialized\n";
    assert_eq!(refusal(&broken), Refusal::Serialised);
}

/// Query tiles of 64 and 128 lanes add along a row in one order; layouts that differ along the row do not.
#[test]
fn a_reduction_is_told_from_another_by_what_its_layout_says_of_the_axis_that_is_folded() {
    let of = |tile: &str, layout: &str| {
        let text = format!(
            "#l = {layout}\n  %1 = \"tt.reduce\"(%0) <{{axis = 1 : i32}}> ({{\n  }}) : ({tile}) -> tensor<1xf32>\n"
        );
        super::texts::reductions(&text).unwrap()
    };
    let mma = |rows: u32, warps: &str, columns: u32| {
        let shape = format!("instrShape = [16, {columns}, 16]");
        let layout = format!("#ttg.nvidia_mma<{{versionMajor = 3, versionMinor = 0, warpsPerCTA = {warps}, {shape}}}>");
        of(&format!("tensor<{rows}x64xf32, #l>"), &layout)
    };
    let low = mma(64, "[4, 1]", 64);
    assert_eq!(low, mma(128, "[8, 1]", 64));
    for other in
        [mma(64, "[4, 2]", 64), mma(64, "[4, 1]", 32), of("tensor<64x32xf32, #l>", "#ttg.blocked<{a = [1, 2]}>")]
    {
        assert_ne!(low, other);
    }
    let linear = |rows: u32, registers: &str, lane: &str, warps: &str| {
        let lanes = format!("lane = [[1, 0], [2, 0], [4, 0], [8, 0], {lane}]");
        let layout = format!("#ttg.linear<{{register = [{registers}], {lanes}, warp = [{warps}], block = []}}>");
        of(&format!("tensor<{rows}x64xf32, #l>"), &layout)
    };
    let low = linear(64, "[0, 1], [0, 2]", "[0, 32]", "[16, 0], [32, 0]");
    assert_eq!(low, linear(128, "[0, 1], [0, 2]", "[0, 32]", "[32, 0], [64, 0], [16, 0]"));
    assert_eq!(low, linear(128, "[0, 1], [64, 0], [0, 2]", "[0, 32]", "[16, 0], [32, 0]"));
    let others = [
        linear(64, "[0, 2], [0, 1]", "[0, 32]", "[16, 0], [32, 0]"),
        linear(64, "[0, 1], [0, 2]", "[0, 16]", "[16, 0], [32, 0]"),
        linear(64, "[0, 1], [0, 2]", "[0, 32]", "[16, 0], [0, 32]"),
    ];
    others.iter().for_each(|other| assert_ne!(&low, other));
    // A layout of another kind is compared whole.
    let blocked = |rows: u32| of(&format!("tensor<{rows}x64xf32, #l>"), "#ttg.blocked<{a = [1, 2]}>");
    assert_ne!(blocked(64), blocked(128));
}

#[test]
fn dots_of_fewer_than_64_rows_have_the_instruction_that_their_rows_have_and_no_other() {
    let heads_of = |size: &str| {
        let mut stems = vosti_kernels::ttir_stems().into_iter();
        let gpu = |stem: &&str| stem.starts_with("attend-bf16") && stem.contains(size);
        let kernel = vosti_tile::lift(vosti_kernels::ttir_by_stem(stems.find(gpu).unwrap()).unwrap());
        kernel.unwrap()
    };
    let (short, tall) = (heads_of("-BQ4-DP512-GP8-"), heads_of("-BQ16-DP64-GP4-"));
    let passes = |kernel: &Kernel, arch: Arch, instruction: &str| {
        let text = PTX.replace("\tret;", &format!("\t{instruction} %f1;\n\tret;"));
        let text = text.replace("wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16", instruction);
        matrix_instructions(&Ptx::read(&text).unwrap(), &dots(kernel, arch))
    };
    let (mma, wgmma, tcgen05) = ("mma.sync.aligned.m16n8k16", "wgmma.mma_async.sync", "tcgen05.mma.cta_group::1");
    for (arch, own) in [(Arch::Sm80, mma), (Arch::Sm90, wgmma), (Arch::Sm100, tcgen05), (Arch::Sm120, mma)] {
        for instruction in [mma, wgmma, tcgen05] {
            for (kernel, wanted) in [(&short, mma), (&tall, own)] {
                let found = passes(kernel, arch, instruction);
                let other = matches!(found, Err(Refusal::OtherMatrixInstructions { .. }));
                assert!(if instruction == wanted { found == Ok(2) } else { other }, "{arch} {instruction}: {found:?}");
            }
        }
    }
    // One for two dots.
    let one = matrix_instructions(&Ptx::read(PTX).unwrap(), &dots(&tall, Arch::Sm90));
    assert_eq!(one, Err(Refusal::NoMatrixInstructions { dots: 2, wanted: "wgmma.mma_async" }));
    let none = matrix_instructions(&Ptx::read(PTX).unwrap(), &BTreeMap::new()).unwrap_err().to_string();
    assert!(none.contains("wgmma.mma_async"), "{none}");
}

#[test]
fn each_breach_in_the_metadata_is_refused_by_name() {
    type Breach = fn(&mut Metadata);
    let cases: [(Breach, &str); 7] = [
        (|m| m.num_warps = 8, "and 8 warps have 256"),
        (|m| m.target = "sm_100a".into(), "assembled for sm_100a"),
        (|m| m.enable_fp_fusion = true, "fusion was on"),
        (
            |m| m.launch_pdl = false,
            "its launch may begin before the one before it has ended, and its record does not say so",
        ),
        (|m| m.launch_cooperative_grid = true, "needs a cooperative launch"),
        (|m| m.num_ctas = 2, "needs clusters"),
        (|m| m.shared = 240_000, "needs 240000 bytes of shared memory"),
    ];
    for (breach, says) in cases {
        let mut broken = sound();
        breach(&mut broken.metadata);
        let refused = refusal(&broken).to_string();
        assert!(refused.contains(says), "{refused}");
    }
    let early = launchable(&sound().metadata, Arch::Sm89);
    assert_eq!(early, Err(Refusal::Launch { what: "programmatic dependent launch" }), "sm89 has none");
}

#[test]
fn only_alike_kernels_run_in_one_another_s_place() {
    let first = inspect(&sound(), contract(), Arch::Sm90).unwrap();
    let with = |from: &str, to: &str| {
        let mut other = sound();
        for text in [&mut other.ptx, &mut other.ttgir] {
            *text = text.replace(from, to);
        }
        interchangeable(&first, &inspect(&other, contract(), Arch::Sm90).unwrap())
    };
    // More columns of the same instruction.
    assert_eq!(with("m64n128k16", "m64n16k16"), Ok(()));
    let refused = with("m64n128k16", "m64n128k8").unwrap_err().to_string();
    assert!(refused.contains("m64n*k8") && refused.contains("m64n*k16"), "{refused}");
    assert_eq!(with("sizePerThread = [1, 8]", "sizePerThread = [1, 4]"), Err(Refusal::OtherLayout));
}

#[test]
fn a_kernel_for_one_architecture_is_refused_for_another() {
    for arch in [Arch::Sm80, Arch::Sm86, Arch::Sm89, Arch::Sm100, Arch::Sm120] {
        let refused = inspect(&sound(), contract(), arch).unwrap_err().to_string();
        assert!(refused.contains(&arch.assembled()), "{refused}");
    }
}

const COPIED: &str = "linear-bf16-BK64-BM128-BN128-K576-N960-SWAP1";

/// The kernel of a high row tile, whose tiles are copied by descriptor: two stages of 16,384 bytes each, and one in its loop.
fn copied() -> Artifact {
    let mut artifact = sound();
    artifact.spec = parse_stem(COPIED).unwrap();
    artifact.ttir = vosti_kernels::ttir(&artifact.spec).unwrap().into();
    let copy = |param: usize| {
        let map = ["%rd3", "", "%rd4"][param];
        format!(
            "\t@%p1 cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%r13], [{map}, {{%r12, %r3}}], [%r8];\n"
        )
    };
    let stage = format!("\tmbarrier.arrive.expect_tx.shared.b64 _, [%r8], 32768;\n{}{}", copy(0), copy(2));
    let begin = "\tmov.b64 \t%rd15, linear_param_0;\n\tmov.b64 \t%rd16, linear_param_2;\n\tcvta.param.u64 \t%rd4, %rd16;\n\
        \tcvta.param.u64 \t%rd3, %rd15;\n\t@%p22 mbarrier.init.shared::cta.b64 [%r8], 1;\n";
    let threads = "\tcp.async.cg.shared.global [ %r1 + 0 ], [ %rd1 + 0 ], 0x10, %r2;\n";
    let waits = "\tmbarrier.try_wait.parity.shared.b64 %p2, [%r22], %r221;\n";
    let ends = "\tmbarrier.inval.shared::cta.b64 [%r8];\n\tret;";
    let options = CompileOptions { num_warps: 8, num_stages: 3, descriptors: true };
    let start = start::start(&artifact.spec, contract(), options, Arch::Sm90);
    artifact.ptx = PTX
        .replace("// %bb.0:\n", &start)
        .replace(".param .u64 .ptr .global .align 1 linear_param_0", ".param .align 64 .b8 linear_param_0[128]")
        .replace(".param .u64 .ptr .global .align 1 linear_param_2", ".param .align 64 .b8 linear_param_2[128]")
        .replace(".reqntid 128", ".reqntid 256")
        .replace("$L__BB0_2:\n", &format!("{begin}{stage}{stage}$L__BB0_2:\n{waits}"))
        .replace(threads, &stage)
        .replace("\tret;", ends);
    let copies = "        /*0050*/                   UTMALDG.2D [UR16], [UR4], desc[URZ] ;\n".repeat(6);
    artifact.sass = format!("{SASS}{copies}");
    let tile = |param: usize| {
        let ty = "!tt.tensordesc<tensor<128x64xbf16, #shared>>, !ttg.memdesc<1xi64, #s1, #smem, mutable>";
        format!(
            "ttng.async_tma_copy_global_to_local %arg{param}[%2, %c0] %13, %10, %true : {ty} -> !ttg.memdesc<128x64xbf16, #shared, #smem, mutable>\n"
        )
    };
    let stage = |margin: &str| format!("{margin}{}{margin}{}", tile(0), tile(2));
    let map = "!tt.tensordesc<tensor<128x64xbf16, #shared>>";
    artifact.ttgir = format!(
        "#shared = #ttg.nvmma_shared<{{swizzlingByteWidth = 128, transposed = false, elementBitWidth = 16}}>\nmodule {{\n  \
         tt.func public @linear(%arg0: {map}, %arg1: !tt.ptr<i32>, %arg2: {map}, %arg3: !tt.ptr<bf16>) {{\n{0}{0}    \
         scf.for %arg4 = %c0 to %c576 step %c64 {{\n      ttng.wait_barrier %9, %8\n      \
         %10 = ttng.warp_group_dot %1, %2, %arg6\n{1}    }}\n  }}\n}}\n",
        stage("    "),
        stage("      ")
    );
    artifact.metadata.num_warps = 8;
    artifact.metadata.num_stages = 3;
    let of = |param| Descriptor { param, tile: [128, 64], elem: 2, swizzle: 128 };
    artifact.metadata.descriptors = vec![of(0), of(2)];
    artifact
}

#[test]
fn a_kernel_that_copies_by_descriptor_passes_and_may_replace_one_that_does_not() {
    let facts = inspect(&copied(), contract(), Arch::Sm90).unwrap();
    assert_eq!((facts.params, facts.async_copies, facts.in_flight, facts.ahead), (6, 6, 32_768, 0));
    let mut low = sound();
    low.ttgir = low.ttgir.replace("tt.reduce", "tt.other");
    let low = inspect(&low, contract(), Arch::Sm90).unwrap();
    assert_eq!(interchangeable(&low, &facts), Ok(()));
    let mut other = copied();
    other.ptx = other.ptx.replace("m64n128k16", "m64n128k8");
    let other = inspect(&other, contract(), Arch::Sm90).unwrap();
    assert!(matches!(interchangeable(&low, &other), Err(Refusal::OtherKinds { .. })));
}

#[test]
fn each_breach_of_copies_by_descriptor_is_refused_by_name() {
    type Field = fn(&mut Artifact) -> &mut String;
    let (ptx, sass, ttgir): (Field, Field, Field) = (|a| &mut a.ptx, |a| &mut a.sass, |a| &mut a.ttgir);
    let copy = "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%r13], [%rd3";
    let cases: [(Field, &str, &str, &str); 26] = [
        (
            ptx,
            ".param .align 64 .b8 linear_param_0[128]",
            ".param .u64 linear_param_0",
            "maps at [0, 2], its PTX takes 6 (.u64",
        ),
        (ptx, "linear_param_2[128]", "linear_param_2[64]", "maps at [0, 2], its PTX takes 6 (map .u64 .align"),
        (ptx, ".param .align 64 .b8 linear_param_0", ".param .align 32 .b8 linear_param_0", "6 (.align"),
        (
            ptx,
            ".param .u64 .ptr .global .align 1 linear_param_3",
            ".param .align 64 .b8 linear_param_3[128]",
            "map map .u64",
        ),
        (
            ptx,
            copy,
            "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%r13], [%rd9",
            "of parameter 0 it copies 0 boxes for 3",
        ),
        (
            ptx,
            copy,
            "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%r13], [%rd4",
            "of parameter 0 it copies 0 boxes for 3",
        ),
        (ptx, "cvta.param.u64 \t%rd3, %rd15", "cvta.param.u64 \t%rd3, %rd16", "of parameter 0 it copies 0 boxes"),
        (
            ptx,
            "cvta.param.u64 \t%rd3, %rd15;",
            "cvta.param.u64 \t%rd3, %rd15;\n\tadd.s64 %rd3, %rd3, 128;",
            "of parameter 0 it copies 0",
        ),
        (ptx, "mov.b64 \t%rd15, linear_param_0", "mov.b64 \t%rd15, linear_param_3", "of parameter 0 it copies 0"),
        (
            ptx,
            "\tret;",
            &format!("\t{copy}, {{%r1, %r2}}], [%r8];\n\tret;"),
            "of parameter 0 it copies 4 boxes for 3 tiles",
        ),
        (
            ptx,
            "\tret;",
            &format!("\t{}, {{%r1, %r2}}], [%r8];\n\tret;", copy.replace("%rd3", "%rd9")),
            "6 of its 7 copies are through them",
        ),
        (
            ptx,
            ".tensor.2d.",
            ".tensor.3d.",
            "it has `cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes` beside",
        ),
        (
            ptx,
            "\tret;",
            "\tcp.async.cg.shared.global [%r1], [%rd1], 16;\n\tret;",
            "it has `cp.async.cg.shared.global` beside",
        ),
        (
            ptx,
            "\tret;",
            "\tcp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%rd3, {%r1, %r2}], [%r3];\n\tret;",
            "`cp.async.bulk.tensor.2d.global",
        ),
        (ptx, "\tret;", "\tmbarrier.arrive.shared.b64 _, [%r8];\n\tret;", "it has `mbarrier.arrive.shared.b64` beside"),
        (
            ptx,
            "\tret;",
            "\ttensormap.replace.tile.global_address.global.b1024.b64 [%rd3], %rd1;\n\tret;",
            "it has `tensormap.replace",
        ),
        (ptx, "[%r8], 32768", "[%r8], 32752", "waits for Some(98256) bytes and copies 98304"),
        (ptx, "[%r8], 32768", "[%r8], %r9", "waits for None bytes"),
        (sass, "UTMALDG.2D", "UTMALDG.3D", "it has `UTMALDG.3D` beside"),
        (sass, "REDUX.SUM", "UTMASTG.2D", "it has `UTMASTG.2D` beside"),
        (sass, "REDUX.SUM UR4, R3", "UTMALDG.2D [UR16], [UR4]", "and 7 in machine code"),
        (ttgir, "swizzlingByteWidth = 128", "swizzlingByteWidth = 64", "its TTGIR has (0, [128, 64], 64)"),
        (ttgir, "transposed = false", "transposed = true", "its TTGIR has 0 of them, and its record 2"),
        (
            ttgir,
            "%arg0: !tt.tensordesc<tensor<128x64x",
            "%arg0: !tt.tensordesc<tensor<64x64x",
            "its TTGIR has (0, [64, 64], 128)",
        ),
        (ttgir, "local %arg2[", "local %arg5[", "of parameter 2 it copies 3 boxes for 0 tiles"),
        (ttgir, "ttng.wait_barrier", "ttng.arrive_barrier", "waits otherwise than once"),
    ];
    for (field, from, to, says) in cases {
        let mut broken = copied();
        let text = field(&mut broken);
        assert!(text.contains(from), "{from}");
        *text = text.replace(from, to);
        let refused = refusal(&broken).to_string();
        assert!(refused.contains(says), "{to}: {refused}");
    }
    type Breach = fn(&mut Artifact);
    let breaches: [(Breach, &str); 12] = [
        (|a| a.metadata.descriptors.clear(), "its PTX takes 6 (map"),
        (|a| _ = a.metadata.descriptors.pop(), "with tensor maps at [0], its PTX takes"),
        (|a| a.metadata.descriptors.swap(0, 1), "not in the parameters' order"),
        (|a| a.metadata.descriptors[0].swizzle = 64, "no tensor map can be"),
        (
            |a| a.metadata.descriptors[0].swizzle = 0,
            "its TTGIR has (0, [128, 64], 128), and its record (0, [128, 64], 0)",
        ),
        (|a| a.metadata.descriptors[0].swizzle = 96, "no tensor map can be"),
        (|a| a.metadata.descriptors[0].elem = 4, "no tensor map can be"),
        (|a| a.metadata.descriptors[0].tile = [512, 64], "no tensor map can be"),
        (|a| a.metadata.descriptors[0].tile = [64, 64], "and its record (0, [64, 64], 128)"),
        (|a| a.metadata.descriptors[0].tile = [0, 64], "no tensor map can be"),
        (|a| a.metadata.descriptors[0].tile = [128, 4], "no tensor map can be"),
        // Rows of 1,160 bytes.
        (
            |a| {
                a.spec.constants.insert("K".into(), 580.into());
                a.ttir = vosti_kernels::ttir(&a.spec).unwrap().into();
            },
            "no tensor map can be",
        ),
    ];
    for (breach, says) in breaches {
        let mut broken = copied();
        breach(&mut broken);
        let refused = refusal(&broken).to_string();
        assert!(refused.contains(says), "{says}: {refused}");
    }
    // Copies by descriptor in a kernel whose record has none, and on a target that has none.
    let mut broken = sound();
    broken.sass = broken.sass.replace("REDUX.SUM", "UBLKCP");
    assert!(refusal(&broken).to_string().contains("it has `UBLKCP`, and its record has no descriptor"));
    let mut broken = sound();
    broken.ptx = broken.ptx.replace("\tret;", &format!("\t{copy}, {{%r1, %r2}}], [%r8];\n\tret;"));
    assert!(refusal(&broken).to_string().contains("and its record has no descriptor"));
    let mut other = copied();
    for text in [&mut other.ptx, &mut other.sass, &mut other.metadata.target] {
        *text = text.replace("sm_90a", "sm_80").replace("EF_CUDA_SM90", "EF_CUDA_SM80");
    }
    other.metadata.launch_pdl = false;
    let refused = inspect(&other, contract(), Arch::Sm80).unwrap_err().to_string();
    assert!(refused.contains("it needs copies by descriptor, which the launcher does not do"), "{refused}");
}
