//! Contracts: the shape of a kernel's promise and the role of each of its parameters.
//!
//! Written in TOML between `# /// contract` and `# ///` above the kernel. See ARCHITECTURE.md.

/// The four shapes the engine's proof relies on, and the composition of several launches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// Output row t depends on input row t, the weights and (if a role says so) the position.
    Rowwise,
    /// Exactly the cells `cache[slot[t]]` are written.
    StoreKv,
    /// Paged causal attention, full or windowed.
    Attend,
}

/// What the launcher binds to a parameter. All per-step metadata are `i32` buffers: no kernel takes a
/// scalar that changes from step to step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// The op's i-th input row buffer, `[rows, width]`.
    In(usize),
    /// The op's i-th output row buffer, `[rows, width]`.
    Out(usize),
    /// The launch's i-th weight.
    Weight(usize),
    /// `[1]`: how many rows this launch has (packed rows, or selected rows for a `Selected` op).
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
    /// `[tiles]`: how many rows the tile has, at most BQ; 0 for padding.
    TileRows,
    /// `[tiles]`: logical position of the tile's first row.
    TilePos,
    /// `[pages, kv_heads, PAGE, head_dim]`: this layer's keys.
    CacheK,
    /// As [`Role::CacheK`]: this layer's values.
    CacheV,
}

/// One kernel parameter, in signature order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Param {
    pub name: String,
    pub role: Role,
}

/// A kernel's contract.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Contract {
    pub shape: Shape,
    /// One expression per grid axis over constants and `rows`/`tiles`, e.g. `"cdiv(rows, BM)"`.
    pub grid: Vec<String>,
    pub params: Vec<Param>,
}
