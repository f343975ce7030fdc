//! No op runs a kernel without a fresh certificate that fits it: each way to be wrong is refused by name.

use std::collections::BTreeMap;
use vosti_admission::manifest::{File, Kernel, Manifest, Model};
use vosti_admission::{Bundle, BundleError, op_contract};
use vosti_contract::Const;
use vosti_core::{BufferDecl, Dtype, Op};
use vosti_kernels::{Admitted, Scratch, Spec, specialise};
use vosti_model::{ModelPlan, Recipe, Target};
use vosti_verify::{Assumption, Certificate, CertificateError, certificate::Probed};

/// A plan of a published model: gemma has layers with a window and without.
fn plan(name: &str, context: u32) -> ModelPlan {
    plan_for("cpu", name, context)
}

fn plan_for(target: &str, name: &str, context: u32) -> ModelPlan {
    let path = format!("{}/../vosti-model/configs/{name}.json", env!("CARGO_MANIFEST_DIR"));
    let config = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    let decoder = vosti_model::families::from_config(name, &config).unwrap();
    vosti_model::plan(&decoder, &Target::named(target).with_choices(), Some(context)).unwrap()
}

fn gemma() -> ModelPlan {
    plan("gemma-3-270m", 1024)
}

fn bundle() -> Bundle {
    Bundle::built_in().unwrap()
}

fn kernel_of(plan: &ModelPlan, wanted: impl Fn(&Op) -> bool) -> (usize, String) {
    let index = plan.program.ops.iter().position(wanted).unwrap();
    let k = plan.program.ops[index].uses().binding as usize;
    (index, plan.bindings[k].launches[0].spec.text().to_string())
}

/// The specialisation that the first launch of an op runs.
fn first_of(plan: &mut ModelPlan, index: usize) -> &mut Spec {
    let k = plan.program.ops[index].uses().binding as usize;
    &mut plan.bindings[k].launches[0].spec
}

/// One line that names the kernel.
fn refused<T: std::fmt::Debug>(result: Result<T, BundleError>, parts: &[&str]) {
    let message = result.expect_err("it must be refused").to_string();
    assert!(!message.contains('\n'), "{message}");
    for part in parts {
        assert!(message.contains(part), "{part:?} is not in {message}");
    }
}

#[test]
fn every_model_whose_configuration_is_checked_in_is_admitted() {
    let configs = format!("{}/../vosti-model/configs", env!("CARGO_MANIFEST_DIR"));
    let (bundle, mut seen) = (bundle(), 0);
    for path in std::fs::read_dir(configs).unwrap().map(|entry| entry.unwrap().path()) {
        if path.extension().is_some_and(|end| end == "json") {
            let name = path.file_stem().unwrap().to_str().unwrap();
            bundle.admit(&plan(name, 1024)).unwrap_or_else(|error| panic!("{name}: {error}"));
            seen += 1;
        }
    }
    assert!(seen >= 17, "{seen}");
}

#[test]
fn a_kernel_without_a_certificate_is_refused() {
    let plan = gemma();
    let (_, kernel) = kernel_of(&plan, |op| matches!(op, Op::Attend { .. }));
    let mut certificates = bundle().certificates().clone();
    certificates.remove(&kernel);
    let refusal = bundle().with_certificates(certificates).admit(&plan);
    refused(refusal, &["no certificate", &kernel, "vosti verify --record"]);
}

/// The number of rows decides which of them runs.
#[test]
fn row_tiles_that_are_not_proved_to_give_the_bits_of_the_lowest_are_refused() {
    let plan = plan_for("cuda-sm90", "smollm2-135m", 1024);
    bundle().admit(&plan).unwrap();
    let launch = plan.bindings.iter().flat_map(|b| &b.launches).find(|launch| !launch.higher.is_empty()).unwrap();
    let (first, higher) = (launch.spec.text().to_string(), launch.higher[1].text().to_string());
    let shown = launch.higher[1].to_string();
    let with = |change: fn(&mut Certificate)| {
        let mut certificates = bundle().certificates().clone();
        change(certificates.get_mut(&higher).unwrap());
        bundle().with_certificates(certificates).admit(&plan)
    };
    let alone = |c: &mut Certificate| {
        c.stands_for.clear();
        let pairs = [Assumption::DotHeightIndependent, Assumption::TextsLaidOutAlike];
        c.assumptions.retain(|assumed| !pairs.contains(&assumed.name));
    };
    refused(with(alone), &["does not say that it gives the bits", &first, &shown]);
    refused(with(|c| c.stands_for[0].ttir_hash = "0".repeat(64)), &["does not say that", &first, &shown]);
    refused(with(|c| c.stands_for[0].kernel.push('0')), &["does not say that", &first, &shown]);
}

