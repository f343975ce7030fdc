//! Broken PTX: edits of what Triton made, by kind, each with the words that an execution must find it by.

/// An edit of a kernel's text.
pub struct Control {
    pub name: &'static str,
    /// The beginning of a stem.
    pub kernel: &'static str,
    /// None: the text has nothing to edit.
    pub edit: fn(&str) -> Option<String>,
    /// A part of the error.
    pub says: &'static str,
}

/// Kernels of tiny models that are edited too, by stem.
pub const OTHERS: &[&str] = &[];

const UNDER_WAY: &str = "a copy to it is under way";
const RACE: &str = "a race at shared byte";
const BITS: &str = "the tile interpreter's is";
const GLOBAL: &str = "global memory at";
const TWICE: &str = "of this launch has stored there";
const POISON: &str = "was never written";
const DIVERGENT: &str = "not all threads of the warp execute it";
const BARRIER: &str = "not all threads of the block reach it";

/// The text with rows and columns of its last box exchanged.
fn turned(text: &str) -> Option<String> {
    line(text, "cp.async.bulk", -1, |line| {
        let (head, rest) = line.split_once('{').unwrap_or((line, ""));
        let (place, rest) = rest.split_once('}').unwrap_or((rest, ""));
        let (column, row) = place.split_once(", ").unwrap_or((place, ""));
        format!("{head}{{{row}, {column}}}{rest}")
    })
}

/// The text with its `n`-th line that has `part` (from the end, if negative) changed; a change to nothing drops the line.
fn line(text: &str, part: &str, n: isize, change: impl Fn(&str) -> String) -> Option<String> {
    let lines: Vec<&str> = text.lines().collect();
    let found: Vec<usize> = (0..lines.len()).filter(|at| lines[*at].contains(part)).collect();
    let n = if n < 0 { found.len().checked_add_signed(n)? } else { n as usize };
    let at = *found.get(n)?;
    let changed = change(lines[at]);
    (changed != lines[at]).then(|| [&lines[..at], &[changed.as_str()], &lines[at + 1..]].concat().join("\n"))
}

fn without(text: &str, part: &str, n: isize) -> Option<String> {
    line(text, part, n, |_| String::new())
}

fn with(text: &str, part: &str, n: isize, from: &str, to: &str) -> Option<String> {
    line(text, part, n, |line| line.replacen(from, to, 1))
}

/// The text with every line changed that has `part` and ends as most of them do: in one register.
fn usual(text: &str, part: &str, from: &str, to: &str) -> Option<String> {
    let end = |line: &str| Some(line.split_whitespace().last()?.to_string()).filter(|_| line.contains(part));
    let ends: Vec<String> = text.lines().filter_map(end).collect();
    let most = ends.iter().max_by_key(|own| ends.iter().filter(|other| own == other).count())?;
    let changed = |line: &str| if end(line).as_ref() == Some(most) { line.replacen(from, to, 1) } else { line.into() };
    Some(text.lines().map(changed).collect::<Vec<_>>().join("\n"))
}

/// The registers of the `n`-th product of a warpgroup: the accumulators, then those of its first operand.
fn registers(text: &str, n: usize) -> Option<[Vec<&str>; 2]> {
    let product = text.lines().filter(|line| line.contains("wgmma.mma_async")).nth(n)?;
    let mut lists = product.split('{').skip(1).map(|list| list.split('}').next().unwrap_or("").split(',').collect());
    Some([lists.next()?, lists.next()?])
}

/// The `n`-th selection of a number or zero gives the number.
fn unchanged(text: &str, n: isize) -> Option<String> {
    line(text, ", 0f00000000, %p", n, |line| {
        line.split(',').nth(1).map_or(line.into(), |number| line.replacen("0f00000000", number.trim(), 1))
    })
}

/// Exchanges the words at two places of a line's operands (the first operand is 0).
fn swapped(text: &str, part: &str, n: isize, a: usize, b: usize) -> Option<String> {
    line(text, part, n, |line| {
        let start = line.find(part).unwrap() + line[line.find(part).unwrap()..].find(char::is_whitespace).unwrap();
        let mut words: Vec<String> = vec![];
        let mut gaps: Vec<String> = vec![String::new()];
        for c in line[start..].chars() {
            let inside = c.is_alphanumeric() || ['%', '_', '.', '-'].contains(&c);
            match (inside, words.len() < gaps.len()) {
                (true, true) => words.push(c.into()),
                (true, false) => words.last_mut().unwrap().push(c),
                (false, true) => gaps.last_mut().unwrap().push(c),
                (false, false) => gaps.push(c.into()),
            }
        }
        words.swap(a, b);
        let rest: String =
            gaps.iter().enumerate().map(|(i, gap)| gap.clone() + words.get(i).map_or("", String::as_str)).collect();
        line[..start].to_string() + &rest
    })
}

