//! Compares a prompt that is computed cold with one whose beginning comes from the prefix cache.

use super::super::profile::Follow;
use super::super::prompts::{Random, tokens};
use super::{Pair, Relation, Suite, demand, last_logits};
use crate::{CheckError, Subject};
use vosti_core::PAGE;
use vosti_engine::{Policy, Request, Sampling};

/// Common tokens from which on a hit is required, whatever the page size.
const HIT_REQUIRED: usize = 128;
/// Tokens a donor generates; `Follow::Generated` continues after them.
const GENERATED: usize = 40;

/// The meaning of a pass.
pub const CLAIM: &str = "A prefix taken from the cache gives the logits that computing it gives.";

/// Runs the relation.
pub fn run<S: Subject>(suite: &Suite<'_, S>, relation: &mut Relation) -> Result<bool, CheckError> {
    let profile = suite.profile();
    suite.progress.stage("prefix", profile.prefixes.len() as u64);
    let mut hits = 0;
    for &(len, follow) in &profile.prefixes {
        if !suite.fits(len + GENERATED + profile.prefix_more, 1) {
            relation.dropped += 1;
            continue;
        }
        let (pair, hit) = compare(suite, len, follow)?;
        hits += u64::from(hit);
        relation.pairs.push(pair);
        suite.progress.done(relation.pairs.len() as u64);
    }
    if !relation.pairs.is_empty() {
        relation.saw(if suite.facts().states { "states attached" } else { "cache hits" }, hits, 1);
    }
    Ok(true)
}

fn compare<S: Subject>(suite: &Suite<'_, S>, len: usize, follow: Follow) -> Result<(Pair, bool), CheckError> {
    let more = suite.profile().prefix_more;
    let mut random = Random::new(suite.seed(), &format!("prefix {follow:?} {len}"));
    let mut another = || tokens(suite.facts(), &mut random, more);
    let shared = suite.prompt(&format!("prefix {follow:?}"), len);
    let generated = if follow == Follow::Generated { GENERATED } else { 1 };
    let donor = match follow {
        Follow::OtherSuffix => [shared.clone(), another()].concat(),
        Follow::More | Follow::Repeat | Follow::Generated => shared.clone(),
    };
    let donor = Request::new(donor, Sampling::greedy(generated));
    let longest = last_logits(vec![0; len + GENERATED + more]);
    let mut setup = suite.plain(&[], len + GENERATED + more);
    setup.pool_tokens = demand(&[donor.clone(), longest]);
    let cold_setup = setup.clone();
    setup.policy = Policy { prefix_cache: true, ..setup.policy };

    let mut warm = suite.runner(&setup, true)?;
    let given = warm.alone(&donor)?;
    let answered = given.tokens.len();
    let query = match follow {
        Follow::Repeat => shared,
        Follow::More | Follow::OtherSuffix => [shared, another()].concat(),
        Follow::Generated => [shared, given.tokens, another()].concat(),
    };
    // At least one position of the query stays to compute, and the donor's last token is not in the cache.
    let common = (len + answered.max(1) - 1).min(query.len() - 1);
    let request = last_logits(query);
    let hot = warm.alone(&request)?;
    let cold = suite.runner(&cold_setup, true)?.alone(&request)?;

    let cached = hot.usage.cached_tokens;
    let expected = common / PAGE * PAGE;
    let short = common >= HIT_REQUIRED && cached < HIT_REQUIRED / PAGE * PAGE;
    let missing = if short || cached > common {
        Some(format!("{cached} tokens came from the cache, {expected} of {common} common ones were expected"))
    } else if follow == Follow::Generated && cached <= len {
        Some(format!("{cached} tokens came from the cache, none of them generated after the {len} of the prompt"))
    } else {
        None
    };
    let label = format!("donor of {len}, {}, {cached} tokens cached", follow_name(follow));
    Ok((Pair::new(label, cold.rows.first(), hot.rows.first(), missing), cached > 0))
}

fn follow_name(follow: Follow) -> &'static str {
    match follow {
        Follow::More => "then more",
        Follow::Repeat => "again",
        Follow::OtherSuffix => "another suffix",
        Follow::Generated => "its answer, then more",
    }
}