/// They are proved to give the same bits only where their numbers are equal.
#[test]
fn row_tiles_of_other_numbers_are_refused() {
    let with = |name: &str, value: Option<Const>| {
        let mut plan = plan_for("cuda-sm90", "smollm2-135m", 1024);
        let mut launches = plan.bindings.iter_mut().flat_map(|b| &mut b.launches);
        let launch = launches.find(|launch| launch.spec.kernel == "linear_logits").unwrap();
        let own = launch.higher[0].constants.remove(name).unwrap();
        launch.higher[0].constants.insert(name.into(), value.unwrap_or(own));
        bundle().admit(&plan)
    };
    with("SLOPE", None).unwrap();
    for name in ["SLOPE", "CAP", "SPAN"] {
        refused(with(name, Some(Const::Float(0.375))), &["linear_logits", &format!("{name} is 0.375 in it, and ")]);
    }
}

/// One text is proved for all dimensions in a range, so admission checks a model's dimensions.
#[test]
fn dimensions_out_of_the_proved_range_or_not_the_models_are_refused_by_name() {
    let with = |name: &str, value: Const| {
        let mut plan = gemma();
        let mut launches = plan.bindings.iter_mut().flat_map(|b| &mut b.launches);
        let launch = launches.find(|launch| launch.spec.kernel == "linear").unwrap();
        assert!(launch.spec.constants.insert(name.into(), value).is_some());
        bundle().admit(&plan)
    };
    refused(with("K", Const::Int((1 << 20) + 1)), &["linear-bf16", "K is 1048577", "proved for 1 to 1048576"]);
    refused(with("N", Const::Int(0)), &["linear-bf16", "N is 0", "proved for 1 to 1048576"]);
    refused(with("N", Const::Int(i64::MIN)), &["linear-bf16", "proved for 1 to 1048576"]);
    refused(with("K", Const::Float(640.0)), &["linear-bf16", "K is 640.0"]);
    refused(with("K", Const::Int(639)), &["linear-bf16", "is 639 wide"]);
}

#[test]
fn a_certificate_of_another_text_is_refused() {
    let plan = gemma();
    let (_, kernel) = kernel_of(&plan, |op| matches!(op, Op::StoreKv { .. }));
    let text = bundle().ttir(&kernel).unwrap().replacen("dense<0.000000e+00>", "dense<1.000000e+00>", 1);
    assert_ne!(text, bundle().ttir(&kernel).unwrap());
    refused(bundle().with_ttir(&kernel, &text).admit(&plan), &["another TTIR", &kernel]);
}

#[test]
fn text_that_does_not_lift_is_refused() {
    let plan = gemma();
    let (_, kernel) = kernel_of(&plan, |op| matches!(op, Op::Embed { .. }));
    refused(bundle().with_ttir(&kernel, "module {\n  hello\n}\n").admit(&plan), &[&kernel]);
}

#[test]
fn a_forged_certificate_is_refused() {
    type Forgery = fn(&mut vosti_verify::Certificate);
    let forgeries: [(&str, Forgery); 6] = [
        ("another TTIR", |c| c.ttir_hash = "0".repeat(64)),
        ("another verifier", |c| c.verifier = "vosti-verify 0.1.0 00000000".into()),
        ("another contract", |c| c.contract.shape = "rowwise".into()),
        ("another set of constants", |c| _ = c.constants.insert("WINDOW".into(), "7".into())),
        ("another set of bounds", |c| _ = c.bounds.insert("context".into(), i64::MAX)),
        ("is of format", |c| c.format = "vosti-certificate/0".into()),
    ];
    let plan = gemma();
    let (_, kernel) = kernel_of(&plan, |op| matches!(op, Op::Attend { .. }));
    for (part, forge) in forgeries {
        let mut certificates = bundle().certificates().clone();
        forge(certificates.get_mut(&kernel).unwrap());
        refused(bundle().with_certificates(certificates).admit(&plan), &[part, &kernel]);
    }
}

