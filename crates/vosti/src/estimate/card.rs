//! Graphics cards in numbers, and the constants of the estimate. Each constant names its source; `assumed` means that nothing was
//! measured. This file is the only place of these constants. Read next: [`super::launches`].

use vosti_cubin::Arch;

/// A card. Nominal rates are the vendor's data sheets': dense BF16 products with FP32 sums.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Card {
    /// As `--card` takes it.
    pub name: &'static str,
    /// The target that it runs.
    pub arch: Arch,
    /// Multiprocessors of the whole card.
    pub multiprocessors: u32,
    /// The boost clock, in Hz.
    pub clock_per_s: f64,
    /// Nominal bandwidth of memory.
    pub memory_bytes_per_s: f64,
    /// Nominal rate of dense BF16 products with FP32 sums.
    pub matrix_flops_per_s: f64,
}

const fn card(name: &'static str, arch: Arch, sms: u32, ghz: f64, tb_per_s: f64, tflops: f64) -> Card {
    let (clock_per_s, memory_bytes_per_s, matrix_flops_per_s) = (ghz * 1e9, tb_per_s * 1e12, tflops * 1e12);
    Card { name, arch, multiprocessors: sms, clock_per_s, memory_bytes_per_s, matrix_flops_per_s }
}

/// The known cards. The first card of a target is the default.
pub const CARDS: [Card; 8] = [
    card("a100", Arch::Sm80, 108, 1.41, 2.039, 312.0),
    card("rtx3090", Arch::Sm86, 82, 1.695, 0.936, 71.0),
    card("rtx4090", Arch::Sm89, 128, 2.52, 1.008, 165.2),
    card("l40s", Arch::Sm89, 142, 2.52, 0.864, 362.0),
    card("h200", Arch::Sm90, 132, 1.98, 4.8, 989.0),
    card("h100", Arch::Sm90, 132, 1.98, 3.35, 989.0),
    card("b200", Arch::Sm100, 148, 1.85, 8.0, 2250.0),
    card("rtx5090", Arch::Sm120, 170, 2.407, 1.792, 209.5),
];

/// A number of the estimate, with its unit and its source.
pub struct Constant {
    /// What it stands for.
    pub name: &'static str,
    /// In the unit beside it.
    pub value: f64,
    /// Empty for a share.
    pub unit: &'static str,
    /// The measurement or the paper that it is from, or that it is assumed.
    pub source: &'static str,
}

pub(super) const READ_SHARE: f64 = 0.9;
pub(super) const MATRIX_SHARE: f64 = 0.8;
pub(super) const OWN_MATRIX_SHARE: f64 = 0.85;
pub(super) const CACHE_BYTES_A_CLOCK: f64 = 40.0;
pub(super) const PORT_BYTES_A_CLOCK: f64 = 64.0;
pub(super) const CACHE_SHARE: f64 = 0.7;
pub(super) const ISSUES_A_CLOCK: f64 = 4.0;
pub(super) const TURNS_A_CLOCK: f64 = 1.0;
pub(super) const LATENCY_S: f64 = 0.8e-6;
pub(super) const PAGE_S: f64 = 1.0e-6;
pub(super) const GAP_S: f64 = 1.0e-6;
/// The part of a gap in which the card makes the blocks of the next launch ready: it runs beside the launch before.
pub(super) const READY_S: f64 = 0.5e-6;
pub(super) const STEP_S: f64 = 20e-6;

/// The constants of the estimate, as the report prints them.
pub const CONSTANTS: [Constant; 13] = [
    Constant {
        name: "share of nominal memory bandwidth that can be read",
        value: READ_SHARE,
        unit: "",
        source: "a copy of 8.6 GB on an H200 through PyTorch: 4.3 of 4.8 TB/s",
    },
    Constant {
        name: "share of nominal matrix rate that can be reached",
        value: MATRIX_SHARE,
        unit: "",
        source: "cuBLAS at 8192 cubed in BF16 on an H200: 788 of 989 TFLOP/s",
    },
    Constant {
        name: "share of that in our loops, where nothing else holds them back",
        value: OWN_MATRIX_SHARE,
        unit: "",
        source: "assumed",
    },
    Constant {
        name: "bytes a clock from the second-level cache for each multiprocessor of the chip",
        value: CACHE_BYTES_A_CLOCK,
        unit: "B",
        source: "NVIDIA A100 whitepaper: 5,120 a clock, 47 for each; 39 if an H100 has as many; assumed for others",
    },
    Constant {
        name: "bytes a clock that one multiprocessor reads from that cache, if others read less",
        value: PORT_BYTES_A_CLOCK,
        unit: "B",
        source: "NVIDIA, Volta and later: 64 a clock",
    },
    Constant { name: "share of both that can be reached", value: CACHE_SHARE, unit: "", source: "assumed" },
    Constant {
        name: "instructions of warps that a multiprocessor starts a clock; PTX's count, the assembler's may be fewer",
        value: ISSUES_A_CLOCK,
        unit: "",
        source: "NVIDIA, Volta and later: four schedulers, one a clock each",
    },
    Constant {
        name: "turns of the 32 banks of shared memory a clock",
        value: TURNS_A_CLOCK,
        unit: "",
        source: "CUDA C++ Programming Guide: each bank gives four bytes a clock",
    },
    Constant {
        name: "latency of a load from memory under load",
        value: LATENCY_S * 1e6,
        unit: "us",
        source: "assumed",
    },
    Constant {
        name: "arithmetic of attention over a page of 64 keys, in one block",
        value: PAGE_S * 1e6,
        unit: "us",
        source: "assumed",
    },
    Constant { name: "gap between two launches of a step", value: GAP_S * 1e6, unit: "us", source: "assumed" },
    Constant {
        name: "of it, what is done before the launch before has ended, where launches begin early",
        value: READY_S * 1e6,
        unit: "us",
        source: "assumed",
    },
    Constant {
        name: "upload, waiting and the engine's own work, a step",
        value: STEP_S * 1e6,
        unit: "us",
        source: "assumed",
    },
];

impl Card {
    /// The card of a name, or the first of a target.
    pub fn find(arch: Arch, name: Option<&str>) -> Option<Card> {
        CARDS.into_iter().find(|card| card.arch == arch && name.is_none_or(|name| card.name == name))
    }

    /// Bytes that can be read from memory in a second: the ceiling of decode.
    pub fn read(&self) -> f64 {
        READ_SHARE * self.memory_bytes_per_s
    }

    /// Floating-point operations a second that matrix products can reach.
    pub fn matrices(&self) -> f64 {
        MATRIX_SHARE * self.matrix_flops_per_s
    }

    /// Bytes that the second-level cache gives in a second, to all multiprocessors together.
    pub fn cache(&self) -> f64 {
        CACHE_SHARE * CACHE_BYTES_A_CLOCK * self.clock_per_s * f64::from(self.multiprocessors)
    }

    /// Bytes that one multiprocessor reads from the second-level cache in a second, at most.
    pub fn port(&self) -> f64 {
        CACHE_SHARE * PORT_BYTES_A_CLOCK * self.clock_per_s
    }
}
