//! A compiled kernel against the tile interpreter: the same buffers, the same bits afterwards.

use crate::buffers::Buffers;
use crate::case::{Case, row_counts};
use crate::decode::Kernel;
use crate::descriptor::Descriptor;
use crate::edits::Edit;
use crate::fault::{Fault, ReadError, RunError};
use crate::launch::Launch;
use crate::step::{by_rows, map};
use thiserror::Error;
use vosti_contract::Contract;
use vosti_kernels::{KernelError, Spec};
use vosti_tile::interp::{self, Buffer, Options, Undefined};
use vosti_tile::numerics::{stored_bf16, stored_f32};

/// Pointers to scratch that Triton's backend adds after a kernel's own parameters. No kernel here uses any.
pub(crate) const SCRATCH: usize = 2;
/// Far more than a block of any case needs.
pub(crate) const STEPS_MAX: u64 = 1 << 26;
/// More than a block of an edited text needs, which may loop without end.
const EDITED_STEPS_MAX: u64 = 1 << 22;

/// What is executed.
#[derive(Clone, Copy, Debug)]
pub struct Compiled<'a> {
    /// The kernel and its specialisation.
    pub spec: &'a Spec,
    /// The TTIR that was compiled.
    pub ttir: &'a str,
    /// What the compiler made of it.
    pub ptx: &'a str,
    /// Threads of a block.
    pub threads: u32,
    /// Bytes of dynamic shared memory of a block.
    pub shared: usize,
    /// Its parameters that are tensor maps.
    pub descriptors: &'a [Descriptor],
}

/// Why a kernel is not what its TTIR says.
#[derive(Clone, Debug, Error)]
#[expect(missing_docs, reason = "each message names its fields")]
pub enum Difference {
    #[error("{0}")]
    Read(#[from] ReadError),
    #[error("{0}")]
    Ran(#[from] RunError),
    #[error("`{param}` at {at} is {found:#x}, and the tile interpreter's is {wanted:#x}; {many} differ")]
    Bits { param: String, at: usize, found: u64, wanted: u64, many: usize },
    #[error("no case for it: {0}")]
    Case(String),
    #[error("its TTIR does not run: {0}")]
    Ttir(String),
}

impl From<KernelError> for Difference {
    fn from(error: KernelError) -> Difference {
        Difference::Case(error.to_string())
    }
}

/// What an execution says of an edited text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Seen {
    /// It stopped.
    Stopped(Fault),
    /// Other bits.
    Bits,
    /// The text is not of the part of PTX that is known.
    Unread,
    /// Nothing: the edit means the same.
    Commutes,
    /// Nothing: no thread of a case executes the line.
    NotReached,
    /// Nothing: the line's results are the same in every thread of every case.
    Same,
    /// Nothing: no thread of a case uses what the line writes.
    Unused,
    /// Nothing, for another reason.
    Nothing,
}

/// Cases of a kernel and what the tile interpreter makes of them, for any number of compiled texts.
#[derive(Clone, Debug)]
pub struct Cases {
    names: Vec<String>,
    cases: Vec<(Case, Vec<Buffer>)>,
}

impl Cases {
    /// Makes the cases of a kernel and interprets them.
    pub fn new(spec: &Spec, ttir: &str) -> Result<Cases, Difference> {
        let contract: &Contract = vosti_kernels::contract(&spec.kernel)?;
        let kernel = vosti_tile::lift(ttir).map_err(|error| Difference::Ttir(error.to_string()))?;
        let mut cases = vec![];
        for (seed, rows) in row_counts(spec, &kernel).into_iter().enumerate() {
            let case = Case::new(spec, contract, &kernel, rows, seed as u64)?;
            let mut wanted = case.buffers.clone();
            let options = Options { undefined: Undefined::Poison(seed as u64), ..Options::default() };
            interp::run(&kernel, &mut wanted, case.grid, &options)
                .map_err(|error| Difference::Ttir(error.to_string()))?;
            cases.push((case, wanted));
        }
        Ok(Cases { names: kernel.params.iter().map(|param| param.name.clone()).collect(), cases })
    }

    /// Each case, and its buffers afterwards in the tile interpreter.
    pub fn each(&self) -> impl Iterator<Item = (&Case, &[Buffer])> {
        self.cases.iter().map(|(case, wanted)| (case, wanted.as_slice()))
    }

