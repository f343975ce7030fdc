//! Statements to instructions in a compact form, once for each text: registers are numbers, labels are places.
//!
//! Register widths, numbers of operands and labels are checked here, so that an execution need not.
//! Read next: [`crate::lanes`] for most instructions, [`crate::warp`] for the others.

mod bulk;
mod control;
mod names;
mod tensor;
mod warpgroup;
mod words;

use crate::counts::Class;
use crate::fault::ReadError;
use crate::lanes::{EXP, Lane, ROWS};
use crate::text::{Operand, Statement, Text, Width, without_comments};
use crate::warp::Way;
pub(crate) use names::{GENERIC, map_at};
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::sync::LazyLock;
pub(crate) use tensor::{First, Tensor};
use words::{access, halves, named, number, special};

/// Where shared memory begins in its space. Not at zero, so that an address without its base is noticed.
pub(crate) const SHARED_BASE: u64 = 1024;

/// A kernel in PTX, ready to run.
#[derive(Clone, Debug)]
pub struct Kernel {
    /// Its name.
    pub name: String,
    /// How many parameters it takes, each of 64 or 32 bits or a tensor map.
    pub params: usize,
    /// Of each parameter, whether it is a tensor map.
    pub(crate) maps: Vec<bool>,
    /// Threads of a block, if the text says it.
    pub threads: Option<u32>,
    /// Whether its blocks may begin before the launches before it have ended: it has an instruction for that.
    pub(crate) dependent: bool,
    pub(crate) registers: usize,
    /// The numbers that the text names, in registers from `registers` on.
    pub(crate) numbers: Vec<u64>,
    pub(crate) code: Vec<Instruction>,
}

/// A register's number. Numbers that the text names have registers too, behind the others.
pub(crate) type Register = u32;

/// An address: a register or number, and an offset.
#[derive(Clone, Copy, Debug)]
pub(crate) struct At {
    pub base: Register,
    pub offset: i64,
}

#[derive(Clone, Debug)]
pub(crate) struct Instruction {
    pub line: u32,
    /// A predicate, and whether it is negated.
    pub guard: Option<(Register, bool)>,
    pub class: Class,
    pub what: What,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Space {
    Global,
    Shared,
}

/// Numbers of a thread or launch.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Special {
    Thread,
    Threads,
    Block(usize),
    Blocks(usize),
}

/// Matrix products ([`crate::matrix`]).
#[derive(Clone, Copy, Debug)]
pub(crate) enum Product {
    /// 16 by 16 times 16 by 8, BF16 to FP32.
    Bf16,
    /// 16 by 32 times 32 by 8, bytes to I32.
    S8,
}

/// Numbers of which `redux` finds the largest or smallest one.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Extreme {
    /// The largest signed one.
    Whole,
    /// A float, by the rules of `min` and `max`.
    Float { largest: bool },
}

/// The first operand of a warpgroup's product.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Factor {
    Registers([Register; 4]),
    /// A descriptor.
    Shared(Register),
}

/// `wgmma` ([`crate::group`]).
#[derive(Clone, Debug)]
pub(crate) struct Gemm {
    pub product: Product,
    pub to: Vec<Register>,
    pub a: Factor,
    /// A descriptor.
    pub b: Register,
    /// Whether the accumulators count.
    pub keep: Register,
    pub columns: usize,
    /// Of each operand in shared memory.
    pub transposed: [bool; 2],
}

/// What is done with an `mbarrier`.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Counting {
    /// It counts so many arrivals in a phase.
    Init(Register),
    Inval,
    /// So many bytes come in this phase, and one arrival.
    ExpectBytes(Register),
    /// So many arrivals.
    Arrive(Register),
    /// Whether the phase of a parity has ended.
    Wait {
        to: Register,
        parity: Register,
    },
}

