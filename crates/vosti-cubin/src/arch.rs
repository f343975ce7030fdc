//! The architectures that kernels are compiled for, and the facts about them that the checks need.

use crate::error::CubinError;
use std::fmt;
use vosti_tile::Scalar;

/// A compute capability.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Arch {
    /// A100.
    Sm80,
    /// RTX 30 and A10.
    Sm86,
    /// L4, L40 and RTX 40.
    Sm89,
    /// H100, H200.
    Sm90,
    /// B100, B200.
    Sm100,
    /// RTX 50 and RTX PRO 6000 Blackwell.
    Sm120,
}

/// Bytes of shared memory that the system takes in every block.
const RESERVED: u64 = 1 << 10;
const SHARED_UNIT: u64 = 128;
/// 32-bit registers of a multiprocessor.
pub(crate) const REGISTERS: u32 = 64 << 10;
const REGISTERS_OF_WARP_UNIT: u32 = 256;
/// Threads of a warp.
pub const WARP: u32 = 32;

/// Bytes of shared memory, threads and blocks of a multiprocessor.
struct Multiprocessor {
    shared: u64,
    threads: u32,
    blocks: u32,
}

/// The fewest rows of `wgmma` and `tcgen05`.
const MATRIX_ROWS: usize = 64;

impl Arch {
    /// Oldest first.
    pub const ALL: [Arch; 6] = [Arch::Sm80, Arch::Sm86, Arch::Sm89, Arch::Sm90, Arch::Sm100, Arch::Sm120];

    /// The architecture of a target such as `cuda-sm90`.
    pub fn of_target(target: &str) -> Result<Arch, CubinError> {
        let named =
            target.strip_prefix("cuda-").and_then(|name| Arch::ALL.into_iter().find(|arch| arch.to_string() == name));
        named.ok_or_else(|| CubinError::Target { target: target.to_string(), known: Arch::known() })
    }

    /// The architecture whose code a device of this compute capability runs.
    pub fn of_capability(capability: (u32, u32)) -> Option<Arch> {
        Arch::ALL.into_iter().rfind(|arch| arch.runs_on(capability))
    }

    /// The names of all targets, for messages.
    pub fn known() -> String {
        Arch::ALL.map(|arch| format!("cuda-{arch}")).join(", ")
    }

    /// The number in the tools' names, such as 90 for `sm_90`.
    pub fn number(self) -> u32 {
        match self {
            Arch::Sm80 => 80,
            Arch::Sm86 => 86,
            Arch::Sm89 => 89,
            Arch::Sm90 => 90,
            Arch::Sm100 => 100,
            Arch::Sm120 => 120,
        }
    }

    /// Dynamic shared memory that one block may opt into, in bytes (CUDA C++ Programming Guide, technical
    /// specifications per compute capability: per-block maximum).
    pub fn shared_bytes_max(self) -> u64 {
        self.multiprocessor().shared - RESERVED
    }

    /// The resources of one multiprocessor (the same tables).
    fn multiprocessor(self) -> Multiprocessor {
        let (shared, threads, blocks) = match self {
            Arch::Sm80 => (164 << 10, 2048, 32),
            Arch::Sm86 => (100 << 10, 1536, 16),
            Arch::Sm89 => (100 << 10, 1536, 24),
            Arch::Sm90 | Arch::Sm100 => (228 << 10, 2048, 32),
            Arch::Sm120 => (100 << 10, 1536, 24),
        };
        Multiprocessor { shared, threads, blocks }
    }

    /// The number of blocks that one multiprocessor holds at once, from the threads of a block, the registers of a thread and
    /// the bytes of shared memory of a block. 0: a block does not fit.
    pub fn blocks_at_once(self, threads: u32, registers: u32, shared: u64) -> u32 {
        let has = self.multiprocessor();
        let warps = threads.div_ceil(WARP).max(1);
        // Registers are allocated to a warp, in units.
        let of_warp = (registers.max(1) * WARP).next_multiple_of(REGISTERS_OF_WARP_UNIT);
        let by_shared = has.shared / (shared + RESERVED).next_multiple_of(SHARED_UNIT);
        let by_shared = u32::try_from(by_shared).unwrap_or(u32::MAX);
        [has.blocks, has.threads / (warps * WARP), REGISTERS / (of_warp * warps), by_shared]
            .into_iter()
            .fold(u32::MAX, u32::min)
    }

