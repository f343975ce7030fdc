//! The inventory is proved, from the checked-in answers and with a share of them solved again. Certificates are made for it,
//! bound to it, and refused for anything else.

mod common;

use std::path::Path;
use vosti_verify::{Assumption, Certificate, Problem, VerifyOptions, record, verify_all, verify_texts};

#[test]
fn every_specialisation_is_proved_from_the_checked_in_answers() {
    let options = VerifyOptions {
        read_only: true,
        recheck_percent: if common::solver().is_some() { 5 } else { 0 },
        seed: 20,
        ..VerifyOptions::default()
    };
    let inventory = verify_all(&options).unwrap();
    assert!(inventory.entries.len() >= 100);
    assert_eq!(inventory.counts.disagreed, 0);
    if options.recheck_percent > 0 {
        let (again, all) = (inventory.counts.rechecked + inventory.counts.gave_up, inventory.counts.cached);
        assert!((3 * all..8 * all).contains(&(100 * again)), "{again} of {all} answers were solved again, not 5%");
    }
    for (report, certificate) in &inventory.entries {
        assert!(report.verdict.is_proved(), "{}: {}", report.name, report.verdict);
        let certificate = certificate.as_ref().unwrap();
        let problem = Problem::of_stem(&report.name).unwrap();
        let read = Certificate::from_json(&report.name, &certificate.to_json()).unwrap();
        assert_eq!(&read, certificate);
        read.check(&problem).unwrap();
    }
    // The recorded certificates are the ones that were just proved, kernel by kernel.
    let recorded = record::checked_in().unwrap();
    let stale = inventory.not_as_recorded(recorded);
    assert!(stale.is_empty(), "run `vosti verify --record` and commit the files; stale: {stale:?}");
    let names: Vec<&str> = inventory.certificates().map(|c| c.kernel.as_str()).collect();
    assert!(
        recorded.keys().map(String::as_str).eq(names),
        "a certificate is for no kernel: run `vosti verify --record`"
    );
    let answers = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("cache/answers.txt")).unwrap();
    assert_eq!(inventory.answers.to_text(), answers, "an answer is for no question: run `vosti verify --record`");
}

/// A launch may run higher row tiles instead of the lowest.
#[test]
fn every_specialisation_of_higher_row_tiles_is_certified_to_give_the_bits_of_the_lowest() {
    let recorded = record::checked_in().unwrap();
    let mut seen = 0;
    for (kernel, certificate) in recorded {
        let stands: Vec<_> = certificate.stands_for.iter().map(|first| first.kernel.clone()).collect();
        let spec = vosti_kernels::parse_stem(kernel).unwrap();
        // An attention that folds its splits stands for its two launches, of which the second is named.
        let wanted = vosti_kernels::stands_for(&spec).into_iter().chain(vosti_kernels::second_of(&spec));
        let wanted = wanted.map(|first| first.to_string());
        assert!(wanted.filter(|first| recorded.contains_key(first)).eq(stands.clone()), "{kernel}: {stands:?}");
        for first in &certificate.stands_for {
            assert_eq!(first.ttir_hash, recorded[&first.kernel].ttir_hash);
            assert!(certificate.assumptions.iter().any(|a| a.name == Assumption::DotHeightIndependent), "{kernel}");
            seen += 1;
        }
    }
    assert!(seen >= 10, "{seen} of them");
}

/// The proof that one specialisation may stand for another depends on both texts.
#[test]
fn a_specialisation_that_gives_other_bits_than_the_lowest_gets_no_certificate() {
    if common::solver().is_none() {
        return;
    }
    let [low, high] = ["BM16-BN64", "BM64-BN64"].map(|tile| format!("linear_add-bf16-BK64-{tile}-SWAP1"));
    let [first, text] = [&low, &high].map(|stem| vosti_kernels::ttir_by_stem(stem).unwrap());
    let proved = |first: &str| {
        let first = first.to_string().leak();
        let find = |stem: &str| if stem == low { Some(&*first) } else { None };
        let inventory = verify_texts(&[(&high, text)], &find, &VerifyOptions::default()).unwrap();
        let [(report, certificate)] = &inventory.entries[..] else { panic!("one") };
        assert_eq!(report.verdict.is_proved(), certificate.is_some());
        assert_eq!(report.stands_for.len(), usize::from(certificate.is_some()));
        (report.verdict.is_proved(), report.verdict.to_string())
    };
    assert!(proved(first).0);
    // The first change subtracts the residual; the second sums tiles of K up to N.
    for (from, to) in [("arith.addf", "arith.subf"), ("arith.bitcast %K : i32", "arith.bitcast %N : i32")] {
        assert!(first.contains(from));
        let (proved, verdict) = proved(&first.replace(from, to));
        assert!(!proved, "{verdict}");
    }
}

