//! Integer and boolean terms, hash-consed and kept in a linear normal form.
//!
//! All questions to the solver are built of these terms. Two indices that are the same linear
//! expression are the same [`Term`], so most equalities need no solver. Simplification uses only
//! facts that hold everywhere: the bounds with which a variable or function was declared. It must
//! never use a path condition. Read next: [`crate::solver`].

use crate::budget::Budget;
use std::collections::{BTreeMap, HashMap, HashSet};

/// A term: an index into the [`Terms`] that made it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Term(pub(crate) u32);

/// Inclusive bounds of an integer; `None` is unbounded.
pub type Bounds = (Option<i128>, Option<i128>);

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Node {
    /// A constant, or `c + sum coefficient * term`.
    Linear {
        c: i128,
        parts: Vec<(Term, i128)>,
    },
    Var {
        name: String,
        bounds: Bounds,
    },
    /// An uninterpreted integer function: the contents of a metadata buffer.
    Apply {
        function: String,
        args: Vec<Term>,
        bounds: Bounds,
    },
    /// A product of two or more factors, none of them a sum: see [`crate::polynomial`].
    Product(Vec<Term>),
    /// Floor division by a positive constant.
    Div(Term, i128),
    /// Its remainder, in `0..divisor`.
    Mod(Term, i128),
    Ite(Term, Term, Term),
    Bool(bool),
    BoolVar(String),
    /// `t <= 0`
    Le(Term),
    /// `t == 0`
    Zero(Term),
    Not(Term),
    And(Vec<Term>),
    Or(Vec<Term>),
}

#[derive(Default)]
pub struct Terms {
    nodes: Vec<Node>,
    index: HashMap<Node, Term>,
    bounds: Vec<Bounds>,
    fresh: u32,
    dimensions: HashSet<Term>,
    /// The work that is left; it stands here because everything that works has the terms at hand.
    pub budget: Budget,
    /// True if a constant left `i128` or a truth value was used as a number: then no later term may be trusted.
    pub spoiled: bool,
}

impl Terms {
    pub fn node(&self, t: Term) -> &Node {
        &self.nodes[t.0 as usize]
    }

    pub(crate) fn make(&mut self, node: Node) -> Term {
        if let Some(t) = self.index.get(&node) {
            return *t;
        }
        let bounds = self.bounds_of(&node);
        let t = Term(self.nodes.len() as u32);
        self.nodes.push(node.clone());
        self.bounds.push(bounds);
        self.index.insert(node, t);
        t
    }

    pub fn bounds(&self, t: Term) -> Bounds {
        self.bounds[t.0 as usize]
    }

    fn bounds_of(&self, node: &Node) -> Bounds {
        match node {
            Node::Linear { c, parts } => {
                let (mut lo, mut hi) = (Some(*c), Some(*c));
                for (t, k) in parts {
                    let (a, b) = self.bounds(*t);
                    let (a, b) = if *k > 0 { (a, b) } else { (b, a) };
                    let add = |s: Option<i128>, v: Option<i128>| s?.checked_add(v?.checked_mul(*k)?);
                    (lo, hi) = (add(lo, a), add(hi, b));
                }
                (lo, hi)
            }
            Node::Var { bounds, .. } | Node::Apply { bounds, .. } => *bounds,
            Node::Div(t, d) => {
                let (a, b) = self.bounds(*t);
                (a.map(|v| v.div_euclid(*d)), b.map(|v| v.div_euclid(*d)))
            }
            Node::Mod(_, d) => (Some(0), Some(*d - 1)),
            Node::Product(factors) => self.product_bounds(factors),
            Node::Ite(c, a, b) => self.choice_bounds(*c, *a, *b),
            _ => (None, None),
        }
    }

    pub fn int(&mut self, c: impl Into<i128>) -> Term {
        self.make(Node::Linear { c: c.into(), parts: vec![] })
    }

    pub fn bool(&mut self, b: bool) -> Term {
        self.make(Node::Bool(b))
    }

    /// A variable known by name. If its bounds allow one value only, the term is that constant.
    pub fn var(&mut self, name: &str, bounds: Bounds) -> Term {
        if let (Some(a), Some(b)) = bounds
            && a == b
        {
            return self.int(a);
        }
        self.make(Node::Var { name: name.to_string(), bounds })
    }

