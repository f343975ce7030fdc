//! Names of a text: registers, labels, arrays, parameters, in the scope of the statement that is read.

use super::words::number;
use super::{Known, Reader, Register, SHARED_BASE};
use crate::text::{File, Operand, Width};

impl Reader<'_> {
    pub(super) fn target(&self, operand: &Operand, width: Width) -> Known<Register> {
        let Operand::Word(word) = operand else { return None };
        self.register(word, width)
    }

    pub(super) fn source(&self, operand: &Operand, width: Width) -> Known<Register> {
        let Operand::Word(word) = operand else { return None };
        self.word(word, width)
    }

    pub(super) fn word(&self, word: &str, width: Width) -> Known<Register> {
        if word.starts_with('%') || self.file(word).is_some() {
            return self.register(word, width);
        }
        if self.text.shared == Some(word) && [Width::Bits32, Width::Bits64].contains(&width) {
            return Some(self.number(SHARED_BASE));
        }
        // The address of a tensor map.
        let map = self.text.params.iter().position(|param| *param == (word, Width::Map));
        if let Some(index) = map.filter(|_| width == Width::Bits64) {
            return Some(self.number(map_address(index)));
        }
        Some(self.number(number(word, width)?))
    }

    /// The register of a number.
    pub(super) fn number(&self, number: u64) -> Register {
        let mut numbers = self.numbers.borrow_mut();
        let known = numbers.iter().position(|known| *known == number);
        let at = known.unwrap_or_else(|| {
            numbers.push(number);
            numbers.len() - 1
        });
        self.registers + at as u32
    }

    /// The innermost scope that declares a name, and what it is there.
    pub(super) fn file(&self, name: &str) -> Option<(usize, File)> {
        let mut scope = self.scope.get();
        loop {
            match self.text.scopes[scope].files.get(name) {
                Some(file) => return Some((scope, *file)),
                None if scope == 0 => return None,
                None => scope = self.text.scopes[scope].around,
            }
        }
    }

    /// A label of this scope or one around it.
    pub(super) fn label(&self, name: &str) -> Known<usize> {
        let mut scope = self.scope.get();
        loop {
            match self.labels.get(&(scope, name)) {
                Some(at) => return Some(*at),
                None if scope == 0 => return None,
                None => scope = self.text.scopes[scope].around,
            }
        }
    }

    /// A register of a width.
    pub(super) fn register(&self, word: &str, width: Width) -> Known<Register> {
        let prefix = word.trim_end_matches(|c: char| c.is_ascii_digit());
        let single = self.file(word).filter(|(_, file)| file.many.is_none());
        let (name, (scope, file)) = match single {
            Some(found) => (word, found),
            None => (prefix, self.file(prefix)?),
        };
        let index = match file.many {
            None => 0,
            Some(many) => word[prefix.len()..].parse().ok().filter(|index| *index < many)?,
        };
        (file.width == width).then(|| self.first[&(scope, name)] + index)
    }
}

/// Where a tensor map is among the parameters. `cvta.param` makes of it the address that copies take.
fn map_address(index: usize) -> u64 {
    1 << 60 | (index as u64) << 7
}

/// The bit that `cvta.param` adds.
pub(crate) const GENERIC: u64 = 1 << 61;

/// The parameter with the tensor map at a generic address.
pub(crate) fn map_at(address: u64) -> Option<usize> {
    let index = ((address >> 7) & 0xffff) as usize;
    (address == map_address(index) | GENERIC).then_some(index)
}
