//! Every single edit of a text by kind: what a wrong compiler might have written. An execution should find each of
//! them.
//!
//! Edits are of words, not of meanings: some change nothing. [`Edit::commutes`], [`Edit::looping`], [`Edit::beside`] and
//! [`Edit::unwritten`] say of four reasons whether they hold.

use crate::case::Random;
use crate::text::without_comments;
use std::collections::BTreeMap;
use std::fmt;

/// What is edited.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// Two operands beside each other, exchanged.
    Exchanged,
    /// An immediate number, one more; in an address, one access further.
    Number,
    /// A barrier, a fence or a wait, left out; or a wait that leaves one group more.
    Barrier,
    /// A predicate, negated.
    Predicate,
    /// An instruction left out: its result is stale, or its store missing.
    Stale,
    /// A register's neighbour in its place.
    Register,
}

impl Kind {
    /// All of them.
    pub const ALL: [Kind; 6] =
        [Kind::Exchanged, Kind::Number, Kind::Barrier, Kind::Predicate, Kind::Stale, Kind::Register];
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Kind::Exchanged => "operands exchanged",
            Kind::Number => "a number off by one",
            Kind::Barrier => "a barrier or wait less",
            Kind::Predicate => "a predicate negated",
            Kind::Stale => "an instruction left out",
            Kind::Register => "another register",
        })
    }
}

/// An edit of one line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Edit {
    /// What is edited.
    pub kind: Kind,
    /// The line, counted from 0.
    pub line: usize,
    /// The line as it was, without comments and margins.
    pub was: String,
    /// What stands there now.
    pub is: String,
}

impl fmt::Display for Edit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Edit { kind, line, was, is } = self;
        let is = if is.is_empty() { "nothing" } else { is };
        write!(f, "line {}, {kind}: `{was}` becomes `{is}`", line + 1)
    }
}

/// Instructions whose operands may be exchanged.
const COMMUTING: [&str; 10] = ["add", "mul", "and", "or", "xor", "min", "max", "setp.eq", "setp.ne", "setp.num"];
/// Barriers, fences and waits.
const BARRIERS: [&str; 10] = [
    "bar.",
    "barrier.",
    "mbarrier.",
    "cp.async.wait_group",
    "cp.async.commit_group",
    "fence.",
    "griddepcontrol.wait",
    "wgmma.fence",
    "wgmma.wait_group",
    "wgmma.commit_group",
];

impl Edit {
    /// All edits of a text.
    pub fn all(ptx: &str) -> Vec<Edit> {
        let clean = without_comments(ptx);
        let mut found = vec![];
        for (line, text) in clean.lines().enumerate() {
            let was = text.trim();
            if let Some(statement) = Line::read(was) {
                found.extend(statement.edits().into_iter().map(|(kind, is)| Edit { kind, line, was: was.into(), is }));
            }
        }
        found.retain(|edit| edit.is != edit.was);
        found
    }

    /// So many of a text's edits of each kind, each once, as a seed draws them.
    pub fn some(ptx: &str, count: usize, seed: u64) -> Vec<Edit> {
        let mut random = Random::new(seed);
        let mut all: BTreeMap<Kind, Vec<Edit>> = BTreeMap::new();
        Edit::all(ptx).into_iter().for_each(|edit| all.entry(edit.kind).or_default().push(edit));
        let mut some = |edits: Vec<Edit>| {
            let order = random.order(edits.len());
            order.into_iter().take(count).map(|at| edits[at as usize].clone()).collect::<Vec<_>>()
        };
        all.into_values().flat_map(&mut some).collect()
    }

    /// The edited text.
    pub fn apply(&self, ptx: &str) -> String {
        self.with(ptx, &self.is)
    }

    fn with(&self, ptx: &str, is: &str) -> String {
        let clean = without_comments(ptx);
        let lines = clean.lines().enumerate().map(|(at, line)| if at == self.line { is } else { line });
        lines.collect::<Vec<_>>().join("\n")
    }

    /// Whether it exchanges the factors, terms or sides of an operation that does not tell them apart.
    pub fn commutes(&self) -> bool {
        let Some(line) = Line::read(&self.was) else { return false };
        let named = COMMUTING.iter().any(|name| line.opcode.starts_with(name));
        let product = ["fma", "mad"].iter().any(|name| line.opcode.starts_with(name));
        // Of a multiply-add the first two.
        let first_two = || {
            Line::read(&self.is)
                .is_some_and(|is| is.words.last().map(|w| is.word(w)) == line.words.last().map(|w| line.word(w)))
        };
        self.kind == Kind::Exchanged && (named || product && first_two())
    }