#[derive(Clone, Debug)]
pub(crate) enum What {
    Lane {
        run: Lane,
        to: Register,
        from: [Register; 3],
    },
    Select {
        to: Register,
        yes: Register,
        no: Register,
        predicate: Register,
    },
    Special {
        to: Register,
        which: Special,
    },
    Parameter {
        to: Register,
        index: usize,
        /// With the sign of its 32 bits.
        extended: bool,
    },
    /// Halves of a register, lowest first.
    Pack {
        to: Register,
        from: Vec<Register>,
        bits: u32,
    },
    Unpack {
        to: Vec<Register>,
        from: Register,
        bits: u32,
    },
    Load {
        space: Space,
        to: Vec<Register>,
        at: At,
        bytes: usize,
    },
    Store {
        space: Space,
        at: At,
        from: Vec<Register>,
        bytes: usize,
    },
    Copy {
        to: At,
        from: At,
        bytes: usize,
        live: Register,
    },
    /// To the second-level cache; it changes nothing.
    Prefetch(At),
    Commit,
    Wait {
        but: usize,
    },
    Matrices {
        to: Vec<Register>,
        at: At,
        transposed: bool,
    },
    Multiply {
        product: Product,
        to: [Register; 4],
        a: [Register; 4],
        b: [Register; 2],
        c: [Register; 4],
    },
    StoreMatrices {
        from: Vec<Register>,
        at: At,
        transposed: bool,
    },
    /// Of each half, whether one BF16 is at most the other.
    AtMost {
        to: [Register; 2],
        a: Register,
        b: Register,
    },
    Gemm(Box<Gemm>),
    GemmFence,
    GemmCommit,
    GemmWait {
        but: usize,
    },
    Tensor(Box<Tensor>),
    ProxyFence,
    Shuffle {
        to: Register,
        from: Register,
        by: Register,
        clamp: Register,
        way: Way,
    },
    /// The largest or smallest number of a warp's threads.
    Extreme {
        to: Register,
        from: Register,
        members: Register,
        of: Extreme,
    },
    /// Which of a warp's threads goes first, and whether this one does.
    Elect {
        to: Option<Register>,
        leader: Register,
    },
    /// `mbarrier` ([`crate::bulk`]).
    Counter {
        at: At,
        what: Counting,
    },
    /// `cp.async.bulk.tensor`: a box of a tensor, by its first column and row.
    Bulk {
        to: At,
        map: Register,
        place: [Register; 2],
        counter: At,
    },
    /// One of a block's barriers: `bar.sync` of the threads of some warps or of all (None), at one place of the text if it
    /// is aligned.
    Barrier {
        id: u32,
        threads: Option<u32>,
        aligned: bool,
    },
    WarpBarrier,
    /// How many registers a thread may have (`setmaxnreg`): a hint.
    Registers,
    /// Waits for the launches before.
    Await,
    /// Lets the next launch begin.
    Release,
    Branch {
        to: usize,
    },
    Return,
}

/// log2(e), as Triton writes it.
const LOG2_E: &str = "0f3FB8AA3B";

static TABLE: LazyLock<HashMap<&str, usize>> =
    LazyLock::new(|| ROWS.iter().enumerate().map(|(at, row)| (row.0, at)).collect());

impl Kernel {
    /// Reads a text. An error names the first line with an instruction or a form that is not known here.
    pub fn read(text: &str) -> Result<Kernel, ReadError> {
        let clean = without_comments(text);
        let text = Text::read(&clean)?;
        let mut first = HashMap::new();
        let mut registers = 0;
        for (scope, declared) in text.scopes.iter().enumerate() {
            for (prefix, file) in &declared.files {
                first.insert((scope, *prefix), registers);
                registers += file.many.unwrap_or(1);
            }
        }
        let mut labels = HashMap::new();
        let mut at = 0;
        for statement in &text.statements {
            for label in &statement.labels {
                if labels.insert((statement.scope, *label), at).is_some() {
                    return Err(ReadError { line: statement.line, why: format!("`{label}` is a label twice") });
                }
            }
            at += usize::from(!statement.opcode.is_empty());
        }
        let (scope, numbers) = (Cell::new(0), RefCell::default());
        let reader = Reader { text: &text, first, labels, registers, scope, numbers };
        let statements = text.statements.iter().enumerate().filter(|(_, statement)| !statement.opcode.is_empty());
        let code = statements.map(|(at, _)| reader.instruction(at)).collect::<Result<Vec<_>, _>>()?;
        Ok(Kernel {
            name: text.name.into(),
            params: text.params.len(),
            maps: text.params.iter().map(|(_, width)| *width == Width::Map).collect(),
            threads: text.threads,
            dependent: code.iter().any(|instruction| matches!(instruction.what, What::Await | What::Release)),
            registers: registers as usize,
            numbers: reader.numbers.take(),
            code,
        })
    }
}

