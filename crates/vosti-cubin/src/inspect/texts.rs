//! Parses the compiler's texts as far as the checks need them: PTX, disassembly, the assembler's report, TTGIR.

use super::Reduction;
use crate::error::Refusal;
use std::fmt;

/// A PTX module with one kernel.
#[derive(Debug)]
pub struct Ptx<'a> {
    /// The architecture, such as `sm_90a`.
    pub target: &'a str,
    /// Its parameters.
    pub params: Vec<Param<'a>>,
    /// The numbers of `.reqntid`: threads of a block on each axis that is named.
    pub threads: Vec<u32>,
    /// Every statement that is not a directive, with its labels and predicate.
    pub statements: Vec<&'a str>,
    /// The opcode of every instruction, modifiers included.
    pub opcodes: Vec<&'a str>,
}

impl<'a> Ptx<'a> {
    /// Reads the header and the opcodes. Errors: no entry, target or parameters; several kernels; a parameter that cannot be
    /// parsed.
    pub fn read(text: &'a str) -> Result<Ptx<'a>, Refusal> {
        let missing = |what: &str| Refusal::Ptx(format!("it has no {what}"));
        let target = text.lines().find_map(|line| line.trim().strip_prefix(".target"));
        let target = target.and_then(|rest| rest.trim().split([',', ' ']).next()).ok_or_else(|| missing(".target"))?;
        let mut entries = text.split(".entry ").skip(1);
        let entry = entries.next().ok_or_else(|| missing(".entry"))?;
        if entries.next().is_some() {
            return Err(Refusal::Ptx("it has several kernels".into()));
        }
        let (list, rest) =
            entry.split_once('(').and_then(|(_, rest)| rest.split_once(')')).ok_or_else(|| missing("parameters"))?;
        let (head, body) = rest.split_once('{').ok_or_else(|| missing("body"))?;
        let params = list.split(',').map(|param| param.split_whitespace().collect::<Vec<_>>());
        let params = params.filter(|words| !words.is_empty()).map(|words| match words[..] {
            [".param", ".align", "64", ".b8", name] if name.ends_with("[128]") => Ok(Param::Map),
            [".param", ty, ..] => Ok(Param::Of(ty)),
            _ => Err(Refusal::Ptx(format!("`{}` is not a parameter", words.join(" ")))),
        });
        let threads = head.lines().find_map(|line| line.trim().strip_prefix(".reqntid"));
        let threads = threads.ok_or_else(|| missing(".reqntid"))?;
        let threads = threads.split(',').map(|n| n.trim().parse().map_err(|_| Refusal::Ptx(format!(".reqntid {n}"))));
        let statements = statements(body);
        Ok(Ptx {
            target,
            params: params.collect::<Result<_, _>>()?,
            threads: threads.collect::<Result<_, _>>()?,
            opcodes: statements.iter().filter_map(|statement| opcode(statement)).collect(),
            statements,
        })
    }
}

/// A parameter of a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Param<'a> {
    /// Its type, such as `.u64`.
    Of(&'a str),
    /// A tensor map: 128 bytes, at a multiple of 64.
    Map,
}

impl fmt::Display for Param<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Param::Of(ty) => ty,
            Param::Map => "map",
        })
    }
}

/// What stands between semicolons, braces and ends of lines, without comments and directives.
pub(super) fn statements(body: &str) -> Vec<&str> {
    let lines = body.lines().map(|line| line.split("//").next().unwrap_or(""));
    let statements = lines.flat_map(|line| line.split([';', '{', '}'])).map(str::trim);
    statements.filter(|statement| !statement.is_empty() && !statement.starts_with('.')).collect()
}

/// The first word of a statement behind its labels and predicate.
pub(super) fn opcode(statement: &str) -> Option<&str> {
    let mut words = statement.split_whitespace().skip_while(|word| word.starts_with('@') || word.ends_with(':'));
    words.next().filter(|word| word.starts_with(|c: char| c.is_ascii_lowercase()))
}