macro_rules! controls {
    ($($name:literal, $kernel:literal, $says:expr, $edit:expr;)*) => {
        &[$(Control { name: $name, kernel: $kernel, edit: $edit, says: $says }),*]
    };
}

pub(crate) use controls;

mod tensor;

pub use tensor::OF_SM100;

const EARLY: &str = "with no `griddepcontrol.wait`";
const UNFENCED: &str = "is used without a `wgmma.fence`";

/// All that must be found of what only sm90 has.
pub const OF_SM90: &[Control] = controls! {
    "launches before are not waited for", "linear-", EARLY, |t| without(t, "griddepcontrol.wait", 0);
    "launches before are waited for in some threads", "linear-", EARLY, |t| {
        with(t, "griddepcontrol.wait", 0, "griddep", "mov.u32 %r1, %tid.x; setp.lt.u32 %p1, %r1, 32; @%p1 griddep")
    };
    "launches before are waited for behind the first load", "linear-", EARLY, |t| {
        line(&without(t, "griddepcontrol.wait", 0)?, "ld.global", 0, |line| format!("{line}\ngriddepcontrol.wait;"))
    };
    "the next launch begins while launches before run", "linear-", EARLY, |t| {
        let without = without(t, "griddepcontrol.launch_dependents", 0)?;
        with(&without, "griddepcontrol.wait", 0, "griddep", "griddepcontrol.launch_dependents; griddep")
    };
    "a product is not fenced from what its accumulators were before", "linear-", UNFENCED, |t| without(t, "wgmma.fence", 0);
    "nothing waits for the last products", "linear-", POISON, |t| without(t, "wgmma.wait_group", -1);
    "products are never committed", "linear-", POISON, |t| without(t, "wgmma.commit_group", 0);
    "one group of products more is under way", "linear-", UNDER_WAY, |t| with(t, "wgmma.wait_group", 0, " 1", " 2");
    "a product of a warpgroup is left out", "linear-", BITS, |t| without(t, "wgmma.mma_async", 1);
    "a tile begins 32 bytes later", "linear-", BITS, |t| with(t, "4611686293305294848", 0, "4848", "4850");
    "a tile has another swizzle", "linear-", BITS, |t| with(t, "4611686293305294848", 0, "4611686293305294848", "9223372311732682752");
    "a matrix is not stored", "linear-", BITS, |t| without(t, "stmatrix", 0);
    "another matrix is stored", "linear-", BITS, |t| swapped(t, "stmatrix", 0, 1, 2);
    "a wait for copies leaves one group more", "linear-", UNDER_WAY, |t| with(t, "cp.async.wait_group", 0, "8", "9");
    "copies are not fenced from the products that read them", "linear-", "with no `fence.proxy.async`", |t| without(t, "fence.proxy.async", 0);
    "the barrier behind a wait is left out", "linear-", UNDER_WAY, |t| without(t, "bar.sync", 4);
    // Attention: the first product has rows of queries in registers, the second shares; the second's accumulators are scaled first.
    "queries are not fenced", "attend-", UNFENCED, |t| without(t, "wgmma.fence", 0);
    "shares are not fenced", "attend-", UNFENCED, |t| without(t, "wgmma.fence", 1);
    "accumulators are scaled behind the fence", "attend-", UNFENCED, |t| {
        let scaled = format!("mul.rn.f32 \t{},", registers(t, 4)?[0][0]);
        line(&without(t, "wgmma.fence", 1)?, &scaled, 0, |line| format!("wgmma.fence.sync.aligned;\n{line}"))
    };
    "scores are used before they are there", "attend-", POISON, |t| without(t, "wgmma.wait_group", 0);
    "sums of values are used before they are there", "attend-", POISON, |t| without(t, "wgmma.wait_group", 1);
    "attention's wait for a page leaves one group more", "attend-", UNDER_WAY, |t| with(t, "cp.async.wait_group", 2, "3", "4");
    "a page's buffer is filled while it is read", "attend-", RACE, |t| without(t, "bar.sync", 6);
    "values are not transposed", "attend-", BITS, |t| with(t, "wgmma.mma_async", 4, "1, 1, 1;", "1, 1, 0;");
    "values begin a row later", "attend-", BITS, |t| with(t, "4611686293305294976", 0, "4976", "4984");
    "scores begin with what was there", "attend-", POISON, |t| with(t, "wgmma.mma_async", 0, ", 0, 1, 1, 0;", ", %p21, 1, 1, 0;");
    "a quarter of a head is left out", "attend-", BITS, |t| without(t, "wgmma.mma_async", 1);
    "shares of rows are exchanged", "attend-", BITS, |t| {
        let [a, b] = [registers(t, 4)?[1][0], registers(t, 4)?[1][1]];
        with(t, "wgmma.mma_async", 4, &format!("{{{a},{b}"), &format!("{{{b},{a}"))
    };
    "attention begins before what it reads is there", "attend-", EARLY, |t| without(t, "griddepcontrol.wait", 0);
    // Experts: two products are under way side by side.
    "a gate's product is not fenced", "expert_glu-", UNFENCED, |t| without(t, "wgmma.fence", 0);
    "two products are under way as their buffer is filled", "expert_glu-", UNDER_WAY, |t| with(t, "wgmma.wait_group", 0, " 2", " 4");
    "gate and other product are exchanged", "expert_glu-", BITS, |t| {
        with(&with(t, "%r160, 32768;", 0, "32768", "65536")?, "%r160, 65536;", 1, "65536", "32768")
    };
    "no tile asks whether a row chose the expert", "expert_glu-", POISON, |t| without(t, "redux.sync", 0);
    "a tile is not turned", "expert_glu-", BITS, |t| with(t, "stmatrix", 0, ".trans", "");
    "a tile is stored over one that is read", "expert_glu-", RACE, |t| without(t, "bar.sync", -3);
    // Integers: a product's tile is what threads stored.
    "a tile is stored and not fenced for the product", "linear_int-", "with no `fence.proxy.async`", |t| {
        // Triton's own: the others are behind waits for copies.
        let lines: Vec<&str> = t.lines().collect();
        let fences = (1..lines.len()).filter(|at| lines[*at].contains("fence.proxy.async"));
        let own = fences.clone().position(|at| !lines[at - 1].contains("wait_group"))?;
        without(t, "fence.proxy.async", own as isize)
    };
    "a tile is stored over one that a product reads", "linear_int-", "was changed while a matrix product was reading it", |t| {
        without(t, "wgmma.wait_group", 1)
    };
    // Tiles that are copied by descriptor: three stages, each with a counter.
    "a wait for tiles is left out", "linear_bias-", UNDER_WAY, |t| line(t, "mbarrier.try_wait", 0, |_| "mov.pred complete, -1;".into());
    "a wait for tiles has the other parity", "linear_bias-", "nobody ends this wait", |t| {
        let asks = t.lines().find(|line| line.contains("mbarrier.try_wait"))?;
        let parity = asks.trim_end_matches(';').rsplit(", ").next()?;
        let other = format!(".reg .b32 other;\nxor.b32 other, {parity}, 1;\nwaitLoop:");
        line(&with(t, "mbarrier.try_wait", 0, &format!(" {parity};"), " other;")?, "waitLoop:", 0, |_| other.clone())
    };
    "a counter is told of too many bytes", "linear_bias-", "told of 32784 bytes in a phase, and 32768 came", |t| {
        with(t, "expect_tx", -1, "32768", "32784")
    };
    "a counter is told of too few bytes", "linear_bias-", "told of 32752 bytes in a phase, and 32768 came", |t| {
        with(t, "expect_tx", 0, "32768", "32752")
    };
    "rows and columns of a box are exchanged", "linear_bias-", BITS, turned;
    "a counter is not made", "linear_bias-", "no mbarrier is at", |t| without(t, "mbarrier.init", 1);
    "a counter is made twice", "linear_bias-", "where a valid mbarrier is", |t| {
        line(t, "mbarrier.init", 1, |line| format!("{line}\n{line}"))
    };
    "a counter expects two threads", "linear_bias-", "nobody ends this wait", |t| with(t, "mbarrier.init", 0, "], 1;", "], 2;");
    "all threads tell a counter of bytes", "linear_bias-", "and one more comes", |t| {
        line(t, "expect_tx", 0, |line| line.trim_start().split_once(' ').map_or(String::new(), |(_, line)| line.into()))
    };
    "all threads of a warp copy a tile", "linear_bias-", UNDER_WAY, |t| {
        line(t, "elect.sync", 0, |line| {
            let leader = line.split(['|', ',']).nth(1).unwrap_or("");
            format!("{line}\nmov.pred {leader}, -1;")
        })
    };
    "tiles are copied over those of products under way", "linear_bias-", "was changed while a matrix product was reading it", |t| {
        without(t, "wgmma.wait_group", 0)
    };
    "tiles are read before the launches before have ended", "linear_bias-", EARLY, |t| {
        with(t, "griddepcontrol.wait", 0, "griddep", "setp.eq.b32 %p1, 1, 0; @%p1 griddep")
    };
    "the gate's tile is copied twice", "linear_glu-", BITS, |t| {
        let copies: Vec<&str> = t.lines().filter(|line| line.contains("cp.async.bulk")).collect();
        let place = |line: &str| Some(line.split_once('{')?.1.split_once('}')?.0.to_string());
        with(t, "cp.async.bulk", 2, &place(copies[2])?, &place(copies[1])?)
    };
    // Stores of states.
    "a state is taken before it is there", "store_delta-", EARLY, |t| without(t, "griddepcontrol.wait", 0);
    "a matrix of values is not stored", "store_delta-", BITS, |t| without(t, "stmatrix", 0);
    "a matrix of values is read as it is stored", "store_delta-", RACE, |t| without(t, "bar.sync", -7);
    "the state before a page is the page's own", "store_delta-", BITS, |t| with(t, ", -4;", 0, ", -4;", ", 0;");
    "a state is not written", "store_delta-", BITS, |t| without(t, "st.global.v2", 0);
    "a state is written a row early", "store_mamba-", BITS, |t| with(t, ", 63;", -1, ", 63;", ", 62;");
    "entries are written before launches before have ended", "store_mamba-", EARLY, |t| {
        line(&without(t, "griddepcontrol.wait", 0)?, "st.global", 0, |line| format!("{line}\ngriddepcontrol.wait;"))
    };
    "a barrier between a state's products is dropped", "store_mamba-", RACE, |t| without(t, "bar.sync", 5);
    "the state is read of another page", "read_state-", BITS, |t| with(t, ", -4;", 0, ", -4;", ", 0;");
    "a row does not see itself", "read_state-", BITS, |t| with(t, "setp.gt.s64", 1, "setp.gt", "setp.ge");
};

