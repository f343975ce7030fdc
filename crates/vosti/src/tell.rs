//! Standard error, where a command says what it does beside its output.
//!
//! Its reader may have left (`vosti serve 2>&1 | head`), and its disk may be full. `eprintln!` panics there, which would end an answer
//! or a server for the sake of a line about it. Nothing here fails.

/// Writes a line to standard error, if it can be written.
macro_rules! tell {
    ($($text:tt)*) => {{
        use std::io::Write as _;
        _ = writeln!(std::io::stderr(), $($text)*);
    }};
}
