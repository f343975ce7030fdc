//! The roles of a kernel's parameters, and what is known of each.
//!
//! [`Role::fact`] is the one table: the role's word in a contract, its element type, and its extents. What a role is bound to is
//! its user's: buffers of a device in `vosti-wiring`, terms of a proof in `vosti-verify`, random numbers in the tools that try
//! kernels. Read next: [`mod@crate::contract`].

use crate::dtype::Dtype;
use vosti_core::{GroupDecl, PartDecl};

/// What the launcher binds to a parameter. All metadata of a step are `i32` buffers, because no kernel takes
/// a scalar that changes from step to step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// The op's i-th input row buffer, `[rows, width]`.
    In(usize),
    /// The op's i-th output row buffer, `[rows, width]`.
    Out(usize),
    /// The launch's i-th weight.
    Weight(usize),
    /// `[1]`: the number of rows of this launch (packed rows, or selected rows for a `Selected` op).
    Rows,
    /// `[rows]`: token ids.
    Tokens,
    /// `[rows]`: logical position of each row.
    Positions,
    /// `[selected]`: packed row index of each selected row.
    RowIndex,
    /// `[rows]`: cache slot (page * PAGE + offset) that each row's KV goes to, in the op's cache group.
    Slots,
    /// Flat page tables of the op's cache group; entries are page numbers.
    PageTable,
    /// `[tiles]`: offset in `PageTable` of the page table of the query tile's request; -1 for padding.
    TileTable,
    /// `[tiles]`: first packed row of the query tile. A tile's rows belong to one request.
    TileRow,
    /// `[tiles]`: the number of rows of the tile, at most BQ; 0 for padding.
    TileRows,
    /// `[tiles]`: logical position of the tile's first row.
    TilePos,
    /// `[pages, kv_heads, PAGE, head_dim]`: this layer's keys.
    CacheK,
    /// As [`Role::CacheK`]: this layer's values.
    CacheV,
    /// `[splits, ROWS, width]`: the op's i-th scratch, which passes numbers from one of its launches to the next.
    Scratch(usize),
    /// `[pages, .., PAGE, width]`: the i-th part of this layer's entries, one a position. Keys and values are such parts.
    Entry(usize),
    /// `[pages, ..]`: the i-th part of the state at a page's end, which belongs to the entry at the page's last position.
    State(usize),
}

/// What a contract may say of a role's element type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Elem {
    /// Any: that of the activations where it names none.
    Any,
    /// Nothing: it is that of the activations.
    Activations,
    /// Nothing else than FP32, in words or not.
    F32,
    /// Nothing: it is `i32`.
    I32,
}

/// The extents of a role's buffer, outermost first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extents {
    /// Those that the contract declares.
    Declared,
    /// `[1]`
    One,
    /// `[rows]`
    Rows,
    /// As long as the step's page tables.
    PageTables,
    /// `[tiles]`
    Tiles,
    /// `[pages, kv_heads, PAGE, head_dim]`
    Cache,
}

/// A line of the table of roles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Fact {
    /// Its word in a contract, without its number.
    word: &'static str,
    elem: Elem,
    extents: Extents,
}

/// A role of each kind, with the number 0 where there are several.
const ALL: [Role; 18] = [
    Role::In(0),
    Role::Out(0),
    Role::Weight(0),
    Role::Scratch(0),
    Role::Entry(0),
    Role::State(0),
    Role::CacheK,
    Role::CacheV,
    Role::Rows,
    Role::Tokens,
    Role::Positions,
    Role::RowIndex,
    Role::Slots,
    Role::PageTable,
    Role::TileTable,
    Role::TileRow,
    Role::TileRows,
    Role::TilePos,
];

impl Role {
    /// The table.
    fn fact(self) -> Fact {
        let of = |word, elem, extents| Fact { word, elem, extents };
        match self {
            Role::In(_) => of("in", Elem::Any, Extents::Declared),
            Role::Out(_) => of("out", Elem::Any, Extents::Declared),
            Role::Weight(_) => of("weight", Elem::Any, Extents::Declared),
            Role::Scratch(_) => of("scratch", Elem::F32, Extents::Declared),
            Role::Entry(_) => of("entry", Elem::F32, Extents::Declared),
            Role::State(_) => of("state", Elem::F32, Extents::Declared),
            Role::CacheK => of("cache_k", Elem::Activations, Extents::Cache),
            Role::CacheV => of("cache_v", Elem::Activations, Extents::Cache),
            Role::Rows => of("rows", Elem::I32, Extents::One),
            Role::Tokens => of("tokens", Elem::I32, Extents::Rows),
            Role::Positions => of("positions", Elem::I32, Extents::Rows),
            Role::RowIndex => of("row_index", Elem::I32, Extents::Rows),
            Role::Slots => of("slots", Elem::I32, Extents::Rows),
            Role::PageTable => of("page_table", Elem::I32, Extents::PageTables),
            Role::TileTable => of("tile_table", Elem::I32, Extents::Tiles),
            Role::TileRow => of("tile_row", Elem::I32, Extents::Tiles),
            Role::TileRows => of("tile_rows", Elem::I32, Extents::Tiles),
            Role::TilePos => of("tile_pos", Elem::I32, Extents::Tiles),
        }
    }

