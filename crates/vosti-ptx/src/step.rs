//! The rows of a step, and the numbers that tell a kernel about them: page tables, query tiles.
//!
//! Read next: [`crate::case`], which draws a step at random, and [`crate::counted`], which counts in one that is given.

use crate::descriptor::{Descriptor, Map};
use vosti_contract::expr::eval;
use vosti_contract::{Const, Contract, Param, Role, Shape};
use vosti_kernels::{KernelError, Spec};

/// The rows of a step, and what attention reads of it.
pub(crate) struct Step {
    pub rows: usize,
    /// The longest request.
    pub length: usize,
    /// Physical pages of the cache.
    pub pages: usize,
    /// Rows of the rotary tables.
    pub context: usize,
    /// Page table, first row, number of rows and first position of each query tile.
    pub tiles: [Vec<i32>; 4],
    pub page_table: Vec<i32>,
    /// Pages of which the step has the last row alone.
    pub dense: Vec<i32>,
}

/// The tensor map of a parameter whose array has so many elements.
pub(crate) fn map(descriptor: Descriptor, spec: &Spec, contract: &Contract, elements: u64) -> Result<Map, KernelError> {
    let name = contract.params.get(descriptor.param).map_or("", |param| param.name.as_str());
    let columns = match contract.shapes.get(name).map(Vec::as_slice) {
        Some([_, columns]) => eval(columns, &|name: &str| int(spec, name))?.max(1) as u64,
        _ => 1,
    };
    Ok(Map { descriptor, extents: [elements / columns, columns] })
}

/// Whether a parameter's array has a row for each one of a step.
pub(crate) fn by_rows(contract: &Contract, param: usize) -> bool {
    let name = contract.params.get(param).map_or("", |param| param.name.as_str());
    contract.shapes.get(name).and_then(|list| list.first()).is_some_and(|rows| rows == "rows")
}

/// A dimension or tile constant.
pub(crate) fn int(spec: &Spec, name: &str) -> Option<i64> {
    match spec.constants.get(name) {
        Some(Const::Int(value)) => Some(*value),
        _ => None,
    }
}

/// The same, or 1.
pub(crate) fn size(spec: &Spec, name: &str) -> usize {
    int(spec, name).map_or(1, |value| value.max(1) as usize)
}

impl Step {
    /// A step of requests, each with its rows and the first one's position, at most HEIGHT rows of one in a query tile.
    /// A store that looks back has a request's rows in one tile. `pages` gives the physical pages of a request that
    /// needs so many.
    pub fn of(
        spec: &Spec,
        shape: Shape,
        requests: &[(usize, usize)],
        context: usize,
        mut pages: impl FnMut(usize) -> Vec<i32>,
    ) -> Step {
        let (tiles, page_table, dense) = (Default::default(), vec![], vec![]);
        let mut step = Step { rows: 0, length: 0, pages: 0, context, tiles, page_table, dense };
        let page = size(spec, "PAGE");
        for (many, start) in requests.iter().copied() {
            let table = step.page_table.len() as i32;
            let own = pages(int(spec, "PAGE").map_or(0, |_| (start + many).div_ceil(page)));
            if shape == Shape::RecurStore && start % page == page - 1 {
                step.dense.push(own[start / page]);
            }
            step.pages += own.len();
            step.page_table.extend(own);
            let height = if shape == Shape::RecurStore { many } else { size(spec, "HEIGHT") };
            for first in (0..many).step_by(height.max(1)) {
                let rows = (many - first).min(height) as i32;
                let tile = [table, (step.rows + first) as i32, rows, (start + first) as i32];
                step.tiles.iter_mut().zip(tile).for_each(|(list, value)| list.push(value));
            }
            step.length = step.length.max(start + many);
            step.rows += many;
        }
        step
    }

    /// What a kernel is told of the step, if that is the parameter's role.
    pub fn metadata(&self, role: Role) -> Option<Vec<i32>> {
        let [table, row, rows, position] = &self.tiles;
        Some(match role {
            Role::Rows => vec![self.rows as i32],
            Role::PageTable => self.page_table.clone(),
            Role::TileTable => table.clone(),
            Role::TileRow => row.clone(),
            Role::TileRows => rows.clone(),
            Role::TilePos => position.clone(),
            _ => return None,
        })
    }

    /// The position of each row.
    pub fn positions(&self) -> impl Iterator<Item = usize> {
        let [_, _, many, start] = &self.tiles;
        many.iter().zip(start).flat_map(|(many, start)| (*start..start + many).map(|position| position as usize))
    }

    /// The extents of a buffer with a shape of its own.
    pub fn extents(&self, spec: &Spec, contract: &Contract, param: &Param) -> Result<Vec<i64>, KernelError> {
        let splits = self.length.div_ceil(size(spec, "SPLIT")).max(1) as i64;
        let lookup = |name: &str| match name {
            "rows" | "packed" => Some(self.rows as i64),
            "context" => Some(self.context as i64),
            "pages" => Some(self.pages as i64),
            "splits" => Some(splits),
            name => int(spec, name),
        };
        let list = contract.shapes.get(&param.name).map(Vec::as_slice).unwrap_or_default();
        Ok(list.iter().map(|text| eval(text, &lookup)).collect::<Result<_, _>>()?)
    }
}
