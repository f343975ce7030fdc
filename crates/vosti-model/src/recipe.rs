//! Recipes: how to make each weight of a plan from a model's tensors.
//!
//! A recipe names tensors and the operations on them. It holds no tensor. Read next: `weights.rs`, which makes the weights.

use std::ops::Range;

use vosti_core::Dtype;
use vosti_kernels::Part;

use crate::decoder::Rope;

/// A weight of a plan: what it is for, and how it is made.
#[derive(Clone, Debug, PartialEq)]
pub struct Weight {
    /// The name of the kernel parameter that the weight is made for. Weights of one shape may differ in it, as cosines and sines
    /// do, so admission compares it with the parameter that a launch binds.
    pub parameter: &'static str,
    /// How it is made.
    pub recipe: Recipe,
}

impl Weight {
    /// Whether the weight is made for a parameter of this name. A parameter `k_x` beside `x` takes what is made for either: tables of
    /// cosines and sines are for queries and for keys.
    pub fn is_for(&self, parameter: &str) -> bool {
        [Some(parameter), parameter.strip_prefix("k_")].contains(&Some(self.parameter))
    }

    /// The weight's axes, slowest first.
    pub fn shape(&self) -> Vec<usize> {
        self.recipe.shape()
    }

    /// The elements of the matrix of a product, of which the codes count if it is in blocks; none for any other weight.
    pub fn matrix_elements(&self) -> Option<usize> {
        match self.recipe {
            Recipe::Matrix { .. } | Recipe::Blocks { part: Part::Codes, .. } => Some(self.shape().iter().product()),
            _ => None,
        }
    }

    /// The element type that it is made in.
    pub fn dtype(&self) -> Dtype {
        match self.recipe {
            Recipe::Matrix { dtype, .. } => dtype,
            Recipe::Blocks { part: Part::Codes, .. } => Dtype::I8,
            _ => Dtype::F32,
        }
    }
}

/// How one weight is made from the model's tensors.
#[derive(Clone, Debug, PartialEq)]
pub enum Recipe {
    /// A matrix `[sum of rows, columns]`: tensors stacked by rows.
    Matrix {
        /// The tensors, first rows first.
        parts: Vec<MatrixPart>,
        /// Width of every part.
        columns: usize,
        /// Element type: BF16 or FP32.
        dtype: Dtype,
    },
    /// A part of a matrix in blocks, for products in integers.
    Blocks {
        /// The matrix's name, which its three parts share.
        matrix: String,
        /// The tensors, first rows first.
        parts: Vec<MatrixPart>,
        /// Width of every tensor, in elements.
        columns: usize,
        /// Which part.
        part: Part,
    },
    /// A vector in f32: `(parts + offset) / divisor`, element by element.
    Vector {
        /// Tensors of one axis, first elements first.
        parts: Vec<MatrixPart>,
        /// Added to every element.
        offset: f32,
        /// Divides every sum.
        divisor: f32,
    },
    /// A vector in f32: `-exp(part)`, element by element.
    Rates {
        /// A tensor of one axis.
        part: MatrixPart,
    },
    /// A vector in f32: one stored scalar, repeated.
    Repeat {
        /// The name of a tensor of one element.
        tensor: String,
        /// The length of the vector.
        length: usize,
    },
    /// A vector of zeros in f32, for a parameter that the kernel does not read for this model.
    Unread {
        /// The length of the vector.
        length: usize,
    },
    /// A rotary table `[positions, head_dim / 2]` in f32.
    Rope {
        /// Its frequencies.
        rope: Rope,
        /// Positions of the table: its first axis.
        positions: usize,
        /// Whether the table has sines instead of cosines.
        sine: bool,
    },
}