    /// Its word in a contract, without its number.
    pub fn word(self) -> &'static str {
        self.fact().word
    }

    /// The extents of its buffer.
    pub fn extents(self) -> Extents {
        self.fact().extents
    }

    /// Whether its buffer is a part of a layer's pages, which stay from step to step.
    pub fn is_cache(self) -> bool {
        matches!(self, Role::CacheK | Role::CacheV | Role::Entry(_) | Role::State(_))
    }

    /// The element type of a parameter of this role whose contract names `written`, or none; an inner None is that of the
    /// activations. None if the contract may not say so.
    pub fn elem(self, written: Option<Dtype>) -> Option<Option<Dtype>> {
        match (self.fact().elem, written) {
            (Elem::Any, written) => Some(written),
            (Elem::Activations, None) => Some(None),
            (Elem::F32, None | Some(Dtype::F32)) => Some(Some(Dtype::F32)),
            (Elem::I32, None) => Some(Some(Dtype::I32)),
            _ => None,
        }
    }

    /// Its number, where several parameters may have roles of its kind.
    fn number(&mut self) -> Option<&mut usize> {
        match self {
            Role::In(i) | Role::Out(i) | Role::Weight(i) | Role::Scratch(i) | Role::Entry(i) | Role::State(i) => {
                Some(i)
            }
            _ => None,
        }
    }

    /// Parses `weight 2` or `tile_row`; None if the text is no role.
    pub fn parse(text: &str) -> Option<Role> {
        let (word, number) = text.split_once(' ').map_or((text, None), |(word, number)| (word, Some(number)));
        let mut role = ALL.into_iter().find(|role| role.word() == word)?;
        match (role.number(), number) {
            (Some(own), Some(number)) => *own = number.trim().parse().ok()?,
            (None, None) => {}
            _ => return None,
        }
        Some(role)
    }

    /// The part of a layer's pages that a parameter of this role is bound to, with its number among all parts; those of entries
    /// come first. None if the group has no such part, or if the role is of no cache. Attention's keys are the first part.
    pub fn part(self, group: &GroupDecl) -> Option<(usize, PartDecl)> {
        let (list, i) = match self {
            Role::CacheK => (&group.entry, 0),
            Role::CacheV => (&group.entry, 1),
            Role::Entry(i) => (&group.entry, i),
            Role::State(i) => (&group.state, i),
            _ => return None,
        };
        let before = if let Role::State(_) = self { group.entry.len() } else { 0 };
        list.get(i).map(|part| (before + i, *part))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_role_is_its_word() {
        for role in ALL {
            let numbered = role.clone().number().is_some();
            let text = if numbered { format!("{} 0", role.word()) } else { role.word().to_string() };
            assert_eq!(Role::parse(&text), Some(role));
            let other = if numbered { role.word().to_string() } else { format!("{} 0", role.word()) };
            assert_eq!(Role::parse(&other), None, "{other}");
        }
        assert_eq!(Role::parse("weight 12"), Some(Role::Weight(12)));
        assert_eq!(["", "input 0", "in -1", "in x", "Rows"].map(Role::parse), [None; 5]);
    }

    #[test]
    fn a_contract_names_an_element_type_where_it_is_open() {
        let (bf16, f32, i32) = (Some(Dtype::Bf16), Some(Dtype::F32), Some(Dtype::I32));
        assert_eq!([None, bf16, i32].map(|written| Role::In(1).elem(written)), [Some(None), Some(bf16), Some(i32)]);
        assert_eq!([None, f32, bf16].map(|written| Role::State(0).elem(written)), [Some(f32), Some(f32), None]);
        assert_eq!([None, i32].map(|written| Role::Rows.elem(written)), [Some(i32), None]);
        assert_eq!([None, bf16].map(|written| Role::CacheK.elem(written)), [Some(None), None]);
    }
}
