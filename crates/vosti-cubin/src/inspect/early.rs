//! Checks of a kernel whose launch may begin before the launch before it has ended (programmatic dependent launch).
//!
//! Such a kernel waits first, in every thread: before the wait it touches no memory but to prefetch weights, and does
//! not branch. So it sees what the launch before it wrote, and it overwrites nothing that the launch before it still
//! reads. It also ends only after the launch before it has ended; the same holds for that one, and so a wait for one
//! launch is a wait for all before it. Behind the wait it lets the next launch begin, so at most two launches are under
//! way. `docs/gpu.md` has the whole argument. Read next: [`mod@crate::start`].

use super::texts::{Ptx, Sass, statements};
use super::{Metadata, Refusal, stem};

/// `griddepcontrol.wait` and `griddepcontrol.launch_dependents` in machine code.
const IN_SASS: [&str; 2] = ["ACQBULK", "PREEXIT"];
/// Beginnings of the names of machine code after which another instruction than the next may run, or a thread ends or
/// waits.
const ELSEWHERE: [&str; 12] =
    ["BAR", "BRA", "BREAK", "BRX", "BSSY", "BSYNC", "CALL", "EXIT", "JMP", "JMX", "KILL", "RET"];

/// Refuses a kernel that does not wait as its record says, or whose PTX does not begin with `start`.
pub(super) fn waits(ptx: &Ptx, sass: &Sass, metadata: &Metadata, start: &str) -> Result<(), Refusal> {
    let refuse = |why: String| Err(Refusal::Early { why });
    let places = |name: &str| (0..sass.opcodes.len()).filter(|at| stem(sass.opcodes[*at]) == name).collect::<Vec<_>>();
    let in_ptx = |statements: &[&str]| statements.iter().filter(|text| text.contains("griddepcontrol")).count();
    let [waits, lets] = IN_SASS.map(places);
    if !metadata.launch_pdl {
        return match in_ptx(&ptx.statements) + waits.len() + lets.len() {
            0 => Ok(()),
            _ => refuse("its record does not say so".into()),
        };
    }
    let start = statements(start);
    if !ptx.statements.starts_with(&start) || in_ptx(&start) != 2 || in_ptx(&ptx.statements) != 2 {
        return refuse("its PTX does not begin with the text that waits".into());
    }
    let ([wait], [next]) = (&waits[..], &lets[..]) else {
        let [waits, lets] = [waits.len(), lets.len()];
        return refuse(format!("its machine code waits {waits} times and lets the next launch begin {lets} times"));
    };
    if next < wait || sass.instructions[*wait].starts_with('@') {
        return refuse("its machine code does not wait first, in every thread".into());
    }
    let mut before = sass.instructions[..*wait].iter().zip(&sass.opcodes);
    let wrong = |text: &str, op: &str| ELSEWHERE.iter().any(|name| op.starts_with(name)) || touches_memory(text, op);
    if let Some((_, op)) = before.find(|(text, op)| wrong(text, op)) {
        return refuse(format!("its machine code has `{op}` before it waits"));
    }
    // The cache for memory that does not change during a launch: now the launch before it may change it.
    let kept = ptx.opcodes.iter().find(|op| op.starts_with("ld.") && op.split('.').any(|part| part == "nc"));
    let kept = kept.or_else(|| sass.opcodes.iter().find(|op| stem(op) == "LDG" && op.contains(".CONSTANT")));
    kept.map_or(Ok(()), |op| refuse(format!("`{op}` may give what was in memory before it waited")))
}

/// Whether an instruction has an address, other than of a constant (`c[0x0][0x28]`) or of a prefetch to the
/// second-level cache.
fn touches_memory(text: &str, op: &str) -> bool {
    let mut operands = text.split([',', ' ']).map(|word| word.trim_start_matches(['-', '|', '~', '!']));
    let address = |word: &str| word.contains('[') && !word.starts_with("c[");
    operands.any(address) && !(op.starts_with("CCTL.") && op.ends_with(".PF2"))
}
