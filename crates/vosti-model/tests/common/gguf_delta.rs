//! What llama.cpp's converter writes of a gated delta rule: Qwen 3.5's and Qwen 3 Next's.

use serde_json::Value;

use super::Writer;

/// The delta rule, and how much of a head rotates.
pub(super) fn write_values(w: &mut Writer, config: &Value, named: &dyn Fn(&str) -> String) {
    let int = |key: &str| config[key].as_u64().unwrap();
    let (heads, size) = (int("linear_num_value_heads"), int("linear_value_head_dim"));
    w.int(&named("ssm.conv_kernel"), int("linear_conv_kernel_dim"));
    w.int(&named("ssm.state_size"), int("linear_key_head_dim"));
    w.int(&named("ssm.group_count"), int("linear_num_key_heads"));
    w.int(&named("ssm.time_step_rank"), heads);
    w.int(&named("ssm.inner_size"), heads * size);
    let recurs = config["layer_types"].as_array().unwrap().iter().map(|t| u8::from(t == "linear_attention"));
    let flags: Vec<u8> = recurs.collect();
    w.list(&named("attention.recurrent_layers"), 7, flags.len(), &flags);
    let share =
        [&config["rope_parameters"], config].into_iter().find_map(|p| p["partial_rotary_factor"].as_f64()).unwrap();
    w.int(&named("rope.dimension_count"), (int("head_dim") as f64 * share) as u64);
}

/// The values of a tensor of Qwen 3.5 or Qwen 3 Next as the converter writes them: norms as factors, decays as factors, and of Qwen 3.5 the
/// first value heads of all key heads before the second ones.
pub(super) fn converted(name: &str, shape: &[usize], values: Vec<f32>, config: &Value) -> Vec<f32> {
    let int = |key: &str| config[key].as_u64().unwrap() as usize;
    let (groups, size) = (int("linear_num_key_heads"), int("linear_value_head_dim"));
    let members = int("linear_num_value_heads") / groups;
    // Units of `unit` numbers from `first` on.
    let turned = |values: &[f32], first: usize, unit: usize| {
        if config["model_type"] == "qwen3_next" {
            return values.to_vec();
        }
        let unit_of = |at: usize| first + (at % groups * members + at / groups) * unit;
        let order = (0..groups * members).flat_map(|at| values[unit_of(at)..][..unit].to_vec());
        values[..first].iter().copied().chain(order).collect::<Vec<f32>>()
    };
    let columns = values.len() / shape[0];
    let keys = 2 * groups * int("linear_key_head_dim");
    match name.split_once("linear_attn.").map(|(_, part)| part) {
        Some("A_log") => turned(&values.iter().map(|v| -libm::expf(*v)).collect::<Vec<_>>(), 0, 1),
        Some("dt_bias") => turned(&values, 0, 1),
        Some("in_proj_a.weight" | "in_proj_b.weight") => turned(&values, 0, columns),
        Some("in_proj_z.weight") => turned(&values, 0, size * columns),
        Some("in_proj_qkv.weight" | "conv1d.weight") => turned(&values, keys * columns, size * columns),
        Some("out_proj.weight") => values.chunks(columns).flat_map(|row| turned(row, 0, size)).collect(),
        None if shape.len() == 1 => values.into_iter().map(|v| v + 1.0).collect(),
        _ => values,
    }
}

/// Queries, keys, values and gates of Qwen 3 Next, which the converter takes apart.
pub(super) fn write_apart(w: &mut Writer, layer: &str, (shape, values): (&[usize], &[f32]), config: &Value) {
    let int = |key: &str| config[key].as_u64().unwrap() as usize;
    let (groups, size, columns) = (int("linear_num_key_heads"), int("linear_key_head_dim"), shape[1]);
    let of_values = int("linear_num_value_heads") / groups * int("linear_value_head_dim");
    let rows = |first: usize, rows: usize| {
        let group = |g: usize| values[(g * (2 * size + 2 * of_values) + first) * columns..][..rows * columns].to_vec();
        (0..groups).flat_map(group).collect::<Vec<f32>>()
    };
    let qkv = [rows(0, size), rows(size, size), rows(2 * size, of_values)].concat();
    let z = rows(2 * size + of_values, of_values);
    for (name, own) in [("attn_qkv", qkv), ("attn_gate", z)] {
        w.tensor(&format!("blk.{layer}.{name}.weight"), &[own.len() / columns, columns], &own);
    }
}
