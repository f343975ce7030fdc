//! A tiny device: a slot's KV is a hash of token and position, logits hash what a position sees, in order.
#![allow(dead_code)]

use vosti_core::*;

pub struct Tiny {
    pub cache: Vec<Vec<u64>>,
    pub logits: Vec<u64>,
    pub fail: Option<bool>,
}

pub const VOCAB: u32 = 50;

fn mix(a: u64, b: u64) -> u64 {
    (a ^ b.wrapping_add(0x9e37_79b9_7f4a_7c15)).wrapping_mul(0xbf58_476d_1ce4_e5b9).rotate_left(31)
}

impl Device for Tiny {
    type Logits = u64;

    fn rows_max(&self) -> usize {
        512
    }

    fn selected_max(&self) -> usize {
        512
    }

    fn pages(&self, group: usize) -> usize {
        self.cache[group].len() / PAGE
    }

    fn clear(&mut self) {
        self.cache.iter_mut().for_each(|c| c.fill(0));
    }

    fn run(&mut self, program: &Program, plan: &StepPlan) -> Result<(), DeviceError> {
        if let Some(intact) = self.fail {
            return Err(DeviceError { message: "told to fail".into(), intact });
        }
        for s in plan.sequences() {
            for (group, table) in s.tables.iter().enumerate() {
                for row in s.first_row..s.first_row + s.rows {
                    let p = plan.positions()[row] as usize;
                    assert_eq!(p, s.first_position + row - s.first_row);
                    self.cache[group][table[p / PAGE] as usize * PAGE + p % PAGE] =
                        mix(plan.tokens()[row] as u64, p as u64);
                }
            }
        }
        let sequence_of =
            |row: usize| plan.sequences().iter().find(|s| (s.first_row..s.first_row + s.rows).contains(&row)).unwrap();
        self.logits = plan
            .selected()
            .iter()
            .map(|&row| {
                let s = sequence_of(row as usize);
                let p = plan.positions()[row as usize] as usize;
                let mut h = 1;
                for (group, decl) in program.groups.iter().enumerate() {
                    let first = decl.window.map_or(0, |w| (p + 1).saturating_sub(w as usize));
                    for j in first..=p {
                        let page = s.tables[group][j / PAGE];
                        assert!(page >= 0, "position {j} of group {group} is read and has no page");
                        h = mix(h, self.cache[group][page as usize * PAGE + j % PAGE]);
                    }
                }
                h
            })
            .collect();
        Ok(())
    }

    fn logits(&self, selected: usize) -> &u64 {
        &self.logits[selected]
    }
}

pub struct Modulo;

impl Sampler for Modulo {
    type Logits = u64;
    type State = u64;

    fn vocab(&self) -> u32 {
        VOCAB
    }

    fn sample(&self, state: &mut u64, logits: &u64) -> (Token, bool) {
        *state -= 1;
        ((logits % VOCAB as u64) as u32, *state == 0)
    }
}

pub fn program(windows: &[Option<u32>]) -> Program {
    let act = |width| BufferDecl { width, dtype: Dtype::Act, rows: RowSet::All };
    let mut ops = vec![Op::Embed { k: 0, out: 0 }];
    for (layer, &window) in windows.iter().enumerate() {
        let layer = layer as u32;
        ops.push(Op::Rowwise { k: 0, ins: vec![0], outs: vec![1], rows: RowSet::All });
        ops.push(Op::StoreKv { k: 0, ins: vec![1], layer });
        ops.push(Op::Attend { k: 0, q: 1, layer, out: 2, window });
        ops.push(Op::Rowwise { k: 0, ins: vec![1, 2], outs: vec![0], rows: RowSet::All });
    }
    ops.push(Op::Rowwise { k: 0, ins: vec![0], outs: vec![3], rows: RowSet::Selected });
    Program {
        ops,
        buffers: vec![act(8), act(8), act(8), BufferDecl { width: VOCAB, dtype: Dtype::F32, rows: RowSet::Selected }],
        groups: windows.iter().map(|&window| GroupDecl { window, kv_heads: 1, head_dim: 8 }).collect(),
        layers: (0..windows.len()).map(|g| LayerDecl { group: g as u32 }).collect(),
        logits: 3,
        vocab: VOCAB,
        context: 1000,
        kernels: 1,
    }
}

pub type Tested = Core<Tiny, Modulo>;

pub fn core(windows: &[Option<u32>], pages: usize) -> Tested {
    let cache = windows.iter().map(|_| vec![7; pages * PAGE]).collect();
    Core::new(Tiny { cache, logits: vec![], fail: None }, Modulo, program(windows)).unwrap()
}

/// Takes the pages that positions below `end` need.
pub fn cover(core: &mut Tested, id: RequestId, end: usize) {
    for group in 0..core.program().groups.len() {
        while core.request(id).unwrap().table(group).len() * PAGE < end {
            core.take_page(id, group).unwrap();
        }
    }
}

/// One step of one request; the records with their logits.
pub fn step(core: &mut Tested, id: RequestId, rows: usize, drafts: &[Token]) -> Vec<(Record, u64)> {
    let end = core.request(id).unwrap().cached() + rows + drafts.len();
    cover(core, id, end);
    core.plan_begin().unwrap();
    core.plan_rows(id, rows, drafts, Select::Last).unwrap();
    core.run().unwrap();
    let records = core.commit().unwrap();
    records.into_iter().map(|r| (r, *core.device().logits(r.selected))).collect()
}

/// Runs a request to its end in chunks of `chunk`, and finishes it.
pub fn drain(core: &mut Tested, id: RequestId, chunk: usize) -> Vec<(Token, u64)> {
    let mut out = vec![];
    while !core.complete(id) {
        let r = core.request(id).unwrap();
        let rows = chunk.min(r.history().len() - r.cached());
        out.extend(step(core, id, rows, &[]).into_iter().map(|(r, l)| (r.token, l)));
    }
    core.finish(id).unwrap();
    out
}

pub fn prompt(n: usize) -> Vec<Token> {
    (0..n as u32).map(|i| (i * 7 + i / 13) % VOCAB).collect()
}
