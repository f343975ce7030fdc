//! Tells cargo to watch `ttir/`, because the macro that embeds its files does not.

fn main() {
    println!("cargo:rerun-if-changed=ttir");
}