#[test]
fn an_op_bound_to_a_kernel_of_another_shape_is_refused() {
    let find = |plan: &ModelPlan, wanted: fn(&Op) -> bool| {
        plan.program.ops.iter().find(|op| wanted(op)).unwrap().uses().binding
    };
    let plan = gemma();
    let embed = find(&plan, |op| matches!(op, Op::Embed { .. }));
    let rowwise = find(&plan, |op| matches!(op, Op::Rowwise { .. }));
    let store = find(&plan, |op| matches!(op, Op::StoreKv { .. }));
    let attend = find(&plan, |op| matches!(op, Op::Attend { .. }));
    let cases = [
        ("Embed", attend, "the shape Attend"),
        ("Embed", rowwise, "`x` has the role In(0)"),
        ("Rowwise", attend, "the shape Attend"),
        ("Rowwise", embed, "`tokens` has the role Tokens"),
        ("StoreKv", rowwise, "the shape Rowwise"),
        ("Attend", store, "the shape StoreKv"),
    ];
    for (name, other, part) in cases {
        let mut plan = gemma();
        let op = plan.program.ops.iter_mut().find(|op| op_contract::name(op) == name).unwrap();
        match op {
            Op::Embed { k, .. } | Op::Rowwise { k, .. } | Op::StoreKv { k, .. } | Op::Attend { k, .. } => *k = other,
        }
        refused(bundle().admit(&plan), &[part, &format!("({name})")]);
    }
}

#[test]
fn attention_over_another_window_is_refused() {
    let windowed = |op: &Op| matches!(op, Op::Attend { window: Some(_), .. });
    let full = |op: &Op| matches!(op, Op::Attend { window: None, .. });
    for (wanted, forged, part) in [
        (&windowed as &dyn Fn(&Op) -> bool, Some(511), "a window of 512, the op has a window of 511"),
        (&windowed, None, "a window of 512, the op has no window"),
        (&windowed, Some(0), "shows nothing"),
        (&full, Some(512), "no window, the op has a window of 512"),
    ] {
        let mut plan = gemma();
        let (index, _) = kernel_of(&plan, wanted);
        let kernel = first_of(&mut plan, index).to_string();
        let Op::Attend { window, .. } = &mut plan.program.ops[index] else { unreachable!("it is one") };
        *window = forged;
        refused(bundle().admit(&plan), &[part, &kernel, &format!("op {index} (Attend)")]);
    }
}

fn dtype(plan: &mut ModelPlan, old: Dtype, new: Dtype) {
    plan.program.buffers.iter_mut().find(|buffer| buffer.dtype == old).unwrap().dtype = new;
}

/// A text whose parameters are not the contract's makes no problem, so no certificate could admit it.
#[test]
fn a_kernel_of_other_element_types_is_refused_by_name() {
    let plan = gemma();
    let specs = vosti_model::plan::specs(&plan).into_iter().map(|spec| spec.text().to_string());
    let kernel = specs.into_iter().find(|kernel| kernel.starts_with("embed-")).unwrap();
    // The same parameters, but tokens of 64 bits.
    let text = vosti_test_tools::filetests::one("any_embed_tokens_in_64_bits").ttir;
    refused(
        bundle().with_ttir(&kernel, &text).admit(&plan),
        &[&kernel, "`tokens` holds i64 in the TTIR and i32 in the contract"],
    );
}

