//! Compiles the loop of a product in integers (`kernels/integers.py`) as one instruction.
//!
//! The loop's body is compared, operation by operation, with the one that the instruction computes: its result is written out as
//! a term, in which each window has a letter in the order of its first use, and must be the term of one of the eight forms.
//! Read next: [`crate::plan::machine`], [`vosti_simd::micro::integers`].

use std::collections::HashMap;

use vosti_tile::{Binary, Cast, CmpInt, Kernel, Literal, Op, OpKind, Padding, Region, Scalar, Value};

use super::tile::{Block, Sym, Whole};
use super::{Compiler, Result};
use crate::plan::axes::splits_first;
use crate::plan::code::{BlockAccess, BlocksCode, Instr, Lanes};
use vosti_kernels::Part;
use vosti_kernels::quantised::BLOCK;
use vosti_simd::layout::{Layout, PANEL};

/// What a window of the loop holds. The rows of a left factor may be two axes that a reshape merges.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Role {
    Hi,
    Lo,
    Scale,
    Sums,
    Codes,
    Scales,
    Offsets,
}

/// How a loop multiplies: see `kernels/integers.py`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Form {
    halves: bool,
    offsets: bool,
    wide: bool,
}

/// A loop of this kind: the argument of each window, the position of the accumulator, and its form.
struct Found {
    windows: HashMap<Role, Value>,
    acc: usize,
    form: Form,
}

/// Writes a value as a term of what a loop's body reads.
struct Writer<'a> {
    kernel: &'a Kernel,
    made: &'a HashMap<Value, &'a Op>,
    args: &'a [Value],
    acc: Value,
    /// Windows in the order of their first use.
    windows: Vec<Value>,
}

impl Writer<'_> {
    fn constant(&self, value: Value) -> Option<i64> {
        match &self.made.get(&value)?.kind {
            OpKind::Constant { value: Literal::Int(value), .. } => Some(*value),
            _ => None,
        }
    }

    /// A window as its letter, or `letter+elements` along rows and columns.
    fn window(&mut self, ptr: Value) -> Option<String> {
        if !self.args.contains(&ptr) {
            let OpKind::Advance { ptr, offsets } = &self.made.get(&ptr)?.kind else { return None };
            let by = steps(offsets, |offset| self.constant(offset))?;
            return Some(format!("{}+{by:?}", self.window(*ptr).filter(|name| !name.contains('+'))?));
        }
        let number = self.windows.iter().position(|window| *window == ptr).unwrap_or_else(|| {
            self.windows.push(ptr);
            self.windows.len() - 1
        });
        Some(letter(number))
    }

    fn term(&mut self, value: Value) -> Option<String> {
        if value == self.acc {
            return Some("acc".into());
        }
        let op = self.made.get(&value)?;
        let terms = |own: &mut Self, name: &str, values: &[Value]| {
            let terms: Option<Vec<String>> = values.iter().map(|value| own.term(*value)).collect();
            Some(format!("{name}({})", terms?.join(",")))
        };
        match &op.kind {
            OpKind::Constant { value: Literal::Int(value), .. } => Some(value.to_string()),
            OpKind::LoadBlock { ptr, check, padding: Padding::Zero } if check[..] == [0, 1] => self.window(*ptr),
            OpKind::Reshape { x, .. } if splits_first(self.kernel.ty(*x).shape(), self.kernel.ty(value).shape()) => {
                match &self.made.get(x)?.kind {
                    OpKind::LoadBlock { ptr, check, padding: Padding::Zero } if check[..] == [0, 2] => {
                        self.window(*ptr)
                    }
                    _ => None,
                }
            }
            OpKind::Broadcast { x, .. } => self.term(*x),
            OpKind::ExpandDims { x, axis: 1 } => self.term(*x),
            OpKind::Range { start: 0, .. } if self.kernel.ty(value).shape() == [BLOCK] => Some("k".into()),
            OpKind::CmpInt { op: CmpInt::Slt, a, b } => terms(self, "less", &[*a, *b]),
            OpKind::Select { cond, a, b } => terms(self, "select", &[*cond, *a, *b]),
            OpKind::Dot { a, b, acc } if self.kernel.ty(value).elem() == Scalar::I32 => {
                terms(self, "dot", &[*a, *b, *acc])
            }
            OpKind::Binary { op: Binary::Mul, a, b } => terms(self, "times", &[*a, *b]),
            OpKind::Binary { op: Binary::Add, a, b } => terms(self, "plus", &[*a, *b]),
            OpKind::Binary { op: Binary::MulF, a, b } => terms(self, "mul", &[*a, *b]),
            OpKind::Binary { op: Binary::AddF, a, b } => terms(self, "add", &[*a, *b]),
            OpKind::Fma { a, b, c } => terms(self, "fma", &[*a, *b, *c]),
            OpKind::Cast { op: Cast::IntToFloatS, x, .. } => terms(self, "float", &[*x]),
            _ => None,
        }
    }
}

