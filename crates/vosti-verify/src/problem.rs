//! The problem to be proved: one kernel specialisation, and the role and extents of each parameter.
//!
//! Roles and extents come from the annotation beside the kernel and the constants of its text, never from the TTIR, because
//! the TTIR's behaviour is what they are compared with. If a premise needs a constant, extent or role that the contract
//! lacks, that is an error, never a default. An unused constant is an error too. A constant has a meaning only where the
//! shape, a role, an extent or the grid uses it. Read next: `premises.rs`, then [`crate::world`].

use crate::condition::Condition;
use crate::declared::Maker;
use crate::dimension::{self, Scaled};
use crate::premises::{self, Premises, Splits};
use crate::verdict::Obligation;
use serde::Deserialize;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use thiserror::Error;
use vosti_contract::{Const, Constants, Contract, Dtype, FOLDED, Number, Role, Shape, USE};
use vosti_tile::{Kernel, Scalar};

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

    /// The bound that a device exceeds, in words, if its steps have up to `rows` rows of contexts of up to `context` tokens
    /// and its pages have `page` positions. None if proofs cover the device. Each tile has at least one row, and each row
    /// at most one page table.
    pub fn exceeded(rows: usize, context: usize, page: usize) -> Option<String> {
        if page == 0 {
            return Some("pages of no positions, and kernels are proved for pages of one or more".into());
        }
        let (rows, pages) = (rows as i128, context.div_ceil(page) as i128);
        let bounds = [
            ("rows in a step", rows, ROWS.min(TILES)),
            ("tokens of context", context as i128, CONTEXT),
            ("page table entries in a step", rows * pages, TABLE),
        ];
        let (what, has, most) = bounds.into_iter().find(|(_, has, most)| has > most)?;
        Some(format!("{has} {what}, and kernels are proved for up to {most}"))
    }
}

/// Why a contract and a TTIR make no problem.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ProblemError {
    #[error("{kernel}: {source}")]
    Lift { kernel: String, source: vosti_tile::LiftError },
    #[error("{kernel}: parameter `{param}` of the TTIR has no role in the contract")]
    NoRole { kernel: String, param: String },
    #[error("{kernel}: the contract gives a role to `{param}`, which the TTIR does not have")]
    NoParam { kernel: String, param: String },
    #[error("{kernel}: no extents are declared for `{param}`: add them to `[shapes]`")]
    NoExtents { kernel: String, param: String },
    #[error("{kernel}: {place}: {why}")]
    Expression { kernel: String, place: String, why: String },
    #[error("{kernel}: `{param}` holds {found} in the TTIR and {wanted} in the contract")]
    Type { kernel: String, param: String, found: Scalar, wanted: Scalar },
    #[error("{kernel}: {why}")]
    Contract { kernel: String, why: String },
    #[error("{kernel}: the TTIR beside it is not this kernel's: {why}; run `python filetests/make.py {path}`")]
    Untied { kernel: String, why: String, path: String },
    #[error("there is no checked-in TTIR `{stem}`: run `cargo xtask ttir`")]
    NoTtir { stem: String },
}

impl ProblemError {
    /// What is not fulfilled.
    pub fn obligation(&self) -> Obligation {
        match self {
            ProblemError::Lift { .. } => Obligation::Subset,
            _ => Obligation::Contract,
        }
    }
}

/// One extent of a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dim {
    /// The same for every step and every model.
    Const(i128),
    /// A multiple of a dimension, whose value may be any in its range.
    Of(Scaled),
    /// The rows of the launch.
    Rows,
    /// All packed rows of the step, from which a `row_index` gathers the launch's.
    Packed,
    /// The positions that a deployment serves.
    Context,
    /// The cache's pages, each of so many positions.
    Pages(i128),
    /// The row tiles of the step.
    Tiles,
    /// The entries of the page table.
    TableLen,
    /// The splits, each of so many keys, of the longest context that is served.
    Splits(i128),
}

/// A parameter as the contract sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Buffer {
    /// As in the kernel's signature.
    pub name: String,
    /// What the launcher binds to it.
    pub role: Role,
    /// The element type, on which contract and TTIR agree.
    pub elem: Scalar,
    /// Dense, row-major; only the outermost may be symbolic.
    pub dims: Vec<Dim>,
}

