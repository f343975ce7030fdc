//! A few of SmolLM2's kernels, compiled and checked as `vosti prepare` does; needs Triton, and no GPU.

use vosti_contract::Contract;
use vosti_cubin::inspect::interchangeable;
use vosti_cubin::toolchain::REQUIREMENT;
use vosti_cubin::{Arch, Artifact, Copies, Cubin, Descriptor, Toolchain, inspect};
use vosti_kernels::{Spec, parse_stem, ttir, ttir_hash};

const TARGET: &str = "cuda-sm90";

fn contract(artifact: &Artifact) -> &'static Contract {
    vosti_kernels::contract(&artifact.spec.kernel).unwrap()
}

fn toolchain() -> Option<Toolchain> {
    vosti_test_tools::python(REQUIREMENT).map(Toolchain::with_python)
}

/// Both launches of attention and the one that folds its own splits, a matrix product with its lowest and its highest tile, one in integers with multiply-adds of its
/// own, and a kernel over rows.
fn specs() -> Vec<Spec> {
    let stems = [
        "attend-bf16-BQ16-CAP0.0-CAPPED0-D64-DP64-GP4-GROUP3-HEIGHT16-KV_HEADS3-PAGE64-ROWS512-SINKS0-SLOPE0.18033688-SPAN0.0-SPLIT512-USE0-WINDOW1",
        "attend-bf16-BQ16-CAP0.0-CAPPED0-D64-DP64-GP4-GROUP3-HEIGHT16-KV_HEADS3-PAGE64-ROWS512-SINKS0-SLOPE0.18033688-SPAN0.0-SPLIT512-USE2-WINDOW1",
        "attend_combine-bf16-BQ1-D64-DP64-GP4-GROUP3-HEIGHT1-KV_HEADS3-ROWS512-SINKS0-SPLIT512",
        "linear_add-bf16-BK64-BM16-BN64-K576-N576-SCALE1.0-SWAP1",
        "linear_add-bf16-BK64-BM128-BN128-K576-N576-SCALE1.0-SWAP1",
        "linear_int-bf16-BLOCKS18-BM64-BN64-HALVES1-N576-OFFSETS1-WIDE1",
        "rmsnorm-bf16-BH4096-BM1-EPS1e-5-H576",
    ];
    stems.map(|stem| parse_stem(stem).unwrap()).into()
}

/// Whether a kernel has matrix products.
fn has_dots(spec: &Spec) -> bool {
    !["rmsnorm", "attend_combine"].contains(&spec.kernel.as_str())
}

fn compile(tool: &Toolchain) -> Vec<Artifact> {
    tool.compile_checked_in(TARGET, &specs()).unwrap()
}

/// All targets compile the same texts, so one proof of a text is valid for each.
#[test]
fn the_other_targets_compile_the_same_texts_and_pass_their_checks() {
    let Some(tool) = toolchain() else { return };
    // Rows without a remainder: pairs of floats, which sm100's assembler would fuse.
    let whole = parse_stem("rmsnorm-bf16-BH4096-BM1-EPS1e-5-H4096").unwrap();
    let specs: Vec<Spec> = specs().into_iter().chain([whole]).collect();
    for arch in [Arch::Sm80, Arch::Sm86, Arch::Sm89, Arch::Sm100, Arch::Sm120] {
        let artifacts = tool.compile_checked_in(&format!("cuda-{arch}"), &specs).unwrap();
        for artifact in artifacts {
            let facts = inspect(&artifact, contract(&artifact), arch).unwrap();
            println!("{arch} {}: {facts:?}", artifact.spec);
            assert_eq!(facts.matrix_instructions > 0, has_dots(&artifact.spec), "{arch} {}", artifact.spec);
            // What is made for one is refused for another.
            assert!(inspect(&artifact, contract(&artifact), Arch::Sm90).is_err());
        }
    }
}