    /// The text with a loop without end in the place of the line, for the threads that execute it: if a run ends, none
    /// did.
    pub fn looping(&self, ptx: &str) -> String {
        self.with(ptx, &format!("$edited: {} bra $edited;", self.guard()))
    }

    /// The text with the edit beside the line, in registers of its own, and a loop without end for threads in which their
    /// results differ: if a run ends, they are the same. None if the line has no results.
    pub fn beside(&self, ptx: &str) -> Option<String> {
        let (was, is) = (Line::read(&self.was)?, Line::read(&self.is));
        let (mut before, mut edited, mut after) = (String::new(), self.is.clone(), String::new());
        for (at, word) in was.results().iter().enumerate().rev() {
            let own = was.word(word);
            let (name, ty, differ) = file(own)?;
            if is.is_none() || was.guard.is_some() {
                before += &format!("mov.{ty} {name}{at}, {own}; ");
            }
            if let Some(is) = &is {
                let place = is.results().get(at)?;
                edited.replace_range(place.start..place.end, &format!("{name}{at}"));
            }
            after += &format!("{differ} %edit_p9, {name}{at}, {own}; or.pred %edit_p8, %edit_p8, %edit_p9; ");
        }
        let none = "setp.ne.b32 %edit_p8, 0, 0;";
        let text = format!("{before}{edited} {} {none} {after}$edited: @%edit_p8 bra $edited;", self.was);
        (!after.is_empty()).then(|| self.declared(ptx, &text))
    }

    /// The text with the line's results as if nobody had written them: without a store or copy, else with registers of which
    /// nothing is known. If a run has the right bits, nobody reads them. None of barriers.
    pub fn unwritten(&self, ptx: &str) -> Option<String> {
        let line = Line::read(&self.was)?;
        let moved = |word: &Word| {
            let own = line.word(word);
            file(own).map(|(name, ty, _)| format!("{} mov.{ty} {own}, {name}0; ", self.guard()))
        };
        let text = line.results().iter().map(moved).collect::<Option<String>>()?;
        (!line.barrier()).then(|| self.declared(ptx, &text))
    }

    fn guard(&self) -> &str {
        self.was.split_whitespace().next().filter(|word| word.starts_with('@')).unwrap_or("")
    }

    /// The text with something else in the place of the line, which may use the registers of [`FILES`].
    fn declared(&self, ptx: &str, is: &str) -> String {
        let files: String = FILES.iter().map(|(_, name, ty, _)| format!(".reg .{ty} {name}<10>; ")).collect();
        let edited = self.with(ptx, is);
        edited.replacen(".reg ", &format!("{files}.reg "), 1)
    }
}

/// Registers of an edited text beside its own: the beginnings of the compiler's names and of theirs, their type, and how two
/// of them are compared.
const FILES: [(&str, &str, &str, &str); 4] = [
    ("%p", "%edit_p", "pred", "xor.pred"),
    ("%rs", "%edit_s", "b16", "setp.ne.b16"),
    ("%r", "%edit_r", "b32", "setp.ne.b32"),
    ("%rd", "%edit_d", "b64", "setp.ne.b64"),
];

fn file(word: &str) -> Option<(&'static str, &'static str, &'static str)> {
    let (own, _) = register(word)?;
    FILES.iter().find(|file| file.0 == own).map(|(_, name, ty, differ)| (*name, *ty, *differ))
}

/// An instruction with the places of its operands' words.
struct Line<'a> {
    text: &'a str,
    /// `%p1` or `!%p1`.
    guard: Option<&'a str>,
    opcode: &'a str,
    words: Vec<Word>,
    /// How many of the words are results.
    results: usize,
}

#[derive(Clone, Copy)]
struct Word {
    start: usize,
    end: usize,
    /// Between brackets.
    address: bool,
}

