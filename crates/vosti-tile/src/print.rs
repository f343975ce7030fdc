//! Prints tile IR for people: one operation on each line, with its Python line.
//!
//! The text is for reading and for snapshots; nothing parses it.

use crate::ir::*;
use std::fmt::{self, Write};

impl fmt::Display for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let params = self.params.iter().map(|p| {
            let name = self.shown(p.value);
            format!("{name}: *{} align {}", p.elem, p.divisibility)
        });
        let scalars = self.scalars.iter().map(|p| format!("{}: {}", self.shown(p.value), p.elem));
        writeln!(f, "kernel {}({}) {{", self.name, params.chain(scalars).collect::<Vec<_>>().join(", "))?;
        let mut text = String::new();
        self.print_ops(&self.body, 1, &mut text)?;
        write!(f, "{text}}}")
    }
}

impl Kernel {
    /// A value's printed form: its name and number, which makes it unique.
    pub fn shown(&self, value: Value) -> String {
        let name = self.values[value.index()].name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '_');
        format!("%{}{}{}", name, if name.is_empty() { "" } else { "." }, value.0)
    }

    fn list(&self, values: &[Value]) -> String {
        values.iter().map(|v| self.shown(*v)).collect::<Vec<_>>().join(", ")
    }

    fn print_ops(&self, ops: &[Op], depth: usize, out: &mut String) -> fmt::Result {
        for op in ops {
            self.print_op(op, depth, out)?;
        }
        Ok(())
    }

    fn print_op(&self, op: &Op, depth: usize, out: &mut String) -> fmt::Result {
        let indent = "  ".repeat(depth);
        let results = if op.results.is_empty() { String::new() } else { format!("{} = ", self.list(&op.results)) };
        let types: Vec<String> = op.results.iter().map(|r| self.ty(*r).to_string()).collect();
        let types = if types.is_empty() { String::new() } else { format!(" : {}", types.join(", ")) };
        let line = op.line.python.map(|l| format!("  // {l}")).unwrap_or_default();
        write!(out, "{indent}{results}")?;
        match &op.kind {
            OpKind::For { lo, hi, step, index, args, inits, body } => {
                let carried: Vec<String> =
                    args.iter().zip(inits).map(|(a, i)| format!("{} = {}", self.shown(*a), self.shown(*i))).collect();
                let [index, lo, hi, step] = [index, lo, hi, step].map(|v| self.shown(*v));
                writeln!(out, "for {index} in {lo}..{hi} by {step} ({}){types} {{{line}", carried.join(", "))?;
                self.print_region(body, depth, out)?;
                writeln!(out, "{indent}}}")
            }
            OpKind::If { cond, then, otherwise } => {
                writeln!(out, "if {}{types} {{{line}", self.shown(*cond))?;
                self.print_region(then, depth, out)?;
                writeln!(out, "{indent}}} else {{")?;
                self.print_region(otherwise, depth, out)?;
                writeln!(out, "{indent}}}")
            }
            kind => writeln!(out, "{}{types}{line}", self.describe(kind)),
        }
    }

    fn print_region(&self, region: &Region, depth: usize, out: &mut String) -> fmt::Result {
        self.print_ops(&region.ops, depth + 1, out)?;
        writeln!(out, "{}yield {}", "  ".repeat(depth + 1), self.list(&region.yields))
    }

    /// An operation without its results and regions.
    pub fn describe(&self, kind: &OpKind) -> String {
        use OpKind::*;
        let operands = self.list(&kind.operands());
        match kind {
            ProgramId { axis } => format!("program_id {axis}"),
            NumPrograms { axis } => format!("num_programs {axis}"),
            Constant { value: Literal::Int(v), .. } => format!("constant {v}"),
            Constant { value: Literal::Float(bits), .. } => format!("constant {:?}", f32::from_bits(*bits)),
            Poison { .. } => "poison".to_string(),
            Unary { op, .. } => format!("{} {operands}", lower(op)),
            Binary { op, .. } => format!("{} {operands}", lower(op)),
            Fma { .. } => format!("fma {operands}"),
            CmpInt { op, .. } => format!("cmp_int {} {operands}", lower(op)),
            CmpFloat { op, .. } => format!("cmp_float {} {operands}", lower(op)),
            Select { .. } => format!("select {operands}"),
            Cast { op, to, .. } => format!("{} {operands} to {to}", lower(op)),
            Splat { .. } => format!("splat {operands}"),
            Broadcast { .. } => format!("broadcast {operands}"),
            ExpandDims { axis, .. } => format!("expand_dims {operands} at {axis}"),
            Reshape { .. } => format!("reshape {operands}"),
            Transpose { perm, .. } => format!("transpose {operands} by {perm:?}"),
            Half { which, .. } => format!("half {which} of {operands}"),
            Range { start, end } => format!("range {start}..{end}"),
            AddPtr { .. } => format!("addptr {operands}"),
            MakeBlock { base, shape, strides, offsets, block, .. } => format!(
                "make_block {} shape [{}] strides [{}] offsets [{}] block {block:?}",
                self.shown(*base),
                self.list(shape),
                self.list(strides),
                self.list(offsets)
            ),
            Advance { ptr, offsets } => {
                format!("advance {} by [{}]", self.shown(*ptr), self.list(offsets))
            }
            Load { .. } => format!("load {operands}"),
            LoadBlock { check, padding, .. } => {
                format!("load {operands} check {check:?} padding {}", lower(padding))
            }
            Store { .. } => format!("store {operands}"),
            StoreBlock { check, .. } => format!("store {operands} check {check:?}"),
            Dot { .. } => format!("dot {operands}"),
            Reduce { op, axis, .. } => format!("reduce {} {operands} axis {axis}", lower(op)),
            For { .. } => "for".to_string(),
            If { .. } => "if".to_string(),
        }
    }
}

/// A variant's name as the IR spells it: `MaxNumF` is `max_num_f`.
fn lower(variant: &impl fmt::Debug) -> String {
    let mut out = String::new();
    for c in format!("{variant:?}").chars() {
        if c.is_ascii_uppercase() && !out.is_empty() {
            out.push('_');
        }
        out.push(c.to_ascii_lowercase());
    }
    out
}

impl fmt::Display for Scalar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Scalar::I1 => "i1",
            Scalar::I8 => "i8",
            Scalar::I32 => "i32",
            Scalar::I64 => "i64",
            Scalar::Bf16 => "bf16",
            Scalar::F32 => "f32",
        })
    }
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mark = match self {
            Type::Tile { .. } => "",
            Type::Pointers { .. } => "*",
            Type::Block { .. } => "&",
        };
        write!(f, "{mark}{}", self.elem())?;
        if !self.shape().is_empty() {
            let axes: Vec<String> = self.shape().iter().map(|n| n.to_string()).collect();
            write!(f, "[{}]", axes.join(", "))?;
        }
        Ok(())
    }
}
