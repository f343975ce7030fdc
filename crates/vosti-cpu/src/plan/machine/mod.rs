//! Runs a plan, one program of the grid at a time, in a worker's scratch memory.
//!
//! Every access to a parameter is checked against its length, row by row: if a kernel leaves its buffers, the launch fails and
//! nothing outside is read or written. Scratch places are in bounds by construction of the plan.
//! Read next: [`access`], [`dot`].

mod access;
mod blocks;
mod bytes;
mod dot;

use vosti_tile::{CmpInt, Scalar};

use super::code::{Count, Instr, Int, IntOp, Lanes, LiveBound, LiveCode, LiveStore, MapCode, Place, Plan, Test};
use crate::memory::Region;
use blocks::Integers;
use vosti_simd::Isa;
use vosti_simd::layout::Layout;
use vosti_simd::micro::{self, Kernels};
use vosti_simd::vector::{self, Arg, ops};

/// A buffer bound to a parameter.
#[derive(Clone, Copy, Debug)]
pub struct Param {
    /// The first byte of the buffer.
    pub base: *mut u8,
    /// Elements, in the kernel's view.
    pub len: usize,
    /// The order of its elements in memory.
    pub layout: Layout,
}

/// An access outside a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The index of the parameter in the kernel's signature.
    pub param: usize,
}

/// A worker's scratch memory and the state of the program it runs.
pub struct Machine {
    scratch: Region,
    base: *mut u8,
    counts: Vec<u32>,
    lists: Vec<Vec<u32>>,
    /// Per live axis: whether its live lanes are the first ones.
    prefix: Vec<bool>,
    kernels: Kernels,
    /// The two panels that were expanded last.
    expanded: [Expanded; 2],
    integers: Integers,
    moves: Moves,
    program: [i32; 3],
    grid: [i32; 3],
    /// The coordinates on [`Plan::live_by`] of the program whose live lanes are known.
    known: Option<[i32; 3]>,
    fault: Option<Fault>,
    /// The state of the generator that fills undefined lanes; zeros if `None`.
    poison: Option<u64>,
}

// SAFETY: pointers are to scratch that the machine owns, or are only compared.
unsafe impl Send for Machine {}

#[inline(always)]
fn integer(op: IntOp, a: i64, b: i64) -> i64 {
    match op {
        IntOp::Add => a.wrapping_add(b),
        IntOp::Sub => a.wrapping_sub(b),
        IntOp::Mul => a.wrapping_mul(b),
        IntOp::DivS if b != 0 => a.wrapping_div(b),
        IntOp::RemS if b != 0 => a.wrapping_rem(b),
        IntOp::DivS | IntOp::RemS => 0,
        IntOp::MaxS => a.max(b),
        IntOp::MinS => a.min(b),
    }
}

/// Steps of a stored panel, expanded to BF16. Programs that run in sequence read the same panel, or two panels in turn.
struct Expanded {
    panel: *const u8,
    step: usize,
    steps: usize,
    elements: Region,
}

impl Expanded {
    fn none() -> std::io::Result<Self> {
        Ok(Self { panel: std::ptr::null(), step: 0, steps: 0, elements: Region::zeroed(0)? })
    }
}

/// Groups of lanes in a strip: 4 KiB of FP32.
const STRIP: usize = 64;

/// The functions that move whole rows between scratch and parameters.
struct Moves {
    from_bytes: vector::MapFn,
    to_bytes: vector::MapFn,
    copy16: vector::MapFn,
    copy32: vector::MapFn,
    stored_bf16: vector::MapFn,
    stored_f32: vector::MapFn,
}

impl Machine {
    /// A machine for plans of up to `scratch` bytes and `axes` live axes of up to `extent` lanes.
    pub fn new(isa: Isa, scratch: usize, poison: Option<u64>) -> std::io::Result<Self> {
        let scratch = Region::zeroed(scratch.max(4096))?;
        let base = scratch.base();
        Ok(Self {
            scratch,
            base,
            counts: Vec::with_capacity(64),
            lists: Vec::new(),
            prefix: Vec::new(),
            kernels: micro::kernels(isa),
            expanded: [Expanded::none()?, Expanded::none()?],
            integers: Integers::new(isa),
            moves: Moves {
                from_bytes: ops::from_bytes().of(isa),
                to_bytes: ops::to_bytes().of(isa),
                copy16: ops::copy(2).of(isa),
                copy32: ops::copy(4).of(isa),
                stored_bf16: ops::stored(Scalar::Bf16).of(isa),
                stored_f32: ops::stored(Scalar::F32).of(isa),
            },
            program: [0; 3],
            grid: [1; 3],
            known: None,
            fault: None,
            poison,
        })
    }

