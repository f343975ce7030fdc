//! `vosti check --endpoint URL`: does a server of the OpenAI API give one answer to one request, whatever else it does?
//!
//! From outside, only printed values can be compared: texts, tokens and log-probabilities. Every prompt is sent twice,
//! greedily and with a seed. The first answer, which the server gave while it did nothing else, is the reference, and every
//! other course must print the same. The code assumes nothing of Vosti, so any server can be measured. [`courses`] has the
//! courses.

mod client;
mod courses;
mod report;

pub use report::{Course, EndpointReport};

use crate::CheckError;
use client::Client;
use vosti_engine::progress::Progress;

/// The server, and the requests that it gets.
#[derive(Clone, Debug)]
pub struct EndpointOptions {
    /// The server's address, without `/v1`.
    pub url: String,
    /// Sent as `Authorization: Bearer KEY`; none: no such header.
    pub key: Option<String>,
    /// The name to ask for; none: the first that the server lists.
    pub model: Option<String>,
    /// Number of prompts; each is sent greedily and with a seed.
    pub prompts: usize,
    /// Tokens of each answer.
    pub tokens: usize,
    /// Numbers of requests at the same time, one course for each.
    pub together: Vec<usize>,
    /// Seed of prompts and orders. A server that has answered the prompts of a seed may have them in its cache.
    pub seed: u64,
}

impl Default for EndpointOptions {
    fn default() -> Self {
        let together = vec![2, 4, 8, 16];
        Self { url: String::new(), key: None, model: None, prompts: 8, tokens: 24, together, seed: 1 }
    }
}

/// Measures the server. It is an error if the address is wrong, or if the server does not answer or refuses a request.
pub fn run(options: &EndpointOptions, progress: &dyn Progress) -> Result<EndpointReport, CheckError> {
    let client = Client::open(&options.url, options.key.clone(), options.model.clone())?;
    let courses = courses::run(&client, options, progress)?;
    Ok(EndpointReport::new(&client, options, courses))
}

#[cfg(test)]
mod tests;