impl Recipe {
    /// The weight's axes, slowest first.
    pub fn shape(&self) -> Vec<usize> {
        match self {
            Recipe::Matrix { parts, columns, .. } => vec![parts.iter().map(|part| part.rows).sum(), *columns],
            Recipe::Blocks { parts, columns, part, .. } => {
                vec![parts.iter().map(|part| part.rows).sum(), part.columns(*columns)]
            }
            Recipe::Vector { parts, .. } => vec![parts.iter().map(|part| part.rows).sum()],
            Recipe::Rates { part } => vec![part.rows],
            Recipe::Repeat { length, .. } | Recipe::Unread { length } => vec![*length],
            Recipe::Rope { rope, positions, .. } => vec![*positions, rope.head_dim as usize / 2],
        }
    }
}

/// A range of a tensor's rows (for a [`Recipe::Vector`], of its elements).
#[derive(Clone, Debug, PartialEq)]
pub struct MatrixPart {
    /// The tensor's name.
    pub tensor: String,
    /// The number of the tensor's rows.
    pub of: usize,
    /// The first row of the part.
    pub first: usize,
    /// The number of rows of the part.
    pub rows: usize,
    /// The order of its rows.
    pub order: Order,
    /// The order of its columns; `None` for the tensor's.
    pub columns: Option<Turned>,
    /// Whether a tensor of plain numbers has the columns of each of its matrices as rows.
    pub transposed: bool,
    /// What elements of a matrix are multiplied by, in f32, before they are rounded to its type.
    pub scale: f32,
}

/// The order of a part's rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// The tensor's.
    Stored,
    /// That of each head's rows, for queries and keys.
    Heads(HeadRows),
    /// The first members of all groups before the second ones.
    Turned(Turned),
}

/// Groups of members of some rows or columns each. A tensor has the members of a group together, and perhaps other things behind them;
/// a part has the first members of all groups first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Turned {
    /// How many groups there are.
    pub groups: usize,
    /// Members of a group.
    pub members: usize,
    /// Rows or columns of a member.
    pub size: usize,
    /// Rows or columns from one group's first to the next one's, in the tensor.
    pub stride: usize,
}

/// The order of a head's rows. Kernels rotate row d with row d + D / 2, so in each half of the head the rows that rotate come
/// first, and the others follow. Scores are summed in that order. If a model rotates a part of each head, this order defines
/// the bits of its scores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeadRows {
    /// Rows of a head.
    pub size: usize,
    /// Rows from one head's first to the next one's, in the tensor.
    pub stride: usize,
    /// Rows that rotate. They come first in the tensor, and row d rotates with row d + rotary / 2.
    pub rotary: usize,
    /// Whether the tensor has llama.cpp's order, with the two halves of a head interleaved.
    pub interleaved: bool,
}

impl MatrixPart {
    /// All rows of a tensor, in its order.
    pub fn whole(tensor: String, rows: usize) -> Self {
        Self { tensor, of: rows, first: 0, rows, order: Order::Stored, columns: None, transposed: false, scale: 1.0 }
    }

    /// Whether a row of the part has the numbers of a row of the tensor: blocks do not outlive a change of columns or of numbers.
    pub fn as_stored(&self) -> bool {
        self.columns.is_none() && self.scale == 1.0
    }

    /// The tensor's row for row `row` of the part.
    pub fn stored(&self, row: usize) -> usize {
        self.first
            + match self.order {
                Order::Stored => row,
                Order::Heads(heads) => heads.stored(row),
                Order::Turned(turned) => turned.stored(row),
            }
    }

    /// A range of the tensor that has the rows `rows` of the part: no more than whole heads of it. If groups are turned, the rows
    /// themselves if they are of one member, or all rows from the first to the last.
    pub fn span(&self, rows: Range<usize>) -> Range<usize> {
        let within = match self.order {
            Order::Stored => rows,
            Order::Heads(HeadRows { size, stride, .. }) => {
                let (first, end) = (rows.start / size, rows.end.div_ceil(size));
                first * stride..end * stride - (stride - size)
            }
            Order::Turned(turned) => turned.span(rows),
        };
        self.first + within.start..self.first + within.end
    }
}

