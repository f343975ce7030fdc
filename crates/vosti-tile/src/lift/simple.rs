//! Lifting of operations without regions: their spelling in TTIR, and the operations of tile IR that they become.

use super::Lift;
use crate::error::Reason;
use crate::ir::*;
use crate::parse::{Attribute, Cursor, Result, literal};

/// Elementwise operations of two tiles: `op %a, %b : T`.
fn binary(op: &str) -> Option<Binary> {
    use Binary::*;
    Some(match op {
        "arith.addf" => AddF,
        "arith.subf" => SubF,
        "arith.mulf" => MulF,
        "arith.divf" => DivF,
        "arith.maxnumf" => MaxNumF,
        "arith.minnumf" => MinNumF,
        "arith.maximumf" => MaximumF,
        "arith.minimumf" => MinimumF,
        "arith.addi" => Add,
        "arith.subi" => Sub,
        "arith.muli" => Mul,
        "arith.divsi" => DivS,
        "arith.remsi" => RemS,
        "arith.divui" => DivU,
        "arith.remui" => RemU,
        "arith.andi" => And,
        "arith.ori" => Or,
        "arith.xori" => Xor,
        "arith.shli" => Shl,
        "arith.shrsi" => ShrS,
        "arith.shrui" => ShrU,
        "arith.maxsi" => MaxS,
        "arith.minsi" => MinS,
        "arith.maxui" => MaxU,
        "arith.minui" => MinU,
        _ => return None,
    })
}

/// Elementwise functions: `op %x : T`.
fn unary(op: &str) -> Option<Unary> {
    use Unary::*;
    Some(match op {
        "arith.negf" => Neg,
        "math.absf" => Abs,
        "math.exp" => Exp,
        "math.exp2" => Exp2,
        "math.log" => Log,
        "math.log2" => Log2,
        "math.sqrt" => Sqrt,
        "math.rsqrt" => Rsqrt,
        "math.sin" => Sin,
        "math.cos" => Cos,
        "math.floor" => Floor,
        "math.ceil" => Ceil,
        _ => return None,
    })
}

/// Changes of type: `op %x : T to U`.
fn cast(op: &str) -> Option<Cast> {
    use Cast::*;
    Some(match op {
        "arith.extf" => ExtF,
        "arith.truncf" => TruncF,
        "arith.extsi" => ExtS,
        "arith.extui" => ExtU,
        "arith.trunci" => Trunc,
        "arith.sitofp" => IntToFloatS,
        "arith.uitofp" => IntToFloatU,
        "arith.fptosi" => FloatToIntS,
        "arith.bitcast" | "tt.bitcast" => Bits,
        _ => return None,
    })
}

fn cmp_int(predicate: &str) -> Option<CmpInt> {
    use CmpInt::*;
    Some(match predicate {
        "eq" => Eq,
        "ne" => Ne,
        "slt" => Slt,
        "sle" => Sle,
        "sgt" => Sgt,
        "sge" => Sge,
        "ult" => Ult,
        "ule" => Ule,
        "ugt" => Ugt,
        "uge" => Uge,
        _ => return None,
    })
}

fn cmp_float(predicate: &str) -> Option<CmpFloat> {
    use CmpFloat::*;
    Some(match predicate {
        "oeq" => Oeq,
        "ogt" => Ogt,
        "oge" => Oge,
        "olt" => Olt,
        "ole" => Ole,
        "one" => One,
        "ord" => Ord,
        "ueq" => Ueq,
        "ugt" => Ugt,
        "uge" => Uge,
        "ult" => Ult,
        "ule" => Ule,
        "une" => Une,
        "uno" => Uno,
        _ => return None,
    })
}

