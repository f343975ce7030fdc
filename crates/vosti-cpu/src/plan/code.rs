//! The instructions of a plan. Every operand is a place in the worker's scratch memory or a parameter.
//!
//! A tile's rows are padded to groups of 16 lanes. A scalar is one group, of which only the first lane counts.
//! Read next: [`super::machine`].

use vosti_tile::{Padding, Scalar};

use vosti_simd::vector::{MapFn, reduce::ReduceFn};

/// Index into the machine's table of counts. An entry is fixed, or the number of live lanes (or groups of them) of an axis.
pub type Count = u16;

/// An operand in scratch memory.
#[derive(Clone, Copy, Debug, Default)]
pub struct Place {
    /// Byte offset.
    pub at: u32,
    /// Bytes between rows; 0 if all rows read the same data.
    pub row: u32,
    /// True if there is a lane per column; false if a row has one value.
    pub lanes: bool,
}

/// An integer: known when the plan is made, or in scratch memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Int {
    Const(i64),
    I32(u32),
    I64(u32),
}

/// A contiguous row of integers in scratch memory: `I64` if `wide`, else `I32`.
#[derive(Clone, Copy, Debug)]
pub struct Ints {
    pub at: u32,
    pub wide: bool,
}

/// The contents of lanes that a load does not read.
#[derive(Clone, Copy, Debug)]
pub enum Fill {
    /// The bits of an element.
    Bits(u64),
    /// A tile.
    Tile(Place),
    /// Arbitrary.
    Undefined,
}

/// A window into a strided array, one entry per axis.
#[derive(Clone, Debug)]
pub struct Window {
    pub param: usize,
    /// Terms whose sum is the flat index of the array's first element.
    pub base: Vec<Int>,
    pub axes: Vec<WindowAxis>,
}

/// One axis of a window.
#[derive(Clone, Copy, Debug)]
pub struct WindowAxis {
    pub extent: usize,
    pub shape: Int,
    pub stride: Int,
    pub offset: Int,
    pub check: bool,
}

/// Which lanes of an axis a tile holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lanes {
    /// The number of lanes.
    pub count: Count,
    /// The live axis whose list names the lanes; `None`: the first lanes, in order.
    pub live: Option<u16>,
}

/// A load or store through a window. Axes before the last are the rows, merged.
#[derive(Clone, Debug)]
pub struct BlockAccess {
    pub window: Window,
    pub elem: Scalar,
    pub rows: Lanes,
    pub columns: Lanes,
    /// The tile's lanes run along the window's last axis. A rank-1 window has one row.
    pub tile: Place,
    pub padding: Padding,
}

/// A load or store through pointers: element (r, c) is at the sum of all terms.
#[derive(Clone, Debug)]
pub struct PointerAccess {
    pub param: usize,
    pub elem: Scalar,
    pub rows: Lanes,
    pub columns: Lanes,
    pub tile: Place,
    pub cells: Vec<Int>,
    pub row_terms: Vec<Ints>,
    pub column_terms: Vec<Ints>,
    /// True if the sums of column terms are consecutive numbers.
    pub consecutive: bool,
    pub lane_terms: Vec<(Ints, u32)>,
    /// Masks (I32, zero is false): of the whole tile, of rows, of columns, and of lanes with their row stride.
    pub all_masks: Vec<u32>,
    pub row_masks: Vec<u32>,
    pub column_masks: Vec<u32>,
    pub lane_masks: Vec<(u32, u32)>,
    pub fill: Fill,
}

/// An operand of a dot.
#[derive(Clone, Debug)]
pub enum Operand {
    /// In scratch memory: byte offset, bytes between rows.
    Scratch { at: u32, row: u32 },
    /// In a parameter: read in place if layout and bounds allow, else copied to the access's tile.
    Memory(BlockAccess),
}

/// `dst = start + a * b`.
#[derive(Clone, Debug)]
pub struct DotCode {
    pub elem: Scalar,
    pub rows: Lanes,
    pub columns: usize,
    /// Length of the contracted axis, over all iterations of a fused loop.
    pub depth: usize,
    pub a: Operand,
    pub b: Operand,
    pub dst: u32,
    pub dst_row: u32,
    pub accumulate: bool,
    /// Scratch for a right operand that is not packed in memory.
    pub b_packed: u32,
}

/// The loop of a product in integers (`kernels/integers.py`) over all blocks: `dst = start + ...`. Windows have all blocks.
#[derive(Clone, Debug)]
pub struct BlocksCode {
    pub rows: Lanes,
    pub columns: usize,
    /// Blocks of 32 along k.
    pub blocks: usize,
    pub hi: BlockAccess,
    /// None for activations of 8 bits.
    pub lo: Option<BlockAccess>,
    pub scale: BlockAccess,
    pub codes: BlockAccess,
    pub scales: BlockAccess,
    /// The sums of the activations, and the offsets that they are multiplied by, if the kernel adds offsets.
    pub minima: Option<(BlockAccess, BlockAccess)>,
    /// Sums are over halves of a block.
    pub halves: bool,
    pub dst: u32,
    pub dst_row: u32,
    pub accumulate: bool,
}