struct Reader<'a> {
    text: &'a Text<'a>,
    /// The number of each file's first register, by its scope.
    first: HashMap<(usize, &'a str), u32>,
    labels: HashMap<(usize, &'a str), usize>,
    registers: u32,
    /// That of the statement that is read.
    scope: Cell<usize>,
    numbers: RefCell<Vec<u64>>,
}

/// None: not known in this form.
type Known<T> = Option<T>;

impl Reader<'_> {
    fn instruction(&self, at: usize) -> Result<Instruction, ReadError> {
        let statement = &self.text.statements[at];
        self.scope.set(statement.scope);
        let unknown = || {
            let why = format!("`{} {:?}` is not known in this form", statement.opcode, statement.operands);
            ReadError { line: statement.line, why }
        };
        let guard = match statement.guard {
            None => None,
            Some(guard) => {
                let (name, negated) = guard.strip_prefix('!').map_or((guard, false), |name| (name, true));
                Some((self.register(name, Width::Predicate).ok_or_else(unknown)?, negated))
            }
        };
        let what = match self.exponent(at) {
            Some((to, from)) => What::Lane { run: EXP, to, from },
            None => self.what(statement.opcode, &statement.operands).ok_or_else(unknown)?,
        };
        Ok(Instruction { line: statement.line, guard, class: Class::of(statement.opcode), what })
    }

    /// Triton makes `exp(x)` of two instructions: x times log2(e), and `ex2.approx.f32` of that. The two together are given the
    /// tile IR's `exp`, if they are in one block of the code and x does not change between them. (`exp2` is `ex2.approx.ftz.f32`.)
    /// Between the two may be choices of a number in place of the product.
    fn exponent(&self, at: usize) -> Known<(Register, [Register; 3])> {
        let statement = &self.text.statements[at];
        let ("ex2.approx.f32", [to, Operand::Word(given)]) = (statement.opcode, statement.operands.as_slice()) else {
            return None;
        };
        let mut scaled = given;
        let writes = |statement: &Statement, word: &str| match statement.operands.first() {
            Some(Operand::Word(to)) => *to == word,
            Some(Operand::Vector(to)) => to.contains(&word),
            _ => false,
        };
        let mut between = vec![];
        for before in (0..at).rev() {
            let found = &self.text.statements[before];
            let same_block = self.text.statements[before + 1].labels.is_empty() && found.opcode != "bra";
            match (same_block, writes(found, scaled), found.opcode, found.operands.as_slice()) {
                (true, false, ..) => between.push(found),
                (true, true, "mul.rn.f32", [_, Operand::Word(x), Operand::Word(LOG2_E)]) if found.guard.is_none() => {
                    let kept = !between.iter().any(|statement| writes(statement, x));
                    let [x, given] = [self.word(x, Width::Bits32)?, self.word(given, Width::Bits32)?];
                    return kept.then_some((self.target(to, Width::Bits32)?, [x, given, x]));
                }
                (true, true, "selp.f32", [_, Operand::Word(product), Operand::Word(number), _])
                    if found.guard.is_none() && number.starts_with("0f") =>
                {
                    between.push(found);
                    scaled = product;
                }
                _ => return None,
            }
        }
        None
    }

    fn what(&self, opcode: &str, operands: &[Operand]) -> Known<What> {
        self.control(opcode, operands)
            .or_else(|| self.moves(opcode, operands))
            .or_else(|| self.memory(opcode, operands))
            .or_else(|| self.warp_wide(opcode, operands))
            .or_else(|| self.gemm(opcode, operands))
            .or_else(|| self.tensor(opcode, operands))
            .or_else(|| self.bulk(opcode, operands))
            .or_else(|| self.lane(opcode, operands))
    }

    fn lane(&self, opcode: &str, operands: &[Operand]) -> Known<What> {
        let row = &ROWS[*TABLE.get(opcode)?];
        let [to, from @ ..] = operands else { return None };
        if from.len() != row.2.len() {
            return None;
        }
        // Operands that it does not have are its first.
        let mut sources = [self.source(&from[0], row.2[0])?; 3];
        for ((source, operand), width) in sources.iter_mut().zip(from).zip(row.2) {
            *source = self.source(operand, *width)?;
        }
        Some(What::Lane { run: row.3, to: self.target(to, row.1)?, from: sources })
    }

    /// Comparison and Selection Instructions: selp. Data Movement and Conversion Instructions: the other forms of mov.
    fn moves(&self, opcode: &str, operands: &[Operand]) -> Known<What> {
        use Width::{Bits16, Bits32, Bits64, Predicate};
        let width = |ty: &str| match ty {
            "b16" | "u16" => Some(Bits16),
            "b32" | "u32" | "s32" | "f32" => Some(Bits32),
            "b64" | "u64" | "s64" => Some(Bits64),
            _ => None,
        };
        match (opcode.split_once('.')?, operands) {
            (("selp", ty), [to, yes, no, Operand::Word(predicate)]) => {
                let width = width(ty)?;
                let (yes, no) = (self.source(yes, width)?, self.source(no, width)?);
                Some(What::Select {
                    to: self.target(to, width)?,
                    yes,
                    no,
                    predicate: self.register(predicate, Predicate)?,
                })
            }
            (("mov", "u32" | "b32"), [to, Operand::Word(name)]) if name.starts_with('%') && name.contains('.') => {
                Some(What::Special { to: self.target(to, Bits32)?, which: special(name)? })
            }
            (("mov", ty), [to, Operand::Vector(from)]) => {
                let (bits, half) = halves(width(ty)?, from.len())?;
                let from = from.iter().map(|word| self.word(word, half)).collect::<Known<_>>()?;
                Some(What::Pack { to: self.target(to, width(ty)?)?, from, bits })
            }
            (("mov", ty), [Operand::Vector(to), from]) => {
                let (bits, half) = halves(width(ty)?, to.len())?;
                let to = to.iter().map(|word| self.register(word, half)).collect::<Known<_>>()?;
                Some(What::Unpack { to, from: self.source(from, width(ty)?)?, bits })
            }
            _ => None,
        }
    }

    /// Data Movement and Conversion Instructions: ld, st, prefetch, cp.async and its groups.
    fn memory(&self, opcode: &str, operands: &[Operand]) -> Known<What> {
        let words: Vec<&str> = opcode.split('.').collect();
        match (words.as_slice(), operands) {
            (["ld", "param", form], [to, Operand::Address(name, 0)]) => {
                let index = self.text.params.iter().position(|(param, _)| param == name)?;
                let width = match *form {
                    "u64" | "b64" | "s64" => Width::Bits64,
                    "u32" | "b32" | "s32" | "f32" => Width::Bits32,
                    _ => return None,
                };
                (self.text.params[index].1 == width).then_some(())?;
                // PTX ISA, `ld`: a register may be wider, and the sign fills it.
                let wide = if *form == "s32" { self.target(to, Width::Bits64) } else { None };
                let extended = wide.is_some();
                Some(What::Parameter { to: wide.or_else(|| self.target(to, width))?, index, extended })
            }
            (["ld", space, form @ ..], [to, from]) => {
                let (many, bytes, width) = access(form)?;
                // PTX ISA, "Operand Size Exceeding Instruction-Type Size": zeros fill a register that is wider.
                let wide = if width == Width::Bits16 { Width::Bits32 } else { width };
                let register = |word: &&str| self.register(word, width).or_else(|| self.register(word, wide));
                let to = self.several(to, many)?.iter().map(register).collect::<Known<_>>()?;
                Some(What::Load { space: named(space)?, to, at: self.at(from, space)?, bytes })
            }
            (["st", space, form @ ..], [to, from]) => {
                let (many, bytes, width) = access(form)?;
                let from = self.several(from, many)?.iter().map(|word| self.word(word, width)).collect::<Known<_>>()?;
                Some(What::Store { space: named(space)?, at: self.at(to, space)?, from, bytes })
            }
            (["cp", "async", "ca" | "cg", "shared", "global"], [to, from, Operand::Word(bytes), rest @ ..]) => {
                let bytes = usize::try_from(number(bytes, Width::Bits32)?).ok()?;
                let allowed = bytes == 16 || words[2] == "ca" && (bytes == 4 || bytes == 8);
                let live = match rest {
                    [] => self.number(bytes as u64),
                    [live] => self.source(live, Width::Bits32)?,
                    _ => return None,
                };
                let (to, from) = (self.at(to, "shared")?, self.at(from, "global")?);
                allowed.then_some(What::Copy { to, from, bytes, live })
            }
            (["prefetch", "global", "L2"], [at]) => Some(What::Prefetch(self.at(at, "global")?)),
            (["cp", "async", "commit_group"], []) => Some(What::Commit),
            (["cp", "async", "wait_group"], [Operand::Word(but)]) => Some(What::Wait { but: but.parse().ok()? }),
            _ => None,
        }
    }

    /// Warp Level Matrix Instructions: ldmatrix, mma. Data Movement and Conversion Instructions: shfl.sync. Parallel Synchronization and
    /// Communication Instructions: redux.sync.
    fn warp_wide(&self, opcode: &str, operands: &[Operand]) -> Known<What> {
        use Width::Bits32;
        if let Some(form) = opcode.strip_prefix("ldmatrix.sync.aligned.m8n8.") {
            let (many, transposed) = match form {
                "x1.shared.b16" => (1, false),
                "x2.shared.b16" => (2, false),
                "x4.shared.b16" => (4, false),
                "x2.trans.shared.b16" => (2, true),
                "x4.trans.shared.b16" => (4, true),
                _ => return None,
            };
            let [Operand::Vector(to), from] = operands else { return None };
            let to: Vec<Register> = to.iter().map(|word| self.register(word, Bits32)).collect::<Known<_>>()?;
            return (to.len() == many).then_some(What::Matrices { to, at: self.at(from, "shared")?, transposed });
        }
        let product = match opcode {
            "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32" => Some(Product::Bf16),
            "mma.sync.aligned.m16n8k32.row.col.satfinite.s32.s8.s8.s32" => Some(Product::S8),
            _ => None,
        };
        match (product, opcode, operands) {
            (Some(product), _, [Operand::Vector(to), a, b, c]) => {
                let to: Vec<Register> = to.iter().map(|word| self.register(word, Bits32)).collect::<Known<_>>()?;
                let (a, b, c) = (self.sources(a)?, self.sources(b)?, self.sources(c)?);
                Some(What::Multiply { product, to: to.try_into().ok()?, a, b, c })
            }
            (
                None,
                "shfl.sync.bfly.b32" | "shfl.sync.idx.b32" | "shfl.sync.up.b32" | "shfl.sync.down.b32",
                [to, from, by, clamp, Operand::Word("-1" | "0xffffffff")],
            ) => {
                let (from, by, clamp) =
                    (self.source(from, Bits32)?, self.source(by, Bits32)?, self.source(clamp, Bits32)?);
                let way = match opcode {
                    "shfl.sync.bfly.b32" => Way::Butterfly,
                    "shfl.sync.up.b32" => Way::Up,
                    "shfl.sync.down.b32" => Way::Down,
                    _ => Way::Index,
                };
                Some(What::Shuffle { to: self.target(to, Bits32)?, from, by, clamp, way })
            }
            (None, opcode, [to, from, members]) => Some(What::Extreme {
                to: self.target(to, Bits32)?,
                from: self.source(from, Bits32)?,
                members: self.source(members, Bits32)?,
                of: match opcode {
                    "redux.sync.max.s32" => Extreme::Whole,
                    "redux.sync.max.f32" => Extreme::Float { largest: true },
                    "redux.sync.min.f32" => Extreme::Float { largest: false },
                    _ => return None,
                },
            }),
            _ => None,
        }
    }

    fn sources<const N: usize>(&self, operand: &Operand) -> Known<[Register; N]> {
        let Operand::Vector(words) = operand else { return None };
        let all: Vec<Register> = words.iter().map(|word| self.word(word, Width::Bits32)).collect::<Known<_>>()?;
        all.try_into().ok()
    }

    /// A vector of so many registers; one of them may be written without braces.
    fn several<'o>(&self, operand: &'o Operand, many: usize) -> Known<Vec<&'o str>> {
        let words = match operand {
            Operand::Vector(words) => words.clone(),
            Operand::Word(word) => vec![*word],
            Operand::Address(..) | Operand::Tensor(..) => return None,
        };
        (words.len() == many).then_some(words)
    }

    fn at(&self, operand: &Operand, space: &str) -> Known<At> {
        let Operand::Address(base, offset) = operand else { return None };
        let width = if space == "shared" { Width::Bits32 } else { Width::Bits64 };
        Some(At { base: self.word(base, width)?, offset: *offset })
    }
}
