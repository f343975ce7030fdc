//! The page at `/` in a real browser: headless Chromium, if there is one.

mod serve;

use serve::{Server, python, script, succeeds};
use std::process::Command;

#[test]
fn the_page_chats_shows_the_engine_and_shows_that_digests_agree() {
    let browsers = ["chromium", "chromium-browser", "google-chrome"];
    let runs = |name: &&&str| Command::new(name).arg("--version").output().is_ok_and(|output| output.status.success());
    let Some(browser) = browsers.iter().find(runs) else {
        println!("skipped: no Chromium; on Debian, `apt-get install chromium`");
        return;
    };
    let Some(python) = python("json, socket") else { return };
    let server = Server::start(&["--api-key", "secret"]);
    succeeds(Command::new(python).arg(script("page.py")).args([*browser, server.url.as_str(), "secret"]));
}