/// How many programs there are on a grid axis.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Axis {
    /// The same for every step.
    Const(i128),
    /// `cdiv(of, over)`
    Of {
        /// Times a dimension.
        of: Scaled,
        /// Columns of one program.
        over: i128,
    },
    /// One program for each entry of the tile buffers, padding (tiles without rows) included.
    Tiles,
    /// `cdiv(rows, n)` programs or more, up to as many as [`limit::ROWS`] rows have. A launch that was recorded once
    /// serves every smaller step, and its spare programs must find that they have no rows.
    RowsOver(i128),
    /// `cdiv(rows, over) * times` programs, or more as above: an axis of rows and an axis of `times` programs in one.
    RowsTimes {
        /// Rows of one program.
        over: i128,
        /// Programs for each tile of rows.
        times: i128,
    },
    /// `tiles * n`
    TilesTimes(i128),
    /// `cdiv(length, n)` programs, where every row's position is below `length`; or more, up to as many as
    /// [`limit::CONTEXT`] positions have.
    LengthOver(i128),
    /// One program if `length` is above n, else none or a spare one.
    LengthAbove(i128),
}

/// One kernel, its contract, and all that a proof may use of them.
pub struct Problem {
    /// File stem of the TTIR.
    pub name: String,
    /// The lifted TTIR.
    pub kernel: Kernel,
    /// The shape of the contract: the kind of promise.
    pub shape: Shape,
    /// The parameters of the promise's premises.
    pub premises: Premises,
    /// In signature order.
    pub buffers: Vec<Buffer>,
    /// Programs on each axis of the grid.
    pub grid: Vec<Axis>,
    /// Dimensions and numbers that the kernel takes as parameters, in its order.
    pub numbers: Vec<Number>,
    /// Conditions between dimensions, as the contract's `where` declares them.
    pub conditions: Vec<Condition>,
    /// Constants that the contract uses.
    pub constants: Constants,
    /// Constants that only shape the text: no premise, extent or grid uses them.
    pub text: Constants,
    /// BLAKE3 of the TTIR.
    pub ttir_hash: String,
    /// The contract as it is written: replays read it by themselves.
    pub statement: Statement,
    /// The same text with other values of the dimension [`USE`]. Each is proved.
    pub uses: Uses,
    /// The place of [`USE`] among the numbers, and its value here.
    pub(crate) chosen_use: Option<(usize, i128)>,
}

/// What a text is used for besides, where the contract has the dimension [`USE`].
#[derive(Default)]
pub struct Uses {
    /// Attention over a window.
    pub windowed: Option<Box<Problem>>,
    /// A launch that folds its own splits.
    pub folded: Option<Box<Problem>>,
    /// One that stores their partial results too.
    pub storing: Option<Box<Problem>>,
}

impl Uses {
    /// The same declarations around another kernel.
    fn with_kernel(&self, kernel: &Kernel) -> Uses {
        let of = |problem: &Option<Box<Problem>>| Some(Box::new(problem.as_ref()?.with_kernel(kernel.clone())));
        Uses { windowed: of(&self.windowed), folded: of(&self.folded), storing: of(&self.storing) }
    }
}

/// A contract as it is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Statement {
    /// TOML: shape, grid, where, params, constants, text, shapes.
    pub text: String,
    /// The element type of `in`, `out`, `weight` and the caches where the role names none.
    pub act: Dtype,
}

impl Problem {
    /// The problem of a checked-in TTIR file, by its stem; [`ProblemError::NoTtir`] if there is no such file.
    pub fn of_stem(stem: &str) -> Result<Problem, ProblemError> {
        let text = vosti_kernels::ttir_by_stem(stem).ok_or_else(|| ProblemError::NoTtir { stem: stem.to_string() })?;
        Problem::of_text(stem, text)
    }

    /// The problem of a specialisation's TTIR, under its kernel's contract and declared extents.
    pub fn of_text(stem: &str, text: &str) -> Result<Problem, ProblemError> {
        let wrong = |why: String| ProblemError::Contract { kernel: stem.to_string(), why };
        let name = stem.split('-').next().unwrap_or_default();
        let kernel = vosti_kernels::kernel(name).map_err(|error| wrong(error.to_string()))?;
        let spec = vosti_kernels::parse_stem(stem).ok_or_else(|| wrong("it is no specialisation's name".into()))?;
        let block = vosti_contract::contract::block(kernel.source).map_err(wrong)?;
        let statement = Statement { text: stated(&block.1, &spec.constants), act: spec.act };
        let problem = Problem::new(stem, text, &kernel.contract, &spec.constants, statement)?;
        match problem.kernel.name == name {
            true => Ok(problem),
            false => Err(wrong(format!("the TTIR is of `{}`", problem.kernel.name))),
        }
    }

    /// The problem of a kernel whose annotation says all of its contract.
    pub fn of_statement(name: &str, ttir: &str, statement: Statement) -> Result<Problem, ProblemError> {
        let bad = |why: &str| ProblemError::Contract { kernel: name.to_string(), why: why.to_string() };
        let written = toml::from_str(&statement.text).map_err(|error| bad(error.message()))?;
        Problem::of_written(name, ttir, written, statement)
    }

