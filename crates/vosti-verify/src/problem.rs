//! What is to be proved: one kernel specialisation, the role of each parameter, and its geometry.
//!
//! The contract's shape and roles come from the annotation beside the kernel; extents from
//! `geometry.toml` or, for kernels outside the inventory, from a `[shapes]` table in the annotation.
//! Nothing here is read off the TTIR: what the kernel does is compared with what is declared.

use std::collections::BTreeMap;
use std::sync::LazyLock;
use thiserror::Error;
use vosti_kernels::{Const, Contract, Role, Shape};
use vosti_tile::Kernel;

/// Bounds that the core or the launcher enforce; every proof is relative to them.
pub mod limit {
    /// Packed rows of a step.
    pub const ROWS: i128 = 1 << 20;
    /// Positions of a request, and rows of the rope tables.
    pub const CONTEXT: i128 = 1 << 22;
    /// Cache slots of a group: ids are `i32`.
    pub const SLOTS: i128 = (1 << 31) - 1;
    /// Entries of the flat page table buffer.
    pub const TABLE: i128 = 1 << 28;
    /// Query tiles of a step.
    pub const TILES: i128 = 1 << 20;

    /// What no proof covers, in words, of a device whose steps have up to `rows` rows of contexts of up to `context`
    /// tokens. A tile has a row, and a row at most one page table.
    pub fn exceeded(rows: usize, context: usize, page: usize) -> Option<String> {
        let (rows, pages) = (rows as i128, context.div_ceil(page.max(1)) as i128);
        let bounds = [
            ("rows in a step", rows, ROWS.min(TILES)),
            ("tokens of context", context as i128, CONTEXT),
            ("page table entries in a step", rows * pages, TABLE),
        ];
        let (what, has, most) = bounds.into_iter().find(|(_, has, most)| has > most)?;
        Some(format!("{has} {what}, and kernels are proved for up to {most}"))
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ProblemError {
    #[error("{kernel}: {source}")]
    Lift { kernel: String, source: vosti_tile::LiftError },
    #[error("{kernel}: parameter `{param}` of the TTIR has no role in the contract")]
    NoRole { kernel: String, param: String },
    #[error("{kernel}: the contract gives a role to `{param}`, which the TTIR does not have")]
    NoParam { kernel: String, param: String },
    #[error("{kernel}: no extents are declared for `{param}`: add them to geometry.toml or `[shapes]`")]
    NoExtents { kernel: String, param: String },
    #[error("{kernel}: `{text}` is not an extent ({why})")]
    Extent { kernel: String, text: String, why: String },
    #[error("{kernel}: {why}")]
    Contract { kernel: String, why: String },
    #[error("there is no checked-in TTIR `{stem}`: run `cargo xtask ttir`")]
    NoTtir { stem: String },
}

/// One extent of a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dim {
    Const(i128),
    Rows,
    Packed,
    Context,
    Pages,
    Tiles,
    TableLen,
    /// Splits of the longest context that is served.
    Splits,
}

/// A parameter as the contract sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Buffer {
    pub name: String,
    pub role: Role,
    /// Dense, row-major; only the outermost may be symbolic.
    pub dims: Vec<Dim>,
}

/// How many programs there are on a grid axis.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Axis {
    Const(i128),
    /// As many as tile buffers have entries: those without rows are padding.
    Tiles,
    /// `cdiv(rows, n)`, or more, up to what [`limit::ROWS`] rows have: a launch that was recorded once serves
    /// every smaller step, and its programs to spare must find that they have no rows.
    RowsOver(i128),
    /// `cdiv(rows, over) * times`: an axis of rows and one of `times` programs as one; or more, as above.
    RowsTimes {
        over: i128,
        times: i128,
    },
    /// `tiles * n`
    TilesTimes(i128),
    /// `cdiv(length, n)`, where no row's position is `length` or more; or more, up to what [`limit::CONTEXT`] positions
    /// have.
    LengthOver(i128),
    /// One if `length` is above n, else none; or one to spare.
    LengthAbove(i128),
}

/// Splits of the keys: split s begins at position s * size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Splits {
    pub size: i128,
    /// Rows that a step may have: scratch has as many for each split.
    pub rows: i128,
}