impl Turned {
    /// Groups with nothing behind their members.
    pub fn dense(groups: usize, members: usize, size: usize) -> Self {
        Self { groups, members, size, stride: members * size }
    }

    /// Each of so many rows some times.
    pub fn repeated(rows: usize, times: usize) -> Self {
        Self { groups: times, members: rows, size: 1, stride: 0 }
    }

    fn span(self, rows: Range<usize>) -> Range<usize> {
        match rows.is_empty() || rows.start / self.size != (rows.end - 1) / self.size {
            true => 0..(self.groups - 1) * self.stride + self.members * self.size,
            false => self.stored(rows.start)..self.stored(rows.end - 1) + 1,
        }
    }

    /// The tensor's row or column for one of the part.
    pub fn stored(self, at: usize) -> usize {
        let (member, within) = (at / self.size, at % self.size);
        member % self.groups * self.stride + member / self.groups * self.size + within
    }
}

impl HeadRows {
    fn stored(self, row: usize) -> usize {
        let (size, half) = (self.size, self.size / 2);
        let (head, within) = (row / size, row % size);
        let (side, pair) = (within / half, within % half);
        let turning = self.rotary / 2;
        let own = match pair < turning {
            true => side * turning + pair,
            false => self.rotary + side * (half - turning) + pair - turning,
        };
        head * self.stride + if self.interleaved { 2 * (own % half) + own / half } else { own }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stored(size: usize, rotary: usize, interleaved: bool) -> Vec<usize> {
        of_order(Order::Heads(HeadRows { size, stride: size, rotary, interleaved }))
    }

    fn of_order(order: Order) -> Vec<usize> {
        let part = MatrixPart { first: 3, order, ..MatrixPart::whole("w".into(), 8) };
        let rows: Vec<usize> = (0..8).map(|row| part.stored(row) - 3).collect();
        for (from, to) in (0..8).flat_map(|from| (from + 1..=8).map(move |to| (from, to))) {
            let span = part.span(from..to);
            assert!(rows[from..to].iter().all(|row| span.contains(&(row + 3))), "{order:?}: {from}..{to} in {span:?}");
        }
        rows
    }

    #[test]
    fn a_heads_rows_are_taken_from_where_the_file_has_them() {
        // A head of four rows a0 a1 | b0 b1 is stored a0 b0 a1 b1.
        assert_eq!(stored(4, 4, true), [0, 2, 1, 3, 4, 6, 5, 7]);
        assert_eq!(stored(8, 8, false), [0, 1, 2, 3, 4, 5, 6, 7]);
        assert_eq!(stored(8, 0, false), [0, 1, 2, 3, 4, 5, 6, 7]);
        // Four of eight rows rotate, 0 with 2 and 1 with 3, so each pair must be four rows apart.
        assert_eq!(stored(8, 4, false), [0, 1, 4, 5, 2, 3, 6, 7]);
        // Behind each head of four rows the tensor has four of another thing.
        let heads = HeadRows { size: 4, stride: 8, rotary: 4, interleaved: false };
        assert_eq!(of_order(Order::Heads(heads)), [0, 1, 2, 3, 8, 9, 10, 11]);
        // Two groups of two members of two rows.
        assert_eq!(of_order(Order::Turned(Turned::dense(2, 2, 2))), [0, 1, 4, 5, 2, 3, 6, 7]);
        assert_eq!(of_order(Order::Turned(Turned::dense(4, 2, 1))), [0, 2, 4, 6, 1, 3, 5, 7]);
        // Behind each group of two members the tensor has three rows of other things.
        let apart = Turned { stride: 7, ..Turned::dense(2, 2, 2) };
        assert_eq!(of_order(Order::Turned(apart)), [0, 1, 7, 8, 2, 3, 9, 10]);
        let repeated = Turned::repeated(4, 2);
        assert_eq!(of_order(Order::Turned(repeated)), [0, 0, 1, 1, 2, 2, 3, 3]);
        assert_eq!(repeated.span(2..7), 0..4);
    }
}