    /// A dimension: a variable whose products the solver sees as bounded unknowns only.
    pub fn dimension(&mut self, name: &str, bounds: Bounds) -> Term {
        let t = self.var(name, bounds);
        self.dimensions.insert(t);
        t
    }

    pub fn is_dimension(&self, t: Term) -> bool {
        self.dimensions.contains(&t)
    }

    /// A new variable; the name is unique and depends only on how many came before.
    pub fn fresh(&mut self, hint: &str, bounds: Bounds) -> Term {
        self.fresh += 1;
        self.var(&format!("{hint}.{}", self.fresh), bounds)
    }

    pub fn fresh_bool(&mut self, hint: &str) -> Term {
        self.fresh += 1;
        let name = format!("{hint}.{}", self.fresh);
        self.make(Node::BoolVar(name))
    }

    pub fn apply(&mut self, function: &str, args: Vec<Term>, bounds: Bounds) -> Term {
        self.make(Node::Apply { function: function.to_string(), args, bounds })
    }

    pub fn as_int(&self, t: Term) -> Option<i128> {
        match self.node(t) {
            Node::Linear { c, parts } if parts.is_empty() => Some(*c),
            _ => None,
        }
    }

    pub fn as_bool(&self, t: Term) -> Option<bool> {
        match self.node(t) {
            Node::Bool(b) => Some(*b),
            _ => None,
        }
    }

    pub fn is_bool(&self, t: Term) -> bool {
        use Node::*;
        match self.node(t) {
            Bool(_) | BoolVar(_) | Le(_) | Zero(_) | Not(_) | And(_) | Or(_) => true,
            Ite(_, a, _) => self.is_bool(*a),
            _ => false,
        }
    }

    /// The linear form of an integer term: constant, and coefficient by part.
    pub fn linear(&self, t: Term) -> (i128, Vec<(Term, i128)>) {
        match self.node(t) {
            Node::Linear { c, parts } => (*c, parts.clone()),
            _ => (0, vec![(t, 1)]),
        }
    }

    pub fn from_linear(&mut self, c: i128, parts: impl IntoIterator<Item = (Term, i128)>) -> Term {
        let mut sum: BTreeMap<Term, i128> = BTreeMap::new();
        for (t, k) in parts {
            self.spoiled |= self.is_bool(t);
            let entry = sum.entry(t).or_insert(0);
            *entry = match entry.checked_add(k) {
                Some(v) => v,
                None => {
                    self.spoiled = true;
                    0
                }
            };
        }
        sum.retain(|_, k| *k != 0);
        let parts: Vec<_> = sum.into_iter().collect();
        if let Some(joined) = self.rejoined(&parts) {
            return self.from_linear(c, joined);
        }
        if c == 0 && parts.len() == 1 && parts[0].1 == 1 {
            return parts[0].0;
        }
        self.make(Node::Linear { c, parts })
    }

    pub(crate) fn checked(&mut self, v: Option<i128>) -> i128 {
        v.unwrap_or_else(|| {
            self.spoiled = true;
            0
        })
    }

    pub fn scale(&mut self, t: Term, k: i128) -> Term {
        let (c, parts) = self.linear(t);
        let c = self.checked(c.checked_mul(k));
        let mut scaled = vec![];
        for (t, v) in parts {
            scaled.push((t, self.checked(v.checked_mul(k))));
        }
        self.from_linear(c, scaled)
    }

    pub fn add(&mut self, a: Term, b: Term) -> Term {
        let ((ca, pa), (cb, pb)) = (self.linear(a), self.linear(b));
        let c = self.checked(ca.checked_add(cb));
        self.from_linear(c, pa.into_iter().chain(pb))
    }

    pub fn add_int(&mut self, a: Term, k: i128) -> Term {
        let k = self.int(k);
        self.add(a, k)
    }

    pub fn sum(&mut self, list: &[Term]) -> Term {
        let zero = self.int(0);
        list.iter().fold(zero, |s, t| self.add(s, *t))
    }

    pub fn sub(&mut self, a: Term, b: Term) -> Term {
        let b = self.scale(b, -1);
        self.add(a, b)
    }

