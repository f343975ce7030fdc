//! What a bundle's folder says and nothing compares, somebody may believe: each value of a manifest and of a certificate is changed alone, and
//! the bundle must be refused.

use serde_json::{Value, json};
use vosti_admission::Bundle;
use vosti_admission::manifest::Model;
use vosti_model::Target;

/// Every value of a JSON text changed, each alone, and every list one entry shorter, or with an entry if it has none.
fn edits(value: &Value) -> Vec<(String, Value)> {
    let (mut places, mut out) = (vec![String::new()], vec![]);
    while let Some(place) = places.pop() {
        let mut edited = value.clone();
        let here = edited.pointer_mut(&place).unwrap();
        match here {
            Value::Object(fields) => {
                places.extend(fields.keys().map(|name| format!("{place}/{}", name.replace('/', "~1"))));
                continue;
            }
            Value::Array(list) => {
                places.extend((0..list.len()).map(|i| format!("{place}/{i}")));
                if list.pop().is_none() {
                    list.push(json!({ "kernel": "linear", "ttir_hash": "0" }));
                }
            }
            Value::String(text) => text.push('1'),
            number => *number = json!(number.as_u64().unwrap() + 1),
        }
        out.push((place, edited));
    }
    out
}

#[test]
fn each_value_of_a_manifest_and_of_a_certificate_is_compared() {
    let place = tempfile::tempdir().unwrap();
    let folder = place.path().join("bundle");
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../vosti-model/configs/gemma-3-270m.json");
    let config = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    let decoder = vosti_model::families::from_config("gemma-3-270m", &config).unwrap();
    let plan = vosti_model::plan(&decoder, &Target::named("cpu").with_choices(), Some(1024)).unwrap();
    let model = || Model { hash: "1".repeat(64), files: vec![] };
    let manifest = Bundle::built_in().unwrap().write(&folder, false, model(), "cpu", &plan).unwrap();
    let opens = || {
        let read = Bundle::read(&folder)?;
        read.check_target("cpu")?;
        read.check_origin(&model(), "cpu", &plan)?;
        read.admit(&plan).map(drop)
    };
    opens().unwrap();
    let write = |path: &str, text: &str| std::fs::write(folder.join(path), text).unwrap();
    // Of the kernels only one: the others are read alike.
    let whole = serde_json::to_value(&manifest).unwrap();
    let other = |place: &str| place.starts_with("/kernels/") && !place.starts_with("/kernels/0");
    let mut tried = 0;
    for (place, edited) in edits(&whole).into_iter().filter(|(place, _)| !other(place)) {
        write("manifest.json", &edited.to_string());
        assert!(opens().is_err(), "manifest.json: {place} is compared with nothing");
        tried += 1;
    }
    assert!(tried >= 15, "only {tried} values of the manifest");

    let path = &manifest.kernels[0].file("certificate").unwrap().path;
    let certificate = std::fs::read_to_string(folder.join(path)).unwrap();
    let edits = edits(&serde_json::from_str(&certificate).unwrap());
    assert!(edits.iter().any(|(place, _)| place.starts_with("/stands_for")) && edits.len() > 30);
    for (place, edited) in edits {
        let (text, mut forged) = (edited.to_string(), manifest.clone());
        write(path, &text);
        for file in forged.kernels.iter_mut().flat_map(|kernel| &mut kernel.files).filter(|file| file.path == *path) {
            file.blake3 = blake3::hash(text.as_bytes()).to_hex().to_string();
        }
        write("manifest.json", &serde_json::to_string(&forged).unwrap());
        assert!(opens().is_err(), "{path}: {place} is compared with nothing");
    }
}
