//! Checks a decoder's dimensions. Each error names one field and its bounds.
//!
//! The check runs before anything is allocated from the dimensions. Messages name fields as in `config.json`, also for GGUF
//! files.

use crate::decoder::{
    Attention, Decoder, DeltaRule, Experts, Gated, Groups, Layer, Mamba, Mixer, Mlp, Score, ShortConv,
};
use crate::error::{ModelError, Result};
use crate::inventory::{CHOICES, EXPERTS_MAX, GROUP_MAX, GROUPS_MAX, MAMBAS, RULE_TAPS, RULES, TAPS, VOCABULARY_MAX};

type Wrong = (&'static str, String);

/// Refuses dimensions that no kernel serves, before anything is allocated from them.
pub(crate) fn check_dimensions(d: &Decoder, head_max: u32, file: &str) -> Result<()> {
    let layers = d.layers.iter().enumerate();
    let found = whole(d).or_else(|| layers.filter_map(|(i, layer)| self::layer(i, layer, d.hidden, head_max)).next());
    match found {
        None => Ok(()),
        Some((key, why)) => Err(ModelError::Config { file: file.into(), key: key.into(), why }),
    }
}

/// The error of a number that must lie between two others, if it does not.
fn outside(key: &'static str, value: u32, low: u32, high: u32) -> Option<Wrong> {
    let bad = !(low..=high).contains(&value);
    bad.then(|| (key, format!("is {value}, not between {low} and {high}")))
}

/// The error of a number that must be positive, if it is not.
fn not_positive(key: &'static str, value: f64) -> Option<Wrong> {
    let good = value.is_finite() && value > 0.0;
    (!good).then(|| (key, format!("is {value}, not a positive number")))
}

fn whole(d: &Decoder) -> Option<Wrong> {
    let eps = d.eps.is_finite() && d.eps > 0.0 && d.eps < 1.0;
    outside("vocab_size", d.vocab, 2, VOCABULARY_MAX)
        .or_else(|| outside("hidden_size", d.hidden, 1, 1 << 16))
        .or_else(|| outside("max_position_embeddings", d.context, 1, 1 << 22))
        .or_else(|| {
            let layers = u32::try_from(d.layers.len()).unwrap_or(u32::MAX).max(1);
            outside("hidden_size_per_layer_input", d.per_layer?, 1, (1 << 20) / layers)
        })
        .or_else(|| outside("num_hidden_layers", d.layers.len().try_into().unwrap_or(u32::MAX), 1, 1024))
        .or_else(|| {
            let why = "names no layer with attention or a state".to_string();
            d.layers.iter().all(|layer| layer.mixer == Mixer::None).then_some(("layers_block_type", why))
        })
        .or_else(|| (!eps).then(|| ("rms_norm_eps", format!("is {}, not between 0 and 1", d.eps))))
        .or_else(|| not_positive("embedding_multiplier", d.embed_scale))
        .or_else(|| not_positive("logits_scaling", d.logits_divisor.into()))
        .or_else(|| capped("final_logit_softcapping", d.final_softcap))
}

/// A soft cap is a positive number, or zero for none.
fn capped(key: &'static str, cap: f64) -> Option<Wrong> {
    let good = cap.is_finite() && cap >= 0.0;
    (!good).then(|| (key, format!("is {cap}, neither a positive number nor 0")))
}

fn layer(i: usize, layer: &Layer, hidden: u32, head_max: u32) -> Option<Wrong> {
    let mixer = match &layer.mixer {
        Mixer::Attention(attention) => self::attention(i, attention, head_max),
        Mixer::ShortConv(conv) => short_conv(hidden, *conv),
        Mixer::DeltaRule(rule) => delta_rule(i, rule),
        Mixer::Mamba(mamba) => self::mamba(i, mamba),
        Mixer::Beside(attention, mamba) => self::attention(i, attention, head_max).or_else(|| self::mamba(i, mamba)),
        Mixer::None => None,
    };
    let gated = |gated: &Gated| outside("intermediate_size", gated.width, 1, 1 << 18);
    let mlp = || match &layer.mlp {
        Mlp::Gated(own) => gated(own),
        Mlp::Experts(experts) => self::experts(experts),
        Mlp::Both(own, experts) => gated(own).or_else(|| self::experts(experts)),
        Mlp::None => None,
    };
    mixer.or_else(mlp).or_else(|| not_positive("residual_multiplier", layer.residual_scale))
}

fn experts(experts: &Experts) -> Option<Wrong> {
    const COUNT: &str = "num_experts or num_local_experts";
    let Experts { count, chosen, width, .. } = *experts;
    outside(COUNT, count, 1, EXPERTS_MAX)
        .or_else(|| {
            let why = format!("is {chosen}, more than the {count} experts of a layer");
            (chosen > count).then_some(("num_experts_per_tok", why))
        })
        .or_else(|| {
            let why = format!("is {chosen}, and there are kernels for {CHOICES:?} experts of a row");
            (!CHOICES.contains(&chosen)).then_some(("num_experts_per_tok", why))
        })
        .or_else(|| outside("moe_intermediate_size or intermediate_size", width, 1, 1 << 18))
        .or_else(|| not_positive("routed_scaling_factor", experts.scale))
        .or_else(|| groups(experts))
        .or_else(|| {
            let width = experts.shared.as_ref()?.mlp.width;
            outside(
                "n_shared_experts times moe_intermediate_size, or shared_expert_intermediate_size",
                width,
                1,
                1 << 18,
            )
        })
}

fn groups(experts: &Experts) -> Option<Wrong> {
    let Groups { count, kept } = experts.groups?;
    let (all, chosen) = (experts.count, experts.chosen);
    let wrong = |field, why| Some((field, why));
    if experts.score == Score::Softmax {
        return wrong(
            "n_group",
            format!("is {count}, and there are no groups for a router whose scores are a softmax"),
        );
    }
    if count > GROUPS_MAX || all % count != 0 || all / count < 2 {
        let why =
            format!("is {count}, which does not cut {all} experts into up to {GROUPS_MAX} equal groups of 2 or more");
        return wrong("n_group", why);
    }
    if kept == 0 || kept > count {
        return wrong("topk_group", format!("is {kept}, not between 1 and the {count} groups of a layer"));
    }
    let few = chosen > kept * (all / count);
    few.then(|| ("topk_group", format!("is {kept}, and {kept} groups have fewer than the {chosen} experts of a row")))
}

fn short_conv(hidden: u32, conv: ShortConv) -> Option<Wrong> {
    let odd = !hidden.is_multiple_of(2);
    odd.then(|| ("hidden_size", format!("is {hidden}, and a short convolution has an even number of channels")))
        .or_else(|| {
            let why = format!("is {}, and there are kernels for {TAPS:?} inputs of a channel", conv.taps);
            (!TAPS.contains(&conv.taps)).then_some(("conv_L_cache", why))
        })
}

fn delta_rule(i: usize, rule: &DeltaRule) -> Option<Wrong> {
    let DeltaRule { key_heads, group, head_dim, taps, .. } = *rule;
    let why = format!("is {head_dim} in layer {i}, and there are kernels for {RULES:?} numbers of a head");
    let size = (!RULES.contains(&head_dim)).then_some(("linear_key_head_dim", why));
    size.or_else(|| outside("linear_num_key_heads", key_heads, 1, 1024))
        .or_else(|| outside("linear_num_value_heads over linear_num_key_heads", group, 1, 64))
        .or_else(|| {
            let why = format!("is {taps}, and there are kernels for {RULE_TAPS} inputs of a channel");
            (taps != RULE_TAPS).then_some(("linear_conv_kernel_dim", why))
        })
}

fn mamba(i: usize, mamba: &Mamba) -> Option<Wrong> {
    let Mamba { groups, members, state, head_dim, taps, .. } = *mamba;
    let why = format!("is {state} with heads of {head_dim} in layer {i}, and there are kernels for {MAMBAS:?}");
    let size = (!MAMBAS.contains(&(state, head_dim))).then_some(("mamba_d_state, state_size or ssm_state_size", why));
    size.or_else(|| outside("mamba_n_groups or n_groups", groups, 1, 1024))
        .or_else(|| outside("heads over groups of Mamba 2", members, 1, 1024))
        .or_else(|| outside("mamba_n_heads, num_heads or mamba_num_heads", groups * members, 1, 1024))
        .or_else(|| {
            let why = format!("is {taps}, and there are kernels for {RULE_TAPS} inputs of a channel");
            (taps != RULE_TAPS).then_some(("mamba_d_conv or conv_kernel", why))
        })
}

fn attention(i: usize, attention: &Attention, head_max: u32) -> Option<Wrong> {
    let Attention { heads, kv_heads, head_dim, rope, .. } = attention;
    let (heads, kv_heads, head_dim) = (*heads, *kv_heads, *head_dim);
    let divides = kv_heads > 0 && heads.is_multiple_of(kv_heads);
    outside("num_attention_heads", heads, 1, 1024)
        .or_else(|| {
            let why = format!("is {kv_heads} in layer {i}, not a number that divides {heads} heads");
            (!divides).then_some(("num_key_value_heads", why))
        })
        .or_else(|| {
            let why = format!("is {kv_heads} in layer {i}: more than {GROUP_MAX} of {heads} heads would share a key's");
            (heads > kv_heads * GROUP_MAX).then_some(("num_key_value_heads", why))
        })
        .or_else(|| {
            let why = format!("is {head_dim} in layer {i}, not an even number between 2 and {head_max}");
            (!(2..=head_max).contains(&head_dim) || !head_dim.is_multiple_of(2)).then_some(("head_dim", why))
        })
        .or_else(|| (attention.window == Some(0)).then(|| ("sliding_window", "is 0, not a positive number".into())))
        .or_else(|| not_positive("rope_theta", rope.theta))
        .or_else(|| {
            let why = format!("gives {} rotating numbers of a head of {head_dim}, not an even part of it", rope.rotary);
            (rope.rotary > head_dim || !rope.rotary.is_multiple_of(2))
                .then_some(("partial_rotary_factor or rotary_dim", why))
        })
        .or_else(|| not_positive("query_pre_attn_scalar or attention_multiplier", attention.scale))
        .or_else(|| capped("attn_logit_softcapping", attention.softcap))
}
