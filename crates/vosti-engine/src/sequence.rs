//! One choice of one request, as the scheduler sees it. The core owns its tokens, pages and sampler state.

use crate::{RequestId, Token};
use vosti_core::RequestId as CoreId;

/// Identifies a sequence inside the engine, in order of arrival.
pub(crate) type Serial = u64;

pub(crate) struct Sequence {
    pub core: CoreId,
    pub request: RequestId,
    pub choice: u32,
    /// Serial of the request's first choice: the others wait until it has published the prompt.
    pub leader: Serial,
    /// Rows that the engine had computed when it arrived, and its own: see [`crate::Order::Turn`].
    pub turn: u64,
    pub prompt_len: usize,
    pub use_prefix_cache: bool,
    /// Its tokens are reported with their rows of logits.
    pub token_logits: bool,
    /// The next prompt position whose logits are to be reported; `usize::MAX` if none are.
    pub prompt_next: usize,
    /// The next position whose experts are to be reported; `usize::MAX` if none are.
    pub routed_next: usize,
    /// Prompt tokens found in the prefix cache when it was first scheduled.
    pub cached_tokens: Option<usize>,
    /// `Event::Started` was reported.
    pub started: bool,
    /// Logical pages at the beginning of each group's table that were released behind the window.
    pub behind: Vec<usize>,
    pub generated: usize,
    /// The request's guess of the tokens that it generates.
    pub foreseen: Vec<Token>,
    /// The most positions that were ever cached. More is progress.
    pub reached: usize,
}