impl<'a> Line<'a> {
    fn read(text: &'a str) -> Option<Line<'a>> {
        let rest = text.strip_suffix(';')?;
        let named = |c: char| c.is_alphanumeric() || ['_', '$'].contains(&c);
        if rest.starts_with('.')
            || rest.contains(';')
            || rest.split_once(':').is_some_and(|(label, _)| label.chars().all(named))
        {
            return None;
        }
        let (guard, rest) = match rest.strip_prefix('@') {
            Some(rest) => {
                let (guard, rest) = rest.split_once(char::is_whitespace)?;
                (Some(guard), rest.trim_start())
            }
            None => (None, rest),
        };
        let opcode = rest.split_whitespace().next()?;
        if !opcode.starts_with(|c: char| c.is_ascii_lowercase()) {
            return None;
        }
        let operands = rest.as_ptr().addr() - text.as_ptr().addr() + opcode.len();
        let (mut words, mut address, mut start) = (vec![], false, None);
        let inside = |c: char| c.is_alphanumeric() || ['%', '_', '.', '-', '$'].contains(&c);
        for (at, c) in text.char_indices().skip_while(|(at, _)| *at < operands) {
            match (inside(c), start) {
                (true, None) => start = Some(at),
                (false, Some(first)) => {
                    words.push(Word { start: first, end: at, address });
                    start = None;
                }
                _ => (),
            }
            address = (address || c == '[') && c != ']';
        }
        let stores = ["st", "cp", "stmatrix", "bra", "bar", "barrier", "mbarrier", "wgmma", "fence", "ret"];
        let family = opcode.split('.').next()?;
        let results =
            match (stores.contains(&family) || words.is_empty(), text[operands..].trim_start().strip_prefix('{')) {
                (true, _) => 0,
                // A thread and a predicate.
                (false, None) if family == "elect" => 2,
                (false, None) => 1,
                (false, Some(list)) => list.split_once('}')?.0.split(',').count(),
            };
        Some(Line { text, guard, opcode, words, results })
    }

    fn word(&self, word: &Word) -> &'a str {
        &self.text[word.start..word.end]
    }

    fn results(&self) -> &[Word] {
        self.words.get(..self.results).unwrap_or_default()
    }

    fn barrier(&self) -> bool {
        BARRIERS.iter().any(|name| self.opcode.starts_with(name))
    }

    fn with(&self, word: &Word, is: &str) -> String {
        format!("{}{is}{}", &self.text[..word.start], &self.text[word.end..])
    }

    fn edits(&self) -> Vec<(Kind, String)> {
        let mut found = vec![];
        if self.barrier() {
            found.push((Kind::Barrier, String::new()));
        } else if !["bra", "ret"].iter().any(|name| self.opcode.starts_with(name)) {
            found.push((Kind::Stale, String::new()));
        }
        if let Some(guard) = self.guard {
            let negated = guard.strip_prefix('!').map_or_else(|| format!("!{guard}"), str::to_string);
            found.push((Kind::Predicate, self.text.replacen(guard, &negated, 1)));
        }
        let sources = self.words.get(self.results..).unwrap_or_default();
        for pair in sources.windows(2) {
            let [first, second] = [self.word(&pair[0]), self.word(&pair[1])];
            if alike(first, second) && pair[0].address == pair[1].address {
                let both = format!(
                    "{}{second}{}{first}{}",
                    &self.text[..pair[0].start],
                    &self.text[pair[0].end..pair[1].start],
                    &self.text[pair[1].end..]
                );
                found.push((Kind::Exchanged, both));
            }
        }
        for word in sources {
            let text = self.word(word);
            // Whichever of its barriers a block uses, it is one.
            if self.opcode.starts_with("bar.") || self.opcode.starts_with("barrier.") {
                continue;
            }
            if let Ok(number) = text.parse::<i64>() {
                let kind = if self.opcode.contains("wait_group") { Kind::Barrier } else { Kind::Number };
                let more = if word.address { self.access() } else { 1 };
                found.push((kind, self.with(word, &(number + more).to_string())));
            } else if let Some((file, number)) = register(text) {
                let neighbour = if number > 1 { number - 1 } else { number + 1 };
                found.push((Kind::Register, self.with(word, &format!("{file}{neighbour}"))));
            }
        }
        found
    }

    /// The bytes of an access, as far as its name says them.
    fn access(&self) -> i64 {
        let many = if self.opcode.contains(".v4") {
            4
        } else if self.opcode.contains(".v2") {
            2
        } else {
            1
        };
        let bytes =
            self.opcode.rsplit('.').find_map(|part| part.trim_start_matches(['b', 'u', 'f']).parse::<i64>().ok());
        match self.opcode.starts_with("ld.") || self.opcode.starts_with("st.") {
            true => many * bytes.map_or(4, |bits| bits / 8),
            false => 16,
        }
    }
}

/// `%r` and 12 of `%r12`.
fn register(word: &str) -> Option<(&str, u32)> {
    let file = word.trim_end_matches(|c: char| c.is_ascii_digit());
    (word.starts_with('%') && file.len() > 1).then(|| word[file.len()..].parse().ok().map(|number| (file, number)))?
}

/// Whether one may stand where the other does.
fn alike(a: &str, b: &str) -> bool {
    match (register(a), register(b)) {
        (Some((a, _)), Some((b, _))) => a == b,
        (Some((file, _)), None) | (None, Some((file, _))) => file != "%p",
        (None, None) => true,
    }
}