    /// Prepares for the programs of one launch. Panics if the plan needs more scratch than the machine has.
    pub fn begin(&mut self, plan: &Plan, grid: [i32; 3]) {
        assert!(plan.scratch <= self.scratch.len(), "the machine was made for smaller plans");
        self.grid = grid;
        self.known = None;
        self.integers.forget();
        self.counts.clear();
        self.counts.extend_from_slice(&plan.counts);
        while self.lists.len() < plan.live.len() {
            self.lists.push(Vec::with_capacity(1024));
            self.prefix.push(true);
        }
        // SAFETY: scratch is at least as long, as asserted.
        unsafe { std::ptr::copy_nonoverlapping(plan.constants.as_ptr(), self.base, plan.constants.len()) };
    }

    /// Runs one program. Error: an access outside a buffer.
    ///
    /// # Safety
    /// Parameters are buffers of their length and layout that live through the call; no other thread writes what
    /// this program reads or writes.
    pub unsafe fn run(&mut self, plan: &Plan, params: &[Param], program: [i32; 3]) -> Result<(), Fault> {
        let key = std::array::from_fn(|axis| if plan.live_by[axis] { program[axis] } else { 0 });
        let known = plan.body > 0 && self.known == Some(key);
        if known && self.idle(plan) {
            return Ok(());
        }
        self.known = None;
        // SAFETY: the caller's.
        unsafe { self.execute(&plan.code, if known { plan.body } else { 0 }, plan, params, program)? };
        self.known = Some(key);
        Ok(())
    }

    /// True if no lane is live, so that no store writes anything.
    fn idle(&self, plan: &Plan) -> bool {
        !plan.live.is_empty() && plan.live.iter().all(|(count, _)| self.n(*count) == 0)
    }

    /// The programs of the launch that may write, if the plan has [`Instr::Chosen`], by their coordinates on its axis; those that
    /// differ only in what the numbers depend on, and so read the same weights, follow one another. Error: an access outside a buffer.
    ///
    /// # Safety
    /// As for [`Machine::run`].
    pub unsafe fn chosen(&mut self, plan: &Plan, params: &[Param], programs: &mut Vec<[i32; 3]>) -> Result<(), Fault> {
        programs.clear();
        let Some(end) = plan.chosen else { return Ok(()) };
        let Instr::Chosen(code) = &plan.code[end] else { return Ok(()) };
        let among = |axes: [bool; 3]| {
            let [x, y, z] = std::array::from_fn(|axis| if axes[axis] { self.grid[axis] } else { 1 });
            (0..x).flat_map(move |x| (0..y).flat_map(move |y| (0..z).map(move |z| [x, y, z])))
        };
        let free = std::array::from_fn(|axis| axis != code.axis && !code.by[axis]);
        let (places, free) = (among(code.by), among(free));
        let mut named = Vec::new();
        for place in places {
            // SAFETY: the caller's.
            unsafe { self.execute(&plan.code[..end], 0, plan, params, place)? };
            for (store, lane) in
                code.stores.iter().flat_map(|store| (0..code.extent as u32).map(move |lane| (store, lane)))
            {
                // SAFETY: places of the plan, which has run up to here.
                unsafe {
                    if store.masks.iter().all(|mask| self.get32(mask + 4 * lane) != 0) {
                        named.push((self.get32(store.at + 4 * lane), place));
                    }
                }
            }
        }
        named.retain(|(number, _)| (0..self.grid[code.axis]).contains(number));
        named.sort_unstable();
        named.dedup();
        for same in named.chunk_by(|a, b| a.0 == b.0) {
            for free in free.clone() {
                programs.extend(same.iter().map(|(number, place)| {
                    std::array::from_fn(|axis| if axis == code.axis { *number } else { place[axis] + free[axis] })
                }));
            }
        }
        Ok(())
    }

