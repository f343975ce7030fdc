//! Executes the part of PTX that `uniform.ptx` and `read.ptx` use, in host memory, one thread after the other, as the PTX ISA
//! defines each instruction. Any other instruction is an error, and so is a register that was not declared or not written.

use std::collections::HashMap;

/// Global memory.
pub trait Global {
    fn load(&mut self, at: u64, bytes: usize) -> Result<Vec<u8>, String>;
    fn store(&mut self, at: u64, bytes: &[u8]) -> Result<(), String>;
}

/// A thread of a launch.
#[derive(Clone, Copy)]
pub struct Thread {
    pub block: u32,
    pub blocks: u32,
    pub index: u32,
    /// Threads of a block.
    pub threads: u32,
}

/// A kernel: parameters of 64 bits, labels.
pub struct Ptx {
    pub name: String,
    params: Vec<String>,
    /// The type and the number of registers, by the beginning of their names, such as `%d`.
    registers: HashMap<String, (String, usize)>,
    code: Vec<Vec<String>>,
}

type Outcome<T> = Result<T, String>;

impl Ptx {
    /// Reads the text up to its zero.
    pub fn read(text: &str) -> Outcome<Ptx> {
        let text = text.strip_suffix('\0').ok_or("a text that does not end in zero")?;
        let lines: Vec<&str> = text.lines().map(|line| line.split("//").next().unwrap_or("").trim()).collect();
        let text = lines.join("\n");
        let (head, body) = text.split_once("\n{").ok_or("no body")?;
        for wanted in [".version 7.0", ".target sm_80", ".address_size 64"] {
            head.lines().find(|line| *line == wanted).ok_or_else(|| format!("no {wanted}"))?;
        }
        let (name, params) =
            head.split_once(".visible .entry ").and_then(|(_, rest)| rest.split_once('(')).ok_or("no entry")?;
        let params = params.split_once(')').ok_or("parameters do not end")?.0.split(',');
        let param = |text: &str| {
            text.trim().strip_prefix(".param .u64 ").map(String::from).ok_or("a parameter of another type")
        };
        let mut ptx = Ptx {
            name: name.into(),
            params: params.map(param).collect::<Result<_, _>>()?,
            registers: HashMap::new(),
            code: vec![],
        };
        for line in body.trim_end_matches('}').lines().map(str::trim).filter(|line| !line.is_empty()) {
            if let Some(rest) = line.strip_prefix(".reg .") {
                let (kind, rest) = rest.split_once(" %").ok_or("a register without a name")?;
                let (name, many) = rest.trim_end_matches(">;").split_once('<').ok_or("a register without a count")?;
                let many = many.parse().map_err(|_| "a count that is no number")?;
                ptx.registers.insert(format!("%{name}"), (kind.into(), many));
            } else if line.ends_with(':') {
                ptx.code.push(vec![line.into()]);
            } else {
                let line = line.strip_suffix(';').ok_or_else(|| format!("{line}: no semicolon"))?;
                ptx.code
                    .push(line.split([' ', ',', '{', '}']).filter(|word| !word.is_empty()).map(String::from).collect());
            }
        }
        Ok(ptx)
    }

