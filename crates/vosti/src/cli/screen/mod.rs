//! The terminal that answers are shown on: Markdown in styles (`markdown`), in lines that end between words (`wrap`). A file or a
//! pipe gets the answer unchanged, without any of this.

mod markdown;
mod wrap;

use console::Term;
pub use markdown::Screen;

/// The terminal, with its width; none if standard output is a file or a pipe.
pub fn screen() -> Option<Screen> {
    let terminal = Term::stdout();
    let set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    let styled = !set("NO_COLOR") && std::env::var_os("TERM").is_none_or(|name| name != "dumb");
    terminal.is_term().then(|| Screen::new(usize::from(terminal.size().1), styled))
}
