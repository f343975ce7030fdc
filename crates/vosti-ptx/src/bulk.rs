//! What a warp does with copies by descriptor and what counts them ([`crate::shared`]).

use crate::decode::{At, Counting, Register, map_at};
use crate::descriptor::{CHUNK, Map};
use crate::fault::Fault;
use crate::launch::{Block, Global};
use crate::shared::Transfer;
use crate::warp::{ALL, Outcome, Warp, each};

/// What the address of a copy in shared memory is a multiple of (PTX ISA, "cp.async.bulk.tensor").
const ALIGNED: usize = 128;

impl Warp {
    /// `elect.sync`: the thread is one for all warps of a launch.
    pub(crate) fn elect<G: Global + ?Sized>(&mut self, to: Option<Register>, leader: Register, block: &Block<'_, G>) {
        let elected = block.elected;
        if let Some(to) = to {
            self.write(to, &[elected.into(); 32], ALL, ALL);
        }
        self.write(leader, &std::array::from_fn(|lane| u64::from(lane as u32 == elected)), ALL, ALL);
    }

    /// `mbarrier`. Whether no thread has to ask again.
    pub(crate) fn count<G: Global + ?Sized>(
        &mut self,
        at: At,
        what: Counting,
        mask: u32,
        block: &mut Block<'_, G>,
    ) -> Outcome<bool> {
        let at = self.addresses(at, mask, "the address of an mbarrier")?;
        let lanes = match what {
            Counting::Inval => [0; 32],
            Counting::Init(count) | Counting::Arrive(count) => self.sure(count, mask, "the count of an mbarrier")?,
            Counting::ExpectBytes(bytes) => self.sure(bytes, mask, "the bytes of an mbarrier")?,
            Counting::Wait { parity, .. } => self.sure(parity, mask, "the parity of a wait")?,
        };
        let (mut ended, shared) = ([1; 32], &mut *block.shared);
        for lane in each(mask) {
            let (i, who) = (lane as usize, self.who(lane));
            match what {
                Counting::Init(_) => shared.init(at[i], lanes[i], who)?,
                Counting::Inval => shared.inval(at[i], who)?,
                Counting::ExpectBytes(_) => shared.arrive(at[i], 1, Some(lanes[i]), who)?,
                Counting::Arrive(_) => shared.arrive(at[i], lanes[i], None, who)?,
                Counting::Wait { .. } => ended[i] = shared.wait(at[i], lanes[i], who)?.into(),
            }
        }
        if let Counting::Wait { to, .. } = what {
            self.write(to, &ended, ALL, mask);
        }
        Ok(ended == [1; 32])
    }

    /// `cp.async.bulk.tensor`: each thread of a mask starts a copy. Elements outside of the tensor are zeros, and count.
    pub(crate) fn transfer<G: Global + ?Sized>(
        &mut self,
        (to, counter): (At, At),
        map: Register,
        place: [Register; 2],
        mask: u32,
        line: u32,
        block: &mut Block<'_, G>,
    ) -> Outcome<()> {
        let what = "the address of a copy";
        let (to, counter) = (self.addresses(to, mask, what)?, self.addresses(counter, mask, what)?);
        let maps = self.sure(map, mask, what)?;
        let [columns, rows] = place.map(|place| self.sure(place, mask, "the place of a box"));
        let (columns, rows) = (columns?, rows?);
        for lane in each(mask) {
            let i = lane as usize;
            let param = map_at(maps[i]);
            let known = block.maps.iter().find(|map| Some(map.descriptor.param) == param);
            let map = *known.ok_or(Fault::NoMap { at: maps[i] })?;
            if !to[i].is_multiple_of(ALIGNED as u64) {
                return Err(Fault::Misaligned { at: to[i], bytes: ALIGNED });
            }
            let corner = [rows[i], columns[i]].map(|at| i64::from(at as u32 as i32));
            let chunks = self.gather(&map, to[i], corner, block)?;
            block.shared.start_box(counter[i], Transfer { chunks, line }, self.who(lane))?;
        }
        Ok(())
    }

    /// The pieces of a box.
    fn gather<G: Global + ?Sized>(
        &self,
        map: &Map,
        to: u64,
        [first, column]: [i64; 2],
        block: &mut Block<'_, G>,
    ) -> Outcome<Vec<(u64, [u8; CHUNK as usize])>> {
        let width = u64::from(map.descriptor.tile[1] * map.descriptor.elem);
        let pitch = (map.extents[1] * u64::from(map.descriptor.elem)) as i64;
        let base = block.params[map.descriptor.param];
        let (mut chunks, mut pieces) = (vec![], vec![]);
        for at in (0..map.bytes()).step_by(CHUNK as usize) {
            let (row, within) = (first + (at / width) as i64, at % width);
            let mut bytes = [0; CHUNK as usize];
            if let Some((from, end)) = map.inside(row, column, within) {
                let start = column * i64::from(map.descriptor.elem) + within as i64;
                let part = &mut bytes[(from - start) as usize..(end - start) as usize];
                let address = base.wrapping_add((row * pitch + from) as u64);
                block.global_part(address, part)?;
                pieces.push((address, part.len() as u64));
            }
            chunks.push((map.shared(to, at), bytes));
        }
        block.counts.transfer(&pieces, map.bytes());
        Ok(chunks)
    }
}
