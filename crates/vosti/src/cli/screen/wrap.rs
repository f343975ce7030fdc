//! Text on a terminal, wrapped between words to its width, in styles. It takes characters one by one, so the cuts of a text
//! into pieces never show. An escape sequence that a model wrote is shown, never obeyed.

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// How a character looks: any of these together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Style(u8);

impl Style {
    pub const PLAIN: Style = Style(0);
    pub const BOLD: Style = Style(1);
    pub const ITALIC: Style = Style(2);
    pub const CODE: Style = Style(4);
    pub const DIM: Style = Style(8);

    pub fn and(self, other: Style) -> Style {
        Style(self.0 | other.0)
    }

    /// The SGR escape sequence that turns the style on from plain.
    fn codes(self) -> String {
        let codes = [(Self::BOLD, "1"), (Self::ITALIC, "3"), (Self::CODE, "36"), (Self::DIM, "2")];
        let on: Vec<&str> = codes.iter().filter(|(style, _)| self.0 & style.0 != 0).map(|(_, code)| *code).collect();
        format!("\x1b[{}m", on.join(";"))
    }
}

/// Lines of a terminal.
pub struct Wrapped {
    width: usize,
    styled: bool,
    /// Output that has not been taken yet.
    out: String,
    /// The style that the output so far leaves the terminal in.
    style: Style,
    column: usize,
    /// Columns by which the rest of a broken line is indented.
    indent: usize,
    /// Spaces before the word: a line that is broken here loses them.
    gap: usize,
    /// Not shown yet, because more of it may come.
    word: Vec<(char, Style)>,
    /// True within a word that is wider than a line: the terminal breaks it.
    long: bool,
}

impl Wrapped {
    pub fn new(width: usize, styled: bool) -> Self {
        let width = width.max(1);
        let (out, word) = (String::new(), Vec::new());
        Wrapped { width, styled, out, style: Style::PLAIN, column: 0, indent: 0, gap: 0, word, long: false }
    }

    pub fn take(&mut self) -> String {
        std::mem::take(&mut self.out)
    }

    /// Indents the rest of this line, if it is broken, by so many columns.
    pub fn indent(&mut self, columns: usize) {
        self.indent = columns.min(self.width / 2);
    }

    /// A character of a text.
    pub fn put(&mut self, c: char, style: Style) {
        let space = match c {
            '\t' => 4,
            // Spaces that join words.
            '\u{a0}' | '\u{202f}' | '\u{2060}' => 0,
            c if c.is_whitespace() => c.width().unwrap_or(1),
            _ => 0,
        };
        if space > 0 {
            self.word_ends();
            (self.gap, self.long) = (self.gap + space, false);
        } else if self.long {
            self.column = self.beyond(c.width().unwrap_or(0));
            self.show(c, style);
        } else {
            if self.word.last().is_some_and(|(last, _)| parts(*last, c)) {
                self.word_ends();
            }
            self.word.push((c, style));
            if self.word_width() > self.width - self.indent {
                self.word_ends();
                self.long = true;
            }
        }
    }

    /// A character of a line that is not wrapped.
    pub fn put_as_it_is(&mut self, c: char, style: Style) {
        self.show(c, style);
    }

    /// Shows what is left of a line.
    pub fn line_ends(&mut self) {
        self.word_ends();
        (self.gap, self.long) = (0, false);
    }

    pub fn newline(&mut self) {
        self.line_ends();
        self.plain();
        self.out.push('\n');
        (self.column, self.indent) = (0, 0);
    }

    /// Resets the terminal's style.
    pub fn plain(&mut self) {
        if std::mem::take(&mut self.style) != Style::PLAIN {
            self.out.push_str("\x1b[0m");
        }
    }

    fn word_width(&self) -> usize {
        self.word.iter().map(|(c, _)| *c).collect::<String>().width()
    }

    fn word_ends(&mut self) {
        if self.word.is_empty() {
            return;
        }
        let (begin, width) = (self.column + self.gap, self.word_width());
        if begin + width > self.width && begin > self.indent {
            self.plain();
            self.out.push('\n');
            self.out.extend(std::iter::repeat_n(' ', self.indent));
            self.column = self.indent;
        } else {
            self.out.extend(std::iter::repeat_n(' ', self.gap));
            self.column = begin;
        }
        self.gap = 0;
        self.column = self.beyond(width);
        for (c, style) in std::mem::take(&mut self.word) {
            self.show(c, style);
        }
    }

