//! The page at `/` in a real browser: headless Chromium.

mod serve;

use serve::{Server, script, succeeds};
use std::process::Command;
use vosti_test_tools::{chromium, python};

#[test]
fn the_page_chats_shows_the_engine_and_shows_that_digests_agree() {
    let Some(browser) = chromium() else { return };
    let Some(python) = python("json") else { return };
    let server = Server::start(&["--api-key", "secret"]);
    for claims in ["page.py", "page_long.py"] {
        succeeds(Command::new(&python).arg(script(claims)).args([browser, server.url.as_str(), "secret"]));
    }
}
