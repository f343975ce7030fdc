//! Matrix products of tensor memory, which sm100 has: `tcgen05` (PTX ISA, "TensorCore 5th Generation Family Instructions").
//!
//! One thread starts a product of a whole block: its first operand is in shared or tensor memory, the second in shared memory, its
//! sums in tensor memory. The other instructions are a warp's. When a product has ended for whom: [`crate::shared`].

use crate::decode::{At, First, Register, Tensor};
use crate::fault::Fault;
use crate::launch::{Block, Global};
use crate::shared::{Place, Sum, Who};
use crate::tile::{self, DEPTH, Line, Tile};
use crate::warp::{ALL, Outcome, Warp, each};

/// Lanes of a warp's part of tensor memory ("Access restrictions").
const PART: u32 = 32;
/// Rows that a product of 64 has in each part ("Layout F").
const HALF: u32 = 16;
/// Of an instruction descriptor ("Instruction Descriptor", `.kind::f16`), all but rows, columns and transpositions: FP32 sums of BF16 numbers.
const BF16: u64 = 1 << 4 | 1 << 7 | 1 << 10;

/// What an instruction descriptor says of a product.
struct Form {
    rows: u32,
    columns: u32,
    /// Of each operand in shared memory.
    transposed: [bool; 2],
}

impl Form {
    fn of(descriptor: u64) -> Result<Form, Fault> {
        let field = |from: u32, bits: u32| (descriptor >> from & ((1 << bits) - 1)) as u32;
        let (rows, columns) = (field(24, 5) << 4, field(17, 6) << 3);
        let known = 3 << 15 | 0x3f << 17 | 0x1f << 24;
        let fits = match rows {
            64 => columns.is_multiple_of(8),
            128 => columns.is_multiple_of(16),
            _ => false,
        };
        if descriptor & !known != BF16 || !fits || !(8..=256).contains(&columns) {
            return Err(Fault::Descriptor { descriptor });
        }
        Ok(Form { rows, columns, transposed: [field(15, 1) == 1, field(16, 1) == 1] })
    }

    /// Where a row of an operand or of the sums is, by the first one ("Data Path Layout Organization": D and F).
    fn row(&self, first: Place, row: u32) -> Place {
        let lane = if self.rows == 64 { row / HALF * PART + row % HALF } else { row };
        first.add(lane, 0)
    }

    /// Whether rows may begin there.
    fn aligned(&self, first: Place) -> bool {
        first.lane == 0 || self.rows == 64 && first.lane == HALF
    }
}

/// Where the rows of the first operand are.
enum Rows {
    Tile(Tile),
    /// In tensor memory, from a word on.
    Words(Place),
}

/// A product, as its operands say it.
struct Product {
    form: Form,
    /// The first word of the sums.
    to: Place,
    a: Rows,
    b: Tile,
    /// Whether it adds to what the sums are.
    keep: bool,
}

impl Tensor {
    /// The name of an instruction that all threads of a warp execute together.
    pub(crate) fn whole_warp(&self) -> Option<&'static str> {
        Some(match self {
            Tensor::Allocate { .. } => "tcgen05.alloc",
            Tensor::Free { .. } => "tcgen05.dealloc",
            Tensor::Relinquish => "tcgen05.relinquish_alloc_permit",
            Tensor::Load { .. } => "tcgen05.ld",
            Tensor::Store { .. } => "tcgen05.st",
            Tensor::WaitLoads => "tcgen05.wait::ld",
            Tensor::WaitStores => "tcgen05.wait::st",
            Tensor::Multiply { .. } | Tensor::Commit(_) => return None,
        })
    }
}

impl Warp {
    pub(crate) fn tensor<G: Global + ?Sized>(
        &mut self,
        what: &Tensor,
        mask: u32,
        line: u32,
        block: &mut Block<'_, G>,
    ) -> Outcome<()> {
        let warp = self.first() / 32;
        match what {
            Tensor::Allocate { at, columns } => {
                let at = self.addresses(*at, ALL, "the address of an allocation")?[0];
                block.shared.allocate(at, *columns, self.leader())
            }
            Tensor::Free { at, columns } => {
                block.shared.free(self.same(*at, "the address of an allocation")?, *columns, self.leader())
            }
            Tensor::Relinquish => {
                block.shared.relinquish();
                Ok(())
            }
            Tensor::Load { to, at, split } => self.load_words(to, *at, *split, block),
            Tensor::Store { at, split, from } => self.store_words(*at, *split, from, block),
            Tensor::WaitLoads => {
                block.shared.wait_loads(warp);
                Ok(())
            }
            Tensor::WaitStores => {
                block.shared.wait_stores(warp);
                Ok(())
            }
            Tensor::Multiply { to, a, b, form, keep } => each(mask).try_for_each(|lane| {
                let one = 1 << lane;
                let operand = |register: Register, what| Ok::<_, Fault>(self.sure(register, one, what)?[lane as usize]);
                let product = Product {
                    form: Form::of(operand(*form, "an instruction descriptor")?)?,
                    to: self.place(*to, one)?,
                    a: match a {
                        First::Shared(tile) => Rows::Tile(Tile::of_tensor(operand(*tile, "a descriptor")?)?),
                        First::Tensor(at) => Rows::Words(self.place(*at, one)?),
                    },
                    b: Tile::of_tensor(operand(*b, "a descriptor")?)?,
                    keep: operand(*keep, "a scale of a matrix product")? != 0,
                };
                start(&product, self.who(lane), line, block)
            }),
            Tensor::Commit(counter) => {
                let at = self.addresses(*counter, mask, "the address of an mbarrier")?;
                each(mask).try_for_each(|lane| block.shared.commit(at[lane as usize], line, self.who(lane)))
            }
        }
    }

