//! TTIR text to tile IR. Text outside the subset is refused with the TTIR line and the Python line.
//!
//! Functions are inlined where they are called, dead blocks behind a return are skipped, bitcasts to the
//! same type disappear, and unused operations are left out. There is no other simplification: an
//! operation of the TTIR is an operation of the tile IR. Operations without regions are in [`mod@simple`].

mod simple;

use crate::build::{Builder, TypeError};
use crate::error::{LiftError, Reason};
use crate::ir::*;
use crate::parse::{Attribute, Cursor, PythonLines, Result};
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
const OPERATIONS_MAX: usize = 100_000;

struct Lift<'t> {
    cursor: Cursor<'t>,
    functions: HashMap<&'t str, Cursor<'t>>,
    public: Option<(&'t str, Cursor<'t>)>,
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

    /// Notes where each function's parameter list starts. A function must begin its line, and no other line but a comment may
    /// contain `tt.func`, because `//` inside of quotes begins no comment.
    fn find_functions(&mut self) -> Result<()> {
        let mut at = 0;
        for (number, line) in self.cursor.text.split_inclusive('\n').enumerate() {
            let body = line.trim_start();
            let mut cursor =
                Cursor { text: self.cursor.text, at: at + line.len() - body.len(), line: number as u32 + 1 };
            at += line.len();
            // Other readers of the text end a comment at a carriage return: they would see operations that are not proved.
            if line.contains(|c: char| c.is_control() && !matches!(c, '\n' | '\t')) {
                return cursor.fail(Reason::Unsupported { what: "a control character".into() });
            }
            if !body.starts_with("tt.func") {
                if body.contains("tt.func") && !body.starts_with("//") {
                    let what = "a function that does not begin its line".into();
                    return cursor.fail(Reason::Unsupported { what });
                }
                continue;
            }
            cursor.expect("tt.func")?;
            let public = cursor.eat("public");
            let private = !public && cursor.eat("private");
            let name = cursor.symbol()?;
            if public || !private {
                if self.public.is_some() {
                    return cursor.fail(Reason::Unsupported { what: "a module has one public function".into() });
                }
                self.public = Some((name, cursor));
            }
            if self.functions.insert(name, cursor).is_some() {
                return cursor.fail(Reason::Unsupported { what: format!("`{name}` is defined twice") });
            }
        }
        Ok(())
    }

    fn module(mut self) -> Result<Kernel> {
        self.cursor.expect("module")?;
        let Some((name, start)) = self.public else {
            return self.cursor.fail(Reason::Unsupported { what: "the module has no public function".into() });
        };
        self.cursor = start;
        self.builder = Builder::new(name);
        self.parameters()?;
        let results = self.function_body()?;
        if !results.is_empty() {
            return self.cursor.fail(Reason::Unsupported { what: "a kernel returns nothing".into() });
        }
        Ok(self.builder.finish())
    }

    /// The public function's parameters: pointers, with the divisibility that launchers promise, and numbers, which are bound
    /// later.
    fn parameters(&mut self) -> Result<()> {
        self.cursor.expect("(")?;
        let mut first = true;
        while !self.cursor.eat(")") {
            if !std::mem::take(&mut first) {
                self.cursor.expect(",")?;
            }
            let name = self.cursor.value_name()?;
            self.cursor.expect(":")?;
            let ty = self.cursor.ty()?;
            let elem = match ty {
                Type::Pointers { elem, .. } => elem,
                Type::Tile { shape, elem: elem @ (Scalar::I32 | Scalar::F32) } if shape.is_empty() => {
                    // A dimension has no attributes: only the contract states facts about it.
                    let value = self.builder.scalar(name, elem);
                    self.scope.insert(name, vec![value]);
                    continue;
                }
                ty => {
                    let what = format!("parameter `{name}` is {ty}: it is a pointer, or an i32 or f32 that is bound");
                    return self.cursor.fail(Reason::Unsupported { what });
                }
            };
            let mut divisibility = 1;
            for (key, value) in self.cursor.attributes()? {
                match (key.as_str(), value) {
                    ("tt.divisibility", Attribute::Int(n)) if n > 0 && n <= 1 << 16 => divisibility = n as u32,
                    _ => {
                        return self.cursor.fail(Reason::Attribute { op: format!("parameter {name}"), name: key });
                    }
                }
            }
            let value = self.builder.param(name, elem, divisibility);
            self.scope.insert(name, vec![value]);
        }
        Ok(())
    }

    /// Reads from behind the parameters to the function's end; gives the values that it returns.
    fn function_body(&mut self) -> Result<Vec<Value>> {
        if self.cursor.eat("->") {
            self.types()?;
        }
        if self.cursor.eat("attributes") {
            for (name, value) in self.cursor.attributes()? {
                if (name.as_str(), &value) != ("noinline", &Attribute::Word("false".into())) {
                    return self.cursor.fail(Reason::Attribute { op: "tt.func".into(), name });
                }
            }
        }
        self.cursor.expect("{")?;
        let End::Return(results) = self.ops()? else {
            return self.cursor.unexpected("`tt.return`");
        };
        self.dead_blocks()?;
        Ok(results)
    }

    /// Skips blocks behind the return, which have no predecessor: Triton leaves `ub.poison` and a return in them.
    fn dead_blocks(&mut self) -> Result<()> {
        while !self.cursor.eat("}") {
            if self.cursor.eat("^") {
                self.cursor.word()?;
                self.cursor.expect(":")?;
            } else if self.cursor.eat("tt.return") {
                if self.cursor.eat("%") {
                    self.cursor.word()?;
                    while self.cursor.eat(",") {
                        self.cursor.value_name()?;
                    }
                    self.cursor.expect(":")?;
                    self.types()?;
                }
            } else {
                self.cursor.value_name()?;
                self.cursor.expect("=")?;
                self.cursor.expect("ub.poison")?;
                self.cursor.expect(":")?;
                self.cursor.ty()?;
            }
        }
        Ok(())
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

    /// One operation: `%a = op ...`, `%a:3 = op ...` or `op ...`.
    fn op(&mut self) -> Result<()> {
        self.operations += 1;
        if self.operations > OPERATIONS_MAX {
            return self.cursor.fail(Reason::Unsupported { what: format!("more than {OPERATIONS_MAX} operations") });
        }
        let mut name = None;
        let mut count = 0;
        if self.cursor.rest().starts_with('%') {
            name = Some(self.cursor.value_name()?);
            count = if self.cursor.eat(":") { self.cursor.int()? } else { 1 };
            self.cursor.expect("=")?;
        }
        let start = self.cursor;
        let quoted = self.cursor.eat("\"");
        let op = self.cursor.word()?;
        if quoted {
            self.cursor.expect("\"")?;
        }
        let results = match op {
            "scf.for" => self.for_loop()?,
            "scf.if" => self.branch()?,
            "tt.call" => self.call()?,
            "tt.reduce" if quoted => vec![self.reduce()?],
            _ if quoted => return start.fail(unknown(op)),
            _ => self.simple(op, start)?,
        };
        if results.len() as i64 != count {
            return start.fail(Reason::IllTyped(TypeError::Count {
                op: "the left of `=`",
                wants: results.len(),
                found: count.max(0) as usize,
            }));
        }
        if let Some(name) = name {
            for value in &results {
                self.builder.name_value(*value, name);
            }
            self.scope.insert(name, results);
        }
        Ok(())
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
        if self.depth == DEPTH_MAX {
            return start.fail(Reason::Unsupported { what: format!("calls nest too deep at `{name}`") });
        }

        let outer = (self.cursor, std::mem::take(&mut self.scope), self.call_line, self.builder.line);
        self.call_line = self.builder.line.python;
        self.depth += 1;
        self.cursor = function;
        self.bind_parameters(&arguments)?;
        let results = self.function_body()?;
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
            self.scope.insert(name, vec![*argument]);
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
        self.scope.insert(index_name, vec![open.index]);
        for (name, value) in names.iter().zip(&open.args) {
            self.builder.name_value(*value, name);
            self.scope.insert(name, vec![*value]);
        }
        let yields = self.region()?;
        self.scope = outer;
        let results = self.builder.end_for(open, yields);
        let results = self.typed(results)?;
        self.hints("scf.for")?;
        Ok(results)
    }

    /// `{ ... }` up to its yield.
    fn region(&mut self) -> Result<Vec<Value>> {
        self.cursor.expect("{")?;
        if self.depth == DEPTH_MAX {
            return self.cursor.fail(Reason::Unsupported { what: "regions nest too deep".into() });
        }
        self.depth += 1;
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
            self.scope.insert(name, vec![value]);
            arguments.push(value);
        }
        self.cursor.expect(")")?;
        self.cursor.expect(":")?;
        self.builder.begin();
        let End::ReduceReturn(result) = self.ops()? else {
            return self.cursor.unexpected("`tt.reduce.return`");
        };
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
