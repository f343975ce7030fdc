//! Whether two texts are one text with other constants and extents: the specialisations of one kernel are.
//!
//! A compiler chooses the layout of a tile, and with it the order of a sum, from the text around it. So sums and products of
//! two texts are compared only where the texts are alike, at the same place of both; that these are laid out alike is then an
//! assumption with a name. Nothing here says that two values are equal. Read next: [`crate::equal`].

use crate::problem::Problem;
use std::collections::HashMap;
use std::mem::discriminant;
use vosti_tile::{Line, Op, OpKind, Region, Type, Value};

/// The value of the right text at the place of each value of the left one, or the first line at which the texts differ.
pub(crate) type Places = Result<HashMap<Value, Value>, Line>;

/// Walks two texts side by side.
struct Alike<'a> {
    left: &'a Problem,
    right: &'a Problem,
    places: HashMap<Value, Value>,
}

pub(crate) fn places(left: &Problem, right: &Problem) -> Places {
    let mut alike = Alike { left, right, places: HashMap::new() };
    let (a, b) = (&left.kernel, &right.kernel);
    let buffers = left.buffers.iter().zip(&right.buffers).all(|(x, y)| (x.role, x.elem) == (y.role, y.elem));
    let params = a.params.iter().zip(&b.params).all(|(x, y)| x.divisibility == y.divisibility);
    let scalars = a.scalars.iter().zip(&b.scalars).all(|(x, y)| (&x.name, x.elem) == (&y.name, y.elem));
    if !buffers || !params || !scalars || (a.params.len(), a.scalars.len()) != (b.params.len(), b.scalars.len()) {
        return Err(Line::default());
    }
    let own: Vec<Value> = a.params.iter().map(|p| p.value).chain(a.scalars.iter().map(|s| s.value)).collect();
    let other: Vec<Value> = b.params.iter().map(|p| p.value).chain(b.scalars.iter().map(|s| s.value)).collect();
    alike.pair(&own, &other, Line::default())?;
    alike.ops(&a.body, &b.body)?;
    Ok(alike.places)
}

impl Alike<'_> {
    /// Notes values at one place: of one element type, with as many axes.
    fn pair(&mut self, own: &[Value], other: &[Value], line: Line) -> Result<(), Line> {
        let form = |ty: &Type| (ty.elem(), ty.is_tile(), matches!(ty, Type::Block { .. }), ty.shape().len());
        for (x, y) in own.iter().zip(other) {
            if form(self.left.kernel.ty(*x)) != form(self.right.kernel.ty(*y)) {
                return Err(line);
            }
            self.places.insert(*x, *y);
        }
        if own.len() == other.len() { Ok(()) } else { Err(line) }
    }

    fn read(&self, own: &[Value], other: &[Value], line: Line) -> Result<(), Line> {
        let same = own.iter().zip(other).all(|(x, y)| self.places.get(x) == Some(y));
        if same && own.len() == other.len() { Ok(()) } else { Err(line) }
    }

    fn ops(&mut self, own: &[Op], other: &[Op]) -> Result<(), Line> {
        for (a, b) in own.iter().zip(other) {
            if discriminant(&a.kind) != discriminant(&b.kind) || !same_but_for_numbers(&a.kind, &b.kind) {
                return Err(a.line);
            }
            self.read(&a.kind.operands(), &b.kind.operands(), a.line)?;
            if let (OpKind::For { index, args, .. }, OpKind::For { index: i, args: list, .. }) = (&a.kind, &b.kind) {
                self.pair(&[&[*index], &args[..]].concat(), &[&[*i], &list[..]].concat(), a.line)?;
            }
            for (x, y) in a.kind.regions().into_iter().zip(b.kind.regions()) {
                self.region(x, y, a.line)?;
            }
            self.pair(&a.results, &b.results, a.line)?;
        }
        match own.get(other.len()) {
            Some(more) => Err(more.line),
            None if own.len() < other.len() => Err(own.last().map_or(Line::default(), |op| op.line)),
            None => Ok(()),
        }
    }

    fn region(&mut self, own: &Region, other: &Region, line: Line) -> Result<(), Line> {
        self.ops(&own.ops, &other.ops)?;
        self.read(&own.yields, &other.yields, line)
    }
}

/// Two operations of one kind have one function, one axis and one order of axes. Numbers and extents may differ.
fn same_but_for_numbers(a: &OpKind, b: &OpKind) -> bool {
    use OpKind::*;
    match (a, b) {
        (ProgramId { axis: x }, ProgramId { axis: y }) | (NumPrograms { axis: x }, NumPrograms { axis: y }) => x == y,
        (Unary { op: x, .. }, Unary { op: y, .. }) => x == y,
        (Binary { op: x, .. }, Binary { op: y, .. }) => x == y,
        (CmpInt { op: x, .. }, CmpInt { op: y, .. }) => x == y,
        (CmpFloat { op: x, .. }, CmpFloat { op: y, .. }) => x == y,
        (Cast { op: x, to: t, .. }, Cast { op: y, to: u, .. }) => (x, t) == (y, u),
        (ExpandDims { axis: x, .. }, ExpandDims { axis: y, .. }) => x == y,
        (Transpose { perm: x, .. }, Transpose { perm: y, .. }) => x == y,
        (Half { which: x, .. }, Half { which: y, .. }) => x == y,
        (Reduce { op: x, axis: i, .. }, Reduce { op: y, axis: j, .. }) => (x, i) == (y, j),
        (MakeBlock { order: x, .. }, MakeBlock { order: y, .. }) => x == y,
        (LoadBlock { check: x, padding: p, .. }, LoadBlock { check: y, padding: q, .. }) => (x, p) == (y, q),
        (StoreBlock { check: x, .. }, StoreBlock { check: y, .. }) => x == y,
        (Load { mask: x, other: o, .. }, Load { mask: y, other: p, .. }) => {
            (x.is_some(), o.is_some()) == (y.is_some(), p.is_some())
        }
        _ => true,
    }
}