/// `dst = start + a * b` for integers, all in scratch as 32 bits wide.
#[derive(Clone, Debug)]
pub struct IntDotCode {
    pub rows: Count,
    pub columns: usize,
    pub depth: usize,
    pub a: Place,
    pub b: Place,
    pub start: Place,
    pub dst: Place,
}

/// Computes the live lanes of an axis: a lane is live if every bound and mask of at least one store holds.
#[derive(Clone, Debug)]
pub struct LiveCode {
    pub axis: u16,
    pub extent: usize,
    pub stores: Vec<LiveStore>,
}

/// The programs of a launch that may write, by the numbers of lanes: a program whose coordinate on `axis` is no lane's number
/// writes nothing. A launch of experts has programs for all of them, and a row chooses few.
#[derive(Clone, Debug)]
pub struct ChosenCode {
    pub axis: usize,
    /// The grid axes that numbers and masks depend on.
    pub by: [bool; 3],
    /// Lanes.
    pub extent: usize,
    pub stores: Vec<ChosenStore>,
}

/// What one store writes.
#[derive(Clone, Debug)]
pub struct ChosenStore {
    /// I32 numbers of the lanes.
    pub at: u32,
    /// I32 masks of the lanes whose numbers count.
    pub masks: Vec<u32>,
}

/// The conditions of one store: a lane is live for it if all of them hold.
#[derive(Clone, Debug, Default)]
pub struct LiveStore {
    /// A lane is live if `0 <= offset + coordinate < shape`.
    pub bounds: Vec<LiveBound>,
    /// I32 masks over the whole axis.
    pub masks: Vec<u32>,
}

/// A bound of a store's lanes.
#[derive(Clone, Copy, Debug)]
pub struct LiveBound {
    pub axis: Coordinate,
    pub offset: Int,
    pub shape: Int,
}

/// Lane i's coordinate on an axis of a window: `(i / divide) % extent`. Extents of tiles are usually powers of two, so shifts
/// and masks replace the division, which is slow for the many lanes of an attention tile.
#[derive(Clone, Copy, Debug)]
pub enum Coordinate {
    Shift { by: u32, mask: usize },
    Divide { divide: usize, extent: usize },
}

impl Coordinate {
    pub fn new(divide: usize, extent: usize) -> Self {
        match divide.is_power_of_two() && extent.is_power_of_two() {
            true => Self::Shift { by: divide.trailing_zeros(), mask: extent - 1 },
            false => Self::Divide { divide, extent },
        }
    }

    #[inline(always)]
    pub fn of(self, lane: usize) -> usize {
        match self {
            Self::Shift { by, mask } => (lane >> by) & mask,
            Self::Divide { divide, extent } => lane / divide % extent,
        }
    }

    /// The first lane, from `lane` on, with a coordinate in `low..high`; the lanes between are skipped, not tried. None if no
    /// coordinate is in it.
    #[inline(always)]
    pub fn next(self, lane: usize, low: i64, high: i64) -> Option<usize> {
        let at = self.of(lane) as i64;
        if low <= at && at < high {
            return Some(lane);
        }
        let (divide, extent, first) = match self {
            Self::Shift { by, mask } => (1 << by, mask + 1, lane >> by & !mask),
            Self::Divide { divide, extent } => (divide, extent, lane / divide / extent * extent),
        };
        // The lanes of coordinate 0 begin at `first * divide`, and again every `extent * divide` lanes.
        let low = low.max(0);
        let first = if at < low { first } else { first + extent };
        (low < high.min(extent as i64)).then(|| (first + low as usize) * divide)
    }

    /// True if neighbours on the axis are neighbours among lanes.
    pub fn is_innermost(self) -> bool {
        matches!(self, Self::Shift { by: 0, .. } | Self::Divide { divide: 1, .. })
    }
}

/// A comparison of integers that vary along one axis each.
#[derive(Clone, Copy, Debug)]
pub struct Test {
    pub op: vosti_tile::CmpInt,
    pub a: Ints,
    pub a_count: Count,
    pub b: Ints,
    pub b_count: Count,
    /// Lane i of `a` is compared with lane i of `b` only; else every lane with every lane.
    pub paired: bool,
    /// Lanes count upwards by one, so the first and the last are the extremes.
    pub a_rises: bool,
    pub b_rises: bool,
}

/// Integer arithmetic on scalars; it wraps to the width of the result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IntOp {
    Add,
    Sub,
    Mul,
    DivS,
    RemS,
    MaxS,
    MinS,
}