    /// An address in tensor memory, which is one for all threads of a mask.
    fn place(&self, at: At, mask: u32) -> Outcome<Place> {
        let what = "an address in tensor memory";
        let (lanes, first) = (self.addresses(at, mask, what)?, mask.trailing_zeros() as usize);
        match each(mask).all(|lane| lanes[lane as usize] == lanes[first]) {
            true => Ok(Place::of(lanes[first])),
            false => Err(Fault::Divergent { what }),
        }
    }

    /// The words of a warp's load or store: of each thread those of its registers ("Data Movement Shape": `.32x32b`; with a split
    /// `.16x32bx2`, whose threads from 16 on are so many columns further, in the lanes of the first 16).
    fn words(&self, at: At, split: Option<u32>) -> Outcome<impl Fn(u32, usize) -> Place + use<>> {
        let first = self.place(at, ALL)?;
        let part = self.first() / 32 % 4 * PART;
        let allowed = first.lane == part || split.is_some() && first.lane == part + HALF;
        if !allowed {
            return Err(Fault::Tensor { lane: first.lane, column: first.column, why: "it is not of the warp's part" });
        }
        Ok(move |lane: u32, register: usize| match split {
            Some(split) if lane >= HALF => first.add(lane - HALF, split + register as u32),
            _ => first.add(lane, register as u32),
        })
    }

    /// `tcgen05.ld`. Its registers may be read at once ("Register dependencies, same thread").
    fn load_words<G: Global + ?Sized>(
        &mut self,
        to: &[Register],
        at: At,
        split: Option<u32>,
        block: &mut Block<'_, G>,
    ) -> Outcome<()> {
        let place = self.words(at, split)?;
        for (i, register) in to.iter().enumerate() {
            let (mut lanes, mut written) = ([0; 32], 0);
            for lane in each(ALL) {
                let (value, known) = block.shared.load_word(place(lane, i), self.who(lane))?;
                lanes[lane as usize] = value.into();
                written |= u32::from(known) << lane;
            }
            self.write(*register, &lanes, written, ALL);
        }
        Ok(())
    }

    /// `tcgen05.st`.
    fn store_words<G: Global + ?Sized>(
        &mut self,
        at: At,
        split: Option<u32>,
        from: &[Register],
        block: &mut Block<'_, G>,
    ) -> Outcome<()> {
        let place = self.words(at, split)?;
        for (i, register) in from.iter().enumerate() {
            let (lanes, written) = self.read(*register);
            for lane in each(ALL) {
                let known = written >> lane & 1 == 1;
                block.shared.store_word(place(lane, i), lanes[lane as usize] as u32, known, self.who(lane))?;
            }
        }
        Ok(())
    }
}

/// `tcgen05.mma` of one thread.
fn start<G: Global + ?Sized>(product: &Product, who: Who, line: u32, block: &mut Block<'_, G>) -> Outcome<()> {
    let Product { form, to, a, b, keep } = product;
    let (rows, columns) = (form.rows as usize, form.columns as usize);
    let words = if let Rows::Words(first) = a { Some(first) } else { None };
    if let Some(first) = [Some(to), words].into_iter().flatten().find(|first| !form.aligned(**first)) {
        return Err(Fault::Tensor { lane: first.lane, column: first.column, why: "no rows of a product begin there" });
    }
    let mut read = 0;
    let mut of_tile = |tile: &Tile, lines: usize, transposed: bool| {
        read += lines * DEPTH;
        tile.lines(0, lines, transposed, |at| block.shared.load_by_product(at, who))
    };
    let b = of_tile(b, columns, form.transposed[1])?;
    let a = match a {
        Rows::Tile(tile) => of_tile(tile, rows, form.transposed[0])?,
        Rows::Words(first) => {
            let mut lines: Vec<Line> = vec![[0; DEPTH]; rows];
            for (row, word) in (0..rows).flat_map(|row| (0..DEPTH / 4).map(move |word| (row, word))) {
                let value = block.shared.factor(form.row(*first, row as u32).add(0, word as u32), who)?;
                lines[row][4 * word..4 * word + 4].copy_from_slice(&value.to_le_bytes());
            }
            lines
        }
    };
    let sum = Sum { to: *to, rows: form.rows, columns: form.columns };
    let row = |row: u32| (0..form.columns).map(move |column| form.row(*to, row).add(0, column));
    let places: Vec<Place> = (0..form.rows).flat_map(row).collect();
    let before = places.iter().map(|place| block.shared.sum(*place, sum, *keep, who));
    let mut sums: Vec<u32> = before.collect::<Result<_, _>>()?;
    if !keep {
        sums.fill(0);
    }
    tile::bf16(&mut sums, &a, &b);
    block.counts.operand_bytes += read as u64;
    block.shared.start_product(sum, &places, &sums, line, who);
    Ok(())
}