/// A high query tile gives the low one's bits for each value of `USE`, though HEIGHT has another bound in each: no text reads it.
#[test]
fn a_query_tile_that_gives_other_bits_than_the_lowest_gets_no_certificate() {
    if common::solver().is_none() {
        return;
    }
    let [low, high] = ["BQ16", "BQ32"].map(|tile| format!("attend-bf16-{tile}-DP64-GP4-PAGE64-ROWS512-SPLIT512"));
    let [first, text] = [&low, &high].map(|stem| vosti_kernels::ttir_by_stem(stem).unwrap());
    let options = VerifyOptions { threads: 1, ..VerifyOptions::default() };
    let proved = |first: &str| {
        let first = first.to_string().leak();
        let find = |stem: &str| if stem == low { Some(&*first) } else { None };
        let inventory = verify_texts(&[(&high, text)], &find, &options).unwrap();
        let [(report, certificate)] = &inventory.entries[..] else { panic!("one") };
        assert_eq!(certificate.as_ref().map_or(0, |c| c.stands_for.len()), usize::from(report.verdict.is_proved()));
        (report.verdict.is_proved(), report.verdict.to_string())
    };
    assert!(proved(first).0);
    // The first change takes the smaller of two largest scores; the second reads HEIGHT in the place of GROUP.
    let changes =
        [("arith.maxnumf", "arith.minnumf", ""), (" %GROUP : i32", " %HEIGHT : i32", "other dimensions or conditions")];
    for (from, to, says) in changes {
        assert!(first.contains(from));
        let (proved, verdict) = proved(&first.replacen(from, to, 1));
        assert!(!proved && verdict.contains(says), "{verdict}");
    }
}

#[test]
fn a_certificate_that_differs_from_the_recorded_one_is_stale() {
    let options = VerifyOptions { prefix: "rmsnorm".into(), read_only: true, ..VerifyOptions::default() };
    let inventory = verify_all(&options).unwrap();
    let recorded = record::checked_in().unwrap();
    assert!(inventory.not_as_recorded(recorded).is_empty());
    let first = inventory.certificates().next().unwrap();
    let mut forged = recorded.clone();
    forged.get_mut(&first.kernel).unwrap().assumptions.pop();
    assert_eq!(inventory.not_as_recorded(&forged), [first.kernel.as_str()]);
    forged.remove(&first.kernel);
    assert_eq!(inventory.not_as_recorded(&forged), [first.kernel.as_str()]);
}

#[test]
fn recorded_certificates_are_read_back_and_nonsense_is_not() {
    let recorded = record::checked_in().unwrap();
    let text = record::to_text(recorded.values());
    assert_eq!(&record::from_text(&text).unwrap(), recorded);
    let lines: Vec<&str> = text.lines().collect();
    for wrong in [
        "{".to_string(),
        lines[1].to_string(),
        [lines[0], lines[1], lines[1]].join("\n"),
        [lines[0], "{}"].join("\n"),
        [&lines[0].replace("nan-payload", "nothing"), lines[1]].join("\n"),
        [&lines[0].replace("\"solver\"", "\"prover\""), lines[1]].join("\n"),
    ] {
        assert!(record::from_text(&wrong).is_err(), "{wrong}");
    }
}

#[test]
fn a_certificate_for_something_else_is_refused() {
    let options = VerifyOptions { prefix: "rmsnorm".into(), read_only: true, ..VerifyOptions::default() };
    let inventory = verify_all(&options).unwrap();
    let [(_, Some(first)), (second, _), ..] = &inventory.entries[..] else { panic!("there are two") };
    let other = Problem::of_stem(&second.name).unwrap();
    assert!(first.check(&other).unwrap_err().to_string().contains("another kernel"));
    let own = Problem::of_stem(&first.kernel).unwrap();
    let mut stale = first.clone();
    stale.ttir_hash = "0".repeat(64);
    assert!(stale.check(&own).unwrap_err().to_string().contains("another TTIR"));
    let mut shape = first.clone();
    shape.contract.shape = "attend".into();
    assert!(shape.check(&own).unwrap_err().to_string().contains("another contract"));
    let mut old = first.clone();
    old.verifier = "vosti-verify 0.0.1".into();
    assert!(old.check(&own).unwrap_err().to_string().contains("another verifier"));
    assert!(Certificate::from_json("k", "{").is_err());
}

#[test]
fn the_schema_names_every_field_of_a_certificate() {
    let options = VerifyOptions { prefix: "rope_q-f32".into(), read_only: true, ..VerifyOptions::default() };
    let inventory = verify_all(&options).unwrap();
    let certificate = inventory.entries[0].1.as_ref().unwrap();
    let value: serde_json::Value = serde_json::from_str(&certificate.to_json()).unwrap();
    let schema: serde_json::Value = serde_json::from_str(include_str!("../src/certificate.schema.json")).unwrap();
    let keys = |v: &serde_json::Value| {
        let mut keys: Vec<String> = v.as_object().unwrap().keys().cloned().collect();
        keys.sort();
        keys
    };
    assert_eq!(keys(&value), keys(&schema["properties"]));
    assert_eq!(keys(&value["contract"]), keys(&schema["properties"]["contract"]["properties"]));
    let item = &schema["properties"]["assumptions"]["items"]["properties"];
    assert_eq!(keys(&value["assumptions"][0]), keys(item));
    let item = &schema["properties"]["contract"]["properties"]["roles"]["items"]["properties"];
    assert_eq!(keys(&value["contract"]["roles"][0]), keys(item));
    // The schema lists the word of each target of an assumption.
    let words =
        schema["properties"]["assumptions"]["items"]["properties"]["probed"]["additionalProperties"]["enum"].clone();
    for (target, probed) in value["assumptions"][0]["probed"].as_object().unwrap() {
        assert!(words.as_array().unwrap().contains(probed), "{target}: {probed}");
    }
    assert_eq!(value["format"], schema["properties"]["format"]["const"]);
    assert!(
        schema["properties"]["contract"]["properties"]["shape"]["enum"]
            .as_array()
            .unwrap()
            .contains(&value["contract"]["shape"])
    );
}
