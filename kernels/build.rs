//! Embedded files are not tracked by the macro that embeds them.

fn main() {
    println!("cargo:rerun-if-changed=ttir");
}