    /// Executes a part of a plan's code from an instruction on.
    unsafe fn execute(
        &mut self,
        code: &[Instr],
        mut at: usize,
        plan: &Plan,
        params: &[Param],
        program: [i32; 3],
    ) -> Result<(), Fault> {
        self.program = program;
        self.fault = None;
        while let Some(instr) = code.get(at) {
            at += 1;
            // SAFETY: the plan's places are within its scratch, which `begin` checked; parameters are the caller's.
            unsafe {
                match instr {
                    Instr::Map(map) => self.map(map, 0, self.n(map.rows)),
                    Instr::FusedMaps(maps) => self.fused_maps(maps),
                    Instr::Reduce { f, dst, src, rows, length } => f(&vector::reduce::Rows {
                        dst: self.base.add(*dst as usize),
                        src: self.base.add(src.at as usize),
                        src_row: src.row as usize,
                        rows: self.n(*rows),
                        length: self.n(*length),
                    }),
                    Instr::Transpose { dst, src, rows, columns, bytes } => {
                        self.transpose(*dst, *src, *rows, *columns, *bytes);
                    }
                    Instr::Reshape { dst, src, from, to, count, bytes } => {
                        for e in 0..*count {
                            let from = src.at as usize + e / from * src.row as usize + e % from * bytes;
                            let to = dst.at as usize + e / to * dst.row as usize + e % to * bytes;
                            std::ptr::copy_nonoverlapping(self.base.add(from), self.base.add(to), *bytes);
                        }
                    }
                    Instr::Range { at, lanes, start } => self.range(*at, *lanes, *start),
                    Instr::AllTrue { at, tests } => {
                        let holds = tests.iter().all(|test| self.holds(test));
                        self.put32(*at, i32::from(holds));
                    }
                    Instr::Int { at, wide, op, a, b } => {
                        let value = integer(*op, self.int(*a), self.int(*b));
                        self.put_int(*at, *wide, value);
                    }
                    Instr::ProgramId { at, axis } => self.put32(*at, self.program[*axis]),
                    Instr::NumPrograms { at, axis } => self.put32(*at, self.grid[*axis]),
                    Instr::Live(code) => {
                        self.live(plan, code);
                        // Counts of axes that come later are the last program's.
                        if usize::from(code.axis) + 1 == plan.live.len() && self.idle(plan) {
                            break;
                        }
                    }
                    Instr::Chosen(_) => {}
                    Instr::LoadBlock(access) => self.load_block(params, access),
                    Instr::StoreBlock(access) => self.store_block(params, access),
                    Instr::Load(access) => self.load(params, access),
                    Instr::Store(access) => self.store(params, access),
                    Instr::Dot(code) => self.dot(params, code),
                    Instr::IntDot(code) => self.int_dot(code),
                    Instr::Blocks(code) => self.blocks(params, code),
                    Instr::Enter { index, wide, lo, hi, end } => {
                        let (lo, hi) = (self.int(*lo), self.int(*hi));
                        self.put_int(*index, *wide, lo);
                        if lo >= hi {
                            at = *end;
                        }
                    }
                    Instr::Again { index, wide, hi, step, start } => {
                        let next = self.get_int(*index, *wide) + self.int(*step);
                        self.put_int(*index, *wide, next);
                        if next < self.int(*hi) && self.fault.is_none() {
                            at = *start;
                        }
                    }
                    Instr::Unless { cond, to } => {
                        if self.get32(*cond) == 0 {
                            at = *to;
                        }
                    }
                    Instr::Jump { to } => at = *to,
                }
            }
        }
        self.fault.map_or(Ok(()), Err)
    }

    #[inline(always)]
    fn n(&self, count: Count) -> usize {
        self.counts[usize::from(count)] as usize
    }

    #[inline(always)]
    unsafe fn get32(&self, at: u32) -> i32 {
        // SAFETY: a place of the plan.
        unsafe { self.base.add(at as usize).cast::<i32>().read() }
    }

    #[inline(always)]
    unsafe fn put32(&self, at: u32, value: i32) {
        // SAFETY: a place of the plan.
        unsafe { self.base.add(at as usize).cast::<i32>().write(value) }
    }