    pub(crate) fn of_written(
        name: &str,
        ttir: &str,
        written: Written,
        statement: Statement,
    ) -> Result<Problem, ProblemError> {
        let bad = |why: String| ProblemError::Contract { kernel: name.to_string(), why };
        let mut constants = BTreeMap::new();
        for (key, value) in written.constants {
            let value = match value {
                toml::Value::Integer(v) => Const::Int(v),
                toml::Value::Float(v) => Const::Float(v),
                other => return Err(bad(format!("the constant {key} is no number: {other}"))),
            };
            constants.insert(key, value);
        }
        let (mut params, mut numbers) = (vec![], vec![]);
        for (param, text) in &written.params {
            if let Some(number) = Number::parse(param, text) {
                numbers.push(number.map_err(bad)?);
                continue;
            }
            let wrong = || bad(format!("`{text}` is not a role for `{param}`"));
            params.push(vosti_contract::Param::parse(param, text).ok_or_else(wrong)?);
        }
        let Written { shape, grid, conditions, text, shapes, .. } = written;
        let contract = Contract { shape, grid, params, numbers, conditions, text, shapes };
        Problem::new(name, ttir, &contract, &constants, statement)
    }

    fn new(
        name: &str,
        ttir: &str,
        contract: &Contract,
        constants: &Constants,
        statement: Statement,
    ) -> Result<Problem, ProblemError> {
        let fail = |why: String| Err(ProblemError::Contract { kernel: name.to_string(), why });
        if contract.shape == Shape::AttendPart && constants.contains_key(USE) {
            return fail(format!("{USE} is a dimension, and no constant"));
        }
        let case = |value| Problem::case(name, ttir, contract, constants, statement.clone(), value);
        let other = |value| case(Some(value)).map(|problem| Some(Box::new(problem)));
        let number = contract.numbers.iter().find(|number| number.name == USE);
        match number.filter(|_| contract.shape == Shape::AttendPart).map(dimension::range) {
            None => case(None),
            Some(Some((0, 1))) => {
                Ok(Problem { uses: Uses { windowed: other(1)?, ..Uses::default() }, ..case(Some(0))? })
            }
            Some(Some((0, 3))) => {
                let uses = Uses { windowed: other(1)?, folded: other(FOLDED)?, storing: other(3)? };
                Ok(Problem { uses, ..case(Some(0))? })
            }
            Some(_) => fail(format!("{USE} is a choice, and its range is 0..1 or 0..3")),
        }
    }

    /// The problem of one value of [`USE`], where the contract has it.
    fn case(
        name: &str,
        ttir: &str,
        contract: &Contract,
        constants: &Constants,
        statement: Statement,
        chosen: Option<i64>,
    ) -> Result<Problem, ProblemError> {
        let choice: Constants = chosen.map(|value| (USE.to_string(), Const::Int(value))).into_iter().collect();
        let shape = contract.shape_of(&choice);
        let fail = |why: String| Err(ProblemError::Contract { kernel: name.to_string(), why });
        let kernel =
            vosti_tile::lift(ttir).map_err(|source| ProblemError::Lift { kernel: name.to_string(), source })?;
        let bad = |why: String| ProblemError::Contract { kernel: name.to_string(), why };
        let (text, mut constants) = divided(constants, &contract.text).map_err(bad)?;
        let taken = |name: &str| {
            constants.contains_key(name)
                || text.contains_key(name)
                || WORDS.contains(&name)
                || name.contains(['@', '|'])
        };
        let numbers = dimension::numbers(name, &kernel, &contract.numbers, taken)?;
        let chosen_use =
            chosen.and_then(|value| Some((numbers.iter().position(|n| n.name == USE)?, i128::from(value))));
        constants.extend(choice.clone());
        let maker = Maker {
            name,
            act: statement.act,
            constants: &constants,
            numbers: &numbers,
            shapes: &contract.shapes,
            taken: RefCell::new(BTreeSet::new()),
            place: RefCell::default(),
        };
        chosen.and_then(|_| maker.int(USE));
        let params = &contract.params;
        let tokens = params.iter().any(|p| p.role == Role::Tokens);
        let folded = chosen == Some(FOLDED);
        let dimensions = premises::Dimensions {
            vocabulary: maker.premise("V", tokens, limit::SLOTS)?,
            window: maker.premise("WINDOW", shape == Shape::Attend && !folded, limit::CONTEXT)?,
            folded,
        };
        let premises = premises::of(shape, tokens, dimensions, &|name| maker.int(name)).map_err(bad)?;
        let mut buffers = vec![];
        for param in &kernel.params {
            let Some(p) = params.iter().find(|p| p.name == param.name) else {
                return Err(ProblemError::NoRole { kernel: name.to_string(), param: param.name.clone() });
            };
            buffers.push(maker.buffer(shape, p, param.elem)?);
        }
        if let Some(p) = params.iter().find(|p| kernel.param(&p.name).is_none()) {
            return Err(ProblemError::NoParam { kernel: name.to_string(), param: p.name.clone() });
        }
        if let Some(other) = contract.shapes.keys().find(|other| contract.params.iter().all(|p| p.name != **other)) {
            return fail(format!("extents are declared for `{other}`, which is no parameter of the contract"));
        }
        if contract.grid.is_empty() || contract.grid.len() > 3 {
            return fail("a grid has one to three axes".to_string());
        }
        let grouped = maker.number("GROUP").is_some();
        let heads = premises::heads(shape, grouped, &|name| maker.extent(name).ok()).map_err(bad)?;
        premises::check(shape, premises, &buffers, &heads).map_err(bad)?;
        let axes = contract.grid.iter().enumerate();
        let grid = axes.map(|(i, text)| maker.axis(shape, i, text)).collect::<Result<_, _>>()?;
        let conditions = contract.conditions.iter().map(|text| maker.condition(text)).collect::<Result<_, _>>()?;
        if let Some(unused) = constants.keys().find(|name| !maker.taken.borrow().contains(*name)) {
            return fail(format!(
                "no premise of {:?}, no extent and no axis of the grid uses the constant {unused}; if only the kernel's text uses it, declare that: text = [\"{unused}\"]",
                contract.shape
            ));
        }
        choice.keys().for_each(|name| _ = constants.remove(name));
        Ok(Problem {
            name: name.to_string(),
            kernel,
            shape,
            premises,
            buffers,
            grid,
            numbers,
            conditions,
            constants,
            text,
            ttir_hash: vosti_kernels::ttir_hash(ttir).to_hex().to_string(),
            statement,
            uses: Uses::default(),
            chosen_use,
        })
    }