impl<'t> Lift<'t> {
    /// Lifts one operation named `op`; `start` is where its name stands.
    pub(super) fn simple(&mut self, op: &'t str, start: Cursor<'t>) -> Result<Vec<Value>> {
        if let Some(op) = binary(op) {
            let (a, b) = self.pair()?;
            return self.emit_as_operand(OpKind::Binary { op, a, b }, a);
        }
        if let Some(op) = unary(op) {
            let x = self.operand()?;
            return self.emit_as_operand(OpKind::Unary { op, x }, x);
        }
        if let Some(op) = cast(op) {
            return self.cast(op);
        }
        match op {
            "arith.constant" => self.constant(),
            "ub.poison" => {
                let ty = self.result_type()?;
                self.emit(OpKind::Poison { ty }, None)
            }
            "arith.cmpi" | "arith.cmpf" => self.comparison(op == "arith.cmpi"),
            "arith.select" => self.select(),
            "math.fma" => {
                let (a, b) = self.pair()?;
                self.cursor.expect(",")?;
                let c = self.operand()?;
                self.emit_as_operand(OpKind::Fma { a, b, c }, a)
            }
            "tt.get_program_id" | "tt.get_num_programs" => self.program(op == "tt.get_program_id"),
            "tt.splat" | "tt.broadcast" | "tt.expand_dims" | "tt.reshape" | "tt.trans" => self.reshaping(op),
            "tt.split" => self.split(),
            "tt.make_range" => self.range(),
            "tt.addptr" => self.addptr(),
            "tt.make_tensor_ptr" => self.make_block(),
            "tt.advance" => self.advance(),
            "tt.load" => self.load(),
            "tt.store" => self.store(),
            "tt.dot" => self.dot(),
            _ => start.fail(unknown(op)),
        }
    }

    fn pair(&mut self) -> Result<(Value, Value)> {
        let a = self.operand()?;
        self.cursor.expect(",")?;
        Ok((a, self.operand()?))
    }

    /// `: T`
    fn result_type(&mut self) -> Result<Type> {
        self.cursor.expect(":")?;
        self.cursor.ty()
    }

    fn emit(&mut self, kind: OpKind, declared: Option<&Type>) -> Result<Vec<Value>> {
        let result = self.builder.push(kind);
        let results: Vec<Value> = self.typed(result)?.into_iter().collect();
        if let Some(declared) = declared {
            self.declared(&results, std::slice::from_ref(declared))?;
        }
        Ok(results)
    }

    /// Reads `: T`, the type of `operand`, and emits.
    fn emit_as_operand(&mut self, kind: OpKind, operand: Value) -> Result<Vec<Value>> {
        let ty = self.result_type()?;
        self.declared(&[operand], &[ty])?;
        self.emit(kind, None)
    }

    /// Reads `: T -> U` (or `to U`), the operand's and the result's type.
    fn conversion(&mut self, operand: Value, arrow: &str) -> Result<Type> {
        let ty = self.result_type()?;
        self.declared(&[operand], &[ty])?;
        self.cursor.expect(arrow)?;
        self.cursor.ty()
    }

    fn constant(&mut self) -> Result<Vec<Value>> {
        let start = self.cursor;
        let (text, dense) = self.cursor.number()?;
        let word = matches!(text, "true" | "false");
        let ty = if word && !dense { Type::scalar(Scalar::I1) } else { self.result_type()? };
        if !ty.is_tile() || dense == ty.shape().is_empty() {
            return start.fail(Reason::Unsupported { what: format!("a constant of type {ty}") });
        }
        match literal(text, ty.elem()) {
            Some(value) => self.emit(OpKind::Constant { value, ty }, None),
            None => start.fail(Reason::Unsupported { what: format!("`{text}` as a constant of type {ty}") }),
        }
    }

    fn cast(&mut self, op: Cast) -> Result<Vec<Value>> {
        let x = self.operand()?;
        let arrow = if op == Cast::Bits && self.bitcast_by_arrow() { "->" } else { "to" };
        let to = self.conversion(x, arrow)?;
        if op == Cast::Bits && *self.builder.ty(x) == to {
            return Ok(vec![x]);
        }
        self.emit(OpKind::Cast { op, x, to: to.elem() }, Some(&to))
    }

    /// `tt.bitcast` is spelled with an arrow, `arith.bitcast` with `to`.
    fn bitcast_by_arrow(&self) -> bool {
        self.cursor.rest().lines().next().is_some_and(|line| line.contains("->"))
    }

    fn comparison(&mut self, int: bool) -> Result<Vec<Value>> {
        let start = self.cursor;
        let predicate = self.cursor.word()?;
        self.cursor.expect(",")?;
        let (a, b) = self.pair()?;
        let kind = match (int, cmp_int(predicate), cmp_float(predicate)) {
            (true, Some(op), _) => OpKind::CmpInt { op, a, b },
            (false, _, Some(op)) => OpKind::CmpFloat { op, a, b },
            _ => {
                return start.fail(Reason::Unsupported { what: format!("the comparison `{predicate}`") });
            }
        };
        self.emit_as_operand(kind, a)
    }

