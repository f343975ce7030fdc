use std::collections::HashMap;
use vosti_ptx::*;
fn main() {
    let dir = std::env::args().nth(1).unwrap();
    let only = std::env::args().nth(2).unwrap_or_default();
    let log = std::fs::read_to_string(format!("{dir}.log")).unwrap();
    let shared: HashMap<&str, usize> = log
        .lines()
        .filter_map(|l| {
            let w: Vec<&str> = l.split(' ').collect();
            (w.len() > 3 && w[1] == "shared").then(|| (w[0], w[2].parse().unwrap()))
        })
        .collect();
    let mut stems: Vec<&&str> = shared.keys().collect();
    stems.sort();
    let (mut good, mut bad) = (0, 0);
    for stem in stems.into_iter().filter(|s| s.contains(&only)) {
        let ptx = std::fs::read_to_string(format!("{dir}/{stem}.ptx")).unwrap();
        let spec = vosti_kernels::parse_stem(stem).unwrap();
        let ttir = vosti_kernels::ttir(&spec).unwrap();
        let kernel = match Kernel::read(&ptx) {
            Ok(k) => k,
            Err(e) => {
                println!("{stem}: READ {e}");
                bad += 1;
                continue;
            }
        };
        let t = std::time::Instant::now();
        let cases = match Cases::new(&spec, &ttir) {
            Ok(c) => c,
            Err(e) => {
                println!("{stem}: CASES {e}");
                bad += 1;
                continue;
            }
        };
        let t1 = t.elapsed();
        let r = cases.check(&Compiled {
            spec: &spec,
            ttir: &ttir,
            ptx: &ptx,
            threads: kernel.threads.unwrap(),
            shared: shared[*stem],
        });
        let t2 = t.elapsed() - t1;
        match r {
            Ok(()) => {
                good += 1;
                println!("{stem}: ok {t1:?} {t2:?}")
            }
            Err(e) => {
                bad += 1;
                println!("{stem}: {e} {t1:?} {t2:?}")
            }
        }
    }
    println!("{good} good, {bad} bad");
}
