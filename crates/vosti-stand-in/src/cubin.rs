//! Cubins for the stand-in: their machine code is their TTIR.

use crate::{TARGET, maps};
use std::collections::BTreeMap;
use vosti_contract::{Const, Role};
use vosti_cubin::{Cubin, Descriptor, Facts, Hashes, Metadata, Record};
use vosti_kernels::{CompileOptions, Spec, compile_options, ttir, ttir_hash};
use vosti_model::ModelPlan;

/// A cubin whose machine code is its TTIR, which the stand-in executes, with the mark of a kernel that waits. The
/// compiler's numbers are invented, except those that
/// the target's table fixes.
pub fn cubin(spec: &Spec) -> Cubin {
    let text = &*ttir(spec).unwrap_or_else(|| panic!("{spec}"));
    // Specialisations of another target are not in the table.
    let options =
        compile_options(TARGET, spec).unwrap_or(CompileOptions { num_warps: 4, num_stages: 1, descriptors: false });
    let params = vosti_kernels::contract(&spec.kernel).unwrap().params.len();
    let metadata = Metadata {
        name: spec.kernel.clone(),
        shared: if options.num_stages > 1 { 98_304 } else { 4096 },
        num_warps: options.num_warps,
        num_ctas: 1,
        num_stages: options.num_stages,
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
        descriptors: if options.descriptors { descriptors(spec) } else { vec![] },
    };
    let facts = Facts {
        params: params + 2,
        threads: 32 * options.num_warps,
        registers: 100,
        shared_dynamic: metadata.shared,
        shared_static: 0,
        matrix_instructions: 0,
        matrix_kinds: vec![],
        async_copies: 0,
        in_flight: 0,
        ahead: 0,
        blocks: 1,
        reductions: vec![],
    };
    let code = format!("{}{text}", maps::marks(spec, &metadata)).into_bytes();
    let hash = |bytes: &[u8]| blake3::hash(bytes).to_hex().to_string();
    let hashes =
        Hashes { ttir: ttir_hash(text).to_hex().to_string(), ttgir: hash(b""), ptx: hash(b""), cubin: hash(&code) };
    let record = Record { hashes, metadata, facts, executed: None };
    Cubin { spec: spec.clone(), ttir: text.into(), code, record }
}

/// What the compiler makes descriptors of: the matrices of a product, with tiles of BK columns.
fn descriptors(spec: &Spec) -> Vec<Descriptor> {
    let int = |name: &str| match spec.constants.get(name) {
        Some(Const::Int(value)) => *value as u32,
        _ => 0,
    };
    let contract = vosti_kernels::contract(&spec.kernel).unwrap();
    let params = contract.params.iter().enumerate();
    let matrix = |(param, own): (usize, &vosti_contract::Param)| {
        let rows = match own.role {
            Role::In(_) if contract.shapes[&own.name].ends_with(&["K".into()]) => int("BM"),
            Role::Weight(_) if contract.shapes[&own.name].ends_with(&["K".into()]) => int("BN"),
            _ => return None,
        };
        Some(Descriptor { param, tile: [rows, int("BK")], elem: 2, swizzle: 128 })
    };
    params.filter_map(matrix).collect()
}

/// The cubins of a plan, by specialisation.
pub fn cubins(plan: &ModelPlan) -> BTreeMap<String, Cubin> {
    vosti_model::plan::specs(plan).iter().map(|spec| (spec.to_string(), cubin(spec))).collect()
}
