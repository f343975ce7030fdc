//! A model's tensors on disk: a GGUF file or its parts, or safetensors files with or without an index. They are memory-mapped, not read.

use std::collections::HashMap;
use std::fs::File;
use std::ops::{Deref, Range};
use std::path::{Path, PathBuf};

use memmap2::Mmap;
use safetensors::{Dtype, SafeTensors};
use vosti_kernels::Format;

use crate::dequantise::GgmlType;
use crate::error::{ModelError, Result};
use crate::gguf::Metadata;
use crate::matrix::Matrix;
use crate::mxfp4::Mxfp4;
use crate::scaled::{Method, Stored};

/// A tensor in its stored form.
#[derive(Clone, Debug)]
pub struct RawTensor<'a> {
    /// Axes, slowest first.
    pub shape: Vec<usize>,
    /// Element type.
    pub kind: GgmlType,
    /// Whole blocks of that type.
    pub bytes: &'a [u8],
}

/// Tensors by name.
pub enum TensorFiles {
    /// A GGUF file, or all parts of one.
    Gguf {
        /// The mapped files.
        maps: Vec<Mmap>,
        /// The first one's header, with the tensors of all.
        metadata: Metadata,
    },
    /// The safetensors files of a Hugging Face folder.
    Safetensors {
        /// The files.
        shards: Vec<Shard>,
        /// File and place of each tensor.
        places: HashMap<String, Place>,
        /// The method by which weights are stored; `None` for plain numbers.
        method: Option<Method>,
    },
}

/// A safetensors file.
pub struct Shard {
    pub(crate) name: String,
    pub(crate) content: Content,
}

/// A file's bytes.
pub(crate) enum Content {
    Mapped(Mmap),
    /// Bytes in memory that replace the file on disk, see [`crate::Replacement`].
    Held(Vec<u8>),
}

impl Shard {
    fn mapped(&self) -> Option<&Mmap> {
        match &self.content {
            Content::Mapped(map) => Some(map),
            Content::Held(_) => None,
        }
    }
}

impl Deref for Content {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Content::Mapped(map) => map,
            Content::Held(bytes) => bytes,
        }
    }
}

/// The place of a tensor in a safetensors file.
#[derive(Clone, Debug)]
pub struct Place {
    pub(crate) shard: usize,
    pub(crate) shape: Vec<usize>,
    pub(crate) dtype: Dtype,
    pub(crate) bytes: Range<usize>,
}

/// Prefixes of a text tensor's name in Hugging Face checkpoints: text models, multimodal models of
/// transformers 5 and 4, bare models.
const PREFIXES: [&str; 6] =
    ["model.", "backbone.", "model.language_model.", "language_model.model.", "", "language_model."];

/// Parts of the names of a multimodal checkpoint's other tensors: of the encoders of images and sounds, and of what leads from them to the
/// text model. Those of llama.cpp begin with the last ones.
const OTHER: [&str; 6] =
    ["vision_tower.", "audio_tower.", "embed_vision.", "embed_audio.", "multi_modal_projector.", "visual."];
const OTHER_GGUF: [&str; 3] = ["v.", "a.", "mm."];

/// Bytes of a tensor whose pages are released at once.
const STRETCH: usize = 2048 << 10;
/// The fewest bytes that Linux maps around a page that is read (6.18 may map more: whole folios of the page cache). It is a
/// multiple of the page size on every supported system.
const AROUND: usize = 64 << 10;

impl TensorFiles {
    /// Maps a GGUF file and parses its header; of a model in parts every part, whichever `path` is. Errors: one cannot be read, is
    /// not a GGUF file, or is damaged; a part is missing, or is of another model.
    pub fn open_gguf(path: &Path) -> Result<Self> {
        let open = |path: &Path| -> Result<_> {
            let map = map_file(path)?;
            let metadata = Metadata::parse(&file_name(path), &map)?;
            Ok((map, metadata))
        };
        let (map, metadata) = open(path)?;
        let (given, parts) = metadata.part()?;
        if parts == 1 {
            return Ok(Self::Gguf { maps: vec![map], metadata });
        }
        let file = file_name(path);
        let incomplete = |why: String| ModelError::Incomplete { file: file.clone(), part: given + 1, parts, why };
        let name = |part: usize| format!("-{:05}-of-{parts:05}.gguf", part + 1);
        let stem = file.strip_suffix(&name(given));
        let stem = stem.ok_or_else(|| incomplete(format!("its name must end in {}", name(given))))?;
        let mut opened = Some((map, metadata));
        let (mut maps, mut headers) = (Vec::new(), Vec::new());
        for part in 0..parts {
            let path = path.with_file_name(format!("{stem}{}", name(part)));
            let (map, metadata) = match opened.take_if(|_| part == given) {
                Some(opened) => opened,
                None if !path.exists() => return Err(incomplete(format!("{} is not beside it", file_name(&path)))),
                None => open(&path)?,
            };
            if metadata.part()? != (part, parts) {
                return Err(incomplete(format!("{} is no part of it", file_name(&path))));
            }
            maps.push(map);
            headers.push(metadata);
        }
        let metadata = headers.remove(0).with_parts(headers)?;
        Ok(Self::Gguf { maps, metadata })
    }

