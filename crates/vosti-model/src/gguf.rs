//! GGUF files: header, metadata and tensor table, parsed with every size checked against the file.
//!
//! The file is untrusted: a count is refused if the remaining bytes cannot hold it, so no allocation is larger than the file.
//! Source: the GGUF specification of ggml.
//! Read next: `dequantise.rs`.

use std::borrow::Cow;
use std::collections::HashMap;

use crate::dequantise::GgmlType;
use crate::error::{ModelError, Result};

/// A metadata value.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// Any integer type.
    Int(i128),
    /// Either float type.
    Float(f64),
    /// A boolean.
    Bool(bool),
    /// A string; invalid UTF-8 is replaced.
    Str(String),
    /// An array of integers.
    Ints(Vec<i64>),
    /// An array of floats.
    Floats(Vec<f32>),
    /// An array of booleans.
    Bools(Vec<bool>),
    /// An array of strings.
    Strs(Strings),
}

/// A list of strings in one allocation: a vocabulary has hundreds of thousands.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Strings {
    text: String,
    ends: Vec<usize>,
}

impl Strings {
    fn push(&mut self, text: &str) {
        self.text.push_str(text);
        self.ends.push(self.text.len());
    }

    /// The number of strings.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there is no string.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// The `i`-th string.
    pub fn get(&self, i: usize) -> Option<&str> {
        let start = if i == 0 { 0 } else { *self.ends.get(i - 1)? };
        Some(&self.text[start..*self.ends.get(i)?])
    }

    /// All strings, in order.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &str> + ExactSizeIterator {
        (0..self.len()).map(|i| self.get(i).unwrap_or_default())
    }
}

/// A tensor's entry in the file.
#[derive(Clone, Debug, PartialEq)]
pub struct TensorInfo {
    /// Axes, slowest first (the file stores them fastest first).
    pub shape: Vec<usize>,
    /// Element type.
    pub kind: GgmlType,
    /// The file that it is in, of a model in several.
    pub part: usize,
    /// Its bytes in that file.
    pub bytes: std::ops::Range<usize>,
}

/// A parsed file without its tensors' data.
#[derive(Clone, Debug)]
pub struct Metadata {
    file: String,
    values: HashMap<String, Value>,
    tensors: HashMap<String, TensorInfo>,
}