#[test]
fn extents_that_are_not_the_programs_are_refused() {
    type Change = fn(&mut ModelPlan);
    fn matrix(plan: &mut ModelPlan) -> &mut Recipe {
        &mut plan.weights.get_mut("layers.0.output").unwrap().recipe
    }
    let changes: [(&str, Change); 12] = [
        ("`cache_k` holds bf16, the op gives f32", |p| p.program.groups[0].entry[0].dtype = Dtype::F32),
        ("`w` holds bf16, the op gives f32", |p| {
            let Recipe::Matrix { dtype, .. } = matrix(p) else { panic!("it is a matrix") };
            *dtype = Dtype::F32;
        }),
        ("the op gives f32", |p| dtype(p, Dtype::Bf16, Dtype::F32)),
        ("the op gives bf16", |p| dtype(p, Dtype::F32, Dtype::Bf16)),
        ("proved for tokens below", |p| p.program.vocab += 1),
        ("wide, the op's buffer", |p| p.program.buffers[0].width += 16),
        ("pages of", |p| p.program.groups[0].entry[1].width *= 2),
        ("pages of", |p| p.program.groups[0].entry[0].heads += 1),
        ("for a vocabulary of", |p| p.program.vocab -= 1),
        ("contexts up to", |p| p.program.context = u32::MAX),
        ("the model's weight", |p| p.program.context += 1),
        ("does not have", |p| p.weights.clear()),
    ];
    for (part, change) in changes {
        let mut plan = gemma();
        change(&mut plan);
        refused(bundle().admit(&plan), &[part]);
    }
}

/// Cosines and sines have one shape.
#[test]
fn a_weight_bound_to_another_parameter_than_it_is_made_for_is_refused() {
    type Change = fn(&mut BTreeMap<String, String>);
    let swap: Change = |weights| {
        let (cos, sin) = (weights["cos"].clone(), weights["sin"].clone());
        weights.extend([("cos".into(), sin), ("sin".into(), cos)]);
    };
    let changes: [(&str, Change); 6] = [
        ("`cos` is bound to `rope.0.sin`, which is made for a parameter `sin`", swap),
        ("`norm_w` is bound to `rope.0.cos`", |w| _ = w.insert("norm_w".into(), w["cos"].clone())),
        ("`sin` is a weight, and the launch binds none", |w| _ = w.remove("sin")),
        ("no weight `tan`", |w| _ = w.insert("tan".into(), w["cos"].clone())),
        ("`k_cos` is bound to `rope.0.sin`, which is made for a parameter `sin`", |w| {
            _ = w.insert("k_cos".into(), w["k_sin"].clone())
        }),
        ("`k_sin` is a weight, and the launch binds none", |w| _ = w.remove("k_sin")),
    ];
    for (part, change) in changes {
        let mut plan = gemma();
        let mut launches = plan.bindings.iter_mut().flat_map(|b| &mut b.launches);
        change(&mut launches.find(|launch| launch.spec.kernel == "rope_store").unwrap().weights);
        refused(bundle().admit(&plan), &[part, "rope_store"]);
    }
}

/// Each launch is compared with its own buffers, so a program may hold several types: here logits of FP32 products.
#[test]
fn a_program_of_several_element_types_is_admitted() {
    // Its own buffers come behind the program's, of which there is another one.
    let mut plan = ModelPlan { draws: None, ..gemma() };
    let at = |wanted: &str| {
        let of = |k: u32| plan.bindings[k as usize].launches[0].spec.kernel.as_str();
        plan.program.ops.iter().rposition(|op| of(op.uses().binding) == wanted).unwrap()
    };
    let (norm, logits) = (at("rmsnorm"), at("linear_logits"));
    for index in [norm, logits] {
        let Op::Rowwise { k, ins, outs, .. } = &mut plan.program.ops[index] else { panic!("it is row-wise") };
        let mut binding = plan.bindings[*k as usize].clone();
        let launch = &mut binding.launches[0];
        launch.spec = specialise("cpu", &launch.spec.kernel, Dtype::F32, &dims(&launch.spec)).unwrap();
        if index == norm {
            let wide = BufferDecl { dtype: Dtype::F32, ..plan.program.buffers[outs[0] as usize] };
            plan.program.buffers.push(wide);
            outs[0] = plan.program.buffers.len() as u32 - 1;
        } else {
            ins[0] = plan.program.buffers.len() as u32 - 1;
            let mut head = plan.weights[&launch.weights["w"]].clone();
            let Recipe::Matrix { dtype, .. } = &mut head.recipe else { panic!("it is a matrix") };
            *dtype = Dtype::F32;
            plan.weights.insert("wide head".into(), head);
            launch.weights.insert("w".into(), "wide head".into());
        }
        *k = plan.bindings.len() as u32;
        plan.bindings.push(binding);
    }
    plan.program.kernels = plan.bindings.len() as u32;
    plan.program.check().unwrap();
    bundle().admit(&plan).unwrap();
}