    /// Maps every safetensors file of a folder: those that the index names, or `model.safetensors`. Errors: a file is missing,
    /// cannot be read, or is damaged.
    pub fn open_folder(folder: &Path) -> Result<Self> {
        let mut shards = Vec::new();
        let mut places = HashMap::new();
        for path in shard_paths(folder)? {
            let map = map_file(&path)?;
            let file = file_name(&path);
            let damaged = |why: String| ModelError::Damaged { file: file.clone(), why };
            let tensors = SafeTensors::deserialize(&map).map_err(|e| damaged(format!("{e}")))?;
            for (name, view) in tensors.iter() {
                // The views borrow the map: their offset is their distance from its start.
                let begin = view.data().as_ptr() as usize - map.as_ptr() as usize;
                let place = Place {
                    shard: shards.len(),
                    shape: view.shape().to_vec(),
                    dtype: view.dtype(),
                    bytes: begin..begin + view.data().len(),
                };
                if places.insert(name.to_string(), place).is_some() {
                    return Err(damaged(format!("tensor `{name}` is in two files")));
                }
            }
            shards.push(Shard { name: file, content: Content::Mapped(map) });
        }
        Ok(Self::Safetensors { shards, places, method: None })
    }

    /// The same files, with the method by which the folder's configuration stores weights.
    pub fn stored_by(mut self, stored: Option<Method>) -> Self {
        if let Self::Safetensors { method, .. } = &mut self {
            *method = stored;
        }
        self
    }

    /// The bytes that replace the file with this name, if there are any.
    pub fn held(&self, name: &str) -> Option<&[u8]> {
        let Self::Safetensors { shards, .. } = self else { return None };
        shards.iter().find_map(|shard| match &shard.content {
            Content::Held(bytes) if shard.name == name => Some(bytes.as_slice()),
            _ => None,
        })
    }

    /// The GGUF header, if this is a GGUF file.
    pub fn metadata(&self) -> Option<&Metadata> {
        match self {
            Self::Gguf { metadata, .. } => Some(metadata),
            Self::Safetensors { .. } => None,
        }
    }

    /// How many tensors are of images and sounds. No model reads them.
    pub fn left_out(&self) -> usize {
        match self {
            Self::Gguf { metadata, .. } => {
                metadata.tensors().filter(|(name, _)| OTHER_GGUF.iter().any(|start| name.starts_with(start))).count()
            }
            Self::Safetensors { places, .. } => {
                places.keys().filter(|name| OTHER.iter().any(|part| name.contains(part))).count()
            }
        }
    }

    /// Releases the pages of some bytes of a tensor after they were read. Mapped pages count as this process's memory until then.
    /// Each call to the system stops the other threads for a moment, so nothing is released until the bytes reach the end of a
    /// stretch or of the tensor. Then the stretch is released, and again the one before, whose pages other threads may have
    /// mapped again. The bytes may still be read.
    pub fn give_back(&self, bytes: &[u8], tensor: &[u8]) {
        let holds = |map: &&Mmap| map.as_ptr_range().contains(&bytes.as_ptr());
        let map = match self {
            Self::Gguf { maps, .. } => maps.iter().find(holds),
            Self::Safetensors { shards, .. } => shards.iter().filter_map(Shard::mapped).find(holds),
        };
        let Some(map) = map else { return };
        let base = map.as_ptr() as usize;
        let start = bytes.as_ptr() as usize - tensor.as_ptr() as usize;
        let end = start + bytes.len();
        let first = (start / STRETCH * STRETCH).saturating_sub(STRETCH);
        if start / STRETCH < end / STRETCH || end == tensor.len() {
            let end = if end == tensor.len() { end } else { end / STRETCH * STRETCH };
            let at = tensor.as_ptr() as usize;
            let first = ((at + first) / AROUND * AROUND).max(base) - base;
            let end = ((at + end).next_multiple_of(AROUND) - base).min(map.len());
            // SAFETY: the map is of a file, shared or private and never written: pages come back as they were.
            #[cfg(unix)]
            let _ = unsafe { map.unchecked_advise_range(memmap2::UncheckedAdvice::DontNeed, first, end - first) };
        }
    }