    /// `t = q * d + r`, where q takes the parts that are multiples of `d`; r may have any range.
    pub fn parts(&mut self, t: Term, d: i128) -> (Term, Term) {
        let (c, parts) = self.linear(t);
        let (high, low): (Vec<_>, Vec<_>) = parts.into_iter().partition(|(_, k)| k % d == 0);
        let q = self.from_linear(c.div_euclid(d), high.into_iter().map(|(t, k)| (t, k / d)));
        let r = self.from_linear(c.rem_euclid(d), low);
        (q, r)
    }

    /// `t = q * d + r` with `0 <= r < d` known everywhere, where the split is visible in the linear form.
    fn split(&mut self, t: Term, d: i128) -> Option<(Term, Term)> {
        let (q, r) = self.parts(t, d);
        match self.bounds(r) {
            (Some(lo), Some(hi)) if lo >= 0 && hi < d => Some((q, r)),
            _ => None,
        }
    }

    /// A `g` that divides `d` such that `t = g * a + b` with `0 <= b < g` known everywhere.
    fn factor(&mut self, t: Term, d: i128) -> Option<(i128, Term, Term)> {
        let (_, parts) = self.linear(t);
        let mut sizes: Vec<i128> = parts.iter().map(|(_, k)| k.abs()).collect();
        sizes.sort_unstable();
        sizes.dedup();
        for g in sizes.into_iter().filter(|g| *g > 1 && *g < d && d % g == 0) {
            if let Some((a, b)) = self.split(t, g) {
                return Some((g, a, b));
            }
        }
        None
    }

    /// Floor division by `d > 0`.
    pub fn div(&mut self, t: Term, d: i128) -> Term {
        if d == 1 {
            return t;
        }
        if let Some((q, _)) = self.split(t, d) {
            return q;
        }
        if let Some((g, a, _)) = self.factor(t, d) {
            return self.div(a, d / g);
        }
        // Multiples of d fall out even when the rest's bounds are unknown.
        let (q, rest) = self.parts(t, d);
        let inner = self.make(Node::Div(rest, d));
        self.add(q, inner)
    }

    /// Remainder of floor division by `d > 0`.
    pub fn rem(&mut self, t: Term, d: i128) -> Term {
        if d == 1 {
            return self.int(0);
        }
        if let Some((_, r)) = self.split(t, d) {
            return r;
        }
        if let Some((g, a, b)) = self.factor(t, d) {
            let high = self.rem(a, d / g);
            let high = self.scale(high, g);
            return self.add(high, b);
        }
        // Multiples of d fall out even when the rest's bounds are unknown.
        let (c, parts) = self.linear(t);
        let low = parts.into_iter().filter(|(_, k)| k % d != 0).collect::<Vec<_>>();
        let t = self.from_linear(c.rem_euclid(d), low);
        self.make(Node::Mod(t, d))
    }

    pub fn ite(&mut self, c: Term, a: Term, b: Term) -> Term {
        match self.as_bool(c) {
            Some(true) => a,
            Some(false) => b,
            None if a == b => a,
            None if !self.is_bool(c) || self.is_bool(a) != self.is_bool(b) => self.spoil(),
            None if self.is_bool(a) => {
                let (na, yes) = (self.not(c), self.and(&[c, a]));
                let no = self.and(&[na, b]);
                self.or(&[yes, no])
            }
            None => self.make(Node::Ite(c, a, b)),
        }
    }

    pub fn le(&mut self, a: Term, b: Term) -> Term {
        let t = self.sub(a, b);
        match self.bounds(t) {
            (_, Some(hi)) if hi <= 0 => self.bool(true),
            (Some(lo), _) if lo > 0 => self.bool(false),
            _ => self.make(Node::Le(t)),
        }
    }

    pub fn lt(&mut self, a: Term, b: Term) -> Term {
        let a = self.add_int(a, 1);
        self.le(a, b)
    }

    /// `lo <= t < hi`
    pub fn within(&mut self, lo: Term, t: Term, hi: Term) -> Term {
        let (a, b) = (self.le(lo, t), self.lt(t, hi));
        self.and(&[a, b])
    }

