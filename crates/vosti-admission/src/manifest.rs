//! `manifest.json` of a bundle: its model, its program, its kernels, and the hash of every file.
//!
//! It has nothing that no reader compares: [`Bundle::check_origin`](crate::Bundle::check_origin) computes every field again.

use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::{fs, io};

/// The name of the format that this binary writes and reads; [`Bundle::read`](crate::Bundle::read) refuses any other.
pub const FORMAT: &str = "vosti-bundle/2";

/// The purpose and the contents of a bundle.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    /// [`FORMAT`].
    pub format: String,
    /// Version of the `vosti` that made it, and that reads it.
    pub vosti: String,
    /// The target that it was prepared for: `cpu`, `cuda-sm90`, ...
    pub target: String,
    /// [`Model::hash`].
    pub model: String,
    /// Tokens of the longest sequence.
    pub context: u32,
    /// Tokens in a KV page.
    pub page: usize,
    /// BLAKE3 over the program, its bindings and how each weight is made.
    pub program: String,
    /// The kernels that the program launches, each specialisation once.
    pub kernels: Vec<Kernel>,
}

/// The format of a manifest that may be another version's.
#[derive(Deserialize)]
pub(crate) struct Format {
    pub format: String,
}

/// The files that a model is made of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Model {
    /// BLAKE3 over the contents of the model's files, sorted by name.
    pub hash: String,
    /// The files, sorted by path.
    pub files: Vec<Named>,
}

/// A specialisation and its files: `ttir` and `certificate`, and for a GPU target `cubin` and `launch`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Kernel {
    /// The specialisation's name, with dimensions.
    pub specialisation: String,
    /// BLAKE3 of the TTIR without comments, to which the certificate is bound.
    pub ttir_hash: String,
    /// The files, one of each kind.
    pub files: Vec<File>,
}

/// A file of a kernel: its kind, path and hash.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct File {
    /// `ttir`, `certificate`, `cubin` or `launch`.
    pub kind: String,
    /// The path in the bundle's folder, separated by `/`.
    pub path: String,
    /// BLAKE3 of the file's bytes, in hexadecimal.
    pub blake3: String,
}

/// A file of the model: its name and hash.
#[derive(Clone, Debug, PartialEq, Eq)]
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
    /// Hashes the files that make a model: the file at `path`, or a folder's weights, configuration, tokenizer and chat
    /// template. The error has the path that could not be read.
    pub fn of_files(path: &Path) -> Result<Model, (PathBuf, io::Error)> {
        Self::of_contents(path, |_| None)
    }

    /// As [`Model::of_files`], with the bytes that `held` gives for a file's name in the place of its contents.
    pub fn of_contents<'a>(
        path: &Path,
        held: impl Fn(&str) -> Option<&'a [u8]>,
    ) -> Result<Model, (PathBuf, io::Error)> {
        let (mut all, mut named) = (blake3::Hasher::new(), vec![]);
        for file in files(path)? {
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
        Ok(Model { hash, files: named })
    }
}

/// The files that make a model, sorted by name. The error has the folder, or the file, that could not be read: a file left out
/// would be left out of the hash.
fn files(path: &Path) -> Result<Vec<PathBuf>, (PathBuf, io::Error)> {
    if path.is_file() {
        return Ok(vec![path.to_path_buf()]);
    }
    let of_folder = |error| (path.to_path_buf(), error);
    let mut files = vec![];
    for entry in fs::read_dir(path).map_err(of_folder)? {
        let file = entry.map_err(of_folder)?.path();
        let extension = file.extension().and_then(|e| e.to_str()).unwrap_or("");
        if !["json", "safetensors", "jinja"].contains(&extension) {
            continue;
        }
        match fs::metadata(&file) {
            Ok(found) if found.is_file() => files.push(file),
            Ok(_) => {}
            Err(error) => return Err((file, error)),
        }
    }
    files.sort();
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(unix)]
    #[test]
    fn a_file_that_cannot_be_read_is_an_error_and_is_not_left_out() {
        let folder = tempfile::tempdir().unwrap();
        let inside = |name: &str| folder.path().join(name);
        fs::write(inside("config.json"), "{}").unwrap();
        fs::write(inside("notes.txt"), "no part of the model").unwrap();
        fs::create_dir(inside("old.json")).unwrap();
        let names = |model: Model| model.files.into_iter().map(|file| file.name).collect::<Vec<_>>();
        assert_eq!(names(Model::of_files(folder.path()).unwrap()), ["config.json"]);
        std::os::unix::fs::symlink(inside("nothing"), inside("model.safetensors")).unwrap();
        assert_eq!(Model::of_files(folder.path()).unwrap_err().0, inside("model.safetensors"));
        assert_eq!(Model::of_files(&inside("none")).unwrap_err().0, inside("none"));
    }
}