    /// A tensor by its name without the checkpoint's prefix.
    pub fn tensor(&self, name: &str) -> Result<RawTensor<'_>> {
        let missing = || ModelError::TensorMissing { name: name.to_string() };
        match self {
            Self::Gguf { maps, metadata } => {
                let info = metadata.tensor(name).ok_or_else(missing)?;
                let bytes = &maps[info.part][info.bytes.clone()];
                Ok(RawTensor { shape: info.shape.clone(), kind: info.kind, bytes })
            }
            Self::Safetensors { shards, places, .. } => {
                let stored = find(shards, places, name).ok_or_else(missing)?;
                let kind = match stored.dtype {
                    Dtype::F32 => GgmlType::F32,
                    Dtype::F16 => GgmlType::F16,
                    Dtype::BF16 => GgmlType::BF16,
                    other => {
                        let (name, known) = (name.to_string(), vec!["F32", "F16", "BF16"]);
                        return Err(ModelError::TensorType { name, found: format!("{other:?}"), known });
                    }
                };
                Ok(RawTensor { shape: stored.shape.to_vec(), kind, bytes: stored.bytes })
            }
        }
    }

    /// The format of a tensor's blocks, if products with it are computed in integers.
    pub fn integers(&self, name: &str) -> Option<&'static Format> {
        self.matrix(name).ok()?.integers()
    }

    /// A tensor as rows, in any stored form.
    pub(crate) fn matrix(&self, name: &str) -> Result<Matrix<'_>> {
        if let Self::Safetensors { shards, places, method: Some(method) } = self {
            let find = |name: &str| find(shards, places, name);
            if let Some(blocks) = Mxfp4::find(name, &find)? {
                return Ok(Matrix::Mxfp4(blocks));
            }
            if let Some(scaled) = method.find(name, &find)? {
                return Ok(Matrix::Scaled(scaled));
            }
        }
        self.tensor(name).map(Matrix::Tensor)
    }
}

/// A tensor of any type by its name without the checkpoint's prefix.
fn find<'a>(shards: &'a [Shard], places: &'a HashMap<String, Place>, name: &str) -> Option<Stored<'a>> {
    let place = PREFIXES.iter().find_map(|prefix| places.get(&format!("{prefix}{name}")))?;
    Some(Stored { shape: &place.shape, dtype: place.dtype, bytes: &shards[place.shard].content[place.bytes.clone()] })
}

/// The safetensors files of a folder, from its index if it has one.
fn shard_paths(folder: &Path) -> Result<Vec<PathBuf>> {
    let index = folder.join("model.safetensors.index.json");
    if !index.exists() {
        let single = folder.join("model.safetensors");
        if single.exists() {
            return Ok(vec![single]);
        }
        return Err(ModelError::NotAModel {
            path: folder.to_path_buf(),
            why: "it has neither model.safetensors nor model.safetensors.index.json".into(),
        });
    }
    let file = file_name(&index);
    let damaged = |why: &str| ModelError::Damaged { file: file.clone(), why: why.into() };
    let json = read_json(&index)?;
    let map = json.get("weight_map").and_then(|m| m.as_object()).ok_or_else(|| damaged("it has no `weight_map`"))?;
    let mut names: Vec<&str> = Vec::new();
    for value in map.values() {
        let name = value.as_str().ok_or_else(|| damaged("its `weight_map` names something that is no file"))?;
        // An index must not name a file outside its folder.
        if name.contains(['/', '\\']) || name.starts_with('.') || !name.ends_with(".safetensors") {
            return Err(damaged(&format!("it names the file `{name}`")));
        }
        names.push(name);
    }
    names.sort_unstable();
    names.dedup();
    Ok(names.into_iter().map(|name| folder.join(name)).collect())
}

/// Reads a JSON file, as Python writes it, of at most the size of `read_small`.
pub(crate) fn read_json(path: &Path) -> Result<serde_json::Value> {
    let bytes = read_small(path)?;
    crate::json::parse(&bytes)
        .map_err(|e| ModelError::Damaged { file: file_name(path), why: format!("it is not JSON: {e}") })
}

/// Reads a file of at most 256 MiB.
pub(crate) fn read_small(path: &Path) -> Result<Vec<u8>> {
    const BYTES_MAX: u64 = 256 << 20; // a tokenizer.json is tens of megabytes
    let read = |why| ModelError::Read { path: path.to_path_buf(), why };
    let length = std::fs::metadata(path).map_err(read)?.len();
    if length > BYTES_MAX {
        return Err(ModelError::Damaged { file: file_name(path), why: format!("it is {length} bytes long") });
    }
    std::fs::read(path).map_err(read)
}

pub(crate) fn file_name(path: &Path) -> String {
    path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned()
}

fn map_file(path: &Path) -> Result<Mmap> {
    let read = |why| ModelError::Read { path: path.to_path_buf(), why };
    let file = File::open(path).map_err(read)?;
    let length = file.metadata().map_err(read)?;
    if !length.is_file() || length.len() == 0 {
        return Err(ModelError::Damaged { file: file_name(path), why: "it is empty or no file".into() });
    }
    // SAFETY: the map is read-only and private to this process. Another process that truncates the file
    // while it is mapped would end this one with SIGBUS: model files are not written in place, the
    // puller renames complete files.
    unsafe { Mmap::map(&file) }.map_err(read)
}