/// A function of up to three tiles, lane by lane.
#[derive(Clone, Copy, Debug)]
pub struct MapCode {
    pub f: MapFn,
    pub dst: Place,
    pub args: [Place; 3],
    pub rows: Count,
    pub groups: Count,
}

/// One instruction. Offsets of scratch memory are in bytes.
#[derive(Clone, Debug)]
pub enum Instr {
    Map(MapCode),
    /// Several maps over the same rows, a few rows at a time: a map's results are still in the first-level cache for the next.
    FusedMaps(Vec<MapCode>),
    /// Folds the first `length` lanes of each row.
    Reduce {
        f: ReduceFn,
        dst: u32,
        src: Place,
        rows: Count,
        length: Count,
    },
    /// Copies `rows` by `columns` elements of `bytes` each, transposed.
    Transpose {
        dst: Place,
        src: Place,
        rows: usize,
        columns: usize,
        bytes: usize,
    },
    /// The numbers of the lanes held, plus `start`.
    Range {
        at: u32,
        lanes: Lanes,
        start: i32,
    },
    /// Copies `count` elements in row-major order from rows of `from` to rows of `to` columns.
    Reshape {
        dst: Place,
        src: Place,
        from: usize,
        to: usize,
        count: usize,
        bytes: usize,
    },
    /// True if every test holds in every lane.
    AllTrue {
        at: u32,
        tests: Vec<Test>,
    },
    /// An operation on one or two scalar integers.
    Int {
        at: u32,
        wide: bool,
        op: IntOp,
        a: Int,
        b: Int,
    },
    ProgramId {
        at: u32,
        axis: usize,
    },
    NumPrograms {
        at: u32,
        axis: usize,
    },
    /// Before a launch, what comes before it is run for the programs that may write ([`super::machine::Machine::chosen`]). A program
    /// passes over it.
    Chosen(Box<ChosenCode>),
    Live(Box<LiveCode>),
    LoadBlock(Box<BlockAccess>),
    StoreBlock(Box<BlockAccess>),
    Load(Box<PointerAccess>),
    Store(Box<PointerAccess>),
    Dot(Box<DotCode>),
    IntDot(Box<IntDotCode>),
    Blocks(Box<BlocksCode>),
    /// `index = lo`; jumps to `end` unless `index < hi`.
    Enter {
        index: u32,
        wide: bool,
        lo: Int,
        hi: Int,
        end: usize,
    },
    /// `index += step`; jumps to `start` if `index < hi`.
    Again {
        index: u32,
        wide: bool,
        hi: Int,
        step: Int,
        start: usize,
    },
    /// Jumps if the condition is false.
    Unless {
        cond: u32,
        to: usize,
    },
    Jump {
        to: usize,
    },
}

/// A compiled kernel.
#[derive(Clone, Debug)]
pub struct Plan {
    pub code: Vec<Instr>,
    /// The contents of the first bytes of scratch during a launch.
    pub constants: Vec<u8>,
    /// Bytes of scratch a worker needs.
    pub scratch: usize,
    /// The initial table of counts, entries of live axes included.
    pub counts: Vec<u32>,
    /// Per live axis: its entry in `counts` (the next entry counts its groups) and its extent.
    pub live: Vec<(Count, usize)>,
    /// The first instruction behind those that compute the live lanes.
    pub body: usize,
    /// The grid axes that the code before the body depends on: programs that differ only in another axis compute the same there.
    pub live_by: [bool; 3],
    /// Where [`Instr::Chosen`] is in the code.
    pub chosen: Option<usize>,
    /// The grid axis along which programs read the same right operands of dots. These programs run one after the other.
    pub sweep: Option<usize>,
    /// Per parameter, the layout in which a dot wants to read it.
    pub wanted: Vec<Option<vosti_simd::layout::Layout>>,
    /// Per parameter: whether the kernel writes it.
    pub written: Vec<bool>,
    /// Per parameter: whether a dot may read it in place, later than the load in the kernel.
    pub read_in_place: Vec<bool>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_lane_is_the_first_whose_coordinate_is_within_the_bounds() {
        for (divide, extent) in [(1, 16), (16, 4), (4, 1), (1, 1), (3, 5), (1, 6), (6, 1)] {
            let axis = Coordinate::new(divide, extent);
            for (low, high) in
                [(0, 16), (0, 3), (2, 3), (1, 100), (-4, 2), (3, 3), (5, 2), (i64::MIN, i64::MAX), (40, 50)]
            {
                let within = |lane: &usize| (low..high).contains(&((lane / divide % extent) as i64));
                for lane in 0..3 * divide * extent {
                    let first = (lane..lane + divide * extent).find(within);
                    assert_eq!(axis.next(lane, low, high), first, "{axis:?}, {low}..{high}, from {lane}");
                }
            }
        }
    }
}
