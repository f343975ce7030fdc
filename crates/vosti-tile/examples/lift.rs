//! Prints the tile IR of TTIR files: `cargo run -p vosti-tile --example lift -- kernels/ttir/*.ttir`

fn main() {
    for path in std::env::args().skip(1) {
        let text = std::fs::read_to_string(&path).expect("a readable file");
        match vosti_tile::lift(&text) {
            Ok(kernel) => println!("{kernel}"),
            Err(error) => println!("{path}: {error}"),
        }
    }
}
