//! Replaces a folder's tensors with others, in memory.
//!
//! A replacement is the folder's safetensors files with every tensor's bytes exchanged. Names, shapes, types and layout stay
//! the same, so a folder with these files on disk would be the same model, down to its hash. The files on disk are never
//! touched.
//! Read next: [`crate::TensorFiles`].

use std::collections::BTreeSet;

use crate::error::{ModelError, Result};
use crate::files::{Content, Shard, TensorFiles};

/// A tensor that a replacement needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// Its name in the files, with its prefix.
    pub name: String,
    /// Its element type, as safetensors files write it.
    pub dtype: String,
    /// Axes, slowest first.
    pub shape: Vec<usize>,
}

/// Files in memory, to be filled with tensors.
pub struct Replacement {
    files: TensorFiles,
    missing: BTreeSet<String>,
}

impl Replacement {
    /// A replacement with the layout of these files. Error: they are a GGUF file.
    pub fn of(files: TensorFiles) -> Result<Self> {
        let TensorFiles::Safetensors { mut shards, places, method } = files else {
            return Err(ModelError::NotReplaceable);
        };
        for (index, shard) in shards.iter_mut().enumerate() {
            let begins = places.values().filter(|place| place.shard == index).map(|place| place.bytes.start);
            let header = begins.min().unwrap_or(shard.content.len());
            let mut bytes = vec![0; shard.content.len()];
            bytes[..header].copy_from_slice(&shard.content[..header]);
            *shard = Shard { name: std::mem::take(&mut shard.name), content: Content::Held(bytes) };
        }
        let missing = places.keys().cloned().collect();
        Ok(Self { files: TensorFiles::Safetensors { shards, places, method }, missing })
    }

    /// Every tensor that the replacement needs, sorted by name.
    pub fn wanted(&self) -> Vec<Wanted> {
        let TensorFiles::Safetensors { places, .. } = &self.files else { return Vec::new() };
        let mut wanted: Vec<Wanted> = places
            .iter()
            .map(|(name, place)| Wanted {
                name: name.clone(),
                dtype: format!("{:?}", place.dtype),
                shape: place.shape.clone(),
            })
            .collect();
        wanted.sort_by(|a, b| a.name.cmp(&b.name));
        wanted
    }

    /// Sets a tensor: its elements in its stored type, row-major, little-endian. Errors: the files have no such tensor, or the
    /// number of bytes is another.
    pub fn put(&mut self, name: &str, bytes: &[u8]) -> Result<()> {
        let TensorFiles::Safetensors { shards, places, .. } = &mut self.files else {
            return Err(ModelError::NotReplaceable);
        };
        let wrong = |why: String| ModelError::Replacement { name: name.into(), why };
        let place = places.get(name).ok_or_else(|| wrong("is not in the model's files".into()))?;
        let Content::Held(held) = &mut shards[place.shard].content else { return Err(ModelError::NotReplaceable) };
        if bytes.len() != place.bytes.len() {
            return Err(wrong(format!("has {} bytes, not {}", bytes.len(), place.bytes.len())));
        }
        held[place.bytes.clone()].copy_from_slice(bytes);
        self.missing.remove(name);
        Ok(())
    }

    /// The files. Error: a tensor was not set.
    pub fn whole(self) -> Result<TensorFiles> {
        match self.missing.into_iter().next() {
            Some(name) => Err(ModelError::Replacement { name, why: "is missing".into() }),
            None => Ok(self.files),
        }
    }
}