    #[inline(always)]
    unsafe fn get_int(&self, at: u32, wide: bool) -> i64 {
        // SAFETY: a place of the plan, 64-byte aligned.
        unsafe { if wide { self.base.add(at as usize).cast::<i64>().read() } else { i64::from(self.get32(at)) } }
    }

    #[inline(always)]
    unsafe fn put_int(&self, at: u32, wide: bool, value: i64) {
        // SAFETY: as above.
        unsafe {
            if wide { self.base.add(at as usize).cast::<i64>().write(value) } else { self.put32(at, value as i32) }
        }
    }

    #[inline(always)]
    unsafe fn int(&self, int: Int) -> i64 {
        // SAFETY: as above.
        match int {
            Int::Const(value) => value,
            Int::I32(at) => unsafe { self.get_int(at, false) },
            Int::I64(at) => unsafe { self.get_int(at, true) },
        }
    }

    /// Rows `first..first + rows` of a map.
    #[inline(always)]
    unsafe fn map(&mut self, map: &MapCode, first: usize, rows: usize) {
        // SAFETY: places of the plan, which have room for these rows and groups and overlap only in place.
        unsafe {
            let at = |place: &Place| self.base.add(place.at as usize + first * place.row as usize);
            let arg = |place: &Place| Arg { at: at(place), row: place.row as usize, lanes: place.lanes };
            let dst_row = map.dst.row as usize;
            let args = [arg(&map.args[0]), arg(&map.args[1]), arg(&map.args[2])];
            (map.f)(&vector::Map { dst: at(&map.dst), dst_row, args, rows, groups: self.n(map.groups) });
        }
    }

    unsafe fn fused_maps(&mut self, maps: &[MapCode]) {
        let rows = self.n(maps[0].rows);
        let strip = (STRIP / self.n(maps[0].groups).max(1)).max(1);
        for first in (0..rows).step_by(strip) {
            for map in maps {
                // SAFETY: as above; no map of a chain reads other rows of what another of it writes.
                unsafe { self.map(map, first, strip.min(rows - first)) }
            }
        }
    }

    unsafe fn transpose(&mut self, dst: Place, src: Place, rows: usize, columns: usize, bytes: usize) {
        for r in 0..rows {
            for c in 0..columns {
                // SAFETY: both places hold rows * columns elements with their row strides.
                unsafe {
                    let from = self.base.add(src.at as usize + r * src.row as usize + c * bytes);
                    let to = self.base.add(dst.at as usize + c * dst.row as usize + r * bytes);
                    std::ptr::copy_nonoverlapping(from, to, bytes);
                }
            }
        }
    }

    unsafe fn range(&mut self, at: u32, lanes: Lanes, start: i32) {
        for i in 0..self.n(lanes.count) {
            let lane = self.lane(lanes, i);
            // SAFETY: the place has room for every lane.
            unsafe { self.put32(at + 4 * i as u32, start.wrapping_add(lane as i32)) }
        }
    }

    /// The number of the i-th lane held.
    #[inline(always)]
    fn lane(&self, lanes: Lanes, i: usize) -> usize {
        match lanes.live {
            Some(axis) if !self.prefix[usize::from(axis)] => self.lists[usize::from(axis)][i] as usize,
            _ => i,
        }
    }

    /// True if the lanes held are the first ones, in order.
    #[inline(always)]
    fn in_order(&self, lanes: Lanes) -> bool {
        lanes.live.is_none_or(|axis| self.prefix[usize::from(axis)])
    }

    /// Finds the live lanes of an axis.
    unsafe fn live(&mut self, plan: &Plan, code: &LiveCode) {
        let axis = usize::from(code.axis);
        // SAFETY: bounds and masks are places of the plan.
        let simple = match &code.stores[..] {
            [store] if store.masks.is_empty() && store.bounds.len() == 1 && store.bounds[0].axis.is_innermost() => {
                let (offset, shape) = unsafe { (self.int(store.bounds[0].offset), self.int(store.bounds[0].shape)) };
                (offset >= 0).then(|| (shape - offset).clamp(0, code.extent as i64) as usize)
            }
            _ => None,
        };
        let (entry, _) = plan.live[axis];
        let entry = usize::from(entry);
        let count = match simple {
            Some(count) => {
                self.prefix[axis] = true;
                count
            }
            None => {
                let mut list = std::mem::take(&mut self.lists[axis]);
                list.clear();
                let mut lane = 0;
                loop {
                    // SAFETY: as above.
                    lane = unsafe { self.next_live(code, lane) };
                    if lane >= code.extent {
                        break;
                    }
                    list.push(lane as u32);
                    lane += 1;
                }
                self.prefix[axis] = list.last().is_none_or(|last| *last as usize + 1 == list.len());
                self.lists[axis] = list;
                self.lists[axis].len()
            }
        };
        self.counts[entry] = count as u32;
        self.counts[entry + 1] = count.div_ceil(16) as u32;
    }