fn letter(number: usize) -> String {
    char::from(b'a' + number as u8).to_string()
}

/// The term of a form, with letters for windows, and the role of each letter.
fn expected(Form { halves, offsets, wide }: Form) -> (String, Vec<Role>) {
    let mut roles = vec![];
    let mut of = |role: Role| {
        let number = roles.iter().position(|known| *known == role).unwrap_or_else(|| {
            roles.push(role);
            roles.len() - 1
        });
        letter(number)
    };
    // In the order in which `Writer` meets them: the last multiply-add first.
    fn one(form: Form, half: Option<usize>, of: &mut dyn FnMut(Role) -> String) -> String {
        let Form { offsets, wide, .. } = form;
        let codes = |of: &mut dyn FnMut(Role) -> String| match half {
            None => of(Role::Codes),
            Some(0) => format!("select(less(k,16),{},0)", of(Role::Codes)),
            Some(_) => format!("select(less(k,16),0,{})", of(Role::Codes)),
        };
        let at = |name: String, by: &str| if half == Some(1) { format!("{name}+{by}") } else { name };
        let mut minima = String::new();
        if offsets {
            let offset = at(of(Role::Offsets), "[1, 0]");
            let (scale, sums) = (of(Role::Scale), of(Role::Sums));
            let sums = match half {
                None => format!("add({sums},{sums}+[0, 1])"),
                Some(_) => at(sums, "[0, 1]"),
            };
            minima = format!("fma({offset},mul({scale},{sums}),");
        }
        let mut sum = format!("dot({},{},0)", of(Role::Hi), codes(of));
        if wide {
            sum = format!("plus(times({sum},256),dot({},{},0))", of(Role::Lo), codes(of));
        }
        let scales = at(of(Role::Scales), "[1, 0]");
        let scale = of(Role::Scale);
        let before = match half {
            Some(1) => one(form, Some(0), of),
            _ => "acc".into(),
        };
        let product = format!("fma(float({sum}),mul({scales},{scale}),{before})");
        if offsets { format!("{minima}{product})") } else { product }
    }
    let term = one(Form { halves, offsets, wide }, halves.then_some(1), &mut of);
    (term, roles)
}

