//! exec
use vosti_cubin::{Toolchain, execute};
use vosti_kernels::parse_stem;
fn main() {
    let target = std::env::args().nth(1).unwrap();
    let specs: Vec<_> = std::env::args().skip(2).map(|s| parse_stem(&s).unwrap()).collect();
    let tool = Toolchain::with_python(std::path::PathBuf::from("/work/tools/triton/bin/python"));
    for a in tool.compile_checked_in(&target, &specs).unwrap() {
        std::fs::write(format!("{}/{}.ptx", std::env::var("OUT").unwrap(), a.spec), &a.ptx).unwrap();
        let t = std::time::Instant::now();
        println!("{} {:?} {:?}", a.spec, execute(&a).map_err(|e| e.to_string()), t.elapsed());
        if let Err(e) = vosti_ptx::Kernel::read(&a.ptx) {
            println!("   {e}");
        }
    }
}
