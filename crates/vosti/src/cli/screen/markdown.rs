//! Shows an answer on a terminal as it streams: wrapped between words, with the simple Markdown of answers (emphasis, code,
//! headings, lists) in styles. It reads character by character, so the cuts of a stream never show. Only the marks of closed
//! emphasis disappear; without styles every mark stays. [`Wrapped`] makes the lines.

use super::wrap::{Style, Wrapped};

/// If emphasis has not ended after so many bytes, its mark is shown as text.
const HELD_MAX: usize = 200;

/// Turns a text, piece by piece, into what a terminal is sent.
pub struct Screen {
    lines: Wrapped,
    styled: bool,
    state: State,
    /// The beginning of a line whose kind is not known yet.
    held: String,
    spans: Spans,
}

#[derive(Clone, Copy)]
enum State {
    /// Begins a line; `held` is all of it.
    Begin,
    /// In a line of text, or of a heading.
    Text(Style),
    /// In a line of a table.
    AsItIs,
    /// In a line that may open fenced code; `held` is all of it.
    Opening,
    /// Begins a line of fenced code, which may close it; `held` is all of it.
    CodeBegin(Fence),
    Code(Fence),
}

/// The mark of a code fence, and how many of them.
#[derive(Clone, Copy)]
struct Fence {
    mark: char,
    count: usize,
}

impl Fence {
    fn of(line: &str) -> Fence {
        let line = line.trim_start();
        let mark = line.chars().next().unwrap_or('`');
        Fence { mark, count: line.chars().take_while(|c| *c == mark).count() }
    }

    /// Whether this may be the beginning of a line that closes the code.
    fn may_close(self, line: &str) -> bool {
        line.trim_start_matches(' ').trim_start_matches(self.mark).trim_start_matches(' ').is_empty()
    }

    fn closes(self, line: &str) -> bool {
        self.may_close(line) && Fence::of(line).mark == self.mark && Fence::of(line).count >= self.count
    }
}

/// The kind of a line, by its beginning.
#[derive(Debug, PartialEq, Eq)]
enum Kind {
    Text,
    Fence,
    Heading,
    /// Of a list, or a quotation: further lines are indented to the beginning of its text.
    Item,
    Table,
}

/// The kind of a line; none while its beginning is too short to tell.
fn kind(line: &str) -> Option<Kind> {
    let rest = line.trim_start_matches(' ');
    let first = rest.chars().next()?;
    let count = rest.chars().take_while(|c| *c == first).count();
    // What follows a mark of one byte; none if nothing has come yet.
    let after = |mark: usize| rest.as_bytes().get(mark).map(|byte| *byte == b' ');
    let spaced = |mark: usize, kind: Kind| after(mark).map(|space| if space { kind } else { Kind::Text });
    match first {
        '`' | '~' if count >= 3 => Some(Kind::Fence),
        '`' | '~' if count == rest.len() => None,
        '#' if count <= 6 => spaced(count, Kind::Heading),
        '-' | '+' | '*' | '>' if count == 1 => spaced(1, Kind::Item),
        '0'..='9' => {
            let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
            match rest.as_bytes().get(digits) {
                None if digits <= 4 => None,
                Some(b'.' | b')') => spaced(digits + 1, Kind::Item),
                _ => Some(Kind::Text),
            }
        }
        '|' => Some(Kind::Table),
        _ => Some(Kind::Text),
    }
}

impl Screen {
    /// A screen so many columns wide, with styles or without.
    pub fn new(width: usize, styled: bool) -> Self {
        let (lines, spans) = (Wrapped::new(width, styled), Spans::after(' '));
        Screen { lines, styled, state: State::Begin, held: String::new(), spans }
    }

    /// What to print for the next piece.
    pub fn push(&mut self, piece: &str) -> String {
        for c in piece.chars() {
            match c {
                '\n' => self.newline(),
                '\r' => {}
                c => self.character(c),
            }
        }
        self.lines.take()
    }

    /// What to print after the last piece.
    pub fn finish(&mut self) -> String {
        self.line_ends();
        self.lines.line_ends();
        self.lines.plain();
        self.lines.take()
    }

    fn character(&mut self, c: char) {
        match self.state {
            State::Begin => {
                self.held.push(c);
                match kind(&self.held) {
                    None => {}
                    Some(Kind::Fence) => self.state = State::Opening,
                    Some(kind) => self.line_is(&kind),
                }
            }
            State::Text(style) => self.text(c, style),
            State::AsItIs => self.lines.put_as_it_is(c, Style::PLAIN),
            State::Opening => self.held.push(c),
            State::CodeBegin(fence) => {
                self.held.push(c);
                if !fence.may_close(&self.held) {
                    self.release(Style::CODE);
                    self.state = State::Code(fence);
                }
            }
            State::Code(_) => self.lines.put_as_it_is(c, Style::CODE),
        }
    }