    /// Equality of integers or of booleans.
    pub fn eq(&mut self, a: Term, b: Term) -> Term {
        if a == b {
            return self.bool(true);
        }
        if self.is_bool(a) {
            let (na, nb) = (self.not(a), self.not(b));
            let (both, neither) = (self.and(&[a, b]), self.and(&[na, nb]));
            return self.or(&[both, neither]);
        }
        let mut t = self.sub(a, b);
        if let (_, [(_, k), ..]) = (0, &self.linear(t).1[..])
            && *k < 0
        {
            t = self.scale(t, -1);
        }
        match self.bounds(t) {
            (Some(0), Some(0)) => self.bool(true),
            (_, Some(hi)) if hi < 0 => self.bool(false),
            (Some(lo), _) if lo > 0 => self.bool(false),
            _ => self.make(Node::Zero(t)),
        }
    }

    pub fn not(&mut self, a: Term) -> Term {
        match self.node(a).clone() {
            Node::Bool(b) => self.bool(!b),
            Node::Not(x) => x,
            // not (t <= 0) is 1 - t <= 0
            Node::Le(t) => {
                let t = self.scale(t, -1);
                let t = self.add_int(t, 1);
                self.make(Node::Le(t))
            }
            _ if !self.is_bool(a) => self.spoil(),
            _ => self.make(Node::Not(a)),
        }
    }

    /// Marks the terms as spoiled if a number is used as a truth value or the reverse.
    fn spoil(&mut self) -> Term {
        self.spoiled = true;
        self.bool(false)
    }

    pub fn and(&mut self, list: &[Term]) -> Term {
        let mut flat = vec![];
        for t in list {
            match self.node(*t) {
                Node::Bool(true) => {}
                Node::Bool(false) => return self.bool(false),
                Node::And(more) => flat.extend(more.clone()),
                _ if !self.is_bool(*t) => return self.spoil(),
                _ => flat.push(*t),
            }
        }
        flat.sort_unstable();
        flat.dedup();
        match flat[..] {
            [] => self.bool(true),
            [t] => t,
            _ => self.make(Node::And(flat)),
        }
    }

    pub fn or(&mut self, list: &[Term]) -> Term {
        let mut flat = vec![];
        for t in list {
            match self.node(*t) {
                Node::Bool(false) => {}
                Node::Bool(true) => return self.bool(true),
                Node::Or(more) => flat.extend(more.clone()),
                _ if !self.is_bool(*t) => return self.spoil(),
                _ => flat.push(*t),
            }
        }
        flat.sort_unstable();
        flat.dedup();
        match flat[..] {
            [] => self.bool(false),
            [t] => t,
            _ => self.make(Node::Or(flat)),
        }
    }

    pub fn implies(&mut self, a: Term, b: Term) -> Term {
        let na = self.not(a);
        self.or(&[na, b])
    }

    pub fn max(&mut self, a: Term, b: Term) -> Term {
        let c = self.le(a, b);
        self.ite(c, b, a)
    }

    pub fn min(&mut self, a: Term, b: Term) -> Term {
        let c = self.le(a, b);
        self.ite(c, a, b)
    }

    /// The parts of a conjunction.
    pub fn conjuncts(&self, t: Term) -> Vec<Term> {
        match self.node(t) {
            Node::And(list) => list.clone(),
            _ => vec![t],
        }
    }

    /// Terms made from here on are at or above the mark.
    pub fn mark(&self) -> u32 {
        self.nodes.len() as u32
    }

    /// The terms directly below `t`.
    pub fn children(&self, t: Term) -> Vec<Term> {
        match self.node(t) {
            Node::Linear { parts, .. } => parts.iter().map(|(t, _)| *t).collect(),
            Node::Apply { args, .. } => args.clone(),
            Node::Product(factors) => factors.clone(),
            Node::Div(a, _) | Node::Mod(a, _) | Node::Le(a) | Node::Zero(a) | Node::Not(a) => {
                vec![*a]
            }
            Node::Ite(a, b, c) => vec![*a, *b, *c],
            Node::And(list) | Node::Or(list) => list.clone(),
            Node::Var { .. } | Node::Bool(_) | Node::BoolVar(_) => vec![],
        }
    }