impl Metadata {
    /// Every key with its value, in no order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Value)> {
        self.values.iter().map(|(key, value)| (key.as_str(), value))
    }

    /// Parses the bytes of a whole file. `file` is its name for messages. Errors: it is not GGUF, its version or an element type
    /// is not supported, or it cannot hold a size that it names.
    pub fn parse(file: &str, bytes: &[u8]) -> Result<Self> {
        let mut reader = Reader { file, bytes, at: 0 };
        if !bytes.starts_with(b"GGUF") {
            return Err(ModelError::NotGguf { file: file.into() });
        }
        reader.take(4)?;
        let version = reader.u32()?;
        if !(2..=3).contains(&version) {
            return Err(ModelError::GgufVersion { file: file.into(), version });
        }
        let tensor_count = reader.count(24)?;
        let value_count = reader.count(13)?;
        let mut values = HashMap::new();
        for _ in 0..value_count {
            let key = reader.string()?;
            let kind = reader.u32()?;
            let value = reader.value(kind)?;
            if values.insert(key.clone(), value).is_some() {
                return Err(reader.damaged(format!("it says `{key}` twice")));
            }
        }
        let mut heads = Vec::new();
        for _ in 0..tensor_count {
            heads.push(reader.tensor_head()?);
        }
        let mut metadata = Self { file: file.to_string(), values, tensors: HashMap::new() };
        let start = metadata.data_start(reader.at)?;
        for head in heads {
            let name = head.name.clone();
            let info = head.place(file, start, bytes.len())?;
            if metadata.tensors.insert(name.clone(), info).is_some() {
                return Err(reader.damaged(format!("it has tensor `{name}` twice")));
            }
        }
        metadata.check_apart()?;
        Ok(metadata)
    }

    /// Each byte belongs to one tensor: others would be read as two.
    fn check_apart(&self) -> Result<()> {
        let mut places: Vec<_> = self.tensors().map(|(name, info)| (info.bytes.clone(), name)).collect();
        places.retain(|(bytes, _)| !bytes.is_empty());
        places.sort_unstable_by_key(|(bytes, name)| (bytes.start, *name));
        match places.windows(2).find(|pair| pair[1].0.start < pair[0].0.end) {
            None => Ok(()),
            Some(pair) => {
                let why = format!("tensors `{}` and `{}` overlap", pair[0].1, pair[1].1);
                Err(ModelError::Damaged { file: self.file.clone(), why })
            }
        }
    }

    /// The data begins at the next multiple of the alignment.
    fn data_start(&self, header_end: usize) -> Result<usize> {
        let alignment = self.u32_or("general.alignment", 32)?;
        if !alignment.is_power_of_two() || alignment > 1 << 20 {
            return Err(self.bad("general.alignment", format!("is {alignment}, not a power of two")));
        }
        Ok(header_end.next_multiple_of(alignment as usize))
    }

    /// Which part of a model this file is, from 0, and how many parts there are.
    pub fn part(&self) -> Result<(usize, usize)> {
        let (part, parts) = (self.u32_or("split.no", 0)?, self.u32_or("split.count", 0)?.max(1));
        if part >= parts || parts > 99_999 {
            return Err(self.bad("split.no", format!("is {part} of {parts} parts")));
        }
        Ok((part as usize, parts as usize))
    }

    /// Adds the tensors of the other parts, which are in order. Error: a tensor is in two parts, or the parts have fewer or more
    /// tensors than the first one says.
    pub(crate) fn with_parts(mut self, others: Vec<Self>) -> Result<Self> {
        for (part, other) in (1..).zip(others) {
            for (name, info) in other.tensors {
                if self.tensors.insert(name.clone(), TensorInfo { part, ..info }).is_some() {
                    let why = format!("tensor `{name}` is in another part too");
                    return Err(ModelError::Damaged { file: other.file, why });
                }
            }
        }
        let said = self.u32_opt("split.tensors.count")?;
        match said.filter(|count| *count as usize != self.tensors.len()) {
            None => Ok(self),
            Some(count) => {
                let why = format!("is {count}, and the parts have {} tensors", self.tensors.len());
                Err(self.bad("split.tensors.count", why))
            }
        }
    }

    /// The file's name, for messages.
    pub fn file(&self) -> &str {
        &self.file
    }

    /// A value, if the file has it.
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.values.get(key)
    }

    /// Every tensor by name, in no particular order.
    pub fn tensors(&self) -> impl Iterator<Item = (&str, &TensorInfo)> {
        self.tensors.iter().map(|(name, info)| (name.as_str(), info))
    }

    /// A tensor's entry, if the file has the tensor.
    pub fn tensor(&self, name: &str) -> Option<&TensorInfo> {
        self.tensors.get(name)
    }

    /// Whether the file has a tensor.
    pub fn has_tensor(&self, name: &str) -> bool {
        self.tensors.contains_key(name)
    }

    pub(crate) fn bad(&self, key: &str, why: impl Into<String>) -> ModelError {
        ModelError::Config { file: self.file.clone(), key: key.into(), why: why.into() }
    }

    fn typed<T>(&self, key: &str, what: &str, read: impl Fn(&Value) -> Option<T>) -> Result<Option<T>> {
        let value = self.values.get(key);
        value.map(|v| read(v).ok_or_else(|| self.bad(key, format!("is not {what}")))).transpose()
    }

    fn required<T>(&self, key: &str, value: Option<T>) -> Result<T> {
        value.ok_or_else(|| self.bad(key, "is missing"))
    }

    pub(crate) fn u32_opt(&self, key: &str) -> Result<Option<u32>> {
        self.typed(key, "a whole number below 2^32", |v| match v {
            Value::Int(n) => u32::try_from(*n).ok(),
            _ => None,
        })
    }

    pub(crate) fn u32(&self, key: &str) -> Result<u32> {
        self.required(key, self.u32_opt(key)?)
    }

    pub(crate) fn u32_or(&self, key: &str, default: u32) -> Result<u32> {
        Ok(self.u32_opt(key)?.unwrap_or(default))
    }

    pub(crate) fn f64_opt(&self, key: &str) -> Result<Option<f64>> {
        self.typed(key, "a finite number", |v| match v {
            Value::Int(n) => Some(*n as f64),
            Value::Float(f) => Some(*f).filter(|f| f.is_finite()),
            _ => None,
        })
    }

    pub(crate) fn f64(&self, key: &str) -> Result<f64> {
        self.required(key, self.f64_opt(key)?)
    }

    pub(crate) fn f64_or(&self, key: &str, default: f64) -> Result<f64> {
        Ok(self.f64_opt(key)?.unwrap_or(default))
    }

    pub(crate) fn bool_or(&self, key: &str, default: bool) -> Result<bool> {
        let value = self.typed(key, "true or false", |v| match v {
            Value::Bool(b) => Some(*b),
            _ => None,
        })?;
        Ok(value.unwrap_or(default))
    }

    pub(crate) fn str_opt(&self, key: &str) -> Result<Option<&str>> {
        match self.values.get(key) {
            None => Ok(None),
            Some(Value::Str(s)) => Ok(Some(s)),
            Some(_) => Err(self.bad(key, "is not a string")),
        }
    }

    pub(crate) fn str(&self, key: &str) -> Result<&str> {
        self.required(key, self.str_opt(key)?)
    }

    pub(crate) fn strs(&self, key: &str) -> Result<&Strings> {
        match self.values.get(key) {
            Some(Value::Strs(list)) => Ok(list),
            Some(_) => Err(self.bad(key, "is not a list of strings")),
            None => Err(self.bad(key, "is missing")),
        }
    }

    pub(crate) fn ints(&self, key: &str) -> Result<&[i64]> {
        match self.values.get(key) {
            Some(Value::Ints(list)) => Ok(list),
            Some(_) => Err(self.bad(key, "is not a list of whole numbers")),
            None => Err(self.bad(key, "is missing")),
        }
    }

    pub(crate) fn floats(&self, key: &str) -> Result<&[f32]> {
        match self.values.get(key) {
            Some(Value::Floats(list)) => Ok(list),
            Some(_) => Err(self.bad(key, "is not a list of numbers")),
            None => Err(self.bad(key, "is missing")),
        }
    }

    /// A flag for each layer.
    pub(crate) fn bools(&self, key: &str, layers: usize) -> Result<Vec<bool>> {
        match self.values.get(key) {
            Some(Value::Bools(list)) if list.len() == layers => Ok(list.clone()),
            Some(_) => Err(self.bad(key, format!("is not a list of {layers} flags"))),
            None => Err(self.bad(key, "is missing")),
        }
    }

    /// A number for each layer: one for all, or a list.
    pub(crate) fn u32_each(&self, key: &str, layers: usize) -> Result<Vec<u32>> {
        match self.values.get(key) {
            Some(Value::Ints(list)) => {
                let numbers: Option<Vec<u32>> = list.iter().map(|n| u32::try_from(*n).ok()).collect();
                numbers
                    .filter(|n| n.len() == layers)
                    .ok_or_else(|| self.bad(key, format!("is not a list of {layers} numbers")))
            }
            _ => Ok(vec![self.u32(key)?; layers]),
        }
    }

    /// An RMS norm's epsilon. The files have f32 for a decimal number: 1e-5 is stored as 9.99999974e-6.
    pub(crate) fn eps(&self, key: &str) -> Result<f64> {
        let stored = self.f64(key)?;
        Ok(format!("{}", stored as f32).parse().unwrap_or(stored))
    }

    /// Rows of the embedding matrix.
    pub(crate) fn vocabulary(&self) -> Result<u32> {
        let name = "token_embd.weight";
        let info = self.tensor(name).ok_or_else(|| ModelError::TensorMissing { name: name.into() })?;
        let rows = info.shape.first().copied().unwrap_or(0);
        u32::try_from(rows).map_err(|_| self.bad(name, format!("has {rows} rows")))
    }

    /// The number of layers, checked before a list is allocated from it.
    pub(crate) fn layers(&self, key: &str) -> Result<u32> {
        let layers = self.u32(key)?;
        if layers == 0 || layers > 1024 {
            return Err(self.bad(key, format!("is {layers}, not between 1 and 1024")));
        }
        Ok(layers)
    }
}