pub struct Problem {
    /// File stem of the TTIR.
    pub name: String,
    pub kernel: Kernel,
    pub shape: Shape,
    pub buffers: Vec<Buffer>,
    pub grid: Vec<Axis>,
    pub constants: BTreeMap<String, Const>,
    pub ttir_hash: String,
    /// The text, for replays and messages.
    pub ttir: String,
}

type Extents = BTreeMap<String, Vec<String>>;

static GEOMETRY: LazyLock<BTreeMap<String, Extents>> = LazyLock::new(|| {
    // The file is part of this crate, and the tests read it.
    toml::from_str(include_str!("geometry.toml")).unwrap_or_else(|error| panic!("{error}"))
});

/// Extents that `geometry.toml` declares for a kernel.
pub fn declared(kernel: &str) -> Option<&'static Extents> {
    GEOMETRY.get(kernel)
}

impl Problem {
    /// The problem of a checked-in TTIR file, by its stem.
    pub fn of_stem(stem: &str) -> Result<Problem, ProblemError> {
        let text = vosti_kernels::ttir_by_stem(stem).ok_or_else(|| ProblemError::NoTtir { stem: stem.to_string() })?;
        Problem::of_text(stem, text)
    }

    /// The problem of a specialisation's TTIR, under its kernel's contract and declared extents.
    pub fn of_text(stem: &str, text: &str) -> Result<Problem, ProblemError> {
        let wrong = |why: String| ProblemError::Contract { kernel: stem.to_string(), why };
        let name = stem.split('-').next().unwrap_or_default();
        vosti_kernels::kernel(name).map_err(|error| wrong(error.to_string()))?;
        let spec = vosti_kernels::parse_stem(stem).ok_or_else(|| wrong("it is no specialisation's name".into()))?;
        let contract = vosti_kernels::contract(&spec.kernel).map_err(|error| wrong(error.to_string()))?.of(&spec);
        let none = BTreeMap::new();
        let extents = declared(&spec.kernel).unwrap_or(&none);
        Problem::new(stem, text, &contract, &spec.constants, extents)
    }

    pub fn new(
        name: &str,
        ttir: &str,
        contract: &Contract,
        constants: &BTreeMap<String, Const>,
        extents: &Extents,
    ) -> Result<Problem, ProblemError> {
        let kernel =
            vosti_tile::lift(ttir).map_err(|source| ProblemError::Lift { kernel: name.to_string(), source })?;
        let maker = Maker { name, constants, extents };
        let mut buffers = vec![];
        for param in &kernel.params {
            let Some(p) = contract.params.iter().find(|p| p.name == param.name) else {
                return Err(ProblemError::NoRole { kernel: name.to_string(), param: param.name.clone() });
            };
            buffers.push(maker.buffer(p)?);
        }
        for p in &contract.params {
            if kernel.param(&p.name).is_none() {
                return Err(ProblemError::NoParam { kernel: name.to_string(), param: p.name.clone() });
            }
        }
        if contract.grid.is_empty() || contract.grid.len() > 3 {
            let why = "a grid has one to three axes".to_string();
            return Err(ProblemError::Contract { kernel: name.to_string(), why });
        }
        let grid = contract.grid.iter().map(|g| maker.axis(g)).collect::<Result<_, _>>()?;
        let problem = Problem {
            name: name.to_string(),
            kernel,
            shape: contract.shape,
            buffers,
            grid,
            constants: constants.clone(),
            ttir_hash: vosti_kernels::ttir_hash(ttir).to_hex().to_string(),
            ttir: ttir.to_string(),
        };
        problem.check_roles()?;
        Ok(problem)
    }

    /// The same declarations around another kernel: what the fuzzer mutates.
    pub fn with_kernel(&self, kernel: Kernel) -> Problem {
        Problem {
            name: self.name.clone(),
            kernel,
            shape: self.shape,
            buffers: self.buffers.clone(),
            grid: self.grid.clone(),
            constants: self.constants.clone(),
            ttir_hash: self.ttir_hash.clone(),
            ttir: self.ttir.clone(),
        }
    }

    pub fn int(&self, name: &str) -> Option<i128> {
        match self.constants.get(name) {
            Some(Const::Int(v)) => Some(i128::from(*v)),
            _ => None,
        }
    }