    /// Every term that occurs in `roots`, below before above, each once, in a fixed order.
    pub fn reachable(&self, roots: &[Term]) -> Vec<Term> {
        let mut seen = std::collections::HashSet::new();
        let mut order = vec![];
        // Depth grows with the kernel's text, not with its data: an explicit stack all the same.
        let mut stack: Vec<(Term, bool)> = roots.iter().rev().map(|t| (*t, false)).collect();
        while let Some((t, done)) = stack.pop() {
            if done {
                order.push(t);
            } else if seen.insert(t) {
                stack.push((t, true));
                stack.extend(self.children(t).into_iter().rev().map(|c| (c, false)));
            }
        }
        order
    }

    /// `t` with variables replaced, simplified again.
    pub fn substitute(&mut self, t: Term, map: &HashMap<Term, Term>) -> Term {
        let mut done: HashMap<Term, Term> = HashMap::new();
        for s in self.reachable(&[t]) {
            let new = self.rebuild(s, map, &done);
            done.insert(s, new);
        }
        done[&t]
    }

    fn rebuild(&mut self, s: Term, map: &HashMap<Term, Term>, done: &HashMap<Term, Term>) -> Term {
        if let Some(new) = map.get(&s) {
            return *new;
        }
        let list = |l: &[Term]| l.iter().map(|t| done[t]).collect::<Vec<_>>();
        match self.node(s).clone() {
            Node::Linear { c, parts } => {
                let mut sum = self.int(c);
                for (t, k) in parts {
                    let scaled = self.scale(done[&t], k);
                    sum = self.add(sum, scaled);
                }
                sum
            }
            Node::Apply { function, args, bounds } => self.apply(&function, list(&args), bounds),
            Node::Product(factors) => {
                let one = self.int(1);
                factors.iter().fold(one, |product, f| self.mul(product, done[f]))
            }
            Node::Div(a, d) => self.div(done[&a], d),
            Node::Mod(a, d) => self.rem(done[&a], d),
            Node::Ite(c, a, b) => self.ite(done[&c], done[&a], done[&b]),
            Node::Le(a) => {
                let zero = self.int(0);
                self.le(done[&a], zero)
            }
            Node::Zero(a) => {
                let zero = self.int(0);
                self.eq(done[&a], zero)
            }
            Node::Not(a) => self.not(done[&a]),
            Node::And(l) => self.and(&list(&l)),
            Node::Or(l) => self.or(&list(&l)),
            Node::Var { .. } | Node::Bool(_) | Node::BoolVar(_) => s,
        }
    }

    /// True if one of `vars` occurs in `t`.
    pub fn mentions(&self, t: Term, vars: &[Term]) -> bool {
        self.reachable(&[t]).iter().any(|s| vars.contains(s))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lane(t: &mut Terms, name: &str, n: i128) -> Term {
        t.var(name, (Some(0), Some(n - 1)))
    }

    #[test]
    fn row_and_column_fall_out_of_an_offset() {
        let mut t = Terms::default();
        let x = t.var("x", (Some(0), None));
        let c = lane(&mut t, "c", 576);
        let row = t.scale(x, 576);
        let offset = t.add(row, c);
        assert_eq!(t.div(offset, 576), x);
        assert_eq!(t.rem(offset, 576), c);
        // Through a larger divisor: (x * 576 + c) / (64 * 576) is x / 64.
        let tile = t.div(x, 64);
        assert_eq!(t.div(offset, 64 * 576), tile);
    }

    #[test]
    fn bounds_decide_comparisons_and_constants_fold() {
        let mut t = Terms::default();
        let l = lane(&mut t, "l", 64);
        let n = t.int(64);
        let yes = t.lt(l, n);
        assert_eq!(t.as_bool(yes), Some(true));
        let no = t.le(n, l);
        assert_eq!(t.as_bool(no), Some(false));
        assert_eq!(t.var("one", (Some(3), Some(3))), t.int(3));
    }

    #[test]
    fn substitution_simplifies_again() {
        let mut t = Terms::default();
        let (p, r) = (t.var("p", (Some(0), None)), lane(&mut t, "r", 64));
        let tile = t.scale(p, 64);
        let row = t.add(tile, r);
        let x = t.var("x", (Some(0), None));
        let (q, m) = (t.div(x, 64), t.rem(x, 64));
        let put = t.substitute(row, &HashMap::from([(p, q), (r, m)]));
        assert_eq!(put, x, "64 (x / 64) + x mod 64 is x");
    }
}