/// All that must be found.
pub const CONTROLS: &[Control] = controls! {
    // Copies and their waits.
    "the loop's wait is dropped", "linear-bf16-BK64-BM16", UNDER_WAY, |t| without(t, "cp.async.wait_group", 0);
    "the loop's wait leaves one group more", "linear-bf16-BK64-BM16", UNDER_WAY, |t| line(t, "cp.async.wait_group", 0, |l| {
        let many: usize = l.trim().trim_start_matches("cp.async.wait_group").trim().trim_end_matches(';').parse().unwrap();
        format!("cp.async.wait_group {};", many + 1)
    });
    "a group of copies is not closed", "linear-bf16-BK64-BM16", UNDER_WAY, |t| without(t, "cp.async.commit_group", 1);
    "attention's wait for a page table is dropped", "attend-", UNDER_WAY, |t| without(t, "cp.async.wait_group", 0);
    "attention's wait in the loop is dropped", "attend-", UNDER_WAY, |t| without(t, "cp.async.wait_group", 2);
    "a copy to a register that is not set", "linear-bf16-BK64-BM16", POISON, |t| with(t, "cp.async.cg", 8, "%r", "%r1");
    "a ragged row's copy is not cut", "linear-bf16-BK64-BM16", GLOBAL, |t| line(t, "selp.b32", 0, |l| l.replace(" 0,", " 16,"));
    "a copy is left out", "linear-bf16-BK64-BM16", POISON, |t| without(t, "cp.async.cg", 1);
    // Barriers.
    "the barrier behind the loop's wait is dropped", "linear-bf16-BK64-BM16", UNDER_WAY, |t| {
        let at = t.find("cp.async.wait_group")?;
        Some(t[..at].to_string() + &without(&t[at..], "bar.sync", 0)?)
    };
    "attention's barrier behind its wait is dropped", "attend-", RACE, |t| {
        let at = t.match_indices("cp.async.wait_group").nth(2)?.0;
        Some(t[..at].to_string() + &without(&t[at..], "bar.sync", 0)?)
    };
    "a reduction's barrier is dropped", "rmsnorm-", RACE, |t| without(t, "bar.sync", 0);
    "a reduction's second barrier is dropped", "rmsnorm-", RACE, |t| without(t, "bar.sync", 1);
    "a conversion's barrier is dropped", "rmsnorm-", RACE, |t| without(t, "bar.sync", -1);
    "a barrier in some threads only", "rmsnorm-", DIVERGENT, |t| with(t, "bar.sync", 0, "bar.sync", "@%p2 bar.sync");
    "a barrier in some warps only", "rmsnorm-", BARRIER, |t| {
        with(t, "bar.sync", 0, "bar.sync", "setp.lt.u32 %p9, %r30, 32; @%p9 bar.sync")
    };
    "the barrier before a page's buffer is filled again is dropped", "attend-", RACE, |t| {
        let at = t.match_indices("cp.async.wait_group").nth(2)?.0;
        Some(t[..at].to_string() + &without(&t[at..], "bar.sync", 1)?)
    };
    "a warp's own barrier is dropped", "attend-", RACE, |t| without(t, "bar.warp.sync", 0);
    // Places in shared memory.
    "a swizzle off by one bit", "linear-bf16-BK64-BM16", BITS, |t| line(t, ", 96;", 0, |l| l.replace(", 96;", ", 80;"));
    "a matrix 16 bytes off", "attend-", BITS, |t| with(t, "ldmatrix", 0, "+16384]", "+16400]");
    "a matrix not transposed", "attend-", BITS, |t| with(t, "ldmatrix", 0, ".trans", "");
    "a matrix transposed", "linear-bf16-BK64-BM16", BITS, |t| with(t, ".x4.shared", 0, ".x4.shared", ".x4.trans.shared");
    "a store off by a vector", "rmsnorm-", "shared memory at", |t| with(t, "+4096]", 0, "+4096]", "+4112]");
    "a load outside shared memory", "rmsnorm-", "shared memory at", |t| with(t, "+8192]", -1, "+8192]", "+81920]");
    "a load that is not aligned", "rmsnorm-", "no multiple of", |t| with(t, "+8192]", -1, "+8192]", "+8196]");
    // Operands.
    "rows of a product's first operand exchanged", "linear-bf16-BK64-BM16", BITS, |t| swapped(t, "mma.sync", 0, 4, 5);
    "halves of its k exchanged", "linear-bf16-BK64-BM16", BITS, |t| swapped(t, "mma.sync", 0, 4, 6);
    "halves of the second operand exchanged", "linear-bf16-BK64-BM16", BITS, |t| swapped(t, "mma.sync", 0, 8, 9);
    "accumulators exchanged", "linear-bf16-BK64-BM16", BITS, |t| swapped(t, "mma.sync", 0, 10, 11);
    "a product of integers with rows exchanged", "linear_int", BITS, |t| swapped(t, "mma.sync", 0, 4, 5);
    "halves of a pair of BF16 exchanged", "rmsnorm-", BITS, |t| swapped(t, "cvt.rn.bf16x2.f32", 0, 1, 2);
    "a difference the other way round", "attend-", BITS, |t| swapped(t, "sub.rn.f32", 0, 1, 2);
    "two stored numbers exchanged", "rmsnorm-", BITS, |t| swapped(t, "st.global", 0, 3, 4);
    "a multiply-add with its addend multiplied", "linear_int", BITS, |t| swapped(t, "fma.rn.f32", 0, 2, 3);
    "a multiply-add of another accumulator", "linear_int", BITS, |t| line(t, "fma.rn.f32", 0, |l| {
        let words: Vec<&str> = l.split(',').collect();
        format!("{},{},{}, 0f00000000;", words[0], words[1], words[2])
    });
    "a selection the other way round", "attend-", BITS, |t| swapped(t, "selp.f32", 0, 1, 2);
    // Registers that hold something else.
    "a product is left out: its accumulators are stale", "linear-bf16-BK64-BM16", BITS, |t| without(t, "mma.sync", 1);
    "a shuffle is left out", "rmsnorm-", POISON, |t| without(t, "shfl.sync", 2);
    "a maximum over threads is left out", "expert_glu-bf16-ACT2-", POISON, |t| without(t, "redux.sync", 0);
    "a load is left out: zeros stay", "rmsnorm-", BITS, |t| without(t, "@%p5 ld.global", 0);
    "a matrix is never loaded", "linear-bf16-BK64-BM16", POISON, |t| without(t, "ldmatrix", -1);
    "an exponential's result is never made", "attend-", POISON, |t| without(t, "ex2.approx", 0);
    // Predicates.
    "a store's predicate negated", "rmsnorm-", GLOBAL, |t| with(t, "st.global", 0, "@%p", "@!%p");
    "a store without its predicate", "linear-bf16-BK64-BM16", GLOBAL, |t| line(t, "st.global", -1, |l| l[l.find("st.global").unwrap()..].into());
    "a load's predicate negated", "rmsnorm-", GLOBAL, |t| with(t, "ld.global.v4", 0, "@%p", "@!%p");
    "one row more", "rmsnorm-", GLOBAL, |t| with(t, "setp.lt.s32", 0, "setp.lt", "setp.le");
    "a column's bound negated", "linear-bf16-BK64-BM16", GLOBAL, |t| with(t, "setp.lt.u64", 0, "setp.lt.u64", "setp.ge.u64");
    "a mask of seen keys off by one", "attend-", BITS, |t| usual(t, "setp.gt.s32", "setp.gt", "setp.ge");
    "a loop's end negated", "linear-bf16-BK64-BM16", BITS, |t| with(t, "bra", -1, "@%p", "@!%p");
    // Numbers.
    "another distance of a shuffle", "rmsnorm-", BITS, |t| with(t, "shfl.sync", 0, ", 16,", ", 8,");
    "another axis of the grid", "linear-bf16-BK64-BM16", BITS, |t| with(t, "%ctaid.y", 0, "%ctaid.y", "%ctaid.x");
    "another parameter", "rmsnorm-", BITS, |t| with(t, "ld.param", 2, "_param_2", "_param_0");
    "another number of elements in a mean", "rmsnorm-", BITS, |t| with(t, "div.full", 0, "%r71, %r69, %r70", "%r71, %r69, %r69");
    "the epsilon is left out", "rmsnorm-", BITS, |t| line(t, "0f3727C5AC", 0, |l| l.replace("0f3727C5AC", "0f00000000"));
    "another instruction: a minimum", "attend-", BITS, |t| with(t, "max.f32", -1, "max.f32", "min.f32");
    "the code ends early", "rmsnorm-", BITS, |t| with(t, "st.global", -1, "@%p1 ", "ret; @%p1 ");
    // States and their pages.
    "the state before a page is taken from the page itself", "store_delta-", BITS, |t| with(t, ", -4;", 0, ", -4;", ", 0;");
    "the first page looks back too", "store_delta-", GLOBAL, |t| with(t, "setp.gt.s32", 1, ", 63;", ", 62;");
    "a decay the other way round", "store_delta-", BITS, |t| swapped(t, "sub.rn.f32", 0, 1, 2);
    "the barrier of a sum over a page is dropped", "store_delta-", RACE, |t| without(t, "bar.sync", 2);
    "a key that is not finite stays", "store_delta-", BITS, |t| unchanged(t, 0);
    "the state is written a row early", "store_mamba-", BITS, |t| with(t, ", 63;", -1, ", 63;", ", 62;");
    "the state is not written", "store_mamba-", BITS, |t| without(t, "st.global.v2", 0);
    "an entry is not written", "store_mamba-", BITS, |t| without(t, "st.global.b32", 0);
    "a barrier between the products is dropped", "store_mamba-", RACE, |t| without(t, "bar.sync", 5);
    "the first page has a state before it", "read_state-", GLOBAL, |t| with(t, "setp.gt.s64", 0, "setp.gt", "setp.ge");
    "the state is read of another page", "read_state-", BITS, |t| with(t, ", -4;", 0, ", -4;", ", 0;");
    "a row does not see itself", "read_state-", BITS, |t| with(t, "setp.gt.s64", 1, "setp.gt", "setp.ge");
    "a multiply-add with its factors and addend exchanged", "read_state-", BITS, |t| swapped(t, "fma.rn.f32", 0, 2, 3);
    "the barrier behind a page's keys is dropped", "read_state-", RACE, |t| without(t, "bar.sync", 1);
    "the loop over pages has another end", "read_state-", GLOBAL, |t| with(t, "setp.ne.b64", 0, "setp.ne", "setp.eq");
    "a decay's exponential is never made", "read_state-", POISON, |t| without(t, "ex2.approx", 0);
    // Experts.
    "another expert is taken for this one", "expert_down-", BITS, |t| with(t, "setp.eq.b32", 0, "setp.eq", "setp.ne");
    "a row's second choice is taken for its first", "expert_down-", BITS, |t| with(t, "selp.b32", 1, " 2,", " 1,");
    "whether a tile has the expert is not asked of all rows", "expert_down-", POISON, |t| without(t, "shfl.sync", 0);
    "a gate's limit is another", "expert_glu-bf16-ACT2-", BITS, |t| with(t, "0f40E00000", 0, "0f40E00000", "0f40A00000");
    "experts of a group that is kept are left out", "route-", BITS, |t| with(t, "setp.leu.f32", 0, "setp.leu", "setp.gtu");
    "experts of all groups but one are left out", "route-", BITS, |t| with(t, "setp.gtu.f32", 0, "setp.gtu", "setp.leu");
    // Numbers that are not finite, or too large.
    "a number that is not finite is stored", "rope_store-bf16-BM16-EPS1e-6", BITS, |t| unchanged(t, 0);
    "a number above the largest BF16 is stored", "rope_store-bf16-BM16-EPS0.0", BITS, |t| with(t, "0f7F7F0000", 0, "7F7F0000", "7F7FFFFF");
    "the largest BF16 is not stored", "store_conv-", BITS, |t| with(t, "0f7F7F0000", 0, "setp.le", "setp.lt");
    "another weight of keys", "rope_store-bf16-BM16-EPS1e-6", BITS, |t| with(t, "_param_9]", 0, "_param_9", "_param_6");
    // Rows so small that a norm's small number counts.
    "the small number of a norm that is rounded is left out", "rmsnorm_add-", BITS, |t| with(t, "0f358637BD", 0, "358637BD", "00000000");
    "the small number of heads is left out", "norm_gated-", BITS, |t| with(t, "0f358637BD", 0, "358637BD", "00000000");
    "the small number of values is left out", "rope_store-bf16-BM16-EPS1e-6", BITS, |t| with(t, "0f358637BD", -1, "358637BD", "00000000");
    "the small number of a layer's input is left out", "per_layer_gate-", BITS, |t| with(t, "0f358637BD", 0, "358637BD", "00000000");
    // Tiles of columns behind the first, and rows behind the last that are not a thread's first.
    "columns of another tile", "embed-", BITS, |t| with(t, "%ctaid.y", 0, ".y", ".z");
    "columns of another tile of experts", "combine_bias-", BITS, |t| with(t, "%ctaid.y", 0, ".y", ".z");
    "a thread's third row is one too many", "embed-", GLOBAL, |t| with(t, "setp.lt.s32", 2, ".lt", ".le");
    "a thread's last row is one too many", "embed-", GLOBAL, |t| with(t, "setp.lt.s32", 15, ".lt", ".le");
    "a third row of four is one too many", "gather-", GLOBAL, |t| with(t, "setp.lt.s32", 2, ".lt", ".le");
    "a second row of four is one too many", "combine_bias-", GLOBAL, |t| with(t, "setp.lt.s32", 1, ".lt", ".le");
    "an expert's bias one further", "combine_bias-", BITS, |t| with(t, "min.s32", 0, ", 5;", ", 4;");
    // Blocks of numbers that become integers.
    "a block that counts as zeros has integers", "quantise-bf16-BB32-BLOCKS40", BITS, |t| with(t, "0f0DA24260", 0, "0DA24260", "00000000");
    "a block that is just large enough is zeros", "quantise-bf16-BB32-BLOCKS40", BITS, |t| with(t, "0f0DA24260", 0, "0DA24260", "0DA30000");
    "halves are rounded up", "quantise-bf16-BB32-BLOCKS40", BITS, |t| with(t, "0f4B400000", 0, "4B400000", "4B400001");
    "a block's NaN is no maximum", "quantise-bf16-BB32-BLOCKS40", BITS, |t| with(t, "max.NaN.f32", 0, "max.NaN", "max");
    // Choices and draws.
    "a column behind the last part's last", "topk_part-", BITS, |t| with(t, "setp.lt.u32", 0, ", 9000;", ", 8996;");
    "a negative zero is chosen", "topk_part-", BITS, |t| Some(t.replace("0f00800000", "0f00000000"));
    "the smallest normal number counts as zero", "topk_part-", BITS, |t| Some(t.replace("setp.lt.f32", "setp.le.f32"));
    "a row without numbers has no first column", "argmax-", BITS, |t| with(t, "setp.eq.f32", -1, "4B800000", "00000000");
    "no row's largest number is below zero", "argmax-", BITS, |t| Some(t.replace("0fFF800000", "0f00000000"));
    "the later one of equal experts", "route-bf16-BM1-E12", BITS, |t| with(t, "setp.le.f32", -1, "setp.le", "setp.lt");
    "a choice that is no number", "route-bf16-BM1-E12", BITS, |t| with(t, "setp.num.f32", 0, "setp.num", "setp.nan");
    "a draw's last part has columns too many", "draw_part-", BITS, |t| with(t, "setp.lt.u32", 0, ", 700;", ", 698;");
    "a row without weights has no first column", "draw_part-", BITS, |t| with(t, "setp.gt.f32", 0, "setp.gt", "setp.ge");
    "a draw ends before a sum that is its share", "draw_part-", BITS, |t| with(t, "setp.le.f32", -1, "setp.le", "setp.lt");
    "parts end before a sum that is their share", "draw_combine-", BITS, |t| with(t, "setp.le.f32", -1, "setp.le", "setp.lt");
    "an infinite logit has no weight", "draw_combine-", BITS, |t| with(t, "setp.le.f32", 0, "setp.le", "setp.lt");
    "parts of two rows are stored at one place", "draw_part-", TWICE, |t| with(t, "mad.lo.s64", -1, ", 3,", ", 1,");
    // A convolution's inputs of two pages, a window's keys, a new request's first row, and many splits.
    "an input of the next page is of this one too", "conv_silu-", BITS, |t| with(t, "setp.lt.u32", 2, ", 64;", ", 65;");
    "a page's last input is left out", "conv_silu-", BITS, |t| with(t, "setp.lt.u32", 3, ", 64;", ", 63;");
    "inputs of the other half", "conv_silu-", BITS, |t| with(t, "_param_7]", 0, "_param_7", "_param_6");
    "a window is a key too long", "attend-bf16-BQ16-CAP50", BITS, |t| with(t, "setp.ge.s32 \t%p17,", 0, "setp.ge", "setp.gt");
    "a window's first page is left out", "attend-bf16-BQ16-CAP50", BITS, |t| with(t, ", -99;", 0, ", -99;", ", -98;");
    "the row at position 0 is not written", "attend-bf16-BQ16-CAP50", BITS, |t| with(t, "setp.gt.s32", -2, "setp.gt", "setp.ge");
    "the thirteenth split is not copied", "attend_combine-", BITS, |t| with(t, "setp.gt.s32", -5, ", 12;", ", 99;");
};