    fn newline(&mut self) {
        let next = self.line_ends();
        self.lines.newline();
        self.state = next;
        self.spans = Spans::after(' ');
    }

    /// Shows the held part of the line, and returns the state in which the next line begins.
    fn line_ends(&mut self) -> State {
        match self.state {
            State::Begin => self.line_is(&Kind::Text),
            // A backtick after the opening marks: the line is text with inline code, and no fence.
            State::Opening if self.held.trim_start().trim_start_matches('`').contains('`') => self.line_is(&Kind::Text),
            State::Opening => {
                let fence = Fence::of(&self.held);
                self.release(Style::DIM);
                return State::CodeBegin(fence);
            }
            State::CodeBegin(fence) if fence.closes(&self.held) => {
                self.release(Style::DIM);
                return State::Begin;
            }
            State::CodeBegin(fence) | State::Code(fence) => {
                self.release(Style::CODE);
                return State::CodeBegin(fence);
            }
            State::Text(_) | State::AsItIs => {}
        }
        if let State::Text(style) = self.state {
            self.spans.end(style, &mut self.lines);
        }
        State::Begin
    }

    /// Goes on with a line that is known by its beginning.
    fn line_is(&mut self, kind: &Kind) {
        let spaces = self.held.len() - self.held.trim_start_matches(' ').len();
        let style = if *kind == Kind::Heading { Style::BOLD } else { Style::PLAIN };
        self.state = State::Text(style);
        match kind {
            Kind::Table => {
                self.state = State::AsItIs;
                self.release(Style::PLAIN);
            }
            Kind::Item | Kind::Heading => {
                let mark = std::mem::take(&mut self.held);
                self.lines.indent(if *kind == Kind::Item { mark.len() } else { 0 });
                mark.chars().for_each(|c| self.lines.put(c, style));
            }
            Kind::Text | Kind::Fence => {
                self.lines.indent(spaces);
                std::mem::take(&mut self.held).chars().for_each(|c| self.text(c, style));
            }
        }
    }

    fn text(&mut self, c: char, style: Style) {
        match self.styled {
            true => self.spans.character(c, style, &mut self.lines),
            false => self.lines.put(c, style),
        }
    }

    fn release(&mut self, style: Style) {
        std::mem::take(&mut self.held).chars().for_each(|c| self.lines.put_as_it_is(c, style));
    }
}

/// Emphasis and code within one line.
struct Spans {
    /// From a mark that may open something.
    held: String,
    /// The character before.
    before: char,
}

/// How the held text begins.
enum Resolved {
    /// More must come.
    Not,
    /// So many bytes are as they are.
    Literal(usize),
    /// A mark that a backslash makes a character.
    Escaped(char),
    /// Text between marks of `mark` bytes; `end` is where the closing mark ends.
    Span { style: Style, mark: usize, end: usize },
}

impl Spans {
    fn after(before: char) -> Self {
        Spans { held: String::new(), before }
    }

    fn character(&mut self, c: char, style: Style, lines: &mut Wrapped) {
        if self.held.is_empty() && !matches!(c, '*' | '_' | '`' | '\\') {
            return self.show(c, style, lines);
        }
        self.held.push(c);
        match resolve(self.before, &self.held, false) {
            Resolved::Not if self.held.len() <= HELD_MAX => {}
            Resolved::Not => self.go_on(Resolved::Literal(run(&self.held)), style, lines),
            resolved => self.go_on(resolved, style, lines),
        }
    }

    /// The line ends: marks that were not closed are text.
    fn end(&mut self, style: Style, lines: &mut Wrapped) {
        while !self.held.is_empty() {
            let resolved = resolve(self.before, &self.held, true);
            self.go_on(resolved, style, lines);
        }
    }

    fn go_on(&mut self, resolved: Resolved, style: Style, lines: &mut Wrapped) {
        let held = std::mem::take(&mut self.held);
        let used = match resolved {
            Resolved::Not => run(&held),
            Resolved::Literal(bytes) => bytes,
            Resolved::Escaped(c) => 1 + c.len_utf8(),
            Resolved::Span { end, .. } => end,
        };
        match resolved {
            Resolved::Not | Resolved::Literal(_) => held[..used].chars().for_each(|c| self.show(c, style, lines)),
            Resolved::Escaped(c) => self.show(c, style, lines),
            Resolved::Span { style: more, mark, end } => {
                let within = &held[mark..end - mark];
                let mut inner = Spans::after(' ');
                for c in within.chars() {
                    match more {
                        Style::CODE => inner.show(c, style.and(more), lines),
                        _ => inner.character(c, style.and(more), lines),
                    }
                }
                inner.end(style.and(more), lines);
                self.before = held[..end].chars().next_back().unwrap_or(' ');
            }
        }
        held[used..].chars().for_each(|c| self.character(c, style, lines));
    }