    /// How the keys are split, if they are.
    pub fn splits(&self) -> Option<Splits> {
        let size = self.int("SPLIT").filter(|size| *size > 0)?;
        let rows = self.int("ROWS").filter(|rows| *rows > 0)?;
        Some(Splits { size, rows })
    }

    pub fn role(&self, role: Role) -> Option<usize> {
        self.buffers.iter().position(|b| b.role == role)
    }

    /// The roles that a shape needs, and constants its premises are made of.
    fn check_roles(&self) -> Result<(), ProblemError> {
        let (roles, constants): (&[Role], &[&str]) = match self.shape {
            Shape::Rowwise => (&[Role::Rows, Role::Out(0)], &[]),
            Shape::StoreKv => (&[Role::Rows, Role::Slots, Role::CacheK, Role::CacheV], &["KV_HEADS", "PAGE", "D"]),
            Shape::Attend => (
                &[
                    Role::In(0),
                    Role::Out(0),
                    Role::PageTable,
                    Role::TileTable,
                    Role::TileRow,
                    Role::TileRows,
                    Role::TilePos,
                    Role::CacheK,
                    Role::CacheV,
                ],
                &["HEADS", "KV_HEADS", "PAGE", "D", "WINDOW", "BQ"],
            ),
            Shape::AttendPart => (
                &[
                    Role::In(0),
                    Role::Out(0),
                    Role::Scratch(0),
                    Role::PageTable,
                    Role::TileTable,
                    Role::TileRow,
                    Role::TileRows,
                    Role::TilePos,
                    Role::CacheK,
                    Role::CacheV,
                ],
                &["HEADS", "KV_HEADS", "PAGE", "D", "SPLIT", "ROWS", "BQ"],
            ),
            Shape::AttendCombine => (
                &[Role::Scratch(0), Role::Out(0), Role::TileRow, Role::TileRows, Role::TilePos],
                &["HEADS", "D", "SPLIT", "ROWS", "BQ"],
            ),
        };
        let fail = |why: String| Err(ProblemError::Contract { kernel: self.name.clone(), why });
        for role in roles {
            if self.role(*role).is_none() {
                return fail(format!("the shape {:?} needs the role {role:?}", self.shape));
            }
        }
        for name in constants {
            if self.int(name).is_none_or(|v| v < 0) {
                return fail(format!("the shape {:?} needs the constant {name}", self.shape));
            }
        }
        let split = matches!(self.shape, Shape::AttendPart | Shape::AttendCombine);
        if split && (self.splits().is_none() || self.int("WINDOW").is_some_and(|window| window > 0)) {
            return fail("keys are split where there is no window, by a SPLIT and for a number of ROWS".into());
        }
        self.check_extents()
    }

    /// What a role's rows are: per row of the launch, gathered, or the same in every step.
    fn check_extents(&self) -> Result<(), ProblemError> {
        let gathers = self.role(Role::RowIndex).is_some();
        for (i, b) in self.buffers.iter().enumerate() {
            let (fits, wants) = match (b.role, b.dims[0]) {
                (Role::In(_), Dim::Packed) => (gathers, "`packed` rows, which need a row_index"),
                (Role::In(_), outer) => (outer == Dim::Rows && !gathers, "`rows`, or `packed` where rows are gathered"),
                (Role::Out(_), outer) => (outer == Dim::Rows, "`rows`"),
                (Role::Scratch(_), outer) => {
                    let rows = self.splits().map(|splits| Dim::Const(splits.rows));
                    let fits = outer == Dim::Splits && b.dims.get(1).copied() == rows;
                    (fits, "`splits`, and the next ROWS")
                }
                (Role::Weight(_), outer) => (matches!(outer, Dim::Const(_) | Dim::Context), "what no step changes"),
                _ => (true, ""),
            };
            let why = match self.buffers[..i].iter().find(|other| other.role == b.role) {
                Some(other) => format!("`{}` and `{}` have one role, {:?}", other.name, b.name, b.role),
                None if fits => continue,
                None => format!("the outermost extent of `{}`, whose role is {:?}, must be {wants}", b.name, b.role),
            };
            return Err(ProblemError::Contract { kernel: self.name.clone(), why });
        }
        Ok(())
    }
}