    /// The same declarations around another kernel: what the fuzzer mutates.
    pub fn with_kernel(&self, kernel: Kernel) -> Problem {
        Problem {
            name: self.name.clone(),
            uses: self.uses.with_kernel(&kernel),
            chosen_use: self.chosen_use,
            kernel,
            shape: self.shape,
            premises: self.premises,
            buffers: self.buffers.clone(),
            grid: self.grid.clone(),
            numbers: self.numbers.clone(),
            conditions: self.conditions.clone(),
            constants: self.constants.clone(),
            text: self.text.clone(),
            ttir_hash: self.ttir_hash.clone(),
            statement: self.statement.clone(),
        }
    }

    /// An integer constant that the contract uses.
    pub fn int(&self, name: &str) -> Option<i128> {
        match self.constants.get(name) {
            Some(Const::Int(v)) => Some(i128::from(*v)),
            _ => None,
        }
    }

    /// How the keys are split, if they are.
    pub fn splits(&self) -> Option<Splits> {
        self.premises.splits()
    }

    /// A buffer's extents, each with the name of the dimension that it is made of: another contract may have the dimension at
    /// another place.
    pub(crate) fn extents(&self, buffer: &Buffer) -> Vec<(Dim, &str)> {
        let named = |dim: &Dim| match dim {
            Dim::Of(Scaled { times, number }) => {
                (Dim::Of(Scaled { times: *times, number: 0 }), &self.numbers[*number].name[..])
            }
            other => (*other, ""),
        };
        buffer.dims.iter().map(named).collect()
    }

    /// The place of the buffer with this role.
    pub fn role(&self, role: Role) -> Option<usize> {
        self.buffers.iter().position(|b| b.role == role)
    }
}

/// An annotation that states a whole contract, its constants included.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Written {
    shape: Shape,
    grid: Vec<String>,
    params: BTreeMap<String, String>,
    #[serde(default, rename = "where")]
    conditions: Vec<String>,
    #[serde(default)]
    text: Vec<String>,
    #[serde(default)]
    constants: BTreeMap<String, toml::Value>,
    #[serde(default)]
    shapes: BTreeMap<String, Vec<String>>,
}

/// The annotation with the constants of one text.
fn stated(annotation: &str, constants: &Constants) -> String {
    let mut all = format!("{annotation}\n[constants]\n");
    constants.iter().for_each(|(name, value)| all += &format!("{name} = {value}\n"));
    all
}

/// Words of extents and grids.
const WORDS: [&str; 7] = ["rows", "packed", "context", "splits", "pages", "tiles", "length"];

/// The constants that only shape the text, and the others, which the contract uses.
fn divided(constants: &Constants, text: &[String]) -> Result<(Constants, Constants), String> {
    if let Some(word) = constants.keys().find(|name| WORDS.contains(&name.as_str())) {
        return Err(format!("`{word}` is a word of contracts, and no name of a constant"));
    }
    for (i, name) in text.iter().enumerate() {
        if !constants.contains_key(name) || text[..i].contains(name) {
            return Err(format!("`text` names {name} twice, or there is no such constant"));
        }
    }
    Ok(constants.clone().into_iter().partition(|(name, _)| text.contains(name)))
}