/// A tensor's entry in the table, before its place is checked.
struct TensorHead {
    name: String,
    shape: Vec<u64>,
    kind: u32,
    offset: u64,
}

impl TensorHead {
    fn place(self, file: &str, start: usize, file_bytes: usize) -> Result<TensorInfo> {
        let Self { name, shape, kind, offset } = self;
        let damaged = |why: String| ModelError::Damaged { file: file.into(), why };
        let kind = GgmlType::from_code(kind).ok_or_else(|| ModelError::TensorType {
            name: name.clone(),
            found: GgmlType::unread(kind),
            known: GgmlType::names(),
        })?;
        let shape: Option<Vec<usize>> = shape.iter().map(|n| usize::try_from(*n).ok()).collect();
        let elements = shape.as_ref().and_then(|s| s.iter().try_fold(1usize, |a, b| a.checked_mul(*b)));
        let (Some(shape), Some(elements)) = (shape, elements) else {
            return Err(damaged(format!("tensor `{name}` has a size that overflows")));
        };
        let columns = shape.last().copied().unwrap_or(1);
        if columns % kind.block_elements() != 0 {
            return Err(damaged(format!("tensor `{name}`: {columns} columns are not whole blocks of {kind:?}")));
        }
        let length = (elements / kind.block_elements()).checked_mul(kind.block_bytes());
        let begin = usize::try_from(offset).ok().and_then(|o| start.checked_add(o));
        let end = begin.zip(length).and_then(|(b, l)| b.checked_add(l));
        match (begin, end) {
            (Some(begin), Some(end)) if end <= file_bytes => Ok(TensorInfo { shape, kind, part: 0, bytes: begin..end }),
            _ => Err(damaged(format!("tensor `{name}` ends past the end of the file ({file_bytes} bytes)"))),
        }
    }
}

