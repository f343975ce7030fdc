//! Probed launches as safetensors files, for `bench/gpu/fp64.py` or any other reader.
//!
//! Each parameter is a flat tensor under its name, with its contents before the launch; the kernel's output is
//! `written.NAME`. `chosen` has the rows whose outputs are defined. The metadata name the specialisation and its constants.
//! Weights are in the first file of each specialisation; its later launches have the same weights.

use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use vosti_contract::Role;
use vosti_cuda::probe::Launched;
use vosti_tile::Scalar;

/// A folder that launches are written to.
pub struct Dump {
    folder: PathBuf,
    launches: usize,
    /// Specialisations of which there is a file.
    seen: BTreeSet<String>,
}

impl Dump {
    /// Makes the folder if there is none.
    pub fn new(folder: &Path) -> std::io::Result<Dump> {
        std::fs::create_dir_all(folder)?;
        Ok(Dump { folder: folder.to_path_buf(), launches: 0, seen: BTreeSet::new() })
    }

    /// Writes one launch to a file of its own.
    pub fn write(&mut self, launched: &Launched) -> std::io::Result<()> {
        let first = self.seen.insert(launched.spec.to_string());
        let chosen: Vec<u8> = launched.chosen.iter().flat_map(|row| (*row as i32).to_le_bytes()).collect();
        let mut tensors: Vec<(String, &str, &[u8])> = vec![("chosen".into(), "I32", &chosen)];
        for param in launched.params.iter().filter(|param| first || !matches!(param.role, Role::Weight(_))) {
            tensors.push((param.name.into(), dtype(param.elem), param.before));
            tensors.extend(param.after.map(|after| (format!("written.{}", param.name), dtype(param.elem), after)));
        }
        let constants: BTreeMap<_, _> =
            launched.spec.constants.iter().map(|(name, value)| (name, value.to_string())).collect();
        let metadata = json!({
            "specialisation": launched.spec.to_string(),
            "kernel": launched.spec.kernel,
            "constants": serde_json::to_string(&constants)?,
        });
        let mut header = Map::from_iter([("__metadata__".to_string(), metadata)]);
        let mut end = 0;
        for (name, dtype, bytes) in &tensors {
            let elements = bytes.len() / if *dtype == "BF16" { 2 } else { 4 };
            let start = end;
            end += bytes.len();
            header.insert(name.clone(), json!({"dtype": dtype, "shape": [elements], "data_offsets": [start, end]}));
        }
        self.launches += 1;
        let path = self.folder.join(format!("{:03}-{}.safetensors", self.launches, launched.spec));
        let mut file = BufWriter::new(File::create(path)?);
        let mut text = Value::Object(header).to_string();
        // Data begin at a multiple of 8.
        text.push_str(&" ".repeat(text.len().next_multiple_of(8) - text.len()));
        file.write_all(&(text.len() as u64).to_le_bytes())?;
        file.write_all(text.as_bytes())?;
        tensors.iter().try_for_each(|(_, _, bytes)| file.write_all(bytes))?;
        file.flush()
    }
}

/// The name of a parameter's element type in safetensors.
fn dtype(elem: Scalar) -> &'static str {
    match elem {
        Scalar::Bf16 => "BF16",
        Scalar::F32 => "F32",
        _ => "I32",
    }
}