    /// The first live lane, from `lane` on; the extent of the axis if there is none.
    unsafe fn next_live(&self, code: &LiveCode, lane: usize) -> usize {
        let mut first = code.extent;
        for store in &code.stores {
            // SAFETY: the caller's.
            first = unsafe { self.next_stored(store, lane, first) };
            if first == lane {
                break;
            }
        }
        first
    }

    /// The first of the lanes `lane..end` for which all conditions of a store hold; `end` if there is none.
    unsafe fn next_stored(&self, store: &LiveStore, mut lane: usize, end: usize) -> usize {
        'lanes: while lane < end {
            for LiveBound { axis, offset, shape } in &store.bounds {
                // SAFETY: bounds and masks are places of the plan; masks have a lane for each of the axis.
                let (offset, shape) = unsafe { (self.int(*offset), self.int(*shape)) };
                match axis.next(lane, offset.saturating_neg(), shape.saturating_sub(offset)) {
                    Some(next) if next == lane => {}
                    Some(next) => {
                        lane = next;
                        continue 'lanes;
                    }
                    None => return end,
                }
            }
            // SAFETY: as above.
            if store.masks.iter().all(|mask| unsafe { self.get32(mask + 4 * lane as u32) } != 0) {
                return lane;
            }
            lane += 1;
        }
        end
    }

    /// True if a comparison holds for all lanes.
    unsafe fn holds(&self, test: &Test) -> bool {
        let (m, n) = (self.n(test.a_count), self.n(test.b_count));
        // SAFETY: places of the plan with as many lanes.
        let a = |i: usize| unsafe { self.term(test.a, i) };
        // SAFETY: as above.
        let b = |i: usize| unsafe { self.term(test.b, i) };
        let compare = |a: i64, b: i64| match test.op {
            CmpInt::Slt => a < b,
            CmpInt::Sle => a <= b,
            CmpInt::Sgt => a > b,
            _ => a >= b,
        };
        if m == 0 || n == 0 {
            return true;
        }
        if test.paired {
            return (0..m).all(|i| compare(a(i), b(i)));
        }
        let ends = |f: &dyn Fn(usize) -> i64, n: usize| (f(0).min(f(n - 1)), f(0).max(f(n - 1)));
        let range = |f: &dyn Fn(usize) -> i64, n: usize, rises: bool| match rises {
            // If the count wraps, the ends are not the extremes, so every lane is read.
            true if f(n - 1).wrapping_sub(f(0)) == n as i64 - 1 => ends(f, n),
            _ => (0..n).map(f).fold((i64::MAX, i64::MIN), |(low, high), x| (low.min(x), high.max(x))),
        };
        let (a, b) = (range(&a, m, test.a_rises), range(&b, n, test.b_rises));
        match test.op {
            CmpInt::Slt | CmpInt::Sle => compare(a.1, b.0),
            _ => compare(a.0, b.1),
        }
    }

    /// The value of the next undefined lane: NaN, an infinity or random bits; 0 without poison.
    fn undefined(&mut self, bytes: usize) -> u64 {
        let Some(state) = &mut self.poison else { return 0 };
        *state ^= *state << 13;
        *state ^= *state >> 7;
        *state ^= *state << 17;
        let wild = match (*state >> 60, bytes) {
            (0..4, 2) => 0x7fc0,
            (4..6, 2) => 0x7f80,
            (6..8, 2) => 0xff80,
            (0..4, 4) => 0x7fc0_0000,
            (4..6, 4) => 0x7f80_0000,
            (6..8, 4) => 0xff80_0000,
            _ => *state,
        };
        wild & (u64::MAX >> (64 - 8 * bytes))
    }
}
