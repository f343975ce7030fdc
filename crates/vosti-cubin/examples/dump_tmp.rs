//! dump
use vosti_cubin::Toolchain;
use vosti_kernels::parse_stem;
fn main() {
    let target = std::env::args().nth(1).unwrap();
    let specs: Vec<_> = std::env::args().skip(2).map(|s| parse_stem(&s).unwrap()).collect();
    let tool = Toolchain::with_python(std::path::PathBuf::from("/work/tools/triton/bin/python"));
    for a in tool.compile_checked_in(&target, &specs).unwrap() {
        std::fs::write(format!("/tmp/b100/{}.ptx", a.spec), &a.ptx).unwrap();
        std::fs::write(format!("/tmp/b100/{}.sass", a.spec), &a.sass).ok();
        std::fs::write(format!("/tmp/b100/{}.ttir", a.spec), &a.ttir).unwrap();
        println!("{} threads {} shared {}", a.spec, a.metadata.num_warps * 32, a.metadata.shared);
    }
}
