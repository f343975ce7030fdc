//! Small changes to a contract as it is written: shape, grid, roles, element types, ranges, conditions, constants, extents.
//!
//! Input and output are text: the verifier and the replay each read the changed contract by themselves, and a kernel that is
//! proved under it must run invariant under it. Read next: [`crate::mutate`], for kernels.

use crate::problem::Statement;
use crate::replay::Random;
use std::collections::BTreeSet;
use toml::{Table, Value};
use vosti_contract::{Dtype, dtype};

/// A changed contract.
#[derive(Clone, Debug)]
pub struct ContractMutant {
    /// What was changed.
    pub what: String,
    /// The contract with that change.
    pub statement: Statement,
}

const SHAPES: [&str; 7] =
    ["rowwise", "store_kv", "attend", "attend_part", "attend_combine", "recur_store", "recur_read"];

const ROLES: [&str; 36] = [
    "in 0",
    "in 1",
    "in 2",
    "in 0 f32",
    "in 1 f32",
    "out 0",
    "out 1",
    "out 0 f32",
    "out 1 f32",
    "weight 0",
    "weight 1",
    "weight 0 f32",
    "weight 3",
    "scratch 0",
    "scratch 2",
    "rows",
    "tokens",
    "positions",
    "row_index",
    "slots",
    "page_table",
    "tile_table",
    "tile_row",
    "tile_rows",
    "tile_pos",
    "cache_k",
    "cache_v",
    "entry 0 f32",
    "entry 1 f32",
    "state 0 f32",
    "rows f32",
    "dim 1..1048576",
    "dim 1..2147483647",
    "dim 0..64",
    "dim 5..6",
    "number",
];

/// Names that a shape gives a meaning to.
const NAMES: [&str; 13] =
    ["SPLIT", "ROWS", "V", "PAGE", "WINDOW", "BQ", "HEADS", "KV_HEADS", "GROUP", "D", "BM", "rows", "USE"];

const AXES: [&str; 11] = [
    "rows",
    "tiles",
    "1",
    "2",
    "cdiv(rows, 16)",
    "cdiv(rows, 8)",
    "cdiv(rows, 32)",
    "cdiv(length, 32)",
    "cdiv(length, SPLIT)",
    "above(length, 32)",
    "KV_HEADS",
];

/// Every single change that this module knows, in a fixed order; no two give the same text.
pub fn contracts(statement: &Statement) -> Vec<ContractMutant> {
    let Ok(table) = statement.text.parse::<Table>() else { return vec![] };
    let mut list = List { base: statement, table: &table, seen: BTreeSet::new(), out: vec![] };
    list.seen.insert((table.to_string(), statement.act == Dtype::F32));
    SHAPES
        .iter()
        .for_each(|shape| list.with(format!("shape {shape}"), |t| _ = t.insert("shape".into(), (*shape).into())));
    list.grids();
    list.roles();
    list.ranges();
    list.conditions();
    list.constants();
    list.extents();
    let other = if statement.act == Dtype::F32 { Dtype::Bf16 } else { Dtype::F32 };
    let text = table.to_string();
    list.out.push(ContractMutant {
        what: format!("activations {}", dtype::name(other)),
        statement: Statement { text, act: other },
    });
    list.out
}

/// One of [`contracts`], drawn from `random`; None if there are none.
pub fn contract(statement: &Statement, random: &mut Random) -> Option<ContractMutant> {
    let mut all = contracts(statement);
    match all.len() {
        0 => None,
        n => Some(all.swap_remove(random.below(n))),
    }
}

struct List<'a> {
    base: &'a Statement,
    table: &'a Table,
    seen: BTreeSet<(String, bool)>,
    out: Vec<ContractMutant>,
}

