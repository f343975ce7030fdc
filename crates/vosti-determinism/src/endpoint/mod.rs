//! `vosti check --endpoint URL`: does a server of the OpenAI API give one answer to one request, whatever else it does?
//!
//! From outside, only printed values can be compared: texts, tokens and log-probabilities. Every prompt is asked twice,
//! greedily and with a seed. The first answer, which the server gave with nothing else to do, is the reference, and every
//! other course must print the same. Any server can be measured; the code assumes nothing of ours. [`courses`] has the
//! courses.

mod client;
mod courses;
mod report;

pub use report::{Course, EndpointReport};

use crate::CheckError;
use client::Client;
use vosti_progress::Progress;

/// Which server, and how much is asked of it.
#[derive(Clone, Debug)]
pub struct EndpointOptions {
    /// The server's address, without `/v1`.
    pub url: String,
    /// For `Authorization: Bearer`.
    pub key: Option<String>,
    /// The name to ask for; none: the first that the server lists.
    pub model: Option<String>,
    /// Prompts; each is asked greedily and with a seed.
    pub prompts: usize,
    /// Tokens of each answer.
    pub tokens: usize,
    /// Requests at the same time, one course for each.
    pub together: Vec<usize>,
    /// Of prompts and orders. A server that has seen the prompts of a seed may have them in its cache.
    pub seed: u64,
}

impl Default for EndpointOptions {
    fn default() -> Self {
        let together = vec![2, 4, 8, 16];
        Self { url: String::new(), key: None, model: None, prompts: 8, tokens: 24, together, seed: 1 }
    }
}

/// Measures the server.
pub fn run(options: &EndpointOptions, progress: &dyn Progress) -> Result<EndpointReport, CheckError> {
    let client = Client::open(&options.url, options.key.clone(), options.model.clone())?;
    let courses = courses::run(&client, options, progress)?;
    Ok(EndpointReport::new(&client, options, courses))
}

#[cfg(test)]
mod tests;
