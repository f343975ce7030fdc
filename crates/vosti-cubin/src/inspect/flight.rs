//! Counts the bytes that a loop loads while it computes, from the TTGIR.
//!
//! Copies are committed in groups, and a wait names the number of last groups that may still be under way. The compiler puts the
//! wait at the start of the loop and the next copies at its end, so the groups that the wait leaves under way overlap with
//! the arithmetic. A loop that waits for all groups loads nothing while it computes, whatever its number of stages says.
//!
//! Copies by descriptor arrive at barriers, one for each stage. Some are asked for before the loop. Each of its turns waits at one barrier,
//! for the oldest of them, and asks for as many bytes as it waited for. On sm100 the first turns may stand before the loop, and products
//! arrive at barriers too: a wait for them names the tiles that they read.

use crate::error::Refusal;

/// Operations that are matrix products in TTGIR.
const DOTS: [&str; 3] = ["tt.dot ", "ttng.warp_group_dot ", "ttng.tc_gen5_mma "];

/// The events in a loop, in the order of the text.
enum Event {
    Copy(u64),
    Commit,
    Wait(usize),
    Dot,
    /// A copy by descriptor, of so many bytes.
    Box(u64),
    /// What copies by descriptor at one barrier wait for.
    Arrived,
}

/// The fewest bytes that a block has under way while a loop with products or copies computes; 0 where none copies
/// asynchronously.
pub fn bytes(ttgir: &str) -> Result<u64, Refusal> {
    let lines: Vec<&str> = ttgir.lines().collect();
    let mut fewest = None;
    for (start, head) in lines.iter().enumerate().filter(|(_, line)| line.contains("scf.for ")) {
        let end = lines[start + 1..].iter().position(|line| indent(line) <= indent(head));
        let body = &lines[start + 1..end.map_or(lines.len(), |n| start + 1 + n)];
        let innermost = !body.iter().any(|line| line.contains("scf.for "));
        let events = body.iter().filter_map(|line| event(line).transpose()).collect::<Result<Vec<_>, _>>()?;
        if innermost && events.iter().any(|event| matches!(event, Event::Dot | Event::Copy(_) | Event::Box(_))) {
            let boxes = events.iter().any(|event| matches!(event, Event::Box(_)));
            let bytes = if boxes { boxes_under_way(&lines[..start], &events)? } else { left_under_way(&events)? };
            fewest = Some(fewest.map_or(bytes, |other: u64| other.min(bytes)));
        }
    }
    Ok(fewest.unwrap_or(0))
}

fn indent(line: &str) -> usize {
    line.len() - line.trim_start().len()
}

fn event(line: &str) -> Result<Option<Event>, Refusal> {
    let misread = || Refusal::Flight { line: line.trim().to_string() };
    if DOTS.iter().any(|dot| line.contains(dot)) {
        return Ok(Some(Event::Dot));
    }
    if line.contains("ttg.async_commit_group") {
        return Ok(Some(Event::Commit));
    }
    if line.contains("ttg.async_copy_global_to_local ") {
        let (_, to) = line.rsplit_once("-> <").ok_or_else(misread)?;
        return Ok(Some(Event::Copy(tile_bytes(to).ok_or_else(misread)?)));
    }
    if line.contains("ttng.async_tma_copy_global_to_local ") {
        let (_, to) = line.rsplit_once("-> !ttg.memdesc<").ok_or_else(misread)?;
        return Ok(Some(Event::Box(tile_bytes(to).ok_or_else(misread)?)));
    }
    if line.contains("ttng.wait_barrier ") {
        return Ok((!line.contains(" deps ")).then_some(Event::Arrived));
    }
    if line.contains("ttg.async_wait ") {
        let (_, left) = line.split_once("num = ").ok_or_else(misread)?;
        let digits: String = left.chars().take_while(char::is_ascii_digit).collect();
        return Ok(Some(Event::Wait(digits.parse().map_err(|_| misread())?)));
    }
    Ok(None)
}

/// The bytes of a tile's type such as `64x128xbf16, ...`.
fn tile_bytes(ty: &str) -> Option<u64> {
    let mut parts: Vec<&str> = ty.split(',').next()?.split('x').collect();
    let bits = parts.pop()?.trim_start_matches(|c: char| !c.is_ascii_digit()).parse::<u64>().ok()?;
    let lanes = parts.iter().map(|n| n.parse::<u64>().ok()).product::<Option<u64>>()?;
    Some(lanes * bits / 8)
}