/// Gemma's heads of 256 fit every target, with a page being loaded where two fit. So do heads of 512, with the instruction of
/// half a tile. If a block has 99 KiB, values take the place of keys in shared memory, after the first product.
#[test]
fn large_heads_fit_every_target() {
    let Some(tool) = toolchain() else { return };
    let inspected = |arch: Arch, stem: &str| {
        let spec = parse_stem(stem).unwrap();
        let artifacts = tool.compile_checked_in(&format!("cuda-{arch}"), &[spec]).unwrap();
        let stores = |line: &&str| line.contains("ttg.local_alloc %") || line.contains(" = tt.dot ");
        let order: Vec<bool> = artifacts[0].ttgir.lines().filter(stores).map(|line| line.contains("tt.dot")).collect();
        (inspect(&artifacts[0], contract(&artifacts[0]), arch).unwrap(), order)
    };
    let of_256 = "attend-bf16-BQ32-CAP0.0-CAPPED0-D256-DP256-GP2-GROUP2-HEIGHT32-KV_HEADS4-PAGE64-ROWS512-SINKS0-SLOPE0.09016844-SPAN0.0-SPLIT512-USE0-WINDOW1";
    let of_512 = "attend-bf16-BQ4-CAP0.0-CAPPED0-D512-DP512-GP8-GROUP8-HEIGHT4-KV_HEADS4-PAGE64-ROWS512-SINKS0-SLOPE1.442695-SPAN0.0-SPLIT512-USE0-WINDOW1";
    for (arch, under_way) in
        [(Arch::Sm80, 0), (Arch::Sm89, 0), (Arch::Sm120, 0), (Arch::Sm90, 65_540), (Arch::Sm100, 65_544)]
    {
        assert_eq!(inspected(arch, of_256).0.in_flight, under_way, "{arch}");
    }
    for arch in Arch::ALL {
        let (facts, order) = inspected(arch, of_512);
        println!("{arch}: {facts:?}");
        assert_eq!((facts.threads, facts.matrix_instructions > 0), (256, true), "{arch}");
        // Queries, keys, values, the product, weights, the product; or queries, keys, the product, weights, values, the product.
        let (bytes, late) = if arch.shared_bytes_max() < 163_840 { (98_304, 2) } else { (163_840, 3) };
        assert_eq!((facts.shared_dynamic, order.iter().position(|dot| *dot)), (bytes, Some(late)), "{arch}");
    }
}

/// A program has registers for 64 columns of a state, with the page's entries beside them: the largest state of each kernel that
/// GPUs have a text for, and a slice of a head of 80.
#[test]
fn states_fit_every_target() {
    let Some(tool) = toolchain() else { return };
    let stems = [
        "read_state-bf16-BK32-BQ16-DK256-DP64-DV64-GROUP2-HEIGHT16-KEY_HEADS16-PAGE64",
        "read_state-bf16-BK32-BQ16-DK128-DP64-DV40-GROUP32-HEIGHT16-KEY_HEADS8-PAGE64",
        "store_delta-bf16-ACROSS1-DK128-DV64-GROUP4-KEY_HEADS16-PAGE64",
        "store_mamba-bf16-DK256-DP64-DV64-GROUP2-KEY_HEADS16-PAGE64",
        "store_mamba-bf16-DK128-DP64-DV40-GROUP32-KEY_HEADS8-PAGE64",
    ];
    let specs = stems.map(|stem| parse_stem(stem).unwrap());
    for arch in Arch::ALL {
        for artifact in tool.compile_checked_in(&format!("cuda-{arch}"), &specs).unwrap() {
            let facts = inspect(&artifact, contract(&artifact), arch).unwrap();
            println!("{arch} {}: {facts:?}", artifact.spec);
        }
    }
}

