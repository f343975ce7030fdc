//! A TTIR module as Triton prints it, line by line: its public function's parameters and body, and what stands around them.
//!
//! Triton prints one operation a line and indents each region by two spaces. A text of another form is an error.

/// A line, and the Python line that it was made from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Line {
    pub text: String,
    pub python: Option<u32>,
}

impl Line {
    pub fn new(text: impl Into<String>, python: Option<u32>) -> Line {
        Line { text: text.into(), python }
    }
}

/// A module with one public function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Module {
    before: Vec<Line>,
    name: String,
    /// Name without `%`, and type.
    pub parameters: Vec<(String, String)>,
    at: Option<u32>,
    /// Between the function's braces.
    pub body: Vec<Line>,
    /// The private functions, and the module's end.
    pub after: Vec<Line>,
}

const FUNCTION: &str = "  tt.func public @";
const BODY: &str = ") attributes {noinline = false} {";

impl Module {
    pub fn read(lines: Vec<Line>) -> Option<Module> {
        let start = lines.iter().position(|line| line.text.starts_with(FUNCTION))?;
        let end = start + lines[start..].iter().position(|line| line.text == "  }")?;
        let (name, rest) = lines[start].text.strip_prefix(FUNCTION)?.split_once('(')?;
        let list = rest.strip_suffix(BODY)?;
        let parameter = |text: &str| {
            let (name, ty) = text.strip_prefix('%')?.split_once(": ")?;
            // Claims about a parameter are of launches that Triton specialised.
            (!ty.contains('{')).then(|| (name.to_string(), ty.to_string()))
        };
        let parameters = list.split(", ").filter(|text| !text.is_empty()).map(parameter).collect::<Option<_>>()?;
        Some(Module {
            before: lines[..start].to_vec(),
            name: name.to_string(),
            parameters,
            at: lines[start].python,
            body: lines[start + 1..end].to_vec(),
            after: lines[end + 1..].to_vec(),
        })
    }

    /// The text, with the table of Python lines that the lifting reads.
    pub fn print(&self) -> String {
        let list: Vec<String> = self.parameters.iter().map(|(name, ty)| format!("%{name}: {ty}")).collect();
        let function = Line::new(format!("{FUNCTION}{}({}{BODY}", self.name, list.join(", ")), self.at);
        let end = Line::new("  }", None);
        let all = self.before.iter().chain([&function]).chain(&self.body).chain([&end]).chain(&self.after);
        let (mut text, mut table, mut previous) = (String::new(), String::new(), None);
        for (number, line) in all.enumerate() {
            text += &line.text;
            text.push('\n');
            if previous != Some(line.python) {
                let python = line.python.map_or("-".to_string(), |python| python.to_string());
                table += &format!(" {}={python}", number + 1);
                previous = Some(line.python);
            }
        }
        format!("{text}// python lines, `module line=python line` from there on:{table}\n")
    }

    /// Gives a value of the body another name.
    pub fn rename(&mut self, from: &str, to: &str) {
        self.body.iter_mut().for_each(|line| line.text = renamed(&line.text, from, to));
    }

    /// Puts another value in the place of one; the line that defines it stays.
    pub fn rename_uses(&mut self, from: &str, to: &str) {
        for line in &mut self.body {
            let defines = line.text.trim_start().strip_prefix('%').and_then(|rest| rest.strip_prefix(from));
            if !defines.is_some_and(|rest| rest.starts_with(" = ")) {
                line.text = renamed(&line.text, from, to);
            }
        }
    }

    /// Removes private functions that nothing calls.
    pub fn drop_uncalled(&mut self) {
        const PRIVATE: &str = "  tt.func private ";
        loop {
            let called = |name: &str| {
                let call = format!("tt.call {name}(");
                self.body.iter().chain(&self.after).any(|line| line.text.contains(&call))
            };
            // A quoted name may hold parentheses.
            let name = |line: &Line| {
                let rest = line.text.strip_prefix(PRIVATE)?;
                let end = if rest.starts_with("@\"") { rest.find("\"(")? + 1 } else { rest.find('(')? };
                Some(rest[..end].to_string())
            };
            let uncalled = |line: &Line| name(line).is_some_and(|name| !called(&name));
            let Some(start) = self.after.iter().position(uncalled) else { return };
            let Some(length) = self.after[start..].iter().position(|line| line.text == "  }") else { return };
            self.after.drain(start..=start + length);
        }
    }

