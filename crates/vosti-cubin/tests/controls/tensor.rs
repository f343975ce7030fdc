//! Broken PTX of sm100: products of tensor memory.

use super::{BITS, Control, EARLY, POISON, UNDER_WAY, line, swapped, turned, with, without};

const USED: &str = "a matrix product is using it";
const READ: &str = "was changed while a matrix product was reading it";
const PROXY: &str = "with no `fence.proxy.async`";
const FORM: &str = "of a form that is not known";
const FOREVER: &str = "nobody ends this wait";
const PRODUCT: &str = "tcgen05.mma";
const WAIT: &str = "mbarrier.try_wait";
/// Of the first tile, before its address is added: 128 bytes of swizzle. And what it is with 64.
const TILE: [&str; 2] = ["4611756662049472512", "9223442680476860416"];

/// The text with the number of an `or`, an `add` or a `mov` changed.
fn number(text: &str, n: isize, from: &str, change: impl Fn(u64) -> u64) -> Option<String> {
    line(text, &format!(", {from};"), n, |line| line.replace(from, &change(from.parse().unwrap()).to_string()))
}

/// Its `n`-th instruction descriptor, by a bit more or less.
fn form(text: &str, n: isize, bits: u64) -> Option<String> {
    let user = text.lines().filter(|line| line.contains(PRODUCT)).nth(n as usize)?;
    let register = user.trim_end_matches(';').split(", ").nth(3).filter(|word| word.starts_with("%r"))?;
    let set = format!("mov.b32 \t{register}, ");
    let value = text.lines().rev().find_map(|line| line.trim().strip_prefix(&set))?.trim_end_matches(';');
    line(text, &set, -1, |line| line.replace(value, &(value.parse::<u64>().unwrap() ^ bits).to_string()))
}

/// The `n`-th wait does not wait.
fn unawaited(text: &str, n: isize) -> Option<String> {
    line(text, WAIT, n, |_| "mov.pred complete, -1;".into())
}