    fn show(&mut self, c: char, style: Style, lines: &mut Wrapped) {
        self.before = c;
        lines.put(c, style);
    }
}

/// How often the text repeats its first character.
fn run(held: &str) -> usize {
    let first = held.chars().next();
    held.chars().take_while(|c| Some(*c) == first).count()
}

/// What begins at a mark. A mark between letters or digits is text (`2*3*4`, `snake_case_names`).
fn resolve(before: char, held: &str, ended: bool) -> Resolved {
    let open = |literal: usize| if ended { Resolved::Literal(literal) } else { Resolved::Not };
    let mark = held.chars().next().unwrap_or(' ');
    if mark == '\\' {
        return match held[1..].chars().next() {
            None => open(1),
            Some(c @ ('*' | '_' | '`')) => Resolved::Escaped(c),
            Some(_) => Resolved::Literal(1),
        };
    }
    let beside = |c: char| if mark == '*' { c.is_ascii_alphanumeric() } else { c.is_alphanumeric() };
    let (code, count) = (mark == '`', run(held));
    let Some(first) = held[count..].chars().next() else { return open(count) };
    if !code && (count > 3 || first.is_whitespace() || beside(before)) {
        return Resolved::Literal(count);
    }
    let mut at = count;
    while let Some(found) = held[at..].find(mark) {
        let begin = at + found;
        let closing = run(&held[begin..]);
        at = begin + closing;
        let after = held[at..].chars().next();
        if after.is_none() && !ended {
            return Resolved::Not; // more marks may come
        }
        let last = held[..begin].chars().next_back().unwrap_or(' ');
        let right = match code {
            true => closing == count,
            // With three marks, two kinds of emphasis end.
            false => {
                (closing == count || (closing == 3 && count < 3))
                    && !last.is_whitespace()
                    && last != '\\'
                    && !after.is_some_and(beside)
            }
        };
        if right {
            let style = match (code, count) {
                (true, _) => Style::CODE,
                (_, 1) => Style::ITALIC,
                (_, 2) => Style::BOLD,
                _ => Style::BOLD.and(Style::ITALIC),
            };
            return Resolved::Span { style, mark: count, end: at };
        }
    }
    open(count)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand_xoshiro::Xoshiro256PlusPlus;
    use rand_xoshiro::rand_core::{Rng, SeedableRng};

    const ANSWER: &str = "# A *short* answer\n\nThe **sky is `blue`** because ***light*** of _short_ waves is scattered; 2*3*4 is \
        24, snake_case_name stays, `a * b` too, and \\*this\\* as well.\r\n\n\
        - the first point, which is long enough for a second line\n  - a point below it, which is long, too\n10. a number\n\
        > a quotation that goes on and on\n\n\
        ```rust\nfn main() { println!(\"**not bold**, and a line much longer than the screen\"); }\n\n  ``` not the end\n```\n\
        ``` `` ` `` ```\n| a | table |\n|---|---|\n***\n---\n~~~\nopen ``` fence\n~~~~\n\
        你好世界，这是**一个**很长的句子。 👩\u{200d}👩\u{200d}👧👍🏽 e\u{301} https://example.org/a/very/long/address/that/does/not/fit\n\
        **not closed, *nor this\n* * *\nthe `end";

    fn whole(width: usize, styled: bool, text: &str) -> String {
        in_pieces(width, styled, &[text])
    }

    fn in_pieces(width: usize, styled: bool, pieces: &[&str]) -> String {
        let mut screen = Screen::new(width, styled);
        let mut out: String = pieces.iter().map(|piece| screen.push(piece)).collect();
        out.push_str(&screen.finish());
        out
    }

    /// The text without escape sequences.
    fn bare(text: &str) -> String {
        let mut parts = text.split('\x1b');
        let first = parts.next().unwrap_or_default().to_string();
        parts.fold(first, |text, part| text + part.split_once('m').unwrap().1)
    }

    fn boundaries(text: &str) -> Vec<usize> {
        text.char_indices().map(|(at, _)| at).chain([text.len()]).collect()
    }

    #[test]
    fn every_cut_into_two_shows_the_same() {
        for (width, styled) in [(30, true), (30, false), (7, true), (1, false), (200, true)] {
            let expected = whole(width, styled, ANSWER);
            for cut in boundaries(ANSWER) {
                let (one, two) = ANSWER.split_at(cut);
                assert_eq!(in_pieces(width, styled, &[one, two]), expected, "width {width}, cut at {cut}");
            }
        }
    }

    /// Random texts made of Markdown's marks, words and wide characters, in random pieces.
    #[test]
    fn every_text_in_any_pieces_shows_the_same_and_loses_nothing() {
        const PARTS: [&str; 30] = [
            "*",
            "**",
            "***",
            "_",
            "__",
            "`",
            "``",
            "```",
            "~~~",
            "\n",
            "\n\n",
            " ",
            "  ",
            "- ",
            "# ",
            "> ",
            "1. ",
            "|",
            "\\",
            "word",
            "a",
            "12",
            "é",
            "好",
            "。",
            "👍",
            "\t",
            "\u{a0}",
            "\x1b",
            "averylongwordthatfitsnowhere",
        ];
        let mut random = Xoshiro256PlusPlus::seed_from_u64(7);
        let mut below = |n: usize| (random.next_u64() % n as u64) as usize;
        for round in 0..3000 {
            let text: String = (0..below(60)).map(|_| PARTS[below(PARTS.len())]).collect();
            let (width, styled) = (1 + below(40), below(2) == 0);
            let mut at = boundaries(&text);
            at.retain(|cut| *cut == 0 || *cut == text.len() || below(3) == 0);
            let pieces: Vec<&str> = at.windows(2).map(|cut| &text[cut[0]..cut[1]]).collect();
            let shown = in_pieces(width, styled, &pieces);
            assert_eq!(shown, whole(width, styled, &text), "round {round}: {text:?} as {pieces:?}");
            // Without styles all of it is there; with styles, all but marks.
            let letters = |text: &str| -> String {
                let mark = |c: &char| styled && matches!(c, '*' | '_' | '`' | '\\');
                text.replace('\x1b', "␛").chars().filter(|c| !c.is_whitespace() && !mark(c)).collect()
            };
            let bare = if styled { bare(&shown) } else { shown };
            assert_eq!(letters(&bare), letters(&text), "round {round}: {text:?}");
        }
    }

    #[test]
    fn no_line_of_text_is_wider_than_the_screen() {
        use unicode_width::UnicodeWidthStr;
        let text =
            "Some **bold words** of 你好世界 and *others* in `code of several words`, again and again. ".repeat(9);
        for width in 8..90 {
            for line in bare(&whole(width, true, &text)).lines() {
                assert!(line.width() <= width, "{width}: {line:?}");
            }
        }
    }

    #[test]
    fn emphasis_and_code_have_styles_and_lose_their_marks() {
        let shown = |text: &str| whole(80, true, text);
        assert_eq!(shown("a **b** c"), "a \x1b[1mb \x1b[0mc");
        assert_eq!(shown("*a b* `c*d*`"), "\x1b[3ma b \x1b[0m\x1b[36mc*d*\x1b[0m");
        assert_eq!(shown("**a *b***"), "\x1b[1ma \x1b[0m\x1b[1;3mb\x1b[0m");
        assert_eq!(shown("## Title"), "\x1b[1m## Title\x1b[0m");
        for same in
            ["2*3*4 = 24", "a * b * c", "snake_case_name", "**open", "`open", "* * *", "---", "C:\\dir", "5 * 3*"]
        {
            assert_eq!(shown(same), same);
        }
        assert_eq!(shown("\\*as it is\\*"), "*as it is*");
        assert_eq!(whole(80, false, "a **b** `c`"), "a **b** `c`", "without styles the marks stay");
    }

    #[test]
    fn emphasis_that_never_ends_is_shown_after_a_while() {
        let mut screen = Screen::new(80, true);
        assert_eq!(screen.push("**one "), "");
        assert!(screen.push(&"two ".repeat(60)).starts_with("**one two"));
    }

    #[test]
    fn lists_go_on_below_their_text_and_code_is_not_wrapped() {
        assert_eq!(
            whole(12, false, "- one two three\n10. one two three"),
            "- one two\n  three\n10. one two\n    three"
        );
        let code = "```\na long line of code that does not fit\n```\nlong line of text";
        assert_eq!(whole(12, false, code), "```\na long line of code that does not fit\n```\nlong line of\ntext");
        let styled = whole(80, true, "```\nx\n\n```\ny");
        assert_eq!(styled, "\x1b[2m```\x1b[0m\n\x1b[36mx\x1b[0m\n\n\x1b[2m```\x1b[0m\ny");
    }
}