    /// Whether the text has a value of this name anywhere.
    pub fn has(&self, name: &str) -> bool {
        self.parameters.iter().any(|(own, _)| own == name) || self.body.iter().any(|line| uses(&line.text, name) > 0)
    }

    /// How often the body names a value.
    pub fn count(&self, name: &str) -> usize {
        self.body.iter().map(|line| uses(&line.text, name)).sum()
    }
}

/// Where a line names a value.
fn places<'a>(line: &'a str, name: &'a str) -> impl Iterator<Item = usize> + 'a {
    line.match_indices('%').filter_map(move |(at, _)| {
        let rest = line[at + 1..].strip_prefix(name)?;
        let more = rest.starts_with(|c: char| c.is_alphanumeric() || matches!(c, '_' | '.' | '$' | '-'));
        (!more).then_some(at)
    })
}

fn uses(line: &str, name: &str) -> usize {
    places(line, name).count()
}

/// The names that a line binds, without `%`: a result, a loop's index and state, and arguments of a block.
pub(super) fn bound(line: &str) -> Vec<&str> {
    let line = line.trim_start();
    let name = |text| names(text).next();
    if let Some(block) = line.strip_prefix('^') {
        return names(block).collect();
    }
    let (result, op) = match line.split_once(" = ") {
        Some((result, op)) if line.starts_with('%') => (Some(result), op),
        _ => (None, line),
    };
    let mut all: Vec<&str> = result.and_then(name).into_iter().collect();
    if let Some(header) = op.strip_prefix("scf.for ") {
        let (range, state) = header.split_once(" iter_args(").unwrap_or((header, ""));
        all.extend(name(range));
        let state = state.split(") -> (").next().unwrap_or("");
        all.extend(state.split(", ").filter_map(|pair| name(pair.split_once(" = ")?.0)));
    }
    all
}

/// The names of a line, without `%` and a result's number.
pub(crate) fn names(line: &str) -> impl Iterator<Item = &str> {
    line.split('%').skip(1).map(|rest| {
        let end = rest.find(|c: char| !c.is_alphanumeric() && !matches!(c, '_' | '.' | '$' | '-'));
        &rest[..end.unwrap_or(rest.len())]
    })
}

/// The line with another name for a value.
pub(crate) fn renamed(line: &str, from: &str, to: &str) -> String {
    let (mut text, mut done) = (String::new(), 0);
    for at in places(line, from) {
        text += &line[done..=at];
        text += to;
        done = at + 1 + from.len();
    }
    text + &line[done..]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_a_whole_name() {
        assert_eq!(renamed("%a = f %a, %ab, %a#0, %a_1, %a", "a", "x.y"), "%x.y = f %x.y, %ab, %x.y#0, %a_1, %x.y");
        assert_eq!(uses("%a = f %ab, %a.b", "a"), 1);
    }

    #[test]
    fn a_line_binds_results_and_arguments() {
        for (line, names) in [
            ("    %a = arith.addi %b, %c : i32", vec!["a"]),
            ("    %a:2 = tt.call @f(%b) : (i32) -> (i32, i32)", vec!["a"]),
            ("    scf.for %k = %lo to %hi step %s  : i32 {", vec!["k"]),
            (
                "    %r:2 = scf.for %k = %lo to %hi step %s iter_args(%t = %z, %n = %m) -> (f32, i32)  : i32 {",
                vec!["r", "k", "t", "n"],
            ),
            ("    ^bb0(%x: f32, %y: f32):", vec!["x", "y"]),
            ("    tt.store %p, %v : !tt.ptr<f32>", vec![]),
            ("    scf.if %c {", vec![]),
        ] {
            assert_eq!(bound(line), names, "{line}");
        }
    }

    #[test]
    fn a_module_is_printed_as_it_was_read() {
        let text = [
            "module {",
            "  tt.func public @k(%x: !tt.ptr<f32>, %n: i32) attributes {noinline = false} {",
            "    tt.return",
            "  }",
            "}",
        ];
        let lines: Vec<Line> = text.iter().enumerate().map(|(i, text)| Line::new(*text, Some(i as u32))).collect();
        let module = Module::read(lines).unwrap();
        assert_eq!(module.parameters[1], ("n".to_string(), "i32".to_string()));
        let printed = module.print();
        assert!(printed.starts_with(&text.join("\n")), "{printed}");
        assert!(printed.ends_with("1=0 2=1 3=2 4=- 5=4\n"), "{printed}");
    }
}
