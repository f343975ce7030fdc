//! Lifting of what stands around operations: the module, its functions and their parameters. No text of it stays unread.
//!
//! Read next: [`mod@crate::lift`].

use super::{End, Lift};
use crate::build::Builder;
use crate::error::Reason;
use crate::ir::*;
use crate::parse::{Attribute, Cursor, Result};

/// A function of the module.
#[derive(Clone, Copy)]
pub(super) struct Function<'t> {
    /// Where its `tt.func` stands.
    pub start: usize,
    /// Where its list of parameters starts.
    pub parameters: Cursor<'t>,
}

impl<'t> Lift<'t> {
    /// Notes where each function's parameter list starts. A function must begin its line, and no other line but a comment may
    /// contain `tt.func`, because `//` inside of quotes begins no comment.
    pub(super) fn find_functions(&mut self) -> Result<()> {
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
            let start = cursor.at;
            cursor.expect("tt.func")?;
            let public = cursor.eat("public");
            let private = !public && cursor.eat("private");
            let name = cursor.symbol()?;
            if public || !private {
                if self.public.is_some() {
                    return cursor.fail(Reason::Unsupported { what: "a module has one public function".into() });
                }
                self.public = Some(name);
            }
            if self.functions.insert(name, Function { start, parameters: cursor }).is_some() {
                return cursor.fail(Reason::Unsupported { what: format!("`{name}` is defined twice") });
            }
        }
        Ok(())
    }

    pub(super) fn module(mut self) -> Result<Kernel> {
        self.cursor.expect("module")?;
        if self.cursor.eat("attributes")
            && let Some((name, _)) = self.cursor.attributes()?.into_iter().next()
        {
            return self.cursor.fail(Reason::Attribute { op: "module".into(), name });
        }
        self.cursor.expect("{")?;
        let inside = self.cursor;
        let Some((name, function)) = self.public.and_then(|name| Some((name, *self.functions.get(name)?))) else {
            return self.cursor.fail(Reason::Unsupported { what: "the module has no public function".into() });
        };
        self.cursor = function.parameters;
        self.builder = Builder::new(name);
        self.parameters()?;
        let results = self.function_body()?;
        if !results.is_empty() {
            return self.cursor.fail(Reason::Unsupported { what: "a kernel returns nothing".into() });
        }
        self.read.insert(function.start, self.cursor);
        self.cursor = inside;
        self.nothing_unread()?;
        Ok(self.builder.finish())
    }

    /// Refuses text of the module that no function has, functions that the kernel does not call, and text behind the module.
    fn nothing_unread(&mut self) -> Result<()> {
        loop {
            self.cursor.skip();
            if let Some(end) = self.read.get(&self.cursor.at) {
                self.cursor = *end;
            } else if self.cursor.eat("}") {
                break;
            } else if self.cursor.rest().starts_with("tt.func") {
                let what = "a function that the kernel does not call".into();
                return self.cursor.fail(Reason::Unsupported { what });
            } else {
                return self.cursor.unexpected("a function or the module's `}`");
            }
        }
        match self.cursor.at_end() {
            true => Ok(()),
            false => self.cursor.unexpected("the end of the text behind the module"),
        }
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
                    self.define(name, vec![value])?;
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
            self.define(name, vec![value])?;
        }
        Ok(())
    }

    /// Reads from behind the parameters to the function's end; gives the values that it returns.
    pub(super) fn function_body(&mut self) -> Result<Vec<Value>> {
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
}
