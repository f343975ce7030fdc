//! Which other sites' pages may use the API from a browser.
//!
//! Without an allowed origin no header is sent, and browsers block every other site's page. Cookies are never used; an API
//! key guards the API.

use crate::api::body::TOLD;
use crate::error::ServerError;
use axum::http::{HeaderName, HeaderValue, Method};
use std::time::Duration;
use tower_http::cors::{AllowHeaders, AllowOrigin, CorsLayer};

/// Sites whose pages may use the API.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Origins {
    /// Only the server's own page.
    #[default]
    None,
    /// Sites, as browsers send them in `Origin`.
    These(Vec<HeaderValue>),
    /// Every site.
    All,
}

/// How long a browser may keep the answer to its preflight request.
const PREFLIGHT_MAX: Duration = Duration::from_secs(600);

impl Origins {
    /// Reads origins like `https://app.example` or `http://localhost:3000`; `*` is every site.
    pub fn parse(texts: &[String]) -> Result<Self, ServerError> {
        if texts.iter().any(|text| text == "*") {
            return Ok(Self::All);
        }
        let origins: Vec<HeaderValue> = texts.iter().map(|text| origin(text)).collect::<Result<_, _>>()?;
        Ok(if origins.is_empty() { Self::None } else { Self::These(origins) })
    }

    pub(crate) fn layer(&self) -> Option<CorsLayer> {
        let origin = match self {
            Self::None => return None,
            Self::These(origins) => AllowOrigin::list(origins.clone()),
            Self::All => AllowOrigin::any(),
        };
        let shown = ["x-request-id", TOLD[0], TOLD[1], "retry-after"].map(HeaderName::from_static);
        let cors = CorsLayer::new().allow_origin(origin).allow_methods([Method::GET, Method::POST]);
        // "*" would leave out Authorization.
        Some(cors.allow_headers(AllowHeaders::mirror_request()).expose_headers(shown).max_age(PREFLIGHT_MAX))
    }
}

/// Checks an origin: scheme, host and port as browsers write them, because any other text never matches.
fn origin(text: &str) -> Result<HeaderValue, ServerError> {
    let wrong = || ServerError::Origin(text.to_string());
    let (scheme, host) = text.split_once("://").ok_or_else(wrong)?;
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || ".-:[]+".contains(c);
    if scheme.is_empty() || host.is_empty() || !scheme.chars().chain(host.chars()).all(plain) {
        return Err(wrong());
    }
    HeaderValue::from_str(text).map_err(|_| wrong())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_origin_is_what_browsers_send_or_refused() {
        let parse = |text: &str| Origins::parse(&[text.to_string()]);
        for good in ["https://app.example", "http://localhost:3000", "http://[::1]:8080", "chrome-extension://abc"] {
            assert!(matches!(parse(good), Ok(Origins::These(_))), "{good}");
        }
        assert_eq!(parse("*").unwrap(), Origins::All);
        for bad in ["app.example", "https://app.example/", "https://App.example", "https://", "null", ""] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }
}