    /// `%c, %a, %b : T`, or with `: C, T` when the condition is a tile.
    fn select(&mut self) -> Result<Vec<Value>> {
        let cond = self.operand()?;
        self.cursor.expect(",")?;
        let (a, b) = self.pair()?;
        self.cursor.expect(":")?;
        let types = self.types()?;
        match types.len() {
            1 => self.declared(&[a], &types)?,
            _ => self.declared(&[cond, a], &types)?,
        }
        self.emit(OpKind::Select { cond, a, b }, None)
    }

    fn program(&mut self, id: bool) -> Result<Vec<Value>> {
        let start = self.cursor;
        let axis = match self.cursor.word()? {
            "x" => 0,
            "y" => 1,
            "z" => 2,
            other => {
                return start.fail(Reason::Unsupported { what: format!("grid axis `{other}`") });
            }
        };
        let ty = self.result_type()?;
        self.emit(if id { OpKind::ProgramId { axis } } else { OpKind::NumPrograms { axis } }, Some(&ty))
    }

    fn reshaping(&mut self, op: &str) -> Result<Vec<Value>> {
        let x = self.operand()?;
        let start = self.cursor;
        let attributes = self.cursor.attributes()?;
        let to = self.conversion(x, "->")?;
        let shape = to.shape().to_vec();
        let kind = match (op, &attributes[..]) {
            ("tt.splat", []) => OpKind::Splat { x, shape },
            ("tt.broadcast", []) => OpKind::Broadcast { x, shape },
            ("tt.reshape", []) => OpKind::Reshape { x, shape },
            ("tt.expand_dims", [(name, Attribute::Int(axis))]) if name == "axis" && *axis >= 0 => {
                OpKind::ExpandDims { x, axis: *axis as usize }
            }
            ("tt.trans", [(name, Attribute::Ints(order))]) if name == "order" => {
                OpKind::Transpose { x, perm: indices(order) }
            }
            _ => {
                let name = attributes.first().map_or("none".to_string(), |a| a.0.clone());
                return start.fail(Reason::Attribute { op: op.to_string(), name });
            }
        };
        self.emit(kind, Some(&to))
    }

    fn split(&mut self) -> Result<Vec<Value>> {
        let x = self.operand()?;
        let to = self.conversion(x, "->")?;
        let halves = [0, 1].map(|which| self.emit(OpKind::Half { x, which }, Some(&to)));
        let [first, second] = halves;
        Ok([first?, second?].concat())
    }

    fn range(&mut self) -> Result<Vec<Value>> {
        let start = self.cursor;
        let (mut lo, mut hi) = (None, None);
        for (name, value) in self.cursor.attributes()? {
            match (name.as_str(), value) {
                ("start", Attribute::Int(n)) => lo = i32::try_from(n).ok(),
                ("end", Attribute::Int(n)) => hi = i32::try_from(n).ok(),
                _ => {
                    return start.fail(Reason::Attribute { op: "tt.make_range".into(), name });
                }
            }
        }
        let (Some(lo), Some(hi)) = (lo, hi) else {
            return start.unexpected("`{start, end}`");
        };
        let ty = self.result_type()?;
        self.emit(OpKind::Range { start: lo, end: hi }, Some(&ty))
    }

    fn addptr(&mut self) -> Result<Vec<Value>> {
        let (ptr, offset) = self.pair()?;
        self.cursor.expect(":")?;
        let types = self.types()?;
        self.declared(&[ptr, offset], &types)?;
        self.emit(OpKind::AddPtr { ptr, offset }, Some(&types[0]))
    }

    /// `<tensor<64x64xbf16>>`: the type of a block pointer without its `!tt.ptr`.
    fn block_type(&mut self) -> Result<Type> {
        self.cursor.expect(":")?;
        self.cursor.expect("<")?;
        let ty = self.cursor.ty()?;
        self.cursor.expect(">")?;
        Ok(Type::Block { shape: ty.shape().to_vec(), elem: ty.elem() })
    }

    fn make_block(&mut self) -> Result<Vec<Value>> {
        let base = self.operand()?;
        self.cursor.expect(",")?;
        let shape = self.bracketed()?;
        self.cursor.expect(",")?;
        let strides = self.bracketed()?;
        self.cursor.expect(",")?;
        let offsets = self.bracketed()?;
        let start = self.cursor;
        let order = match &self.cursor.attributes()?[..] {
            [(name, Attribute::Ints(order))] if name == "order" => indices(order),
            _ => return start.unexpected("`{order = ...}`"),
        };
        let ty = self.block_type()?;
        let block = ty.shape().to_vec();
        self.emit(OpKind::MakeBlock { base, shape, strides, offsets, order, block }, Some(&ty))
    }

