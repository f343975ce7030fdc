//! TTIR text to tile IR. Text outside the subset is refused with the TTIR line and the Python line.
//!
//! Functions are inlined where they are called, dead blocks behind a return are skipped, bitcasts to the
//! same type disappear, and unused operations are left out. There is no other simplification: an
//! operation of the TTIR is an operation of the tile IR. The module and its functions are in [`mod@module`], operations
//! without regions in [`mod@simple`].

mod module;
mod simple;

use crate::build::{Builder, TypeError};
use crate::error::{LiftError, Reason};
use crate::ir::*;
use crate::parse::{Attribute, Cursor, PythonLines, Result};
use module::Function;
use simple::unknown;
use std::collections::HashMap;

/// Reads a module with one public function and lifts that function. The error has the line and the reason.
pub fn lift(ttir_text: &str) -> std::result::Result<Kernel, LiftError> {
    let lines = PythonLines::of(ttir_text);
    Lift::new(ttir_text, &lines).and_then(|lift| lift.module()).map_err(|mut error| {
        error.python_line = error.python_line.or_else(|| lines.at(error.ttir_line));
        error
    })
}

/// The deepest nesting of calls, loops and branches; it also refuses recursion.
const DEPTH_MAX: usize = 32;
/// The most operations of a kernel, inlined calls included.
const OPERATIONS_MAX: usize = 20_000;
/// The most operations in a chain, each on the result of the one before. Who follows operands recursively relies on it.
const CHAIN_MAX: usize = 1_000;

struct Lift<'t> {
    cursor: Cursor<'t>,
    functions: HashMap<&'t str, Function<'t>>,
    public: Option<&'t str>,
    /// Where each function ends that was read, by where it starts.
    read: HashMap<usize, Cursor<'t>>,
    lines: &'t PythonLines,
    /// Python line of the outermost call that is being inlined.
    call_line: Option<u32>,
    depth: usize,
    operations: usize,
    scope: HashMap<&'t str, Vec<Value>>,
    builder: Builder,
}

/// The end of a list of operations.
enum End {
    Return(Vec<Value>),
    Yield(Vec<Value>),
    ReduceReturn(Value),
    /// `}` without a terminator, as loops and branches without results are printed.
    Brace,
}

