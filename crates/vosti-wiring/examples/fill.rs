//! Measures how long it takes to fill a step's metadata: nanoseconds of the fastest of 2000 steps, for plans of 40, 64 and
//! 700 rows.

#[path = "../tests/common/mod.rs"]
mod common;

use common::{Idle, Seven};
use std::time::Instant;
use vosti_core::*;
use vosti_wiring::{Metadata, image};

fn program() -> Program {
    let buffer = |width, rows| BufferDecl { width, dtype: Dtype::F32, rows };
    let group = |window| GroupDecl { window, entry: vec![], state: vec![] };
    Program {
        ops: vec![
            Op::Embed { k: 0, out: 0 },
            Op::StoreKv { k: 0, ins: vec![0], layer: 0, back: 0 },
            Op::Attend { k: 0, q: 0, layer: 0, out: 1, window: None },
            Op::Rowwise { k: 0, ins: vec![1], outs: vec![2], rows: RowSet::Selected },
        ],
        buffers: vec![buffer(4, RowSet::All), buffer(4, RowSet::All), buffer(50, RowSet::Selected)],
        groups: vec![group(None), group(None)],
        layers: vec![LayerDecl { group: 0 }, LayerDecl { group: 1 }],
        logits: 2,
        vocab: 50,
        context: 8192,
        kernels: 1,
    }
}

fn main() {
    let tiling = |height, group, first, end| Tiling { height, group, first, end };
    let tilings = [tiling(16, 0, 0, 512), tiling(16, 0, 512, 1024), tiling(16, 1, 0, usize::MAX)];
    for (requests, prompt) in [(1, 40), (64, 40), (64, 4000), (1, 700)] {
        let mut core = Core::new(Idle { rows: 1024, pages: 10_000 }, Seven { vocab: 50 }, program()).unwrap();
        let ids: Vec<_> = (0..requests).map(|_| core.admit(vec![1; prompt], 0, ()).unwrap()).collect();
        for id in &ids {
            for group in 0..2 {
                (0..prompt.div_ceil(PAGE) + 1).for_each(|_| core.take_page(*id, group).unwrap());
            }
        }
        // All of the prompt in one step for a single request, else one decoded row a request.
        while requests > 1 && ids.iter().any(|id| core.request(*id).unwrap().history().len() == prompt) {
            core.plan_begin().unwrap();
            let mut room = 1024;
            for id in &ids {
                let request = core.request(*id).unwrap();
                let left = if request.history().len() == prompt { prompt - request.cached() } else { 0 };
                let rows = left.min(room);
                if rows > 0 {
                    core.plan_rows(*id, rows, &[], Select::Last).unwrap();
                    room -= rows;
                }
            }
            core.run().unwrap();
            core.commit().unwrap();
        }
        core.plan_begin().unwrap();
        for id in &ids {
            let request = core.request(*id).unwrap();
            let rows = request.history().len() - request.cached();
            core.plan_rows(*id, rows, &[], Select::Last).unwrap();
        }
        let image = image(core.program(), &tilings, 1024, 1024).unwrap();
        let len = image.len();
        let mut metadata = Metadata::new(image, vec![0i32; len]);
        let (mut fill, mut pack) = (u128::MAX, u128::MAX);
        for _ in 0..2000 {
            let start = Instant::now();
            metadata.fill(std::hint::black_box(core.plan())).unwrap();
            fill = fill.min(start.elapsed().as_nanos());
            let start = Instant::now();
            metadata.pack(std::hint::black_box(core.plan()), None).unwrap();
            pack = pack.min(start.elapsed().as_nanos());
        }
        println!("{requests:3} requests, {:4} rows at {prompt:4}: fill {fill} ns, pack {pack} ns", core.plan().rows());
    }
}
