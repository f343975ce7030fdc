//! The least work of a measured case (arithmetic and bytes read), and the time that it takes at the machine's ceilings.

use super::Case;
use vosti_contract::Const;
use vosti_core::{PartDecl, Program, RowSet};
use vosti_cpu::Ceilings;
use vosti_model::ModelPlan;
use vosti_tile::Scalar;

/// The least that a case takes: floating-point operations of its matrices and of attention, and bytes of its matrices
/// and of the cache. Activations, norms and exponentials are not counted.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Work {
    tokens: f64,
    flops: f64,
    bytes: f64,
}

impl Work {
    /// The work of one step: the whole prefill, or one token of each sequence. An element of a matrix takes `element_bytes` bytes.
    pub fn of(plan: &ModelPlan, case: Case, element_bytes: f64) -> Work {
        let (rows, selected, sequences, depth) = match case {
            Case::Prefill { tokens, depth } => (tokens, 1, 1, depth),
            Case::Decode { tokens, batch, depth } => (batch, batch, batch, depth.max(1) + tokens / 2),
        };
        let program = &plan.program;
        let mut work = Work { tokens: rows as f64, flops: 0.0, bytes: 0.0 };
        for op in &program.ops {
            let used = op.uses();
            if let Some(read) = used.cache_read {
                let per_sequence = rows / sequences;
                let window = read.window.map_or(usize::MAX, |w| w as usize);
                let seen: usize = (depth..depth + per_sequence).map(|p| (p + 1).min(window)).sum();
                let positions = (depth + per_sequence).min(window.saturating_add(per_sequence));
                let width = f64::from(program.buffers[used.inputs[0] as usize].width);
                work.flops += 4.0 * width * (seen * sequences) as f64;
                let [entry, state] = cache_bytes(program, read.layer);
                work.bytes += (entry * positions as f64 + state) * sequences as f64;
            } else if !used.tokens && used.cache_written.is_none() {
                let rows = if used.rows == RowSet::All { rows } else { selected };
                let elements = matrix_elements(plan, used.binding) as f64;
                let [by_row, by_step] = chosen(plan, used.binding, rows);
                work.flops += 2.0 * elements * by_row * rows as f64;
                work.bytes += element_bytes * elements * by_step;
            }
        }
        work
    }

    /// Floating-point operations and bytes for each token.
    pub fn per_token(&self) -> (f64, f64) {
        (self.flops / self.tokens.max(1.0), self.bytes / self.tokens.max(1.0))
    }

    /// Tokens per second if the slower of arithmetic and reading runs at its ceiling and the other one beside it.
    pub fn bound(&self, ceilings: &Ceilings) -> f64 {
        let seconds = (self.flops / ceilings.dot_flops_per_s).max(self.bytes / ceilings.read_bytes_per_s);
        self.tokens / seconds.max(1e-12)
    }
}

/// Elements of the matrices that a binding reads.
fn matrix_elements(plan: &ModelPlan, k: u32) -> usize {
    let names = plan.bindings[k as usize].launches.iter().flat_map(|launch| launch.weights.values());
    names.filter_map(|name| plan.weights.get(name)?.matrix_elements()).sum()
}

/// The share of a binding's matrices that a row multiplies, and that a step of so many rows reads. Where a row chooses some of a
/// layer's experts, rows are taken to choose independently, each expert as often as another.
fn chosen(plan: &ModelPlan, k: u32, rows: usize) -> [f64; 2] {
    let constants = plan.bindings[k as usize].launches.first().map(|launch| &launch.spec.constants);
    let constant = |name: &str| match constants.and_then(|constants| constants.get(name)) {
        Some(Const::Int(value)) => Some(*value as f64),
        _ => None,
    };
    match (constant("TOPK"), constant("E")) {
        (Some(chosen), Some(experts)) => {
            let share = chosen / experts;
            [share, 1.0 - (1.0 - share).powf(rows as f64)]
        }
        _ => [1.0, 1.0],
    }
}

/// Bytes of a position's entry and of a page's state in a layer.
fn cache_bytes(program: &Program, layer: u32) -> [f64; 2] {
    let group = &program.groups[program.layers[layer as usize].group as usize];
    let part =
        |part: &PartDecl| Scalar::from(part.dtype).bytes() as f64 * f64::from(part.heads) * f64::from(part.width);
    [&group.entry, &group.state].map(|parts| parts.iter().map(part).sum())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model_source::ModelSource;
    use vosti_kernels::Binding;
    use vosti_model::Target;

    #[test]
    fn a_step_reads_the_experts_that_its_rows_choose() {
        let config = concat!(env!("CARGO_MANIFEST_DIR"), "/../vosti-model/tests/tiny/mixtral/config.json");
        let source = ModelSource::open(config.as_ref()).unwrap();
        let plan = source.plan(&Target::named("cpu"), None).unwrap();
        let of = |kernel: &str| {
            let runs = |binding: &Binding| binding.launches.iter().any(|launch| launch.spec.kernel == kernel);
            plan.bindings.iter().position(runs).unwrap()
        };
        let (experts, dense) = (of("expert_glu"), of("linear"));
        // Two of five experts.
        let [by_row, by_step] = chosen(&plan, experts as u32, 1);
        assert_eq!((by_row, (by_step - 0.4).abs() < 1e-9), (0.4, true));
        assert!((chosen(&plan, experts as u32, 2)[1] - 0.64).abs() < 1e-9);
        assert!(chosen(&plan, experts as u32, 512)[1] > 0.999);
        assert_eq!(chosen(&plan, dense as u32, 1), [1.0, 1.0]);
    }
}