    /// Runs one thread.
    pub fn run(&self, thread: Thread, params: &[u64], memory: &mut dyn Global) -> Outcome<()> {
        let mut values: HashMap<&str, u64> = HashMap::new();
        let code: Vec<Vec<&str>> = self.code.iter().map(|line| line.iter().map(String::as_str).collect()).collect();
        let mut at = 0;
        while let Some(words) = code.get(at) {
            at += 1;
            let words = match words.as_slice() {
                [guard, rest @ ..] if guard.starts_with("@%") => match self.value(&values, &guard[1..], "pred")? {
                    0 => continue,
                    _ => rest,
                },
                words => words,
            };
            let label =
                |name: &str| self.code.iter().position(|line| line[0] == format!("{name}:")).ok_or("no such label");
            let int = |word: &str, kind: &str| self.value(&values, word, kind);
            let float = |word: &str| Ok::<f32, String>(f32::from_bits(self.value(&values, word, "f32")? as u32));
            let (to, kind, value) = match *words {
                [one] if one.ends_with(':') => continue,
                ["ret"] => return Ok(()),
                ["bra", to] => {
                    at = label(to)?;
                    continue;
                }
                ["st.global.u16", to, from] => {
                    let address = int(to.trim_matches(['[', ']']), "b64")?;
                    memory.store(address, &(int(from, "b16")? as u16).to_le_bytes())?;
                    continue;
                }
                ["st.global.u32", to, from] => {
                    let address = int(to.trim_matches(['[', ']']), "b64")?;
                    memory.store(address, &(int(from, "b32")? as u32).to_le_bytes())?;
                    continue;
                }
                ["ld.global.v4.u32", ref to @ .., from] if to.len() == 4 => {
                    let address = int(from.trim_matches(['[', ']']), "b64")?;
                    if !address.is_multiple_of(16) {
                        return Err(format!("{address:#x} is no multiple of 16"));
                    }
                    let bytes = memory.load(address, 16)?;
                    for (register, word) in to.iter().zip(bytes.as_chunks::<4>().0) {
                        if self.kind(register)? != "b32" {
                            return Err(format!("{register} does not have 32 bits"));
                        }
                        values.insert(register, u32::from_le_bytes(*word).into());
                    }
                    continue;
                }
                ["ld.param.u64", to, from] => {
                    let index =
                        self.params.iter().position(|name| format!("[{name}]") == from).ok_or("no such parameter")?;
                    (to, "b64", *params.get(index).ok_or("too few parameters")?)
                }
                ["cvta.to.global.u64", to, a] => (to, "b64", int(a, "b64")?),
                ["mov.u32", to, "%ctaid.x"] => (to, "b32", thread.block.into()),
                ["mov.u32", to, "%nctaid.x"] => (to, "b32", thread.blocks.into()),
                ["mov.u32", to, "%ntid.x"] => (to, "b32", thread.threads.into()),
                ["mov.u32", to, "%tid.x"] => (to, "b32", thread.index.into()),
                ["mov.u32", to, a] => (to, "b32", int(a, "b32")?),
                // Moves bits to a register of any 32-bit type.
                ["mov.b32", to, a] => {
                    let kind = self.kind(to)?;
                    (to, kind, int(a, self.kind(a)?)?)
                }
                ["mul.wide.u32", to, a, b] => (to, "b64", int(a, "b32")? * int(b, "b32")?),
                ["cvt.u64.u32", to, a] => (to, "b64", int(a, "b32")?),
                ["cvt.u32.u64", to, a] => (to, "b32", int(a, "b64")? & 0xffff_ffff),
                ["cvt.u16.u32", to, a] => (to, "b16", int(a, "b32")? & 0xffff),
                ["cvt.rn.f32.u64", to, a] => (to, "f32", (int(a, "b64")? as f32).to_bits().into()),
                ["add.s64", to, a, b] => (to, "b64", int(a, "b64")?.wrapping_add(int(b, "b64")?)),
                ["mul.lo.s64", to, a, b] => (to, "b64", int(a, "b64")?.wrapping_mul(int(b, "b64")?)),
                ["xor.b64", to, a, b] => (to, "b64", int(a, "b64")? ^ int(b, "b64")?),
                ["shr.u64", to, a, b] => (to, "b64", int(a, "b64")? >> int(b, "b32")?.min(63)),
                ["shl.b64", to, a, b] => (to, "b64", int(a, "b64")? << int(b, "b32")?.min(63)),
                ["setp.ge.u64", to, a, b] => (to, "pred", (int(a, "b64")? >= int(b, "b64")?).into()),
                ["setp.ne.u64", to, a, b] => (to, "pred", (int(a, "b64")? != int(b, "b64")?).into()),
                ["add.u32", to, a, b] => (to, "b32", (int(a, "b32")? + int(b, "b32")?) & 0xffff_ffff),
                ["and.b32", to, a, b] => (to, "b32", int(a, "b32")? & int(b, "b32")?),
                ["shr.u32", to, a, b] => (to, "b32", int(a, "b32")? >> int(b, "b32")?.min(31)),
                ["mul.rn.f32", to, a, b] => (to, "f32", (float(a)? * float(b)?).to_bits().into()),
                ["sub.rn.f32", to, a, b] => (to, "f32", (float(a)? - float(b)?).to_bits().into()),
                _ => return Err(format!("an instruction that is not known here: {}", words.join(" "))),
            };
            let found = self.kind(to)?;
            if found != kind {
                return Err(format!("{to} is {found}, and {kind} is written to it"));
            }
            values.insert(to, value);
        }
        Err("it does not return".into())
    }

    fn kind(&self, register: &str) -> Outcome<&str> {
        let (kind, many) = self.registers.get(family(register)).ok_or_else(|| format!("{register} is not declared"))?;
        let index: usize =
            register[family(register).len()..].parse().map_err(|_| format!("{register} has no number"))?;
        if index < *many { Ok(kind) } else { Err(format!("{register}: there are {many}")) }
    }

    /// A register's value, or a constant.
    fn value(&self, values: &HashMap<&str, u64>, word: &str, kind: &str) -> Outcome<u64> {
        if word.starts_with('%') {
            let found = self.kind(word)?;
            return match values.get(word) {
                _ if found != kind => Err(format!("{word} is {found}, and {kind} is wanted")),
                Some(value) => Ok(*value),
                None => Err(format!("{word} was not written")),
            };
        }
        let number = match (word.strip_prefix("0f"), word.strip_prefix("0x")) {
            (Some(bits), _) if kind == "f32" => u64::from_str_radix(bits, 16).ok(),
            (_, Some(bits)) if kind != "f32" => u64::from_str_radix(bits, 16).ok(),
            _ if kind != "f32" => word.parse().ok().map(|number: i64| number as u64),
            _ => None,
        };
        number.ok_or_else(|| format!("{word} is no {kind}"))
    }
}

/// A register's name without its number.
fn family(register: &str) -> &str {
    register.trim_end_matches(|c: char| c.is_ascii_digit())
}