    /// The column so much further, on whichever line of the terminal that is.
    fn beyond(&self, width: usize) -> usize {
        match self.column + width {
            0 => 0,
            column => (column - 1) % self.width + 1,
        }
    }

    fn show(&mut self, c: char, style: Style) {
        if self.styled && style != self.style && !c.is_whitespace() {
            self.plain();
            if style != Style::PLAIN {
                self.out.push_str(&style.codes());
            }
            self.style = style;
        }
        self.out.push(visible(c));
    }
}

/// The character that is shown: control characters, which a terminal would obey, are replaced.
fn visible(c: char) -> char {
    match c {
        '\t' => c,
        '\0'..='\x1f' => char::from_u32(0x2400 + c as u32).unwrap_or(char::REPLACEMENT_CHARACTER),
        '\x7f' => '\u{2421}',
        '\u{80}'..='\u{9f}' => char::REPLACEMENT_CHARACTER,
        c => c,
    }
}

/// Whether a line may be broken between these two without a space: beside what is two columns wide (Chinese, Japanese, emoji),
/// where neither belongs to the other.
fn parts(before: char, after: char) -> bool {
    const JOINER: char = '\u{200d}';
    const OPENING: &str = "([{（［｛「『【《〈“‘";
    const CLOSING: &str = "、。，．！？：；）］｝」』】》〉”’ー…";
    let wide = |c: char| c.width() == Some(2);
    let belongs = after.width().unwrap_or(0) == 0
        || matches!(after, '\u{1f3fb}'..='\u{1f3ff}')
        || after.is_ascii_punctuation()
        || CLOSING.contains(after);
    (wide(before) || wide(after)) && before != JOINER && !OPENING.contains(before) && !belongs
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wrapped(width: usize, text: &str) -> String {
        let mut lines = Wrapped::new(width, false);
        text.chars().for_each(|c| lines.put(c, Style::PLAIN));
        lines.line_ends();
        lines.take()
    }

    #[test]
    fn lines_end_between_words() {
        assert_eq!(wrapped(10, "one two three four"), "one two\nthree four");
        assert_eq!(wrapped(10, "0123456789 x"), "0123456789\nx", "a full line is no line too many");
        assert_eq!(wrapped(10, "  two  spaces"), "  two\nspaces");
        assert_eq!(wrapped(10, "a\u{a0}b c\u{a0}d e\u{a0}f"), "a\u{a0}b c\u{a0}d\ne\u{a0}f");
    }

    #[test]
    fn a_word_wider_than_a_line_is_whole_and_the_next_one_knows_where_it_ended() {
        assert_eq!(wrapped(10, "see 012345678901234 and more"), "see\n012345678901234 and\nmore");
        assert_eq!(wrapped(4, "0123456789"), "0123456789");
    }

    #[test]
    fn wide_characters_are_two_columns_and_marks_none() {
        assert_eq!(wrapped(10, "你好世界你好世界"), "你好世界你\n好世界");
        assert_eq!(wrapped(10, "你好世界你。好"), "你好世界\n你。好", "no line begins with a full stop");
        assert_eq!(wrapped(6, "ab e\u{301}fg h"), "ab e\u{301}fg\nh");
        let family = "👩\u{200d}👩\u{200d}👧";
        assert_eq!(wrapped(4, &format!("{family}{family}{family}")), format!("{family}{family}\n{family}"));
    }

    #[test]
    fn what_a_terminal_would_obey_is_shown() {
        assert_eq!(wrapped(80, "\x1b[31mred\x07\u{9b}"), "␛[31mred␇\u{fffd}");
    }

    #[test]
    fn a_style_ends_where_a_line_does() {
        let mut lines = Wrapped::new(5, true);
        "one two".chars().for_each(|c| lines.put(c, Style::BOLD));
        lines.newline();
        assert_eq!(lines.take(), "\x1b[1mone\x1b[0m\n\x1b[1mtwo\x1b[0m\n");
    }
}