/// A loop without matrix products loads ahead too: the kernel that combines splits loads the next splits, of four heads each.
#[test]
fn the_combination_of_splits_has_the_next_ones_on_their_way() {
    let Some(tool) = toolchain() else { return };
    let spec =
        parse_stem("attend_combine-bf16-BQ1-D128-DP128-GP4-GROUP4-HEIGHT1-KV_HEADS8-ROWS512-SINKS0-SPLIT512").unwrap();
    for arch in Arch::ALL {
        let artifacts = tool.compile_checked_in(&format!("cuda-{arch}"), std::slice::from_ref(&spec)).unwrap();
        // A split's weighted sums, and what is little beside them.
        assert_eq!(
            inspect(&artifacts[0], contract(&artifacts[0]), arch).unwrap().in_flight / (4 * 128 * 4),
            14,
            "{arch}"
        );
    }
}

/// A kernel that spills at the assembler's usual level is assembled at its first level: attention in one launch with
/// sixteen query heads to a KV head.
#[test]
fn a_kernel_that_spills_is_assembled_with_less_optimisation() {
    let Some(tool) = toolchain() else { return };
    let stem = "attend-bf16-BQ4-CAP50.0-CAPPED0-D64-DP64-GP16-GROUP16-HEIGHT4-KV_HEADS8-PAGE64-ROWS512-SINKS0-SLOPE0.18033688-SPAN100.0-SPLIT512-USE2-WINDOW1024";
    let spec = parse_stem(stem).unwrap();
    for (arch, level) in [(Arch::Sm90, 3), (Arch::Sm80, 1), (Arch::Sm89, 1)] {
        let artifacts = tool.compile_checked_in(&format!("cuda-{arch}"), std::slice::from_ref(&spec)).unwrap();
        inspect(&artifacts[0], contract(&artifacts[0]), arch).unwrap();
        assert_eq!(artifacts[0].metadata.ptxas_level, level, "{arch}");
    }
}

/// Every kernel whose high tiles are copied by descriptor, in both ways; either may run in the other's place. A text whose tiles move or
/// are padded otherwise than by the form that `compile.py` knows is refused.
#[test]
fn high_products_are_copied_by_descriptor_or_by_threads() {
    let Some(tool) = toolchain() else { return };
    let stems = [
        "linear-bf16-BK64-BM256-BN128-K576-N960-SWAP1",
        "linear_add-bf16-BK64-BM256-BN128-K1536-N576-SCALE1.0-SWAP1",
        "linear_bias-bf16-BK64-BM128-BN128-K576-N960-SWAP1",
        "linear_glu-bf16-ACT1-BK64-BM128-BN128-K576-N1536-SWAP1",
        "linear_logits-bf16-BK64-BM128-BN128-CAP30.0-CAPPED1-K576-N4096-SLOPE0.0625-SPAN60.0-SWAP1",
    ];
    let specs = stems.map(|stem| parse_stem(stem).unwrap());
    let [by_descriptor, by_threads] = [Copies::Descriptors, Copies::Threads]
        .map(|copies| tool.clone().copying(copies).compile_checked_in(TARGET, &specs).unwrap());
    for (one, other) in by_descriptor.iter().zip(&by_threads) {
        let [own, facts] = [one, other].map(|artifact| inspect(artifact, contract(artifact), Arch::Sm90).unwrap());
        println!("{}: {own:?}", one.spec);
        assert!(own.async_copies < 10 && facts.async_copies >= 24, "{}", one.spec);
        // The same stages, and so the same bytes under way.
        assert_eq!((own.in_flight, own.blocks), (facts.in_flight, facts.blocks), "{}", one.spec);
        assert_eq!(interchangeable(&facts, &own), Ok(()));
        let rows = |param: usize| if param == 0 { int(&one.spec, "BM") } else { 128 };
        let weight = contract(one).params.iter().position(|param| param.name == "w").unwrap();
        let of = |param| Descriptor { param, tile: [rows(param), 64], elem: 2, swizzle: 128 };
        assert_eq!((&one.metadata.descriptors, &other.metadata.descriptors), (&vec![of(0), of(weight)], &vec![]));
    }
    let text = &*ttir(&specs[0]).unwrap();
    let broken = [
        (", padding = 1 : i32", "", "tt.load"),
        ("%c64_i32 = arith.constant 64 : i32", "%c64_i32 = arith.constant 32 : i32", "moves otherwise"),
        ("xbf16>>", "xf16>>", "tt.make_tensor_ptr"),
        (
            "%m = tt.load %rows : !tt.ptr<i32>",
            "%m = tt.load %rows : !tt.ptr<i32>\n    %y = tt.load %x : !tt.ptr<bf16>",
            "%x is used otherwise",
        ),
        (" scf.for ", " scf.other ", "it has not one loop with block pointers"),
    ];
    for (from, to, says) in broken {
        assert!(text.contains(from), "{from}");
        let compiled = tool.compile(TARGET, &[(specs[0].clone(), &text.replace(from, to))]);
        let refused = compiled.unwrap_err().to_string();
        assert!(refused.contains("cannot copy the tiles of linear-") && refused.contains(says), "{says}: {refused}");
    }
}