impl Found {
    /// The form of a loop whose body is `body`; None if it is another loop.
    fn of(kernel: &Kernel, made: &HashMap<Value, &Op>, args: &[Value], body: &Region) -> Option<Self> {
        let mut others = (0..args.len()).filter(|i| kernel.ty(args[*i]).is_tile());
        let (acc, none) = (others.next()?, others.next());
        let pure = body.ops.iter().all(|op| op.kind.regions().is_empty() && !op.results.is_empty());
        if none.is_some() || !pure {
            return None;
        }
        let mut writer = Writer { kernel, made, args, acc: args[acc], windows: vec![] };
        let term = writer.term(body.yields[acc])?;
        let forms = (0..8).map(|i| Form { halves: i & 1 > 0, offsets: i & 2 > 0, wide: i & 4 > 0 });
        let (form, roles) = forms
            .map(|form| (form, expected(form)))
            .find_map(|(form, (expected, roles))| (expected == term).then_some((form, roles)))?;
        let windows: HashMap<Role, Value> = roles.into_iter().zip(writer.windows).collect();
        let shape = kernel.ty(args[acc]).shape();
        let right = |role: &Role| match role {
            Role::Hi | Role::Lo => ([shape[0], BLOCK], Scalar::I8, [0, BLOCK as i64]),
            Role::Scale => ([shape[0], 1], Scalar::F32, [0, 1]),
            Role::Sums => ([shape[0], 1], Scalar::F32, [0, 2]),
            Role::Codes => ([BLOCK, shape[1]], Scalar::I8, [BLOCK as i64, 0]),
            Role::Scales | Role::Offsets => ([1, shape[1]], Scalar::F32, [2, 0]),
        };
        let fits = windows.iter().all(|(role, arg)| {
            let (shape, elem, by) = right(role);
            let ty = kernel.ty(*arg);
            let left = matches!(role, Role::Hi | Role::Lo | Role::Scale | Role::Sums);
            let same = ty.shape() == shape || left && splits_first(ty.shape(), &shape);
            same && ty.elem() == elem && moves(made, args, body, *arg) == Some(by)
        });
        (fits && shape[0] > 1 && shape[1] > 1).then_some(Self { windows, acc, form })
    }
}

/// The elements that a window moves along rows and columns in an iteration, if these are constants.
fn moves(made: &HashMap<Value, &Op>, args: &[Value], body: &Region, arg: Value) -> Option<[i64; 2]> {
    let position = args.iter().position(|known| *known == arg)?;
    let OpKind::Advance { ptr, offsets } = &made.get(&body.yields[position])?.kind else { return None };
    let constant = |value: Value| match &made.get(&value)?.kind {
        OpKind::Constant { value: Literal::Int(value), .. } => Some(*value),
        _ => None,
    };
    (*ptr == arg).then(|| steps(offsets, constant))?
}

/// Offsets along rows and columns; None if the rows are two axes of which the second moves.
fn steps(offsets: &[Value], constant: impl Fn(Value) -> Option<i64>) -> Option<[i64; 2]> {
    let by: Vec<i64> = offsets.iter().map(|offset| constant(*offset)).collect::<Option<_>>()?;
    match by[..] {
        [rows, columns] | [rows, 0, columns] => Some([rows, columns]),
        _ => None,
    }
}