struct Maker<'a> {
    name: &'a str,
    constants: &'a BTreeMap<String, Const>,
    extents: &'a Extents,
}

impl Maker<'_> {
    fn value(&self, text: &str) -> Result<i128, ProblemError> {
        let lookup = |name: &str| match self.constants.get(name) {
            Some(Const::Int(v)) => Some(*v),
            _ => None,
        };
        let bad = |why: String| ProblemError::Extent { kernel: self.name.to_string(), text: text.to_string(), why };
        match vosti_kernels::expr::eval(text, &lookup) {
            Ok(v) if v > 0 => Ok(i128::from(v)),
            Ok(v) => Err(bad(format!("{v} is not positive"))),
            Err(error) => Err(bad(error.to_string())),
        }
    }

    fn axis(&self, text: &str) -> Result<Axis, ProblemError> {
        let text = text.trim();
        // Two axes as one: the other axis first or last, of a number of programs that no step changes.
        for (at, _) in text.match_indices('*') {
            let times = self.value(&text[at + 1..]);
            match (self.axis_of_rows(text[..at].trim())?, times) {
                (Some(Axis::RowsOver(over)), Ok(times)) => return Ok(Axis::RowsTimes { over, times }),
                (Some(Axis::Tiles), Ok(times)) => return Ok(Axis::TilesTimes(times)),
                _ => {}
            }
        }
        if let Some(axis) = self.axis_of_rows(text)? {
            return Ok(axis);
        }
        let over = |what: &str| text.strip_prefix(what)?.strip_prefix(',')?.strip_suffix(')');
        match (over("cdiv(length"), over("above(length")) {
            (Some(n), _) => Ok(Axis::LengthOver(self.value(n)?)),
            (_, Some(n)) => Ok(Axis::LengthAbove(self.value(n)?)),
            _ => Ok(Axis::Const(self.value(text)?)),
        }
    }

    /// An axis of rows or tiles alone.
    fn axis_of_rows(&self, text: &str) -> Result<Option<Axis>, ProblemError> {
        let over = text.strip_prefix("cdiv(rows").and_then(|t| t.strip_prefix(',')?.strip_suffix(')'));
        Ok(match (text, over) {
            ("tiles", _) => Some(Axis::Tiles),
            ("rows", _) => Some(Axis::RowsOver(1)),
            (_, Some(n)) if !n.contains(['(', ')']) => Some(Axis::RowsOver(self.value(n)?)),
            _ => None,
        })
    }

    fn buffer(&self, p: &vosti_kernels::Param) -> Result<Buffer, ProblemError> {
        let dims = match p.role {
            Role::Rows => vec![Dim::Const(1)],
            Role::Tokens | Role::Positions | Role::RowIndex | Role::Slots => vec![Dim::Rows],
            Role::PageTable => vec![Dim::TableLen],
            Role::TileTable | Role::TileRow | Role::TileRows | Role::TilePos => vec![Dim::Tiles],
            Role::CacheK | Role::CacheV => vec![
                Dim::Pages,
                Dim::Const(self.value("KV_HEADS")?),
                Dim::Const(self.value("PAGE")?),
                Dim::Const(self.value("D")?),
            ],
            Role::In(_) | Role::Out(_) | Role::Weight(_) | Role::Scratch(_) => self.declared(&p.name)?,
        };
        Ok(Buffer { name: p.name.clone(), role: p.role, dims })
    }

    fn declared(&self, param: &str) -> Result<Vec<Dim>, ProblemError> {
        let Some(texts) = self.extents.get(param).filter(|t| !t.is_empty()) else {
            return Err(ProblemError::NoExtents { kernel: self.name.to_string(), param: param.to_string() });
        };
        let mut dims = vec![];
        for (i, text) in texts.iter().enumerate() {
            dims.push(match (i, text.as_str()) {
                (0, "rows") => Dim::Rows,
                (0, "packed") => Dim::Packed,
                (0, "context") => Dim::Context,
                (0, "splits") => Dim::Splits,
                _ => Dim::Const(self.value(text)?),
            });
        }
        Ok(dims)
    }
}