impl<'t> Lift<'t> {
    fn new(text: &'t str, lines: &'t PythonLines) -> Result<Lift<'t>> {
        let mut lift = Lift {
            cursor: Cursor::new(text),
            functions: HashMap::new(),
            public: None,
            read: HashMap::new(),
            lines,
            call_line: None,
            depth: 0,
            operations: 0,
            scope: HashMap::new(),
            builder: Builder::new(""),
        };
        lift.find_functions()?;
        Ok(lift)
    }

    /// One type, or several in parentheses.
    fn types(&mut self) -> Result<Vec<Type>> {
        if !self.cursor.eat("(") {
            let mut list = vec![self.cursor.ty()?];
            while self.cursor.eat(",") {
                list.push(self.cursor.ty()?);
            }
            return Ok(list);
        }
        let mut list = vec![];
        while !self.cursor.eat(")") {
            if !list.is_empty() {
                self.cursor.expect(",")?;
            }
            list.push(self.cursor.ty()?);
        }
        Ok(list)
    }

    /// Operations up to a terminator.
    fn ops(&mut self) -> Result<End> {
        loop {
            self.cursor.skip();
            let ttir = self.cursor.line;
            let python = self.call_line.or_else(|| self.lines.at(ttir));
            self.builder.line = Line { ttir, python };
            if let Some(end) = self.terminator()? {
                return Ok(end);
            }
            if self.cursor.at_end() {
                return self.cursor.unexpected("an operation");
            }
            self.op().map_err(|mut error| {
                error.python_line = error.python_line.or(python);
                error
            })?;
        }
    }

    fn terminator(&mut self) -> Result<Option<End>> {
        if self.cursor.rest().starts_with('}') {
            return Ok(Some(End::Brace));
        }
        if self.cursor.eat("tt.return") {
            return Ok(Some(End::Return(self.terminator_values()?)));
        }
        if self.cursor.eat("scf.yield") {
            return Ok(Some(End::Yield(self.terminator_values()?)));
        }
        if self.cursor.eat("tt.reduce.return") {
            let values = self.terminator_values()?;
            let [value] = values[..] else {
                return self.cursor.unexpected("one reduced value");
            };
            return Ok(Some(End::ReduceReturn(value)));
        }
        Ok(None)
    }

    /// `%a, %b : T, U`, or nothing.
    fn terminator_values(&mut self) -> Result<Vec<Value>> {
        let mut values = vec![];
        self.cursor.skip();
        if self.cursor.rest().starts_with('%') {
            values = self.values()?;
            self.cursor.expect(":")?;
            let declared = self.types()?;
            self.declared(&values, &declared)?;
        }
        Ok(values)
    }

    /// One operation: `%a = op ...`, `%a:3 = op ...`, `%a, %b = tt.split ...` or `op ...`.
    fn op(&mut self) -> Result<()> {
        self.operations += 1;
        if self.operations > OPERATIONS_MAX {
            return self.cursor.fail(Reason::Unsupported { what: format!("more than {OPERATIONS_MAX} operations") });
        }
        let mut names = vec![];
        let mut count = 0;
        if self.cursor.rest().starts_with('%') {
            names.push(self.cursor.value_name()?);
            count = if self.cursor.eat(":") { self.cursor.int()? } else { 1 };
            while self.cursor.eat(",") {
                names.push(self.cursor.value_name()?);
                count = names.len() as i64;
            }
            self.cursor.expect("=")?;
        }
        let start = self.cursor;
        let quoted = self.cursor.eat("\"");
        let op = self.cursor.word()?;
        if quoted {
            self.cursor.expect("\"")?;
        }
        let results = match op {
            "scf.for" => self.for_loop(),
            "scf.if" => self.branch(),
            "tt.call" => self.call(),
            "tt.reduce" if quoted => self.reduce().map(|value| vec![value]),
            _ if quoted => return start.fail(unknown(op)),
            _ => self.simple(op, start),
        };
        let results = results.map_err(|mut error| {
            if let Reason::Attribute { op: unnamed, .. } = &mut error.reason
                && unnamed.is_empty()
            {
                *unnamed = op.to_string();
            }
            error
        })?;
        if results.len() as i64 != count {
            return start.fail(Reason::IllTyped(TypeError::Count {
                op: "the left of `=`",
                wants: results.len(),
                found: count.max(0) as usize,
            }));
        }
        if results.iter().any(|value| self.builder.depth(*value) > CHAIN_MAX) {
            let what = format!("more than {CHAIN_MAX} operations in a chain, each on the result of the one before");
            return start.fail(Reason::Unsupported { what });
        }
        // One name has all results, and several have one each.
        let each = results.len().checked_div(names.len()).unwrap_or(1).max(1);
        for (name, values) in names.iter().zip(results.chunks(each)) {
            for value in values {
                self.builder.name_value(*value, name);
            }
            self.define(name, values.to_vec())?;
        }
        Ok(())
    }

    /// Gives a name its values; a name has them once where it is visible.
    fn define(&mut self, name: &'t str, values: Vec<Value>) -> Result<()> {
        match self.scope.insert(name, values) {
            None => Ok(()),
            Some(_) => self.cursor.fail(Reason::Twice { name: name.to_string() }),
        }
    }

    /// A use: `%name` or `%name#2`.
    fn operand(&mut self) -> Result<Value> {
        let start = self.cursor;
        let name = self.cursor.value_name()?;
        let index = if self.cursor.rest().starts_with('#') {
            self.cursor.expect("#")?;
            self.cursor.int()? as usize
        } else {
            0
        };
        match self.scope.get(name).and_then(|list| list.get(index)) {
            Some(value) => Ok(*value),
            None => start.fail(Reason::Unbound { name: name.to_string() }),
        }
    }

    fn values(&mut self) -> Result<Vec<Value>> {
        let mut list = vec![self.operand()?];
        while self.cursor.eat(",") {
            list.push(self.operand()?);
        }
        Ok(list)
    }

    /// `[%a, %b]`
    fn bracketed(&mut self) -> Result<Vec<Value>> {
        self.cursor.expect("[")?;
        let list = self.values()?;
        self.cursor.expect("]")?;
        Ok(list)
    }

    fn declared(&self, values: &[Value], types: &[Type]) -> Result<()> {
        if values.len() != types.len() {
            let error = TypeError::Count { op: "the list of types", wants: values.len(), found: types.len() };
            return self.cursor.fail(Reason::IllTyped(error));
        }
        for (value, declared) in values.iter().zip(types) {
            let inferred = self.builder.ty(*value).clone();
            if inferred != *declared {
                return self.cursor.fail(Reason::Declared { declared: declared.clone(), inferred });
            }
        }
        Ok(())
    }

    fn typed<T>(&self, result: std::result::Result<T, TypeError>) -> Result<T> {
        result.or_else(|error| self.cursor.fail(Reason::IllTyped(error)))
    }

    /// `tt.call @f(%a, %b) : (T, U) -> V`, inlined.
    fn call(&mut self) -> Result<Vec<Value>> {
        let start = self.cursor;
        let name = self.cursor.symbol()?;
        self.cursor.expect("(")?;
        let mut arguments = vec![];
        if !self.cursor.eat(")") {
            arguments = self.values()?;
            self.cursor.expect(")")?;
        }
        self.cursor.expect(":")?;
        let types = self.types()?;
        self.declared(&arguments, &types)?;
        self.cursor.expect("->")?;
        let result_types = self.types()?;
        let Some(function) = self.functions.get(name).copied() else {
            return start.fail(Reason::Function { name: name.to_string() });
        };
        self.deeper(start, &format!("calls (here of `{name}`)"))?;

        let outer = (self.cursor, std::mem::take(&mut self.scope), self.call_line, self.builder.line);
        self.call_line = self.builder.line.python;
        self.cursor = function.parameters;
        self.bind_parameters(&arguments)?;
        let results = self.function_body()?;
        self.read.insert(function.start, self.cursor);
        self.depth -= 1;
        (self.cursor, self.scope, self.call_line, self.builder.line) = outer;
        self.declared(&results, &result_types)?;
        Ok(results)
    }

    fn bind_parameters(&mut self, arguments: &[Value]) -> Result<()> {
        self.cursor.expect("(")?;
        for (i, argument) in arguments.iter().enumerate() {
            if i > 0 {
                self.cursor.expect(",")?;
            }
            let name = self.cursor.value_name()?;
            self.cursor.expect(":")?;
            let ty = self.cursor.ty()?;
            // An attribute of a private function's parameter is a claim that no caller checks and a compiler may use.
            if let Some((claim, _)) = self.cursor.attributes()?.into_iter().next() {
                return self.cursor.fail(Reason::Attribute { op: format!("parameter {name}"), name: claim });
            }
            self.declared(&[*argument], &[ty])?;
            self.define(name, vec![*argument])?;
        }
        self.cursor.expect(")")
    }

    /// `scf.for %i = %lo to %hi step %s iter_args(%x = %y) -> (T)  : i32 { ... }`
    fn for_loop(&mut self) -> Result<Vec<Value>> {
        if self.cursor.eat("unsigned") {
            return self.cursor.fail(Reason::Unsupported { what: "a loop with unsigned bounds".into() });
        }
        let index_name = self.cursor.value_name()?;
        self.cursor.expect("=")?;
        let lo = self.operand()?;
        self.cursor.expect("to")?;
        let hi = self.operand()?;
        self.cursor.expect("step")?;
        let step = self.operand()?;
        let (mut names, mut inits, mut types) = (vec![], vec![], vec![]);
        if self.cursor.eat("iter_args") {
            self.cursor.expect("(")?;
            while !self.cursor.eat(")") {
                if !names.is_empty() {
                    self.cursor.expect(",")?;
                }
                names.push(self.cursor.value_name()?);
                self.cursor.expect("=")?;
                inits.push(self.operand()?);
            }
            self.cursor.expect("->")?;
            types = self.types()?;
        }
        self.declared(&inits, &types)?;
        self.cursor.expect(":")?;
        let index_ty = self.cursor.ty()?;
        self.declared(&[lo], &[index_ty])?;
        let open = self.builder.begin_for(lo, hi, step, inits);
        let open = self.typed(open)?;

        let outer = self.scope.clone();
        self.builder.name_value(open.index, index_name);
        self.define(index_name, vec![open.index])?;
        for (name, value) in names.iter().zip(&open.args) {
            self.builder.name_value(*value, name);
            self.define(name, vec![*value])?;
        }
        let yields = self.region()?;
        self.scope = outer;
        let results = self.builder.end_for(open, yields);
        let results = self.typed(results)?;
        self.hints("scf.for")?;
        Ok(results)
    }

    /// Goes into a call or a region; who leaves it takes 1 from the depth. Lifting recurses nowhere else.
    fn deeper(&mut self, at: Cursor<'t>, what: &str) -> Result<()> {
        if self.depth == DEPTH_MAX {
            return at.fail(Reason::Unsupported { what: format!("{what} that nest too deep") });
        }
        self.depth += 1;
        Ok(())
    }

    /// `{ ... }` up to its yield.
    fn region(&mut self) -> Result<Vec<Value>> {
        self.cursor.expect("{")?;
        self.deeper(self.cursor, "regions")?;
        let yields = match self.ops()? {
            End::Yield(values) => values,
            End::Brace => vec![],
            _ => return self.cursor.unexpected("`scf.yield` or `}`"),
        };
        self.depth -= 1;
        self.cursor.expect("}")?;
        Ok(yields)
    }

    /// Attributes behind a loop: scheduling hints change no value, others are refused.
    fn hints(&mut self, op: &str) -> Result<()> {
        const HINTS: [&str; 4] = ["tt.num_stages", "tt.loop_unroll_factor", "tt.flatten", "tt.warp_specialize"];
        for (name, _) in self.cursor.attributes()? {
            if !HINTS.contains(&name.as_str()) {
                return self.cursor.fail(Reason::Attribute { op: op.to_string(), name });
            }
        }
        Ok(())
    }

    /// `scf.if %c -> (T) { ... } else { ... }`
    fn branch(&mut self) -> Result<Vec<Value>> {
        let line = self.builder.line;
        let cond = self.operand()?;
        let types = if self.cursor.eat("->") { self.types()? } else { vec![] };
        let outer = self.scope.clone();
        self.builder.begin();
        let yields = self.region()?;
        let then = self.builder.end(yields);
        self.scope = outer.clone();
        self.builder.begin();
        let yields = if self.cursor.eat("else") { self.region()? } else { vec![] };
        let otherwise = self.builder.end(yields);
        self.scope = outer;
        let results = self.builder.branch(cond, then, otherwise, line);
        let results = self.typed(results)?;
        self.declared(&results, &types)?;
        Ok(results)
    }

    /// `"tt.reduce"(%x) <{axis = 1 : i32}> ({ ^bb0(%a: f32, %b: f32): ... }) : (T) -> U`, where the region
    /// is one known operation on its two arguments.
    fn reduce(&mut self) -> Result<Value> {
        let start = self.cursor;
        let line = self.builder.line;
        self.cursor.expect("(")?;
        let inputs = self.values()?;
        self.cursor.expect(")")?;
        let [x] = inputs[..] else {
            return start.fail(Reason::Unsupported { what: "a reduction of several tiles at once".into() });
        };
        self.cursor.expect("<")?;
        let axis = match self.cursor.attributes()?[..] {
            [(ref name, Attribute::Int(axis))] if name == "axis" && axis >= 0 => axis as usize,
            _ => {
                return start.fail(Reason::Attribute { op: "tt.reduce".into(), name: "not axis alone".into() });
            }
        };
        self.cursor.expect(">")?;
        self.cursor.expect("(")?;
        let op = self.combine(x)?;
        self.cursor.expect(")")?;
        self.cursor.expect(":")?;
        let types = self.types()?;
        self.declared(&[x], &types)?;
        self.cursor.expect("->")?;
        let declared = self.types()?;
        self.builder.line = line;
        let result = self.builder.op(OpKind::Reduce { op, x, axis });
        let result = self.typed(result)?;
        self.declared(&[result], &declared)?;
        Ok(result)
    }

    /// The operation that a reduction's region applies.
    fn combine(&mut self, x: Value) -> Result<Binary> {
        let start = self.cursor;
        let elem = self.builder.ty(x).elem();
        self.cursor.expect("{")?;
        self.cursor.expect("^")?;
        self.cursor.word()?;
        self.cursor.expect("(")?;
        let outer = self.scope.clone();
        let mut arguments = vec![];
        for i in 0..2 {
            if i > 0 {
                self.cursor.expect(",")?;
            }
            let name = self.cursor.value_name()?;
            self.cursor.expect(":")?;
            let ty = self.cursor.ty()?;
            let value = self.builder.argument(Type::scalar(elem));
            self.declared(&[value], &[ty])?;
            self.define(name, vec![value])?;
            arguments.push(value);
        }
        self.cursor.expect(")")?;
        self.cursor.expect(":")?;
        self.builder.begin();
        self.deeper(start, "reductions")?;
        let End::ReduceReturn(result) = self.ops()? else {
            return self.cursor.unexpected("`tt.reduce.return`");
        };
        self.depth -= 1;
        let region = self.builder.end(vec![]);
        self.cursor.expect("}")?;
        self.scope = outer;
        use Binary::*;
        let known = [AddF, MaxNumF, MinNumF, MaximumF, MinimumF, Add, MaxS, MinS, MaxU, MinU, And, Or, Xor];
        match &region.ops[..] {
            [Op { kind: OpKind::Binary { op, a, b }, results, .. }]
                if [*a, *b] == arguments[..] && results[..] == [result] && known.contains(op) =>
            {
                Ok(*op)
            }
            _ => start.fail(Reason::Unsupported { what: "a reduction by something else than one operation".into() }),
        }
    }
}
