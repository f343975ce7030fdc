//! Prints the tile IR of checked-in texts or of files: `cargo run -p vosti-tile --example lift -- NAME FILE.ttir`, where NAME
//! stands in `kernels/ttir` behind `// text of`.

fn main() {
    for name in std::env::args().skip(1) {
        let text = vosti_kernels::ttir_by_stem(&name).map(str::to_owned);
        let text =
            text.unwrap_or_else(|| std::fs::read_to_string(&name).expect("a checked-in text or a readable file"));
        match vosti_tile::lift(&text) {
            Ok(kernel) => println!("{kernel}"),
            Err(error) => println!("{name}: {error}"),
        }
    }
}
