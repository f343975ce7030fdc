//! `manifest.json` of a bundle: its model, its program, its kernels, and the hash of every file.

use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::{fs, io};

/// The format's name; a reader refuses others.
pub const FORMAT: &str = "vosti-bundle/1";

/// The purpose and the contents of a bundle.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    /// The version of this form; another one is refused.
    pub format: String,
    /// Version of the `vosti` that made it.
    pub vosti: String,
    /// `cpu`, `cuda-sm90`, ...
    pub target: String,
    /// Compared with the model at hand when the bundle is opened.
    pub model: Model,
    /// Longest sequence.
    pub context: u32,
    /// Compared with the program that the model gives now.
    pub program: ForwardPass,
    /// The value of each op's `k`: one launch each, in order.
    pub launches: Vec<Launch>,
    /// Each specialisation once, sorted.
    pub kernels: Vec<Kernel>,
}

/// The model that the bundle was made from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Model {
    /// For people; the files decide.
    pub name: String,
    /// The family's name, for people.
    pub family: String,
    /// BLAKE3 over the contents of the model's files, sorted by name.
    pub hash: String,
    /// In the order of names.
    pub files: Vec<Named>,
}

/// The forward pass.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ForwardPass {
    /// BLAKE3 over the program, its bindings and how each weight is made.
    pub hash: String,
    /// Tokens a KV page.
    pub page: usize,
    /// For people.
    pub ops: Vec<String>,
}

/// One launch of the binding `k`: its specialisation, and the names of its weights.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Launch {
    /// The number that ops name.
    pub k: usize,
    /// The specialisation's name, dimensions and all.
    pub specialisation: String,
    /// Specialisations of higher row tiles that may run in its place.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub higher: Vec<String>,
    /// Tensor names, by the number of the `weight` role.
    pub weights: Vec<String>,
}

/// A specialisation and its files: `ttir`, `certificate`, and for other targets what was compiled from the TTIR.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Kernel {
    /// The stem of its TTIR.
    pub specialisation: String,
    /// Of the location-free text: what the certificate is bound to.
    pub ttir_hash: String,
    /// One a kind.
    pub files: Vec<File>,
}

/// A file of a kernel: its kind, path and hash.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct File {
    /// `ttir`, `certificate`, or the name of a compiler's output.
    pub kind: String,
    /// In the bundle's folder, with `/`.
    pub path: String,
    /// Of the file's bytes.
    pub blake3: String,
}

/// A file of the model: its name and hash.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Named {
    /// The file's name, without its folder.
    pub name: String,
    /// BLAKE3 of its contents, in hexadecimal.
    pub blake3: String,
}

impl Kernel {
    /// The kernel's file of this kind (`ttir`, `certificate`, `cubin`, `launch`), if the bundle has one.
    pub fn file(&self, kind: &str) -> Option<&File> {
        self.files.iter().find(|file| file.kind == kind)
    }
}

impl Model {
    /// Hashes the files that make a model: weights, configuration, tokenizer, chat template.
    pub fn of_files(name: &str, family: &str, path: &Path) -> Result<Model, (PathBuf, io::Error)> {
        Self::of_contents(name, family, path, |_| None)
    }

    /// The same with other bytes in the place of the files that `held` has any for, by name.
    pub fn of_contents<'a>(
        name: &str,
        family: &str,
        path: &Path,
        held: impl Fn(&str) -> Option<&'a [u8]>,
    ) -> Result<Model, (PathBuf, io::Error)> {
        let (mut all, mut named) = (blake3::Hasher::new(), vec![]);
        for file in files(path).map_err(|error| (path.to_path_buf(), error))? {
            let mut content = blake3::Hasher::new();
            let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
            match held(&name) {
                Some(bytes) => _ = content.update_rayon(bytes),
                None => _ = content.update_mmap_rayon(&file).map_err(|error| (file.clone(), error))?,
            }
            let hash = content.finalize();
            all.update(hash.as_bytes());
            named.push(Named { name, blake3: hash.to_hex().to_string() });
        }
        let hash = all.finalize().to_hex().to_string();
        Ok(Model { name: name.into(), family: family.into(), hash, files: named })
    }
}

/// The files that make a model, sorted by name.
fn files(path: &Path) -> io::Result<Vec<PathBuf>> {
    if path.is_file() {
        return Ok(vec![path.to_path_buf()]);
    }
    let matters = |path: &Path| {
        let extension = path.extension().and_then(|e| e.to_str()).unwrap_or("");
        path.is_file() && ["json", "safetensors", "jinja"].contains(&extension)
    };
    let mut files: Vec<PathBuf> = fs::read_dir(path)?.flatten().map(|e| e.path()).filter(|p| matters(p)).collect();
    files.sort();
    Ok(files)
}