/// A disassembled cubin.
#[derive(Debug)]
pub struct Sass<'a> {
    /// The line that names the architecture.
    pub header: &'a str,
    /// Every instruction, with its predicate.
    pub instructions: Vec<&'a str>,
    /// The opcode of every instruction, modifiers included.
    pub opcodes: Vec<&'a str>,
}

impl<'a> Sass<'a> {
    /// Reads the header and the opcodes.
    pub fn read(text: &'a str) -> Sass<'a> {
        // Up to sm90 the header's flags name the architecture, from sm100 on a line of its own.
        let names = |line: &&str| line.starts_with(".headerflags") || line.starts_with(".target\tsm_");
        let header = text.lines().map(str::trim).find(names).unwrap_or("no header");
        let instruction = |line: &'a str| {
            let (_, rest) = line.trim_start().strip_prefix("/*")?.split_once("*/")?;
            let rest = rest.trim();
            Some((rest, rest.split_whitespace().find(|word| !word.starts_with('@'))?))
        };
        let (instructions, opcodes) = text.lines().filter_map(instruction).unzip();
        Sass { header, instructions, opcodes }
    }

    /// Whether the code is for this architecture.
    pub fn names_architecture(&self, number: u32) -> bool {
        let named = [format!("EF_CUDA_SM{number}"), format!("sm_{number}"), format!("sm_{number}a")];
        let mut words = self.header.split(|c: char| !c.is_alphanumeric() && c != '_');
        words.any(|word| named.iter().any(|name| word == name))
    }
}

/// The assembler's report on one kernel (`ptxas -v`), in bytes unless a field says otherwise.
#[derive(Debug, PartialEq, Eq)]
pub struct Log {
    /// Registers of a thread (a number, not bytes).
    pub registers: u32,
    /// Stack of a thread.
    pub stack: u64,
    /// Spilled registers that a thread writes.
    pub spill_stores: u64,
    /// Spilled registers that a thread reads.
    pub spill_loads: u64,
    /// Static shared memory of a block.
    pub shared_static: u64,
    /// Whether the assembler serialised the matrix instructions.
    pub serialised: bool,
}

impl Log {
    /// Reads the report; one that lacks a number is refused.
    pub fn read(text: &str) -> Result<Log, Refusal> {
        let not = |what: &str| Refusal::Log(format!("it says nothing of {what}"));
        let before = |what: &str| {
            let (rest, _) = text.split_once(what)?;
            rest.split_whitespace().next_back()?.parse::<u64>().ok()
        };
        if text.matches("Compiling entry function").count() != 1 {
            return Err(Refusal::Log("it is not about one kernel".into()));
        }
        let registers = before(" registers").ok_or_else(|| not("registers"))?;
        Ok(Log {
            registers: u32::try_from(registers).map_err(|_| not("registers"))?,
            stack: before(" bytes stack frame").ok_or_else(|| not("the stack"))?,
            spill_stores: before(" bytes spill stores").ok_or_else(|| not("spills"))?,
            spill_loads: before(" bytes spill loads").ok_or_else(|| not("spills"))?,
            // The report does not name shared memory if there is none.
            shared_static: before(" bytes smem").unwrap_or(0),
            serialised: text.contains("serialized"),
        })
    }
}

/// The reductions of floats of a TTGIR module, in the order of the text. Those of integers give the same bits in every order.
pub fn reductions(ttgir: &str) -> Result<Vec<Reduction>, Refusal> {
    let mut lines = ttgir.lines();
    let mut found = vec![];
    while let Some(line) = lines.next() {
        let Some((_, attributes)) = line.split_once("\"tt.reduce\"(") else { continue };
        let misread = || Refusal::Layout { layout: line.trim().to_string() };
        let (_, axis) = attributes.split_once("axis = ").ok_or_else(misread)?;
        let axis = axis.split(|c: char| !c.is_ascii_digit()).next().and_then(|n| n.parse().ok()).ok_or_else(misread)?;
        // The type follows the body.
        let ty = lines.by_ref().find_map(|line| line.trim().strip_prefix("}) : (")).ok_or_else(misread)?;
        let (tile, _) = ty.split_once(") ->").ok_or_else(misread)?;
        if of_floats(tile) {
            found.push(Reduction { axis, tile: along(axis, written_out(tile, ttgir)?) });
        }
    }
    Ok(found)
}

