//! Prints `docs/api.md`.

fn main() {
    print!("{}", vosti_server::api_page::page());
}