fn int(spec: &Spec, name: &str) -> u32 {
    match spec.constants[name] {
        vosti_contract::Const::Int(value) => value as u32,
        other => panic!("{name} is {other:?}"),
    }
}

#[test]
fn proved_kernels_compile_and_pass_every_check() {
    let Some(tool) = toolchain() else { return };
    for artifact in compile(&tool) {
        let facts = inspect(&artifact, contract(&artifact), Arch::Sm90).unwrap();
        println!("{}: {facts:?}", artifact.spec);
        let text = &*ttir(&artifact.spec).unwrap();
        assert_eq!(artifact.hashes().ttir, ttir_hash(text).to_hex().to_string());
        let cubin = Cubin::of(artifact.clone(), contract(&artifact), Arch::Sm90).unwrap();
        let read = |ttir: &str, code: Vec<u8>| Cubin::read(&cubin.spec, ttir, &cubin.record_json(), code);
        assert_eq!(read(text, cubin.code.clone()).unwrap(), cubin);
        let other = read(&text.replacen("arith.constant", "arith.constants", 1), cubin.code.clone());
        assert!(other.unwrap_err().to_string().contains("compiled from another TTIR"));
        let other = read(text, cubin.code[1..].to_vec()).unwrap_err().to_string();
        assert!(other.contains("other machine code"), "{other}");
        assert_eq!(facts.matrix_instructions > 0, has_dots(&artifact.spec), "{}", artifact.spec);
        assert_eq!(facts.in_flight > 0, artifact.spec.kernel != "rmsnorm", "{}", artifact.spec);
        let reduces = !["linear_add", "linear_int", "attend_combine"].contains(&artifact.spec.kernel.as_str());
        assert_eq!(!facts.reductions.is_empty(), reduces, "{}", artifact.spec);
    }
}

#[test]
fn one_text_gives_one_machine_code() {
    let Some(tool) = toolchain() else { return };
    let (once, again) = (compile(&tool), compile(&tool));
    for (a, b) in once.iter().zip(&again) {
        assert_eq!(a.hashes(), b.hashes(), "{}", a.spec);
    }
}

#[test]
fn a_text_that_is_not_the_kernels_is_refused() {
    let Some(tool) = toolchain() else { return };
    let spec = specs().pop().unwrap();
    let text = ttir(&spec).unwrap();
    let garbage = tool.compile(TARGET, &[(spec.clone(), "module {")]);
    assert!(garbage.is_err());
    // The compiler takes this one, and the checks do not.
    let unaligned = text.replace(" {tt.divisibility = 16 : i32}", "");
    let compiled = tool.compile(TARGET, &[(spec, &unaligned)]).unwrap();
    let refused = inspect(&compiled[0], contract(&compiled[0]), Arch::Sm90).unwrap_err().to_string();
    assert!(refused.contains("not declared divisible by 16"), "{refused}");
}
