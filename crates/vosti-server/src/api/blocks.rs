//! An answer as a list of blocks, each of which begins, grows and ends: the form of OpenAI's Responses and Anthropic's
//! Messages.
//!
//! At most one block is open, and only the last one can be. Nothing here knows how an API writes a block.

use super::turn::TurnPart;

/// Text or thoughts that came together, or one call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Block {
    Thought(String),
    Text(String),
    Call { id: String, name: String, arguments: String },
}

/// An event of a block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    Begin,
    More(String),
    End,
}

/// See the module.
#[derive(Debug, Default)]
pub struct Blocks {
    pub all: Vec<Block>,
    open: bool,
}

impl Blocks {
    /// Takes parts of the answer, and says what happens to which block.
    pub fn take(&mut self, parts: Vec<TurnPart>) -> Vec<(usize, Change)> {
        let mut changes = Vec::new();
        for part in parts {
            let (kind, more) = match part {
                TurnPart::Thought(text) => (Some(Block::Thought(String::new())), text),
                TurnPart::Text(text) => (Some(Block::Text(String::new())), text),
                TurnPart::Call { id, name } => {
                    self.begin(Block::Call { id, name, arguments: String::new() }, &mut changes);
                    continue;
                }
                TurnPart::Arguments(json) => (None, json),
            };
            if let Some(kind) = kind
                && !(self.open && self.all.last().is_some_and(|last| same_kind(last, &kind)))
            {
                self.begin(kind, &mut changes);
            }
            let Some(Block::Thought(all) | Block::Text(all) | Block::Call { arguments: all, .. }) = self.all.last_mut()
            else {
                continue;
            };
            all.push_str(&more);
            changes.push((self.all.len() - 1, Change::More(more)));
        }
        changes
    }

    /// The end of the answer.
    pub fn finish(&mut self) -> Vec<(usize, Change)> {
        match std::mem::take(&mut self.open) {
            true => vec![(self.all.len() - 1, Change::End)],
            false => Vec::new(),
        }
    }

    fn begin(&mut self, block: Block, changes: &mut Vec<(usize, Change)>) {
        changes.extend(self.finish());
        self.all.push(block);
        self.open = true;
        changes.push((self.all.len() - 1, Change::Begin));
    }
}

fn same_kind(one: &Block, other: &Block) -> bool {
    matches!((one, other), (Block::Thought(_), Block::Thought(_)) | (Block::Text(_), Block::Text(_)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_begin_grow_and_end_one_after_the_other() {
        let mut blocks = Blocks::default();
        let call = |id: &str| TurnPart::Call { id: id.into(), name: "f".into() };
        let mut changes =
            blocks.take(vec![TurnPart::Thought("a".into()), TurnPart::Thought("b".into()), TurnPart::Text("c".into())]);
        changes.extend(blocks.take(vec![
            TurnPart::Text("d".into()),
            call("1"),
            TurnPart::Arguments("{}".into()),
            call("2"),
        ]));
        changes.extend(blocks.finish());
        let more = |text: &str| Change::More(text.into());
        use Change::{Begin, End};
        let wanted = [
            (0, Begin),
            (0, more("a")),
            (0, more("b")),
            (0, End),
            (1, Begin),
            (1, more("c")),
            (1, more("d")),
            (1, End),
            (2, Begin),
            (2, more("{}")),
            (2, End),
            (3, Begin),
            (3, End),
        ];
        assert_eq!(changes, wanted);
        assert_eq!(blocks.all[..2], [Block::Thought("ab".into()), Block::Text("cd".into())]);
        assert_eq!(blocks.finish(), []);
    }
}
