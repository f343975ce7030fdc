//! Readers of flag values. An error names the value and the right form; clap prints the flag beside it.

use crate::deployment::THREADS_MAX;
use clap::ValueEnum;
use std::net::IpAddr;
use std::str::FromStr;
use vosti_cpu::Isa;

/// What to run on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Device {
    Cpu,
    /// The NVIDIA GPU of this index.
    Cuda(usize),
}

/// `cpu`, `cuda` (the first GPU), `cuda:1`.
pub fn device(text: &str) -> Result<Device, String> {
    match text.strip_prefix("cuda") {
        Some("") => return Ok(Device::Cuda(0)),
        Some(rest) => rest.strip_prefix(':').and_then(|index| index.parse().ok()).map(Device::Cuda),
        None if text == "cpu" => Some(Device::Cpu),
        None => None,
    }
    .ok_or_else(|| format!("`{text}` is not cpu, cuda (the first GPU) or cuda:N"))
}

/// How a processor keeps weights.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum Weights {
    /// Small: a quantised file's weights stay in its blocks; BF16 weights take 13 bits each where the instruction set reads that
    AsTheyCome,
    /// BF16: takes more memory. Matrices that are multiplied in integers stay in their blocks
    Expanded,
}

/// How a quantised file's matrices are multiplied.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum Products {
    /// Codes times activations of 16 or 8 bits, with exact sums; matrices that are not in blocks in BF16
    Integers,
    /// Weights and activations are rounded to BF16
    Bf16,
}

/// Bits of an activation in products of integers.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activations {
    /// Closer to the file's own numbers than BF16
    #[value(name = "16")]
    Sixteen,
    /// Faster for long prompts, and less accurate
    #[value(name = "8")]
    Eight,
}

/// How kernels for a GPU copy the tiles of large products.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum Copying {
    /// By descriptor (TMA), where a target is compiled so: sm90 and sm100
    Descriptors,
    /// By all threads, as other kernels do
    Threads,
}

impl From<Copying> for vosti_cubin::Copies {
    fn from(copying: Copying) -> Self {
        match copying {
            Copying::Descriptors => Self::Descriptors,
            Copying::Threads => Self::Threads,
        }
    }
}

/// A seed, as servers and Python take it: an integer of 64 bits, a negative one for its two's complement. -1 draws a fresh one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seed {
    Fresh,
    Given(u64),
}

/// See [`Seed`].
pub fn seed(text: &str) -> Result<Seed, String> {
    let range = i128::from(i64::MIN)..=i128::from(u64::MAX);
    match text.parse::<i128>().ok().filter(|seed| range.contains(seed)) {
        Some(-1) => Ok(Seed::Fresh),
        Some(seed) => Ok(Seed::Given(seed as u64)),
        None => Err(format!("`{text}` is not an integer of 64 bits (-1 draws a fresh seed)")),
    }
}

/// An unsigned whole number; the error names the range of its type.
pub fn whole<T: FromStr>(text: &str) -> Result<T, String> {
    let most = u64::MAX >> (64 - 8 * size_of::<T>().min(8));
    text.parse().map_err(|_| format!("`{text}` is not a whole number from 0 to {most}"))
}

/// Worker threads.
pub fn threads(text: &str) -> Result<usize, String> {
    let out = || format!("`{text}` is not a whole number from 1 to {THREADS_MAX}");
    text.parse().ok().filter(|n| (1..=THREADS_MAX).contains(n)).ok_or_else(out)
}

/// An instruction set that this machine has.
pub fn isa(text: &str) -> Result<Isa, String> {
    let available = Isa::available();
    let names = || available.iter().map(|isa| isa.name()).collect::<Vec<_>>().join(", ");
    let found = available.iter().copied().find(|isa| isa.name() == text);
    found.ok_or_else(|| format!("`{text}` is not an instruction set of this machine, which has {}", names()))
}

/// A whole number above 0.
pub fn at_least_one(text: &str) -> Result<usize, String> {
    let none = || format!("`{text}` is not a whole number of at least 1");
    text.parse().ok().filter(|n| *n > 0).ok_or_else(none)
}

/// `512M`, `2G`, `1048576`.
pub fn size(text: &str) -> Result<u64, String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = match text[digits.len()..].to_ascii_uppercase().trim_end_matches('B').trim_end_matches('I') {
        "" => 1u64,
        "K" => 1 << 10,
        "M" => 1 << 20,
        "G" => 1 << 30,
        _ => return Err("write a size like 512M or 2G".into()),
    };
    let number: u64 = digits.parse().map_err(|_| "write a size like 512M or 2G".to_string())?;
    number.checked_mul(unit).filter(|bytes| *bytes > 0).ok_or_else(|| "the size is 0 or too large".into())
}

/// `1234=-100`.
pub fn bias(text: &str) -> Result<(u32, f32), String> {
    let hint = || "write TOKEN=X with a token id and a number, e.g. 1234=-100".to_string();
    let (token, value) = text.split_once('=').ok_or_else(hint)?;
    Ok((token.parse().map_err(|_| hint())?, value.parse().map_err(|_| hint())?))
}

/// `2024-07-26`.
pub fn date(text: &str) -> Result<vosti_model::Date, String> {
    vosti_model::Date::parse(text).ok_or_else(|| "write a date like 2024-07-26".into())
}

/// An IP address, or `localhost`, which is 127.0.0.1.
pub fn address(text: &str) -> Result<IpAddr, String> {
    match text {
        "localhost" => Ok(IpAddr::from([127, 0, 0, 1])),
        text => text.parse().map_err(|_| "not an address: write numbers as in 127.0.0.1 or ::1, or localhost".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As `tests/server/fields.rs` and Python's `test_llm.py` say of theirs.
    #[test]
    fn a_seed_is_any_integer_of_64_bits_and_minus_one_is_a_fresh_one() {
        assert_eq!(seed("7"), Ok(Seed::Given(7)));
        assert_eq!(seed("-1"), Ok(Seed::Fresh));
        assert_eq!(seed("-2"), Ok(Seed::Given(u64::MAX - 1)));
        assert_eq!(seed("18446744073709551615"), Ok(Seed::Given(u64::MAX)));
        for wrong in ["", "1.5", "x", "18446744073709551616", "-9223372036854775809"] {
            assert!(seed(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn sizes_are_read_with_units_and_overflow_is_refused() {
        assert_eq!(size("512M"), Ok(512 << 20));
        assert_eq!(size("2GiB"), Ok(2 << 30));
        assert_eq!(size("64"), Ok(64));
        for wrong in ["", "M", "0", "1T", "-1", "99999999999999G", "1.5G"] {
            assert!(size(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn whole_numbers_are_refused_with_the_range_of_their_type() {
        assert_eq!(whole::<u32>("4294967295"), Ok(u32::MAX));
        let why = |told: Result<u32, String>| told.unwrap_err();
        assert_eq!(why(whole("4294967296")), "`4294967296` is not a whole number from 0 to 4294967295");
        assert!(whole::<u64>("-1").unwrap_err().ends_with("0 to 18446744073709551615"));
        assert_eq!(threads("1024"), Ok(1024));
        assert!(threads("0").is_err() && threads("1025").is_err());
    }
}