impl List<'_> {
    fn with(&mut self, what: String, change: impl FnOnce(&mut Table)) {
        let mut table = self.table.clone();
        change(&mut table);
        let (text, act) = (table.to_string(), self.base.act);
        if self.seen.insert((text.clone(), act == Dtype::F32)) {
            self.out.push(ContractMutant { what, statement: Statement { text, act } });
        }
    }

    fn names(&self, section: &str) -> Vec<String> {
        self.table.get(section).and_then(Value::as_table).map_or(vec![], |t| t.keys().cloned().collect())
    }

    fn grids(&mut self) {
        let Some(grid) = self.table.get("grid").and_then(Value::as_array).cloned() else { return };
        let mut all: Vec<(String, Vec<Value>)> = vec![];
        for axis in 0..grid.len() {
            for text in AXES {
                let mut new = grid.clone();
                new[axis] = text.into();
                all.push((format!("axis {axis} is {text}"), new));
            }
            let mut new = grid.clone();
            new.remove(axis);
            all.push((format!("axis {axis} dropped"), new));
            let mut new = grid.clone();
            new.swap(0, axis);
            all.push((format!("axes 0 and {axis} swapped"), new));
            // A launcher evaluates products before sums; the verifier must not read these texts as products.
            let own = grid[axis].as_str().unwrap_or_default();
            let near = ["* 0 + 1", "* 2 - 1", "* 1 + 0"].map(|more| format!("{own} {more}"));
            let products = self.dimensions().into_iter().map(|name| format!("{name} * 0 + 1"));
            let names = self.names("constants").into_iter().chain(self.dimensions());
            for text in names.chain(near).chain(products) {
                let mut new = grid.clone();
                new[axis] = text.clone().into();
                all.push((format!("axis {axis} is {text}"), new));
            }
        }
        for text in ["1", "2", "tiles", "rows"] {
            all.push((format!("one axis more: {text}"), [&grid[..], &[text.into()]].concat()));
        }
        for (what, new) in all {
            self.with(what, |t| _ = t.insert("grid".into(), Value::Array(new)));
        }
    }

    fn roles(&mut self) {
        let names = self.names("params");
        let set = |t: &mut Table, name: &str, role: Value| {
            if let Some(params) = t.get_mut("params").and_then(Value::as_table_mut) {
                params.insert(name.into(), role);
            }
        };
        for (i, name) in names.iter().enumerate() {
            for role in ROLES {
                self.with(format!("`{name}` is {role}"), |t| set(t, name, role.into()));
            }
            self.with(format!("`{name}` has no role"), |t| {
                t.get_mut("params").and_then(Value::as_table_mut).map(|p| p.remove(name));
            });
            for other in &names[..i] {
                let pair = [name, other].map(|n| self.table["params"].get(n).cloned().unwrap_or("".into()));
                self.with(format!("roles of `{name}` and `{other}` swapped"), |t| {
                    set(t, name, pair[1].clone());
                    set(t, other, pair[0].clone());
                });
            }
            let own = self.table["params"].get(name).and_then(Value::as_str).unwrap_or_default().to_string();
            for end in [" f32", " i64"] {
                self.with(format!("`{name}` is {own}{end}"), |t| set(t, name, format!("{own}{end}").into()));
            }
            let plain = own.trim_end_matches(" f32").to_string();
            self.with(format!("`{name}` is {plain}"), |t| set(t, name, plain.clone().into()));
        }
    }

    /// Other ranges of every dimension: wider, narrower, shifted, one value only.
    fn ranges(&mut self) {
        for name in self.names("params") {
            let own = self.table["params"].get(&name).and_then(Value::as_str).unwrap_or_default();
            let Some((lo, hi)) = own.strip_prefix("dim ").and_then(|range| range.split_once("..")) else { continue };
            let (Ok(lo), Ok(hi)) = (lo.parse::<i64>(), hi.parse::<i64>()) else { continue };
            let near = [(lo - 1, hi), (lo + 1, hi), (lo, hi + 1), (lo, hi - 1), (0, hi), (lo / 2, hi), (2 * lo, hi)];
            let far = [(lo, 2 * hi), (lo, hi / 2), (lo, lo), (hi, hi), (-hi, hi), (lo, i64::from(i32::MAX)), (hi, lo)];
            for (lo, hi) in near.into_iter().chain(far) {
                self.with(format!("`{name}` is in {lo}..{hi}"), |t| {
                    let params = t.get_mut("params").and_then(Value::as_table_mut);
                    params.map(|params| params.insert(name.clone(), format!("dim {lo}..{hi}").into()));
                });
            }
        }
    }

    /// Every condition between dimensions: dropped, weaker, stronger, of other dimensions, reversed; and new ones.
    fn conditions(&mut self) {
        let own = self.table.get("where").and_then(Value::as_array).cloned().unwrap_or_default();
        let text = |value: &Value| value.as_str().unwrap_or_default().to_string();
        let mut all: Vec<(String, Vec<Value>)> = vec![];
        for (i, old) in own.iter().map(text).enumerate() {
            let Some((left, right)) = old.split_once("<=") else { continue };
            let (left, right) = (left.trim(), right.trim());
            let mut changed = vec![format!("{right} <= {left}"), format!("{left} + 1 <= {right}")];
            changed.extend([format!("{left} <= 2 * {right}"), format!("2 * {left} <= {right}")]);
            changed.extend(left.split('+').map(|part| format!("{} <= {right}", part.trim())));
            changed
                .extend(self.dimensions().iter().flat_map(|d| [format!("{left} <= {d}"), format!("{d} <= {right}")]));
            for new in changed {
                let mut list = own.clone();
                list[i] = new.clone().into();
                all.push((format!("`{old}` is `{new}`"), list));
            }
            let mut list = own.clone();
            list.remove(i);
            all.push((format!("`{old}` dropped"), list));
        }
        let dimensions = self.dimensions();
        for a in &dimensions {
            for b in dimensions.iter().filter(|b| *b != a) {
                all.push((format!("`{a} <= {b}` besides"), [&own[..], &[format!("{a} <= {b}").into()]].concat()));
            }
        }
        for (what, new) in all {
            self.with(what, |t| _ = t.insert("where".into(), Value::Array(new)));
        }
    }

    /// Names of parameters that are dimensions.
    fn dimensions(&self) -> Vec<String> {
        let mut names = self.names("params");
        names.retain(|name| self.table["params"][name].as_str().is_some_and(|role| role.starts_with("dim ")));
        names
    }

    fn constants(&mut self) {
        let section = |t: &mut Table, change: &dyn Fn(&mut Table)| {
            if let Some(own) = t.get_mut("constants").and_then(Value::as_table_mut) {
                change(own);
            }
        };
        for name in self.names("constants") {
            let old = self.table["constants"].get(&name).cloned();
            self.with(format!("{name} dropped"), |t| section(t, &|own| _ = own.remove(&name)));
            if let Some(v) = old.as_ref().and_then(Value::as_integer) {
                // The constant may already be the largest number, from an earlier change: so the arithmetic wraps.
                let near = [v.wrapping_add(1), v.wrapping_sub(1), v.wrapping_mul(2), v / 2, v.wrapping_neg()];
                for new in near.into_iter().chain([0, 1, -1, 512, 1 << 23, 1 << 31, 1 << 62, i64::MAX]) {
                    self.with(format!("{name} = {new}"), |t| {
                        section(t, &|own| _ = own.insert(name.clone(), new.into()))
                    });
                }
                let float = Value::Float(v as f64);
                self.with(format!("{name} = {float}"), |t| {
                    section(t, &|own| _ = own.insert(name.clone(), float.clone()))
                });
            }
            for other in NAMES {
                self.with(format!("{name} is called {other}"), |t| {
                    section(t, &|own| {
                        if let Some(value) = own.remove(&name) {
                            own.insert(other.into(), value);
                        }
                    });
                });
            }
            self.with(format!("{name} only shapes the text"), |t| only_text(t, &name, true));
            self.with(format!("{name} does not only shape the text"), |t| only_text(t, &name, false));
        }
        for name in NAMES {
            for value in [0, 1, 16, 512] {
                self.with(format!("{name} = {value} besides"), |t| {
                    section(t, &|own| _ = own.insert(name.into(), value.into()))
                });
                self.with(format!("{name} = {value} besides, in the text"), |t| {
                    section(t, &|own| _ = own.insert(name.into(), value.into()));
                    only_text(t, name, true);
                });
            }
        }
    }

    fn extents(&mut self) {
        let constants = self.names("constants");
        for param in self.names("shapes") {
            let Some(dims) = self.table["shapes"].get(&param).and_then(Value::as_array).cloned() else { continue };
            let mut all: Vec<Vec<Value>> = vec![];
            for i in 0..dims.len() {
                let words = ["rows", "packed", "context", "splits", "tiles", "1", "64"].map(String::from);
                let own = dims[i].as_str().unwrap_or_default();
                let near = [format!("{own} + 1"), format!("{own} - 1"), format!("2 * {own}"), format!("{own} / 2")];
                let near = near.into_iter().chain([format!("{own} * 1 + 1"), format!("2 - 1 * {own}")]);
                for text in words.into_iter().chain(near).chain(constants.clone()) {
                    let mut new = dims.clone();
                    new[i] = text.into();
                    all.push(new);
                }
                let mut new = dims.clone();
                new.remove(i);
                all.push(new);
                let mut new = dims.clone();
                new.swap(0, i);
                all.push(new);
            }
            all.push([&dims[..], &["1".into()]].concat());
            all.push([&dims[..], &["2".into()]].concat());
            for new in all {
                let what = format!("extents of `{param}`: {}", Value::Array(new.clone()));
                self.with(what, |t| {
                    t.get_mut("shapes")
                        .and_then(Value::as_table_mut)
                        .map(|s| s.insert(param.clone(), Value::Array(new)));
                });
            }
        }
        for param in self.names("params") {
            self.with(format!("extents of `{param}` dropped, or given"), |t| {
                let own = t.get_mut("shapes").and_then(Value::as_table_mut);
                own.map(
                    |s| if s.remove(&param).is_none() { s.insert(param.clone(), vec!["rows"].into()) } else { None },
                );
            });
        }
    }
}

fn only_text(table: &mut Table, name: &str, add: bool) {
    let list = table.entry("text").or_insert_with(|| Value::Array(vec![]));
    if let Some(list) = list.as_array_mut() {
        list.retain(|other| other.as_str() != Some(name));
        if add {
            list.push(name.into());
        }
    }
}