/// The first sum whose last term is a product, as a multiply-add.
fn multiplied_at_once(text: &str) -> Option<String> {
    let words = |line: &str| line.replace([',', ';'], "").split_whitespace().map(str::to_string).collect::<Vec<_>>();
    let lines: Vec<(&str, Vec<String>)> = text.lines().map(|line| (line, words(line))).collect();
    let product =
        |to: &str| lines.iter().find(|(_, words)| words.len() == 4 && words[0] == "mul.rn.f32" && words[1] == to);
    let fused = lines.iter().find_map(|(line, words)| match &words[..] {
        [add, to, term, last] if add == "add.rn.f32" => {
            let (_, factors) = product(last)?;
            Some((line, format!("fma.rn.f32 {to}, {}, {}, {term};", factors[2], factors[3])))
        }
        _ => None,
    });
    fused.map(|(line, fused)| text.replacen(*line, &fused, 1))
}

/// What no case can notice, with the reason.
pub const UNNOTICED: &[(Control, &str)] = &[
    (
        Control {
            name: "a reduction in another order",
            kernel: "rmsnorm-",
            edit: |t| with(&with(t, "shfl.sync", 0, ", 16,", ", 8,")?, "shfl.sync", 1, ", 8,", ", 16,"),
            says: "",
        },
        "no certificate compares the order of a reduction with tile IR's: the cases' sums are exact in every order",
    ),
    (
        Control {
            name: "an exponential that keeps subnormal results",
            kernel: "attend-",
            edit: |t| with(t, "ex2.approx.ftz", 0, ".ftz", ""),
            says: "",
        },
        "an approximation is given the tile IR's function, which flushes",
    ),
    (
        Control {
            name: "a copy through another cache",
            kernel: "linear-bf16-BK64-BM16",
            edit: |t| with(t, "cp.async.cg", 0, ".cg", ".ca"),
            says: "",
        },
        "a cache changes no bit",
    ),
    (
        Control {
            name: "a barrier less before the loop",
            kernel: "linear-bf16-BK64-BM16",
            edit: |t| without(t, "bar.sync", 0),
            says: "",
        },
        "nobody has used the buffers that are filled behind it",
    ),
    (
        Control {
            name: "a sum the other way round",
            kernel: "rmsnorm-",
            edit: |t| swapped(t, "add.rn.f32", 0, 1, 2),
            says: "",
        },
        "addition commutes",
    ),
    (
        Control {
            name: "squares of BF16 multiplied and added at once",
            kernel: "rmsnorm_add-",
            edit: multiplied_at_once,
            says: "",
        },
        "FP32 holds such a square exactly; the compiler's check counts multiply-adds",
    ),
    (
        Control {
            name: "a comparison of numbers without their signs",
            kernel: "combine_bias-",
            edit: |t| Some(t.replace("setp.lt.s32", "setp.lt.u32")),
            says: "",
        },
        "rows and columns are from 0 to 2^31 - 1",
    ),
    (
        Control {
            name: "an index of 32 bits",
            kernel: "embed-",
            edit: |t| {
                line(t, "mad.wide.s32", 1, |line| {
                    let words: Vec<&str> = line
                        .trim()
                        .trim_end_matches(';')
                        .split([' ', '\t', ','])
                        .filter(|word| !word.is_empty())
                        .collect();
                    let [_, to, index, by, base] = words[..] else { return line.into() };
                    format!("mul.lo.s32 {index}, {index}, {by}; cvt.s64.s32 {to}, {index}; add.s64 {to}, {to}, {base};")
                })
            },
            says: "",
        },
        "a case has at most 2^24 numbers of a weight, whose bytes 32 bits count",
    ),
    (
        Control {
            name: "the last bit of a number",
            kernel: "conv_silu-",
            edit: |t| with(t, "0f3F800000", 0, "0f3F800000", "0f3F800001"),
            says: "",
        },
        "what differs in FP32's last place is the same BF16 but for one number in thousands",
    ),
    (
        Control {
            name: "a zero is not told from subnormal numbers",
            kernel: "argmax-",
            edit: |t| with(t, "0f00800000", 0, "0f00800000", "0f00000000"),
            says: "",
        },
        "no case has subnormal numbers",
    ),
    (
        Control {
            name: "rows of a page that are not there yet are loaded",
            kernel: "store_mamba-",
            edit: |t| {
                line(t, "ld.global.v4", 0, |line| line.split_once(' ').map_or(line.into(), |(_, rest)| rest.into()))
            },
            says: "",
        },
        "each is replaced before a state is made of them",
    ),
    (
        Control {
            name: "a split more than there are is copied",
            kernel: "attend_combine-",
            edit: |t| with(t, "setp.gt.s32", 3, "setp.gt", "setp.ge"),
            says: "",
        },
        "the scratch has room for it, and nobody reads the copy",
    ),
];
