//! What kernels of others have and our contracts do not know, as text that the verifier reads: each step keeps what the
//! kernel computes.
//!
//! The verifier's rules are for kernels of Vosti: the row count is a buffer, strides are extents, a launch may have spare
//! programs. A kernel of others is brought to that form, and only texts that the steps understand are changed; what is left
//! as it was, the lifting refuses. No step looks at a contract to decide whether a kernel keeps it. Read next:
//! [`crate::contract`], which says what a launch gives.

mod floats;
mod flow;
mod foreign;
mod hints;
mod remainder;
mod sums;
mod text;
mod tiles;

pub(crate) use text::{Line, Module, names, renamed};
pub(crate) use tiles::{Count, Of, Tiles, Turn};

use crate::report::Premise;
use std::collections::{BTreeMap, BTreeSet};

/// What a launch gives to a kernel, and what of it the text must be brought to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Launch {
    /// The parameter with the number of rows, if there is one.
    pub rows: Option<Rows>,
    /// Integer parameters that are products of other parameters and numbers.
    pub equal: Vec<(String, Vec<Factor>)>,
    /// Axes of rows.
    pub axes: Vec<(usize, Programs)>,
    /// An axis that numbers tiles.
    pub tiles: Option<Tiles>,
}

/// How a kernel is told the number of rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Rows {
    Integer(String),
    Buffer(String),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Factor {
    Parameter(String),
    Number(i64),
}

/// The programs on an axis of rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Programs {
    /// As many as `cdiv(rows, over) * times`, and no more.
    Exactly { over: i64, times: i64 },
    /// Any number: each takes the rows `program_id`, `program_id + num_programs` and so on.
    InTurn,
}

/// The parameter for the number of rows that is added where a kernel has none.
pub(crate) const ROWS: &str = "rows_of_the_launch";
/// The number of rows itself.
const COUNT: &str = "vosti.rows";

/// Why a kernel is not brought to that form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Stop {
    /// The contract does not fit the kernel.
    Contract(String),
    /// The kernel does what no step understands, at this line of its file.
    Kernel(String, Option<u32>),
}

impl From<String> for Stop {
    fn from(why: String) -> Stop {
        Stop::Contract(why)
    }
}

/// The kernel with zeros in the lanes that a load does not read where the kernel says nothing of them; None if it has no such load.
/// That is another kernel than the TTIR's, where such a lane has any value: [`Premise::UnreadLanesZero`] says of what it is.
pub(crate) fn zeroed(lines: &[Line]) -> Option<Vec<Line>> {
    hints::zeroed(lines)
}

/// A kernel in the form that the verifier reads.
pub(crate) struct Normal {
    pub text: String,
    /// What must hold for the two to be the same.
    pub premises: BTreeSet<Premise>,
    /// The function that stands for each that the form does not have.
    pub stand_ins: BTreeMap<String, &'static str>,
}

/// Brings a kernel to the form that the verifier reads.
pub(crate) fn normal(lines: Vec<Line>, launch: &Launch) -> Result<Normal, Stop> {
    let mut premises = BTreeSet::new();
    let mut lines = hints::removed(lines, &mut premises);
    let stand_ins = foreign::stood_for(&mut lines, &mut premises);
    let unread = || Stop::Kernel("its TTIR has another form than Triton prints".into(), None);
    let mut module = Module::read(lines).ok_or_else(unread)?;
    if module.has(ROWS) || module.body.iter().any(|line| line.text.contains("%vosti.")) {
        return Err(Stop::Kernel(format!("`{ROWS}` and names with `vosti.` are taken"), None));
    }
    flow::structured(&mut module);
    for (axis, programs) in &launch.axes {
        if *programs == Programs::InTurn {
            let Some(Rows::Integer(rows)) = &launch.rows else {
                return Err(Stop::Contract(
                    "rows are taken in turn up to an integer parameter, whose role is `rows`".into(),
                ));
            };
            flow::one_turn(&mut module, *axis, rows)?;
        }
    }
    if let Some(tiles) = &launch.tiles {
        tiles::apart(&mut module, tiles)?;
    }
    for (name, factors) in &launch.equal {
        product(&mut module, name, factors)?;
    }
    let exact: Vec<_> = launch.axes.iter().filter(|(_, programs)| *programs != Programs::InTurn).collect();
    rows(&mut module, launch.rows.as_ref())?;
    for (axis, programs) in exact {
        if let Programs::Exactly { over, times } = programs {
            flow::guarded(&mut module, *axis, *over, *times, COUNT)?;
        }
    }
    module.drop_uncalled();
    Ok(Normal { text: module.print(), premises, stand_ins })
}

/// Replaces an integer parameter by a product.
fn product(module: &mut Module, name: &str, factors: &[Factor]) -> Result<(), String> {
    take(module, name)?;
    let mut lines = vec![];
    let mut value: Option<String> = None;
    for (i, factor) in factors.iter().enumerate() {
        let next = match factor {
            Factor::Parameter(other) => match module.parameters.iter().find(|(own, _)| own == other) {
                Some((_, ty)) if ty == "i32" => other.clone(),
                _ => return Err(format!("`{name}` is a product of integer parameters, and `{other}` is none")),
            },
            Factor::Number(n) => {
                let next = format!("vosti.{name}.factor{i}");
                lines.push(Line::new(format!("    %{next} = arith.constant {n} : i32"), None));
                next
            }
        };
        value = Some(match value {
            None => next,
            Some(before) => {
                let all = format!("vosti.{name}.product{i}");
                lines.push(Line::new(format!("    %{all} = arith.muli %{before}, %{next} : i32"), None));
                all
            }
        });
    }
    let Some(value) = value else { return Err(format!("`{name}` is equal to nothing")) };
    module.rename(name, &value);
    module.body.splice(0..0, lines);
    Ok(())
}

/// Takes an integer parameter out of the list.
fn take(module: &mut Module, name: &str) -> Result<(), String> {
    match module.parameters.iter().position(|(own, _)| own == name) {
        Some(at) if module.parameters[at].1 == "i32" => {
            module.parameters.remove(at);
            Ok(())
        }
        // Triton leaves out no parameter, so the contract names another one.
        _ => Err(format!("`{name}` is no integer parameter")),
    }
}

/// Makes the number of rows a value that is read from a buffer.
fn rows(module: &mut Module, given: Option<&Rows>) -> Result<(), String> {
    let name = match given {
        Some(Rows::Integer(name)) => {
            let Some(parameter) = module.parameters.iter_mut().find(|(own, ty)| own == name && ty == "i32") else {
                return Err(format!("`{name}` is no integer parameter"));
            };
            parameter.1 = "!tt.ptr<i32>".into();
            module.rename(name, COUNT);
            name.clone()
        }
        Some(Rows::Buffer(name)) => name.clone(),
        None => {
            module.parameters.push((ROWS.into(), "!tt.ptr<i32>".into()));
            ROWS.into()
        }
    };
    module.body.insert(0, Line::new(format!("    %{COUNT} = tt.load %{name} : !tt.ptr<i32>"), None));
    Ok(())
}