/// What of the type of a tile with two axes decides the order in which numbers are added along one of them, with `*` for what does
/// not: how far the tile reaches on the other axis, and how that axis is spread over registers and warps. A matrix instruction's
/// result has `warpsPerCTA = [4, 1]`; a linear layout has a step on both axes for each bit of a register's, a lane's or a warp's
/// number. A layout of another kind stays whole.
fn along(axis: u32, tile: String) -> String {
    let parts = || {
        let (shape, layout) = tile.strip_prefix("tensor<")?.split_once(", ")?;
        let (kind, _) = layout.split_once('<')?;
        let extents: Vec<&str> = shape.split('x').collect();
        let &[rows, columns, elem] = &extents[..] else { return None };
        let only = |own: &str, at: u32| if at == axis { own.to_string() } else { "*".into() };
        let kept = |list: &str, spread: bool| {
            let steps = list.split("], [").filter_map(|step| step.trim_matches(['[', ']']).split_once(", "));
            let own = steps.map(|(row, column)| if axis == 0 { row } else { column });
            // A step on the other axis alone moves no number of a sum; which lanes add to each other follows from all steps.
            own.filter(|step| !spread || *step != "0").collect::<Vec<_>>().join(", ")
        };
        let layout = match kind {
            "#ttg.nvidia_mma" => {
                let (before, (warps, after)) = listed(layout, "warpsPerCTA = ", "], ")?;
                let (row, column) = warps.trim_start_matches('[').split_once(", ")?;
                format!("{before}[{}, {}], {after}", only(row, 0), only(column, 1))
            }
            "#ttg.linear" => {
                let (before, (registers, rest)) = listed(layout, "register = ", ", lane = ")?;
                let (lanes, rest) = rest.split_once(", warp = ")?;
                let (warps, after) = rest.split_once(", block = ")?;
                let [registers, warps] = [registers, warps].map(|list| kept(list, true));
                format!("{before}[{registers}], lane = [{}], warp = [{warps}], block = {after}", kept(lanes, false))
            }
            _ => return None,
        };
        Some(format!("tensor<{}x{}x{elem}, {layout}", only(rows, 0), only(columns, 1)))
    };
    parts().unwrap_or(tile)
}

/// A text up to the end of `name`, what follows up to `end`, and the rest.
fn listed<'a>(text: &'a str, name: &str, end: &str) -> Option<(&'a str, (&'a str, &'a str))> {
    let at = text.find(name)? + name.len();
    Some((&text[..at], text[at..].split_once(end)?))
}

/// Whether a tile among some types, such as `tensor<4x8xf32, #blocked>`, is not of integers.
fn of_floats(types: &str) -> bool {
    let shapes = types.split("tensor<").skip(1).filter_map(|ty| ty.split([',', '>']).next());
    shapes.filter_map(|shape| shape.rsplit('x').next()).any(|elem| !elem.starts_with('i'))
}

/// A type with each `#name` of a layout replaced by its definition at the module's head.
fn written_out(ty: &str, ttgir: &str) -> Result<String, Refusal> {
    let mut out = String::new();
    let mut rest = ty;
    while let Some(at) = rest.find('#') {
        let (before, alias) = rest.split_at(at);
        out.push_str(before);
        let end =
            alias[1..].find(|c: char| !c.is_alphanumeric() && c != '_' && c != '.').map_or(alias.len(), |n| n + 1);
        let (name, after) = alias.split_at(end);
        // `#ttg.slice<...>` is written in place.
        match name.contains('.') {
            true => out.push_str(name),
            false => out.push_str(definition(name, ttgir)?),
        }
        rest = after;
    }
    Ok(out + rest)
}

fn definition<'a>(name: &str, ttgir: &'a str) -> Result<&'a str, Refusal> {
    let named = |line: &'a str| line.strip_prefix(name)?.strip_prefix(" = ");
    ttgir.lines().find_map(named).ok_or_else(|| Refusal::Layout { layout: name.to_string() })
}