/// The dimensions and numbers of a specialisation, which its kernel's contract names.
fn dims(spec: &Spec) -> Vec<(&str, Const)> {
    let numbers = &vosti_kernels::contract(&spec.kernel).unwrap().numbers;
    numbers.iter().map(|number| (number.name.as_str(), spec.constants[&number.name])).collect()
}

/// Scratch makes a device launch an op several times, for parts of its rows.
#[test]
fn scratch_for_an_op_that_has_no_use_for_it_is_refused() {
    let mut plan = gemma();
    let op = plan.program.ops.iter().find(|op| matches!(op, Op::Rowwise { .. })).unwrap();
    let binding = &mut plan.bindings[op.uses().binding as usize];
    binding.scratch.push(Scratch { keys: 64, rows: 16, width: 1 });
    refused(bundle().admit(&plan), &["Rowwise", "no parameter is the op's scratch 0"]);
}

#[test]
fn an_op_of_several_launches_is_refused() {
    let mut plan = gemma();
    let (_, kernel) = kernel_of(&plan, |op| matches!(op, Op::Rowwise { .. }));
    let binding = plan.bindings.iter_mut().find(|b| b.launches[0].spec.text().to_string() == kernel).unwrap();
    binding.launches.push(binding.launches[0].clone());
    refused(bundle().admit(&plan), &["2 launches"]);
    plan.bindings.clear();
    refused(bundle().admit(&plan), &["0 launches"]);
}

#[test]
fn a_specialisation_that_nobody_proved_is_refused() {
    let mut plan = gemma();
    let (index, _) = kernel_of(&plan, |op| matches!(op, Op::Attend { window: Some(_), .. }));
    let spec = first_of(&mut plan, index);
    spec.constants.insert("BQ".into(), Const::Int(13));
    let kernel = spec.text().to_string();
    refused(bundle().admit(&plan), &["no certificate", &kernel]);
}

#[test]
fn attention_of_dimensions_that_nobody_proved_is_refused() {
    let changes: [(&str, i64, &str); 8] = [
        ("GROUP", 17, "it is proved only if GROUP <= GP, and that is false for KV_HEADS 1, GROUP 17, D 256, USE 1"),
        (
            "HEIGHT",
            17,
            "it is proved only if HEIGHT <= BQ, and that is false for KV_HEADS 1, GROUP 4, D 256, USE 1, WINDOW 512, HEIGHT 17",
        ),
        ("CAPPED", 2, "CAPPED is 2, and it is proved for 0 to 1"),
        ("GROUP", 0, "GROUP is 0, and it is proved for 1 to 1024"),
        ("KV_HEADS", 1025, "KV_HEADS is 1025, and it is proved for 1 to 1024"),
        ("WINDOW", 0, "WINDOW is 0, and it is proved for 1 to 4194304"),
        // The first of two launches, alone.
        ("USE", 0, "its contract has the shape AttendPart, the op needs Attend"),
        ("WINDOW", 513, "it is proved for a window of 513, the op has a window of 512"),
    ];
    for (name, value, why) in changes {
        let mut plan = gemma();
        let (index, _) = kernel_of(&plan, |op| matches!(op, Op::Attend { window: Some(_), .. }));
        let spec = first_of(&mut plan, index);
        spec.constants.insert(name.into(), Const::Int(value));
        let kernel = spec.to_string();
        refused(bundle().admit(&plan), &[why, &kernel]);
    }
}