/// The fewest bytes that a wait leaves under way, among the groups before it. The groups of the iteration before come first.
fn left_under_way(events: &[Event]) -> Result<u64, Refusal> {
    // Groups in order, and for each wait the number of groups before it.
    let (mut groups, mut open, mut waits) = (vec![], 0, vec![]);
    for event in events {
        match event {
            Event::Copy(bytes) => open += bytes,
            Event::Commit => groups.push(std::mem::take(&mut open)),
            Event::Wait(0) => return Err(Refusal::WaitsForAll),
            Event::Wait(left) => waits.push((groups.len(), *left)),
            Event::Dot | Event::Box(_) | Event::Arrived => {}
        }
    }
    let before = |at: usize, left: usize| match groups.len() {
        0 => 0,
        all => (1..=left).map(|back| groups[(at + all * left - back) % all]).sum::<u64>(),
    };
    Ok(waits.into_iter().map(|(at, left)| before(at, left)).min().unwrap_or(0))
}

/// The fewest bytes that are under way behind a wait of a loop that copies by descriptor, and no other way. A turn before the loop waits
/// for as many bytes as one of the loop.
fn boxes_under_way(before: &[&str], events: &[Event]) -> Result<u64, Refusal> {
    let misread = |why: &str| Refusal::Flight { line: why.into() };
    let bytes = |event: &Event| if let Event::Box(bytes) = event { *bytes } else { 0 };
    let early = before.iter().filter_map(|line| event(line).transpose()).collect::<Result<Vec<_>, _>>()?;
    let waits = |events: &[Event]| events.iter().filter(|event| matches!(event, Event::Arrived)).count() as u64;
    let others =
        events.iter().chain(&early).any(|event| matches!(event, Event::Copy(_) | Event::Commit | Event::Wait(_)));
    if waits(events) != 1 || others {
        return Err(misread("a loop with copies by descriptor that waits otherwise than once"));
    }
    let turn: u64 = events.iter().map(bytes).sum();
    let first: u64 = events.iter().take_while(|event| !matches!(event, Event::Arrived)).map(bytes).sum();
    let (asked, waited): (u64, u64) = (early.iter().map(bytes).sum(), turn * (1 + waits(&early)));
    match (asked + first).checked_sub(waited) {
        None => Err(misread("a loop waits for more copies than it asked for")),
        Some(0) => Err(Refusal::WaitsForAll),
        Some(left) => Ok(left),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOXES: &str = "\
    ttng.async_tma_copy_global_to_local %arg0[%2, %c0] %13, %10, %true : !tt.tensordesc<tensor<16x64xbf16, #s>> -> !ttg.memdesc<16x64xbf16, #s, #smem, mutable>
    ttng.async_tma_copy_global_to_local %arg0[%2, %c64] %16, %11, %true : !tt.tensordesc<tensor<16x64xbf16, #s>> -> !ttg.memdesc<16x64xbf16, #s, #smem, mutable>
    %19:5 = scf.for %arg4 = %c0_i32 to %c4096_i32 step %c64_i32 iter_args(%arg5 = %cst_0) -> (i32) : i32 {
      ttng.wait_barrier %64, %63 : !ttg.memdesc<1xi64, #shared1, #smem, mutable>
      %69 = ttng.warp_group_dot %66, %68, %arg5 {isAsync = true} : !ttg.memdesc<128x64xbf16, #shared, #smem, mutable>
      ttng.async_tma_copy_global_to_local %arg0[%2, %77] %76, %75, %58 : !tt.tensordesc<tensor<16x64xbf16, #s>> -> !ttg.memdesc<16x64xbf16, #s, #smem, mutable>
      scf.yield %60
    }
";

    #[test]
    fn of_copies_by_descriptor_the_oldest_is_waited_for_and_the_others_are_under_way() {
        let boxed = 16 * 64 * 2;
        assert_eq!(bytes(BOXES), Ok(boxed));
        let lines: Vec<&str> = BOXES.lines().collect();
        let of = |places: &[usize]| bytes(&places.iter().map(|at| format!("{}\n", lines[*at])).collect::<String>());
        assert_eq!(of(&[0, 0, 1, 2, 3, 4, 5, 6, 7]), Ok(2 * boxed));
        // Asked for in front of the wait.
        assert_eq!(of(&[0, 1, 2, 5, 3, 4, 6, 7]), Ok(2 * boxed));
        assert_eq!(of(&[0, 2, 3, 4, 5, 6, 7]), Err(Refusal::WaitsForAll));
        for wrong in
            [&[2, 3, 4, 5, 6, 7][..], &[0, 1, 2, 4, 5, 6, 7], &[0, 1, 2, 3, 3, 4, 5, 6, 7], &[0, 3, 2, 3, 4, 5, 6, 7]]
        {
            assert!(matches!(of(wrong), Err(Refusal::Flight { .. })), "{wrong:?}");
        }
        // A turn in front of the loop, and waits for products.
        let products = "      ttng.wait_barrier %arg10, %arg11 deps %arg12, %arg13 : !ttg.memdesc<1xi64, #shared1, #smem, mutable>";
        let peeled =
            [&[lines[0], lines[1], lines[1], lines[3]], &lines[2..5], &[products], &lines[5..]].concat().join("\n");
        assert_eq!(bytes(&peeled), Ok(boxed));
        assert_eq!(of(&[0, 1, 3, 2, 3, 4, 5, 6, 7]), Err(Refusal::WaitsForAll));
        let copied = LOOP.lines().nth(5).unwrap();
        let mixed = BOXES.replace("      scf.yield", &format!("{copied}\n      scf.yield"));
        assert!(matches!(bytes(&mixed), Err(Refusal::Flight { .. })));
        let odd = BOXES.replace("-> !ttg.memdesc<16x64xbf16", "-> !ttg.memdesc<16x?xbf16");
        assert!(matches!(bytes(&odd), Err(Refusal::Flight { .. })));
    }

    const LOOP: &str = "\
    %50 = ttg.async_commit_group tokens %49
    %219:18 = scf.for %arg4 = %c0_i32 to %c4096_i32 step %c64_i32 iter_args(%arg5 = %c384_i64) -> (i64) : i32 {
      %241 = ttg.async_wait %arg9, %arg16 {num = 3 : i32}
      %246 = ttng.warp_group_dot %245, %243, %arg6 {isAsync = true} : !ttg.memdesc<64x64xbf16, #shared>
      %266 = ttg.async_copy_global_to_local %257, %263 mask %265 : tensor<16x64x!tt.ptr<bf16>, #b> -> <16x64xbf16, #s, mutable>
      %267 = ttg.async_commit_group tokens %266
      %282 = ttg.async_copy_global_to_local %273, %279 : tensor<64x64x!tt.ptr<f32>, #b> -> <64x64xf32, #s, mutable>
      %283 = ttg.async_commit_group tokens %282
      scf.yield %283
    }
    %221 = ttg.async_wait {num = 0 : i32}
";

    #[test]
    fn what_a_wait_leaves_is_counted_back_around_the_loop() {
        // The last three groups: the second, the first, and the second of the iteration before.
        assert_eq!(bytes(LOOP), Ok(2 * 64 * 64 * 4 + 16 * 64 * 2));
        assert_eq!(bytes(&LOOP.replace("num = 3", "num = 1")), Ok(64 * 64 * 4));
        assert_eq!(bytes("module {\n}\n"), Ok(0));
    }

    #[test]
    fn a_loop_with_products_or_copies_that_waits_for_all_is_refused_and_another_is_not() {
        let waits = LOOP.replace("num = 3", "num = 0");
        let only =
            |text: &str, what: &str| text.lines().filter(|l| !l.contains(what)).map(|l| format!("{l}\n")).collect();
        let products: String = only(&waits, "async_copy");
        for dot in ["ttng.warp_group_dot", "tt.dot", "ttng.tc_gen5_mma"] {
            assert_eq!(bytes(&products.replace("ttng.warp_group_dot", dot)), Err(Refusal::WaitsForAll));
        }
        let copies: String = only(&waits, "warp_group_dot");
        assert_eq!(bytes(&copies), Err(Refusal::WaitsForAll));
        assert_eq!(bytes(&only(&copies, "async_copy")), Ok(0));
        assert_eq!(bytes(&copies.replace("num = 0", "num = 3")), bytes(LOOP));
    }

    #[test]
    fn a_copy_or_a_wait_that_is_not_understood_is_refused() {
        for (from, to) in [("num = 3", "count = 3"), ("-> <16x64xbf16", "-> <16x?xbf16"), ("-> <16x64xbf16", "-> _")] {
            assert!(matches!(bytes(&LOOP.replace(from, to)), Err(Refusal::Flight { .. })), "{to}");
        }
    }
}