    /// The parameters' names, in the order of a case's buffers.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// Executes an edited text on every case. The steps of a block are limited to what the cases need, several times
    /// over.
    pub fn see(&self, compiled: &Compiled<'_>, edit: &Edit) -> Seen {
        let of = |ptx: &str| self.check_within(&Compiled { ptx, ..*compiled }, EDITED_STEPS_MAX);
        match of(&edit.apply(compiled.ptx)) {
            Err(Difference::Ran(error)) => Seen::Stopped(error.fault),
            Err(Difference::Bits { .. }) => Seen::Bits,
            Err(_) => Seen::Unread,
            Ok(()) if edit.commutes() => Seen::Commutes,
            Ok(()) if of(&edit.looping(compiled.ptx)).is_ok() => Seen::NotReached,
            Ok(()) if edit.beside(compiled.ptx).is_some_and(|text| of(&text).is_ok()) => Seen::Same,
            Ok(()) if edit.unwritten(compiled.ptx).is_some_and(|text| of(&text).is_ok()) => Seen::Unused,
            Ok(()) => Seen::Nothing,
        }
    }

    /// Executes a text on every case. The first difference is an error.
    pub fn check(&self, compiled: &Compiled<'_>) -> Result<(), Difference> {
        self.check_within(compiled, STEPS_MAX)
    }

    fn check_within(&self, compiled: &Compiled<'_>, steps_max: u64) -> Result<(), Difference> {
        let kernel = Kernel::read(compiled.ptx)?;
        let contract = vosti_kernels::contract(&compiled.spec.kernel)?;
        for (seed, (case, wanted)) in self.cases.iter().enumerate() {
            let mut memory = Buffers::default();
            let (mut params, mut maps) = (vec![], vec![]);
            for (at, (buffer, name)) in case.buffers.iter().zip(&self.names).enumerate() {
                let mut array = bytes(buffer);
                if let Some(descriptor) = compiled.descriptors.iter().find(|descriptor| descriptor.param == at) {
                    let elem = buffer.elem().bytes() as u64;
                    let columns = map(*descriptor, compiled.spec, contract, 0)?.extents[1];
                    if by_rows(contract, at) {
                        // A device's buffer has more rows than a step. These are no numbers.
                        let more = u64::from(descriptor.tile[0]) * columns * elem;
                        array.resize(array.len() + more as usize, 0xff);
                    }
                    maps.push(map(*descriptor, compiled.spec, contract, array.len() as u64 / elem)?);
                }
                params.push(memory.add(name, array));
            }
            params.resize(params.len() + SCRATCH, 0);
            let launch = Launch {
                grid: case.grid.map(|n| n as u32),
                threads: compiled.threads,
                shared: compiled.shared,
                params: &params,
                maps: &maps,
                seed: Some(seed as u64),
                steps_max,
            };
            kernel.run(&launch, &mut memory)?;
            for (at, wanted) in wanted.iter().enumerate() {
                same(&self.names[at], memory.bytes(at), wanted)?;
            }
        }
        Ok(())
    }
}

/// Interprets and executes a kernel's cases.
pub fn compare(compiled: &Compiled<'_>) -> Result<(), Difference> {
    Cases::new(compiled.spec, compiled.ttir)?.check(compiled)
}

/// A buffer's bytes in a device's memory.
pub fn bytes(buffer: &Buffer) -> Vec<u8> {
    let size = buffer.elem().bytes();
    (0..buffer.len()).flat_map(|at| buffer.bits(at).to_le_bytes().into_iter().take(size)).collect()
}

/// Bits as the tile interpreter would store them: all NaNs are one.
pub fn stored(buffer: &Buffer, bits: u64) -> u64 {
    match buffer {
        Buffer::F32(_) => stored_f32(f32::from_bits(bits as u32)).into(),
        Buffer::Bf16(_) => stored_bf16(bits as u16).into(),
        _ => bits,
    }
}

fn same(param: &str, found: &[u8], wanted: &Buffer) -> Result<(), Difference> {
    let size = wanted.elem().bytes();
    let element = |at: usize| {
        let mut bits = [0; 8];
        bits[..size].copy_from_slice(&found[at * size..][..size]);
        u64::from_le_bytes(bits)
    };
    let differs = |at: &usize| stored(wanted, element(*at)) != stored(wanted, wanted.bits(*at));
    let mut different = (0..wanted.len()).filter(differs);
    let Some(at) = different.next() else { return Ok(()) };
    let (found, wanted) = (element(at), wanted.bits(at));
    Err(Difference::Bits { param: param.into(), at, found, wanted, many: 1 + different.count() })
}