/// 262,144 logits are 64 parts of 4,096.
#[test]
fn a_list_of_fewer_parts_than_hold_all_logits_is_refused() {
    let changes = [
        (63, "it is proved only if V <= PARTS * PART, and that is false for V 262144, PARTS 63"),
        (65, "`values` is 4160 wide, the op's buffer"),
    ];
    for (parts, why) in changes {
        let mut plan = gemma();
        let mut launches = plan.bindings.iter_mut().flat_map(|binding| &mut binding.launches);
        let spec = &mut launches.find(|launch| launch.spec.kernel == "topk_part").unwrap().spec;
        assert_eq!(spec.constants.insert("PARTS".into(), Const::Int(parts)), Some(Const::Int(64)));
        let kernel = spec.to_string();
        refused(bundle().admit(&plan), &[why, &kernel]);
    }
}

fn files() -> Model {
    Model { hash: "1".repeat(64), files: vec![] }
}

#[test]
fn a_bundle_in_a_folder_is_what_was_written_and_for_that_model_only() {
    let place = tempfile::tempdir().unwrap();
    let folder = place.path().join("bundle");
    let plan = gemma();
    let written = bundle().write(&folder, false, files(), "cpu", &plan).unwrap();
    let read = Bundle::read(&folder).unwrap();
    assert_eq!(read.manifest(), Some(&written));
    read.admit(&plan).unwrap();
    read.check_origin(&files(), "cpu", &plan).unwrap();
    let specs = vosti_model::plan::specs(&plan);
    let admitted = [&read, &bundle()].map(|bundle| bundle.admit(&plan).unwrap());
    let text = |of: &Admitted, spec| of.kernel(spec).unwrap().text.clone();
    assert!(specs.iter().all(|spec| text(&admitted[0], spec) == text(&admitted[1], spec)));

    let other = Model { hash: "2".repeat(64), ..files() };
    refused(read.check_origin(&other, "cpu", &plan), &["another model", "vosti prepare"]);
    refused(read.check_origin(&files(), "cuda-sm90", &plan), &["another target"]);
    let longer = self::plan("gemma-3-270m", 2048);
    refused(read.check_origin(&files(), "cpu", &longer), &["another context"]);
    let mut changed = gemma();
    changed.program.ops.swap(0, 1);
    refused(read.check_origin(&files(), "cpu", &changed), &["another program"]);
    refused(read.admit(&self::plan("smollm2-135m", 1024)), &["no certificate", "vosti prepare"]);
    assert_eq!(std::fs::read_dir(place.path()).unwrap().count(), 1, "nothing is left beside it");
}

#[test]
fn a_folder_is_replaced_only_if_it_is_a_bundle_and_only_when_asked() {
    let place = tempfile::tempdir().unwrap();
    let folder = place.path().join("bundle");
    let plan = gemma();
    let write = |force| bundle().write(&folder, force, files(), "cpu", &plan).map(drop);
    write(false).unwrap();
    refused(write(false), &["exists", "--force"]);
    std::fs::write(folder.join("leftover"), "").unwrap();
    write(true).unwrap();
    assert!(!folder.join("leftover").exists());
    std::fs::remove_file(folder.join("manifest.json")).unwrap();
    refused(write(true), &["not a bundle"]);
    assert!(folder.join("ttir").exists(), "what is no bundle is left alone");
}

