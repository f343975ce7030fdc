//! API keys: a bearer token, compared in constant time.

use crate::api::ApiError;
use crate::app::App;
use axum::extract::{Request, State};
use axum::http::header::AUTHORIZATION;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use std::sync::Arc;
use subtle::{Choice, ConstantTimeEq};

/// The keys' hashes: of equal length, so that comparing them tells nothing about a key's length.
pub struct Keys(Vec<[u8; 32]>);

impl Keys {
    /// Accepts any of these keys; without a key, everyone.
    pub fn new(keys: &[String]) -> Self {
        Self(keys.iter().map(|key| *blake3::hash(key.as_bytes()).as_bytes()).collect())
    }

    /// True if the API needs no key.
    pub fn open(&self) -> bool {
        self.0.is_empty()
    }

    /// Compares with every key, so that the time does not tell which key matched.
    fn accept(&self, given: &str) -> bool {
        let given = blake3::hash(given.as_bytes());
        let matches = self.0.iter().map(|key| key.as_slice().ct_eq(given.as_bytes().as_slice()));
        matches.fold(Choice::from(0), |any, this| any | this).into()
    }
}

/// Lets a request through if the API is open or it brings a key.
pub async fn check(State(app): State<Arc<App>>, request: Request, next: Next) -> Response {
    let header = request.headers().get(AUTHORIZATION).and_then(|value| value.to_str().ok());
    let bearer = header.and_then(|value| {
        let (scheme, token) = value.split_once(' ')?;
        scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
    });
    // Anthropic's clients have a header of their own.
    let token = bearer.or_else(|| request.headers().get("x-api-key").and_then(|value| value.to_str().ok()));
    match token {
        _ if app.keys.open() => next.run(request).await,
        Some(token) if app.keys.accept(token) => next.run(request).await,
        Some(_) => {
            ApiError::unauthorized("this server does not know the API key: send one of its keys").into_response()
        }
        None => {
            ApiError::unauthorized("this server needs an API key: send 'Authorization: Bearer KEY'").into_response()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_whole_key_is_accepted() {
        let keys = Keys::new(&["alpha".into(), "beta".into()]);
        assert!(keys.accept("alpha") && keys.accept("beta"));
        for wrong in ["", "alph", "alphaa", "Alpha", "gamma"] {
            assert!(!keys.accept(wrong), "{wrong}");
        }
    }
}