    /// The assembler's name of the architecture. Code for a name with an `a` runs on this architecture only.
    pub fn assembled(self) -> String {
        let suffix = if self.number() >= 90 { "a" } else { "" };
        format!("sm_{}{suffix}", self.number())
    }

    /// Whether a device of this compute capability runs the code: it has the same major and no smaller minor number, or the
    /// same minor number if the assembled name ends in `a`.
    pub fn runs_on(self, (major, minor): (u32, u32)) -> bool {
        let (own_major, own_minor) = (self.number() / 10, self.number() % 10);
        let exact = self.assembled().ends_with('a');
        major == own_major && if exact { minor == own_minor } else { minor >= own_minor }
    }

    /// Whether a launch can begin before the one before it has ended, and wait for it (PTX ISA, `griddepcontrol`: from
    /// sm90 on).
    pub fn launches_early(self) -> bool {
        self.number() >= 90
    }

    /// Whether it has copies of tiles by descriptor (PTX ISA, `cp.async.bulk.tensor`: from sm90 on).
    pub fn copies_by_descriptor(self) -> bool {
        self.number() >= 90
    }

    /// The PTX instruction that a dot of tiles of `elem` with `rows` rows must be compiled to. The instructions that sm90 and
    /// sm100 introduced need 64 rows; smaller tiles use the older one, and so does sm120, and sm100 for bytes.
    pub fn matrix_instruction(self, rows: usize, elem: Scalar) -> &'static str {
        match self {
            Arch::Sm90 if rows >= MATRIX_ROWS => "wgmma.mma_async",
            Arch::Sm100 if rows >= MATRIX_ROWS && elem != Scalar::I8 => "tcgen05.mma",
            _ => "mma.sync",
        }
    }
}

impl fmt::Display for Arch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sm{}", self.number())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_for_one_architecture_runs_there_only() {
        assert!(Arch::Sm90.runs_on((9, 0)) && Arch::Sm80.runs_on((8, 0)) && Arch::Sm86.runs_on((8, 7)));
        let not = [
            (Arch::Sm90, (9, 1)),
            (Arch::Sm90, (10, 0)),
            (Arch::Sm89, (8, 6)),
            (Arch::Sm80, (9, 0)),
            (Arch::Sm100, (12, 0)),
            (Arch::Sm120, (12, 1)),
        ];
        for (arch, capability) in not {
            assert!(!arch.runs_on(capability), "{arch} {capability:?}");
        }
    }

    #[test]
    fn a_device_has_the_newest_target_that_runs_on_it() {
        let of = Arch::of_capability;
        assert_eq!((of((8, 0)), of((8, 6)), of((8, 9))), (Some(Arch::Sm80), Some(Arch::Sm86), Some(Arch::Sm89)));
        assert_eq!((of((9, 0)), of((10, 0)), of((12, 0))), (Some(Arch::Sm90), Some(Arch::Sm100), Some(Arch::Sm120)));
        assert_eq!((of((7, 5)), of((11, 0))), (None, None));
    }

    #[test]
    fn blocks_of_a_multiprocessor_are_limited_by_what_runs_out_first() {
        // Registers, shared memory, threads, blocks.
        assert_eq!(Arch::Sm90.blocks_at_once(128, 233, 114_696), 2);
        assert_eq!(Arch::Sm90.blocks_at_once(128, 233, 0), 2);
        assert_eq!(Arch::Sm90.blocks_at_once(128, 40, 81_920), 2);
        assert_eq!(Arch::Sm89.blocks_at_once(128, 40, 90_120), 1);
        assert_eq!((Arch::Sm80.blocks_at_once(512, 32, 0), Arch::Sm86.blocks_at_once(512, 32, 0)), (4, 3));
        assert_eq!((Arch::Sm80.blocks_at_once(32, 16, 0), Arch::Sm86.blocks_at_once(32, 16, 0)), (32, 16));
        assert_eq!(Arch::Sm120.blocks_at_once(128, 32, 120_000), 0);
    }

    #[test]
    fn an_unknown_target_is_refused_with_the_known_ones() {
        assert_eq!(Arch::of_target("cuda-sm90").unwrap(), Arch::Sm90);
        for target in ["cpu", "cuda-sm70", "sm90"] {
            let error = Arch::of_target(target).unwrap_err().to_string();
            assert!(error.contains("cuda-sm80, cuda-sm86, cuda-sm89, cuda-sm90, cuda-sm100, cuda-sm120"), "{error}");
        }
    }
}