impl<'k> Compiler<'k> {
    /// Compiles a loop that multiplies blocks of integers as one instruction; false if it is something else.
    pub(super) fn fuse_blocks(&mut self, op: &'k Op) -> Result<bool> {
        let OpKind::For { lo, hi, step, args, inits, body, .. } = &op.kind else { return Ok(false) };
        let constant = |value: &Value| match self.env.get(value) {
            Some(Sym::Const(Literal::Int(value))) => Some(*value),
            _ => None,
        };
        let (Some(lo), Some(hi), Some(1)) = (constant(lo), constant(hi), constant(step)) else { return Ok(false) };
        let blocks = usize::try_from(hi - lo).unwrap_or(0);
        let Some(found) = Found::of(self.kernel, &self.made, args, body) else { return Ok(false) };
        let mut windows = HashMap::new();
        for (i, (arg, init)) in args.iter().zip(inits).enumerate() {
            let (block, by) = match (self.env.get(init), moves(&self.made, args, body, *arg)) {
                (Some(Sym::Block(block)), Some(by)) => (block.clone(), by),
                _ if i == found.acc => continue,
                _ => return Ok(false),
            };
            // A kernel reads no window after such a loop, so the one that it leaves is not made.
            let read = self.uses.get(&op.results[i]).is_some_and(|uses| *uses > 0);
            let ends = [block.offsets.first(), block.offsets.last()];
            if read || by.iter().zip(ends).any(|(by, at)| *by != 0 && !matches!(at, Some(Whole::Const(_)))) {
                return Ok(false);
            }
            windows.insert(*arg, block);
        }
        if blocks == 0 {
            return Ok(false);
        }
        let result = op.results[found.acc];
        let (dst, accumulate) = self.accumulator(result, inits[found.acc], &[])?;
        let (height, columns) = (self.kernel.ty(result).shape()[0], self.kernel.ty(result).shape()[1]);
        let rows = self.lanes(result, 0);
        let mut held = vec![];
        let mut access = |own: &mut Self, role: Role| -> Option<BlockAccess> {
            let block = &windows[found.windows.get(&role)?];
            let (deep, elem) = match role {
                Role::Hi | Role::Lo | Role::Codes => (BLOCK * blocks, Scalar::I8),
                Role::Scale => (blocks, Scalar::F32),
                Role::Sums | Role::Scales | Role::Offsets => (2 * blocks, Scalar::F32),
            };
            own.read_in_place[block.array.param] = true;
            let right = own.want_part(role, block);
            let all = Lanes { count: own.count(deep), live: None };
            let (rows, extents) = if right { (all, [deep, columns]) } else { (rows, [height, deep]) };
            let checked = [0, block.offsets.len() - 1];
            let (access, memory) = own.operand_access(block, &checked, Padding::Zero, rows, extents, elem);
            held.push(memory);
            Some(access)
        };
        let [hi, lo, scale, sums, codes, scales, offsets] =
            [Role::Hi, Role::Lo, Role::Scale, Role::Sums, Role::Codes, Role::Scales, Role::Offsets]
                .map(|role| access(self, role));
        let (Some(hi), Some(scale), Some(codes), Some(scales)) = (hi, scale, codes, scales) else { return Ok(false) };
        let minima = sums.zip(offsets);
        let code = BlocksCode {
            rows,
            columns,
            blocks,
            hi,
            lo,
            scale,
            codes,
            scales,
            minima,
            halves: found.form.halves,
            dst: dst.memory.at,
            dst_row: self.row_bytes(result),
            accumulate,
        };
        self.code.push(Instr::Blocks(Box::new(code)));
        self.define(result, Sym::Tile(dst));
        Ok(true)
    }

    /// Whether a window is of the right factor; then notes the layout in which it would be read in place.
    fn want_part(&mut self, role: Role, block: &Block) -> bool {
        let part = match role {
            Role::Codes => Part::Codes,
            Role::Scales => Part::Scales,
            Role::Offsets => Part::Offsets,
            _ => return false,
        };
        if let [Whole::Const(1), Whole::Const(row)] = block.array.strides[..] {
            let cut = match &block.array.shape[1] {
                Whole::Const(rows) if *rows > 0 && rows % PANEL as i64 != 0 => *rows as usize,
                _ => 0,
            };
            let row_len = row as usize * BLOCK / part.columns(BLOCK);
            self.wanted[block.array.param].get_or_insert(Layout::StoredPanels { row_len, cut, part: Some(part) });
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_has_a_term_of_its_own() {
        let terms: std::collections::HashSet<String> =
            (0..8).map(|i| expected(Form { halves: i & 1 > 0, offsets: i & 2 > 0, wide: i & 4 > 0 }).0).collect();
        assert_eq!(terms.len(), 8);
        let (term, roles) = expected(Form { halves: false, offsets: true, wide: false });
        assert_eq!(term, "fma(a,mul(b,add(c,c+[0, 1])),fma(float(dot(d,e,0)),mul(f,b),acc))");
        assert_eq!(roles, [Role::Offsets, Role::Scale, Role::Sums, Role::Hi, Role::Codes, Role::Scales]);
    }
}