    fn advance(&mut self) -> Result<Vec<Value>> {
        let ptr = self.operand()?;
        self.cursor.expect(",")?;
        let offsets = self.bracketed()?;
        let ty = self.block_type()?;
        self.emit(OpKind::Advance { ptr, offsets }, Some(&ty))
    }

    /// Attributes of an access: the checked axes, and the padding of lanes outside.
    fn access(&mut self, op: &str) -> Result<(Vec<usize>, Padding)> {
        let (mut check, mut padding) = (vec![], Padding::Undefined);
        for (name, value) in self.cursor.attributes()? {
            match (name.as_str(), value) {
                ("boundaryCheck", Attribute::Ints(axes)) => check = indices(&axes),
                ("padding", Attribute::Int(1)) => padding = Padding::Zero,
                ("padding", Attribute::Int(2)) => padding = Padding::Nan,
                _ => {
                    return self.cursor.fail(Reason::Attribute { op: op.to_string(), name });
                }
            }
        }
        Ok((check, padding))
    }

    fn load(&mut self) -> Result<Vec<Value>> {
        let operands = self.values()?;
        let (check, padding) = self.access("tt.load")?;
        let ptr = operands[0];
        let (mask, other) = (operands.get(1).copied(), operands.get(2).copied());
        let block = matches!(self.builder.ty(ptr), Type::Block { .. });
        let kind = match (block, operands.len()) {
            (true, 1) => OpKind::LoadBlock { ptr, check, padding },
            (false, 1..=3) if check.is_empty() && padding == Padding::Undefined => OpKind::Load { ptr, mask, other },
            _ => {
                return self.cursor.fail(Reason::Unsupported { what: "a load of this form".into() });
            }
        };
        self.emit_as_operand(kind, ptr)
    }

    fn store(&mut self) -> Result<Vec<Value>> {
        let operands = self.values()?;
        let (check, padding) = self.access("tt.store")?;
        let (&[ptr, value], mask) = (&operands[..2.min(operands.len())], operands.get(2).copied()) else {
            return self.cursor.unexpected("a pointer and a value");
        };
        let block = matches!(self.builder.ty(ptr), Type::Block { .. });
        let kind = match (block, operands.len(), padding) {
            (true, 2, Padding::Undefined) => OpKind::StoreBlock { ptr, value, check },
            (false, 2..=3, Padding::Undefined) if check.is_empty() => OpKind::Store { ptr, value, mask },
            _ => {
                return self.cursor.fail(Reason::Unsupported { what: "a store of this form".into() });
            }
        };
        self.emit_as_operand(kind, ptr)
    }

    /// `%a, %b, %c : T * U -> V`. Any text between the operands and the colon is a precision other than
    /// IEEE, which has no single meaning, and is refused.
    fn dot(&mut self) -> Result<Vec<Value>> {
        let (a, b) = self.pair()?;
        self.cursor.expect(",")?;
        let acc = self.operand()?;
        if self.cursor.eat(",") {
            let what = "tt.dot with inputPrecision: ask for input_precision=\"ieee\"".into();
            return self.cursor.fail(Reason::Unsupported { what });
        }
        let ta = self.result_type()?;
        self.declared(&[a], &[ta])?;
        self.cursor.expect("*")?;
        let tb = self.cursor.ty()?;
        self.declared(&[b], &[tb])?;
        self.cursor.expect("->")?;
        let ty = self.cursor.ty()?;
        self.emit(OpKind::Dot { a, b, acc }, Some(&ty))
    }
}

/// Axes as indices; a negative axis becomes an index out of range, which the typing rules refuse.
fn indices(axes: &[i64]) -> Vec<usize> {
    axes.iter().map(|a| usize::try_from(*a).unwrap_or(usize::MAX)).collect()
}

/// The refusal of an operation, with advice for common ones.
pub(super) fn unknown(op: &str) -> Reason {
    let hint = match op {
        "cf.cond_br" | "cf.br" => ": early returns are not lifted, mask the accesses instead",
        "tt.atomic_rmw" | "tt.atomic_cas" => ": the order of atomics is not fixed",
        "tt.scan" | "\"tt.scan\"" => ": its order is not fixed",
        "tt.print" | "tt.assert" => ": remove debugging output",
        _ => "",
    };
    Reason::Operation { name: op.to_string(), hint }
}