#[test]
fn a_damaged_bundle_is_refused() {
    let place = tempfile::tempdir().unwrap();
    let folder = place.path().join("bundle");
    let manifest = bundle().write(&folder, false, files(), "cpu", &gemma()).unwrap();
    let ttir = manifest.kernels[0].file("ttir").unwrap().path.clone();
    let certificate = manifest.kernels[0].file("certificate").unwrap().path.clone();
    let damage = |path: &str, change: &dyn Fn(&str) -> String, part: &str| {
        let path = folder.join(path);
        let good = std::fs::read_to_string(&path).unwrap();
        std::fs::write(&path, change(&good)).unwrap();
        refused(Bundle::read(&folder).map(drop), &[part]);
        std::fs::write(&path, good).unwrap();
    };
    damage(&ttir, &|text| text.replacen("tt.func", "tt.funk", 1), "its hash differs");
    damage(&certificate, &|text| text.replacen("cpu", "gpu", 1), "its hash differs");
    damage("manifest.json", &|_| "{".into(), "is a damaged bundle: manifest.json");
    damage("manifest.json", &|_| r#"{ "format": "vosti-bundle/9" }"#.into(), "version of vosti (vosti-bundle/9");
    damage("manifest.json", &|text| text.replacen("ttir/", "../", 1), "not a path inside it");
    refused(Bundle::read(place.path()).map(drop), &["is no bundle: it has no manifest.json"]);
    Bundle::read(&folder).unwrap();
}

/// A reader that took the last of two could check one and run the other.
#[test]
fn a_manifest_that_names_a_thing_twice_is_refused() {
    let place = tempfile::tempdir().unwrap();
    let folder = place.path().join("bundle");
    let manifest = bundle().write(&folder, false, files(), "cpu", &gemma()).unwrap();
    let texts: Vec<String> = manifest
        .kernels
        .iter()
        .map(|k| vosti_kernels::parse_stem(&k.specialisation).unwrap().text().to_string())
        .collect();
    let shared = (1..texts.len()).find(|i| texts[*i] == texts[i - 1]).expect("two sizes of one text");
    let forged = |change: &dyn Fn(&mut Vec<Kernel>), part: &str| {
        let mut forged = manifest.clone();
        change(&mut forged.kernels);
        std::fs::write(folder.join("manifest.json"), serde_json::to_string(&forged).unwrap()).unwrap();
        refused(Bundle::read(&folder).map(drop), &[part]);
    };
    forged(&|kernels| kernels.extend_from_within(..1), "twice");
    forged(&|kernels| kernels[0].files.extend_from_within(..1), "two files of the kind `ttir`");

    let other = |kind: &str, change: &dyn Fn(&str) -> String| {
        let own = std::fs::read_to_string(folder.join(&manifest.kernels[shared].file(kind).unwrap().path)).unwrap();
        let (text, path) = (change(&own), format!("other.{kind}"));
        std::fs::write(folder.join(&path), &text).unwrap();
        (File { kind: kind.into(), path, blake3: blake3::hash(text.as_bytes()).to_hex().to_string() }, text)
    };
    let (file, text) = other("ttir", &|text| text.replacen("dense<0.0", "dense<1.0", 1));
    let hash = vosti_kernels::ttir_hash(&text).to_hex().to_string();
    let put = |kernel: &mut Kernel, file: &File| {
        *kernel.files.iter_mut().find(|f| f.kind == file.kind).unwrap() = file.clone()
    };
    forged(
        &|kernels| {
            put(&mut kernels[shared], &file);
            kernels[shared].ttir_hash = hash.clone();
        },
        "has two texts",
    );
    let (file, _) = other("certificate", &|text| text.replacen("z3", "z9", 1).replacen("Z3", "Z9", 1));
    forged(&|kernels| put(&mut kernels[shared], &file), "has two certificates");
}

/// The manifest is no signature: its hashes of files are right here.
#[test]
fn a_manifest_that_says_something_else_than_the_plan_is_refused() {
    let place = tempfile::tempdir().unwrap();
    let folder = place.path().join("bundle");
    let plan = gemma();
    let manifest = bundle().write(&folder, false, files(), "cpu", &plan).unwrap();
    let forged = |change: &dyn Fn(&mut Manifest), what: &str| {
        let mut forged = manifest.clone();
        change(&mut forged);
        std::fs::write(folder.join("manifest.json"), serde_json::to_string(&forged).unwrap()).unwrap();
        let read = Bundle::read(&folder).unwrap();
        refused(read.check_origin(&files(), "cpu", &plan), &[&format!("another {what}"), "vosti prepare"]);
    };
    forged(&|m| m.vosti = "0.0.1".into(), "version of vosti");
    forged(&|m| m.page = 32, "page size");
    forged(&|m| m.program = "3".repeat(64), "program");
    // Another dimension in a name: the text and its certificate are the same.
    let renamed = |name: &str| {
        let mut spec = vosti_kernels::parse_stem(name).unwrap();
        spec.constants.insert("N".into(), Const::Int(77));
        spec.to_string()
    };
    let at = manifest.kernels.iter().position(|kernel| kernel.specialisation.contains("-N")).unwrap();
    forged(&|m| m.kernels[at].specialisation = renamed(&m.kernels[at].specialisation), "list of kernels");
    // A kernel of which another size remains, so that its text and certificate are there.
    let stem = |kernel: &Kernel| vosti_kernels::parse_stem(&kernel.specialisation).unwrap().text().to_string();
    let twice = |kernel: &&Kernel| manifest.kernels.iter().filter(|other| stem(other) == stem(kernel)).count() > 1;
    let gone = manifest.kernels.iter().find(twice).unwrap().specialisation.clone();
    forged(&|m| m.kernels.retain(|kernel| kernel.specialisation != gone), "list of kernels");
    let text = serde_json::to_string(&manifest).unwrap();
    std::fs::write(folder.join("manifest.json"), text.replacen('{', "{\"ops\":[],", 1)).unwrap();
    refused(Bundle::read(&folder).map(drop), &["unknown field `ops`"]);
}

/// The assumptions follow from the text, so a list that says less or claims a test is another certificate.
#[test]
fn a_certificate_with_another_list_of_assumptions_is_refused() {
    let plan = gemma();
    let (_, kernel) = kernel_of(&plan, |op| matches!(op, Op::Attend { .. }));
    let with = |change: &dyn Fn(&mut Certificate)| {
        let mut certificates = bundle().certificates().clone();
        change(certificates.get_mut(&kernel).unwrap());
        bundle().with_certificates(certificates).admit(&plan)
    };
    with(&|_| {}).unwrap();
    refused(with(&|c| c.assumptions.clear()), &[&kernel, "another list of assumptions"]);
    refused(with(&|c| _ = c.assumptions.pop()), &[&kernel, "another list of assumptions"]);
    let passed = |c: &mut Certificate| *c.assumptions[0].probed.get_mut("cuda-sm90").unwrap() = Probed::Passed;
    refused(with(&passed), &[&kernel, "another statement of an assumption"]);
    refused(with(&|c| c.assumptions[0].statement += " nearly"), &[&kernel, "another statement of an assumption"]);
}

fn rehash(entry: &mut Kernel, text: &str) {
    let file = entry.files.iter_mut().find(|f| f.kind == "ttir").unwrap();
    file.blake3 = blake3::hash(text.as_bytes()).to_hex().to_string();
    entry.ttir_hash = vosti_kernels::ttir_hash(text).to_hex().to_string();
}

/// The manifest is no signature: where the hashes are rewritten too, the certificate refuses the text.
#[test]
fn a_bundle_with_other_text_and_right_hashes_is_refused_by_its_certificate() {
    let place = tempfile::tempdir().unwrap();
    let folder = place.path().join("bundle");
    let plan = gemma();
    let mut manifest = bundle().write(&folder, false, files(), "cpu", &plan).unwrap();
    let (_, kernel) = kernel_of(&plan, |op| matches!(op, Op::StoreKv { .. }));
    let own = |name: &str| vosti_kernels::parse_stem(name).is_some_and(|spec| spec.text().to_string() == kernel);
    let path = folder.join(format!("ttir/{kernel}.ttir"));
    let text = std::fs::read_to_string(&path).unwrap().replacen("dense<0.0", "dense<1.0", 1);
    std::fs::write(&path, &text).unwrap();
    // Layers of other dimensions have one text.
    let entries = manifest.kernels.iter_mut().filter(|k| own(&k.specialisation));
    assert!(entries.map(|entry| rehash(entry, &text)).count() > 0);
    std::fs::write(folder.join("manifest.json"), serde_json::to_string(&manifest).unwrap()).unwrap();
    let read = Bundle::read(&folder).unwrap();
    let error = read.admit(&plan).unwrap_err();
    let BundleError::Certificate { error, .. } = error else { panic!("{error}") };
    assert!(matches!(*error, CertificateError::Stale { what: "TTIR", .. }), "{error}");
}