/// All that must be found of what only sm100 has.
pub const OF_SM100: &[Control] = super::controls! {
    "tensor memory is asked for before launches before have ended", "linear-", "an allocation of tensor memory with no", |t| {
        let early = "mov.u32 %r1, %tid.x; setp.lt.u32 %p2, %r1, 32; mov.b32 %r19, global_smem; @%p2 tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%r19], 32;";
        with(&without(t, "tcgen05.alloc", 0)?, "griddepcontrol.wait", 0, "griddep", &format!("{early} griddep"))
    };
    "attention begins before what it reads is there", "attend-", EARLY, |t| without(t, "griddepcontrol.wait", 0);
    "tensor memory is not asked for", "linear-", POISON, |t| without(t, "tcgen05.alloc", 0);
    "every warp asks for tensor memory", "linear-", "a race at shared byte", |t| with(t, "tcgen05.alloc", 0, "@%p2 ", "");
    "some threads ask for tensor memory", "linear-", "a divergent `tcgen05.alloc`", |t| {
        line(t, "tcgen05.alloc", 0, |line| format!("setp.lt.u32 %p3, %r1, 8;\n{}", line.replace("%p2", "%p3")))
    };
    "fewer columns are asked for", "linear_glu-", "it is not allocated", |t| with(t, "tcgen05.alloc", 0, ", 256;", ", 128;");
    "a number of columns is no power of two", "linear_glu-", "no power of two", |t| with(t, "tcgen05.alloc", 0, ", 256;", ", 192;");
    "columns are asked for behind the last of them", "linear-", "given up the right to it", |t| {
        let give = "tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;";
        line(&without(t, "tcgen05.relinquish", 0)?, "tcgen05.alloc", 0, |line| format!("@%p2 {give}\n{line}"))
    };
    "tensor memory is kept", "linear-", "the block ends with them", |t| without(t, "tcgen05.dealloc", 0);
    "fewer columns are given back", "linear_glu-", "no allocation begins there", |t| with(t, "tcgen05.dealloc", 0, ", 256;", ", 128;");
    "columns are given back while a load is under way", "linear-", "a load of it is under way", |t| without(t, "tcgen05.wait::ld", 0);
    "zeros are not awaited", "linear-", "a store to it is under way", |t| without(t, "tcgen05.wait::st", 0);
    "scaled sums are not awaited", "attend-", "a store to it is under way", |t| without(t, "tcgen05.wait::st", 2);
    "no barrier is between scaled sums and their product", "attend-", "a race with a store", |t| without(t, "bar.sync", 16);
    "shares are loaded before scores are there", "attend-", USED, |t| unawaited(t, 0);
    "nothing waits for the last product", "linear-", USED, |t| unawaited(t, -1);
    "a wait has the other parity", "linear-", FOREVER, |t| {
        let asks = t.lines().find(|line| line.contains(WAIT))?;
        let parity = asks.trim_end_matches(';').rsplit(", ").next()?;
        let other = format!(".reg .b32 other;\nxor.b32 other, {parity}, 1;\nwaitLoop:");
        line(&with(t, WAIT, 0, &format!(" {parity};"), " other;")?, "waitLoop:", 0, |_| other.clone())
    };
    "products are not committed", "linear-", FOREVER, |t| without(t, "tcgen05.commit", 0);
    "products are committed twice", "linear-", "nobody", |t| line(t, "tcgen05.commit", 0, |line| format!("{line}\n{line}"));
    "a commit is in front of its last product", "linear-", READ, |t| {
        let last: Vec<&str> = t.lines().filter(|line| line.contains(PRODUCT)).collect();
        line(&without(t, PRODUCT, -1)?, "tcgen05.commit", -1, |line| format!("{line}\n{}", last[last.len() - 1]))
    };
    "a counter is not made", "linear-", "no mbarrier is at", |t| without(t, "mbarrier.init", 0);
    "a counter expects two arrivals", "linear-", FOREVER, |t| with(t, "mbarrier.init", 0, ", 1;", ", 2;");
    "a counter goes before its product has ended", "linear-", "nobody has waited", |t| {
        without(&unawaited(t, -1)?, "tcgen05.ld", 0)
    };
    "tiles are not fenced for their product", "linear-", PROXY, |t| without(t, "fence.proxy.async", 0);
    "tiles are not fenced in the loop", "linear-", PROXY, |t| without(t, "fence.proxy.async", 1);
    "a stage is filled while a product reads it", "linear-", READ, |t| unawaited(t, 0);
    "a product is left out", "linear-", BITS, |t| without(t, PRODUCT, 1);
    "a product is there twice", "linear-", BITS, |t| line(t, PRODUCT, -1, |line| format!("{line}\n{line}"));
    "all threads but one start a product", "linear-", USED, |t| with(t, PRODUCT, 0, "@%p", "@!%p");
    "all threads of a warp start a product", "linear-", USED, |t| with(t, PRODUCT, 0, "@%p11", "@%p2");
    "all warps start a product", "linear-", "a race|a matrix product is using it", |t| without(t, "bra \t$L__BB0_2;", 0);
    "a product's sums begin with what was there", "linear_glu-", POISON, |t| {
        let zeros = without(&without(t, "tcgen05.st", 0)?, "tcgen05.st", 0)?;
        line(&zeros, PRODUCT, 0, |line| {
            let keep = line.trim_end_matches(';').rsplit(", ").next().unwrap_or_default();
            format!("mov.pred {keep}, -1;\n{line}")
        })
    };
    "a product's sums begin anew in each turn", "linear-", BITS, |t| with(t, PRODUCT, -4, ", %p14;", ", %p10;");
    "sums are two columns further", "linear-", USED, |t| with(t, PRODUCT, 1, "+ 0 ]", "+ 2 ]");
    "sums of gate and other are exchanged", "linear_glu-", BITS, |t| swapped(t, "tcgen05.ld", 0, 1, 2);
    "a tile begins 32 bytes later", "linear-", BITS, |t| number(t, 0, "4611756662049472514", |tile| tile + 2);
    "a tile has another swizzle", "linear-", BITS, |t| with(t, TILE[0], 0, TILE[0], TILE[1]);
    "a tile has a swizzle that there is not", "linear-", FORM, |t| number(t, 0, TILE[0], |tile| tile + (1 << 61));
    "a tile has no mark", "linear-", FORM, |t| number(t, 0, TILE[0], |tile| tile - (1 << 46));
    "a tile's rows are closer", "linear-", BITS, |t| number(t, 0, TILE[0], |tile| tile - (32 << 32));
    "factors are FP16", "linear-", FORM, |t| form(t, 0, 1 << 7);
    "sums are FP16", "linear-", FORM, |t| form(t, 0, 1 << 4);
    "a factor is negated", "linear-", FORM, |t| form(t, 0, 1 << 13);
    "a tile is transposed", "linear-", BITS, |t| form(t, 0, 1 << 15);
    "values are not transposed", "attend-", "a copy to it is under way", |t| form(t, 4, 1 << 16);
    "a product has half of its columns", "linear_glu-", USED, |t| form(t, 0, 24 << 17);
    "warps load one another's part", "linear-", "it is not of the warp's part", |t| with(t, ", 21;", 0, ", 21;", ", 22;");
    "halves of a load are closer", "linear-", BITS, |t| with(t, "tcgen05.ld", 0, "], 8;", "], 4;");
    "two registers of a load are exchanged", "linear-", BITS, |t| swapped(t, "tcgen05.ld", 0, 0, 1);
    "shares of keys are read further", "attend-", BITS, |t| with(t, PRODUCT, 5, "+ 8 ]", "+ 16 ]");
    "shares are stored further", "attend-", POISON, |t| with(t, "tcgen05.st", 1, "+ 0]", "+ 16]");
    "a second product adds to scores", "attend-", BITS, |t| {
        let scores = t.lines().find(|line| line.contains(PRODUCT))?.split("[ ").nth(1)?.split(' ').next()?.to_string();
        line(t, PRODUCT, 4, |line| line.replacen("[ %r1304", &format!("[ {scores}"), 1))
    };
    // Tiles that are copied by descriptor. The first turn stands before the loop.
    "a copy goes where the address of tensor memory was, without a fence", "linear_add-", PROXY, |t| without(t, "fence.proxy.async", 0);
    "a wait for tiles before the loop is left out", "linear_add-", UNDER_WAY, |t| unawaited(t, 0);
    "a wait for tiles in the loop is left out", "linear_add-", UNDER_WAY, |t| unawaited(t, 2);
    "tiles are copied over those that a product reads", "linear_add-", READ, |t| unawaited(t, 1);
    "a wait for tiles has the other parity", "linear_add-", FOREVER, |t| {
        let asks = t.lines().filter(|line| line.contains(WAIT)).nth(2)?;
        let parity = asks.trim_end_matches(';').rsplit(", ").next()?;
        let other = format!(".reg .b32 other;\nxor.b32 other, {parity}, 1;\nwaitLoop:");
        line(&with(t, WAIT, 2, &format!(" {parity};"), " other;")?, "waitLoop:", 2, |_| other.clone())
    };
    "a counter is told of too many bytes", "linear_add-", "told of 49168 bytes in a phase, and 49152 came", |t| {
        with(t, "expect_tx", 1, "49152", "49168")
    };
    "a tile is not copied", "linear_add-", "told of 49152 bytes in a phase, and 16384 came", |t| without(t, "cp.async.bulk", 2);
    "rows and columns of a box are exchanged", "linear_add-", BITS, turned;
    "a tile is copied over another", "linear_add-", UNDER_WAY, |t| {
        let copies: Vec<&str> = t.lines().filter(|line| line.contains("cp.async.bulk")).collect();
        let to = |line: &str| Some(line.split_once("bytes [")?.1.split_once(']')?.0.to_string());
        with(t, "cp.async.bulk", 1, &format!("bytes [{}]", to(copies[1])?), &format!("bytes [{}]", to(copies[0])?))
    };
    "copies and products arrive at one counter", "linear_add-", FOREVER, |t| {
        let counter = t.lines().find(|line| line.contains("expect_tx"))?.split('[').nth(1)?.split(']').next()?.to_string();
        line(t, "tcgen05.commit", 0, |line| {
            let own = line.rsplit('[').next().unwrap_or("").trim_end_matches("];").to_string();
            format!("cvt.u64.u32 {own}, {counter};\n{line}")
        })
    };
    "tiles are copied before launches before have ended", "linear_add-", EARLY, |t| {
        with(t, "griddepcontrol.wait", 0, "griddep", "setp.eq.b32 %p1, 1, 0; @%p1 griddep")
    };
};