/// A cursor over the header.
struct Reader<'a> {
    file: &'a str,
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    fn damaged(&self, why: impl Into<String>) -> ModelError {
        ModelError::Damaged { file: self.file.into(), why: why.into() }
    }

    fn take(&mut self, n: usize) -> Result<&'a [u8]> {
        let end = self.at.checked_add(n).filter(|end| *end <= self.bytes.len());
        let end = end.ok_or_else(|| self.damaged(format!("its header is cut off at byte {}", self.at)))?;
        let taken = &self.bytes[self.at..end];
        self.at = end;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        let mut out = [0; N];
        out.copy_from_slice(self.take(N)?);
        Ok(out)
    }

    fn u32(&mut self) -> Result<u32> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    fn u64(&mut self) -> Result<u64> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    /// A count of items with at least `bytes_min` bytes each. Error: the rest of the file cannot hold so many.
    fn count(&mut self, bytes_min: usize) -> Result<usize> {
        let at = self.at;
        let count = self.u64()?;
        let left = self.bytes.len().saturating_sub(self.at) / bytes_min;
        match usize::try_from(count) {
            Ok(n) if n <= left => Ok(n),
            _ => Err(self.damaged(format!("it counts {count} things at byte {at}, more than it can hold"))),
        }
    }

    fn text(&mut self) -> Result<Cow<'a, str>> {
        let length = self.count(1)?;
        Ok(String::from_utf8_lossy(self.take(length)?))
    }

    fn string(&mut self) -> Result<String> {
        Ok(self.text()?.into_owned())
    }

    fn value(&mut self, kind: u32) -> Result<Value> {
        Ok(match kind {
            7 => Value::Bool(self.array::<1>()?[0] != 0),
            8 => Value::Str(self.string()?),
            9 => self.list()?,
            6 => Value::Float(f32::from_le_bytes(self.array()?).into()),
            12 => Value::Float(f64::from_le_bytes(self.array()?)),
            _ => Value::Int(self.integer(kind)?),
        })
    }

    fn integer(&mut self, kind: u32) -> Result<i128> {
        Ok(match kind {
            0 => u8::from_le_bytes(self.array()?).into(),
            1 => i8::from_le_bytes(self.array()?).into(),
            2 => u16::from_le_bytes(self.array()?).into(),
            3 => i16::from_le_bytes(self.array()?).into(),
            4 => u32::from_le_bytes(self.array()?).into(),
            5 => i32::from_le_bytes(self.array()?).into(),
            10 => u64::from_le_bytes(self.array()?).into(),
            11 => i64::from_le_bytes(self.array()?).into(),
            _ => return Err(self.damaged(format!("it has a value of the unknown type {kind}"))),
        })
    }

    fn list(&mut self) -> Result<Value> {
        let kind = self.u32()?;
        let bytes_min = match kind {
            0 | 1 | 7 => 1,
            2 | 3 => 2,
            4..=6 => 4,
            8 | 10..=12 => 8,
            _ => return Err(self.damaged(format!("it has a list of the unsupported type {kind}"))),
        };
        let n = self.count(bytes_min)?;
        Ok(match kind {
            7 => Value::Bools(self.take(n)?.iter().map(|b| *b != 0).collect()),
            8 => {
                let mut strings = Strings::default();
                for _ in 0..n {
                    strings.push(&self.text()?);
                }
                Value::Strs(strings)
            }
            6 => {
                let bytes = self.take(n * 4)?;
                Value::Floats(bytes.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect())
            }
            12 => Value::Floats((0..n).map(|_| Ok(f64::from_le_bytes(self.array()?) as f32)).collect::<Result<_>>()?),
            _ => {
                let each = |r: &mut Self| {
                    let value = r.integer(kind)?;
                    i64::try_from(value).map_err(|_| r.damaged(format!("it has the number {value} in a list")))
                };
                Value::Ints((0..n).map(|_| each(self)).collect::<Result<_>>()?)
            }
        })
    }

    fn tensor_head(&mut self) -> Result<TensorHead> {
        let name = self.string()?;
        let axes = self.u32()?;
        if axes == 0 || axes > 4 {
            return Err(self.damaged(format!("tensor `{name}` has {axes} axes")));
        }
        let mut shape = (0..axes).map(|_| self.u64()).collect::<Result<Vec<_>>>()?;
        shape.reverse();
        if shape.contains(&0) {
            return Err(self.damaged(format!("tensor `{name}` is empty")));
        }
        Ok(TensorHead { name, shape, kind: self.u32()?, offset: self.u64()? })
    }
}
