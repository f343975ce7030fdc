//! The page at `/`: chat, the engine's state, and one request alone and among others side by side.
//!
//! One HTML file, one style and one script, whose parts are joined here, are sent as one document; there is no build step and no
//! library. The page loads nothing from elsewhere, which its policy enforces, and writes all text through text nodes, never as
//! HTML. It uses the API like any other client, with the key that the user types and that the browser forgets with the tab;
//! chats stay in the browser's own storage. The page holds no secret and is open to everyone. Read next: `base.js`, `talk.js`.

use axum::http::HeaderValue;
use axum::http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS,
};
use axum::response::{IntoResponse, Response};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use sha2::{Digest, Sha256};
use std::sync::LazyLock;
use vosti_engine::Numbers;

/// The parts of the script, in order: `talk.js` starts the page.
const SCRIPT: [&str; 9] = [
    include_str!("base.js"),
    include_str!("highlight.js"),
    include_str!("math.js"),
    include_str!("markdown.js"),
    include_str!("chats.js"),
    include_str!("settings.js"),
    include_str!("files.js"),
    include_str!("same.js"),
    include_str!("talk.js"),
];

static PAGE: LazyLock<String> = LazyLock::new(|| {
    let style = format!("<style>\n{}</style>", include_str!("page.css"));
    let script = format!("<script>\n{}</script>", SCRIPT.concat());
    let page = include_str!("index.html").replacen("<numbers></numbers>", &numbers(), 1);
    page.replacen("<style></style>", &style, 1).replacen("<script></script>", &script, 1)
});

/// A field of the settings for each of the engine's sampling numbers; `data-number` has the neutral value.
fn numbers() -> String {
    let fields = Numbers::default().all().map(|(name, neutral)| {
        let label = name.replace('_', "\u{a0}");
        format!("<label>{label} <input id=\"{name}\" type=\"number\" data-number=\"{neutral}\" step=\"any\"></label>")
    });
    fields.collect::<Vec<_>>().join("\n    ")
}

/// The page's content security policy: it allows the page's one script and one style, by their hashes, and requests to the page's
/// own server; no other page may frame it.
static POLICY: LazyLock<HeaderValue> = LazyLock::new(|| {
    let policy = format!(
        "default-src 'none'; script-src {}; style-src {}; connect-src 'self'; img-src data:; \
         base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
        source_of("script"),
        source_of("style")
    );
    // Base64 and the text above are what a header may hold.
    HeaderValue::from_str(&policy).unwrap_or_else(|_| HeaderValue::from_static("default-src 'none'"))
});

/// The policy's source expression (a hash) for the text of this element.
fn source_of(element: &str) -> String {
    let (open, close) = (format!("<{element}>"), format!("</{element}>"));
    let inside = PAGE.split_once(&open).and_then(|(_, rest)| rest.split_once(&close)).map_or("", |(inside, _)| inside);
    format!("'sha256-{}'", STANDARD.encode(Sha256::digest(inside)))
}

/// `GET /`.
pub async fn show() -> Response {
    let fixed = HeaderValue::from_static;
    let headers = [
        (CONTENT_TYPE, fixed("text/html; charset=utf-8")),
        (CONTENT_SECURITY_POLICY, POLICY.clone()),
        (X_CONTENT_TYPE_OPTIONS, fixed("nosniff")),
        (REFERRER_POLICY, fixed("no-referrer")),
        (CACHE_CONTROL, fixed("no-cache")),
    ];
    (headers, PAGE.as_str()).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_names_no_other_place_and_writes_no_html() {
        for foreign in ["http://", "https://", "src=", "@import", "url("] {
            assert!(!PAGE.contains(foreign), "{foreign}");
        }
        for dangerous in ["innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "setHTML"] {
            assert!(!PAGE.contains(dangerous), "{dangerous}");
        }
        assert!(PAGE.contains("look();") && PAGE.contains("color-scheme"), "the script and the style are in");
        // Only these two are hashed.
        assert_eq!((PAGE.matches("<script").count(), PAGE.matches("<style").count()), (1, 1));
        // The policy lets no handler in an attribute pass for ours.
        assert!(!PAGE.contains(" onclick=") && !PAGE.contains(" onload="));
    }
}
