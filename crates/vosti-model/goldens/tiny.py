"""Makes ../tests/tiny/*: tiny random models of every family, and what transformers computes with them.

Each folder holds config.json, model.safetensors (BF16) and golden.safetensors: `tokens` [T], and the
teacher-forced logits [T, V] of the same weights in FP32 (`logits_f32`) and in BF16 (`logits_bf16`).

    python tiny.py            # versions in requirements.txt; torch is never needed by a test
"""
import json
import shutil
import sys
from pathlib import Path

import torch
from safetensors.torch import save_file
from transformers import AutoConfig, AutoModelForCausalLM

OUT = Path(__file__).resolve().parent.parent / "tests" / "tiny"
TOKENS = 150
GEMMA_LAYERS = ["sliding_attention", "sliding_attention", "full_attention", "sliding_attention", "full_attention"]

SHARED = dict(vocab_size=256, hidden_size=64, intermediate_size=128, max_position_embeddings=512, rms_norm_eps=1e-6,
              bos_token_id=1, eos_token_id=2, pad_token_id=0)
GEMMA4 = dict(SHARED, model_type="gemma4_text", num_attention_heads=4, num_key_value_heads=2, head_dim=32,
              global_head_dim=64, sliding_window=37, hidden_size_per_layer_input=0, final_logit_softcapping=12.0,
              hidden_activation="gelu_pytorch_tanh", tie_word_embeddings=True)

PLAIN = dict(SHARED, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2, rope_theta=10000.0)
ROPE = dict(rope_theta=10000.0)
YARN = dict(rope_type="yarn", factor=4.0, original_max_position_embeddings=64)
LONG = dict(type="longrope", short_factor=[1.0 + 0.1 * i for i in range(6)], long_factor=[1.5 + 0.7 * i for i in range(6)])
# transformers bounds steps by `time_step_min` from below, which is for initial weights; others do not.
NEMOTRON = dict({k: v for k, v in SHARED.items() if k != "rms_norm_eps"}, model_type="nemotron_h", num_attention_heads=4,
                num_key_value_heads=2, head_dim=32, mamba_num_heads=6, mamba_head_dim=16, ssm_state_size=32, n_groups=2, conv_kernel=4,
                expand=2, layer_norm_epsilon=1e-6, mlp_hidden_act="relu2", time_step_min=1e-30, tie_word_embeddings=False)
WINDOWED = ["sliding_attention", "sliding_attention", "full_attention"]

CONFIGS = {
    "qwen2": dict(PLAIN, model_type="qwen2", tie_word_embeddings=True),
    "ministral": dict(PLAIN, model_type="ministral", tie_word_embeddings=False, sliding_window=50, head_dim=16,
                      layer_types=WINDOWED),
    "ministral3": dict(PLAIN, model_type="ministral3", tie_word_embeddings=True, head_dim=16, sliding_window=None,
                       rope_parameters=dict(YARN, **ROPE, mscale=1.0, mscale_all_dim=1.0, llama_4_scaling_beta=0.1)),
    "phi3": dict(PLAIN, model_type="phi3", tie_word_embeddings=False, partial_rotary_factor=0.75, sliding_window=None,
                 original_max_position_embeddings=64, rope_scaling=LONG),
    "gemma2": dict(PLAIN, model_type="gemma2", tie_word_embeddings=True, head_dim=16, sliding_window=50,
                   query_pre_attn_scalar=16, attn_logit_softcapping=2.0, final_logit_softcapping=15.0,
                   hidden_activation="gelu_pytorch_tanh"),
    "olmo2": dict(PLAIN, model_type="olmo2", tie_word_embeddings=False),
    "olmo3": dict(dict(PLAIN, rope_theta=500000.0), model_type="olmo3", tie_word_embeddings=False, sliding_window=50,
                  layer_types=WINDOWED, rope_scaling=YARN),
    "granite": dict(PLAIN, model_type="granite", tie_word_embeddings=True, embedding_multiplier=8.0, logits_scaling=3.0,
                    residual_multiplier=0.7, attention_multiplier=0.2),
    "granite4": dict(PLAIN, model_type="granitemoehybrid", tie_word_embeddings=True, embedding_multiplier=8.0,
                     logits_scaling=3.0, residual_multiplier=0.7, attention_multiplier=0.2, num_local_experts=0,
                     num_experts_per_tok=0, shared_intermediate_size=128, position_embedding_type="rope",
                     layer_types=["attention"] * 3),
    "granite4-h": dict(PLAIN, model_type="granitemoehybrid", tie_word_embeddings=True, embedding_multiplier=8.0, logits_scaling=3.0,
                       residual_multiplier=0.7, attention_multiplier=0.2, num_local_experts=0, num_experts_per_tok=0,
                       shared_intermediate_size=128, position_embedding_type="nope", layer_types=["mamba", "attention", "mamba"],
                       mamba_n_heads=8, mamba_d_head=16, mamba_d_state=32, mamba_n_groups=2, mamba_d_conv=4, mamba_expand=2),
    "granite4-moe": dict(PLAIN, model_type="granitemoehybrid", tie_word_embeddings=True, embedding_multiplier=8.0, logits_scaling=3.0,
                         residual_multiplier=0.7, attention_multiplier=0.2, num_local_experts=10, num_experts_per_tok=2,
                         intermediate_size=32, shared_intermediate_size=64, position_embedding_type="nope",
                         layer_types=["mamba", "attention", "mamba"], mamba_n_heads=8, mamba_d_head=16, mamba_d_state=32,
                         mamba_n_groups=2, mamba_d_conv=4, mamba_expand=2),
    "qwen3-moe": dict(PLAIN, model_type="qwen3_moe", head_dim=32, tie_word_embeddings=True, num_experts=6, num_experts_per_tok=2,
                      moe_intermediate_size=40, norm_topk_prob=True, mlp_only_layers=[1], decoder_sparse_step=1),
    "olmoe": dict(PLAIN, model_type="olmoe", tie_word_embeddings=False, num_experts=8, num_experts_per_tok=4,
                  intermediate_size=48, norm_topk_prob=False),
    "mixtral": dict(PLAIN, model_type="mixtral", tie_word_embeddings=False, num_local_experts=5, num_experts_per_tok=2,
                    intermediate_size=64, sliding_window=None),
    "granite-moe": dict(PLAIN, model_type="granitemoe", tie_word_embeddings=True, num_local_experts=12, num_experts_per_tok=6,
                        intermediate_size=32, embedding_multiplier=8.0, logits_scaling=3.0, residual_multiplier=0.7,
                        attention_multiplier=0.2),
    "gpt-oss": dict(PLAIN, model_type="gpt_oss", tie_word_embeddings=False, head_dim=16, intermediate_size=32, num_local_experts=6,
                    num_experts_per_tok=2, sliding_window=37, attention_bias=True,
                    layer_types=["sliding_attention", "full_attention", "sliding_attention"],
                    rope_scaling=dict(YARN, **ROPE, beta_fast=32.0, beta_slow=1.0, truncate=False)),
    "lfm2": dict(dict(PLAIN, norm_eps=1e-6, rope_theta=1000000.0), model_type="lfm2", block_ff_dim=192,
                 block_multiple_of=64, conv_L_cache=3, conv_bias=False, tie_embedding=True, tie_word_embeddings=True,
                 layer_types=["conv", "full_attention", "conv"]),
    "lfm2-moe": dict(dict(PLAIN, norm_eps=1e-6, rope_theta=1000000.0), model_type="lfm2_moe", conv_L_cache=3, conv_bias=False,
                     tie_word_embeddings=True, num_dense_layers=1, num_experts=8, num_experts_per_tok=2, moe_intermediate_size=32,
                     norm_topk_prob=True, routed_scaling_factor=1.0, use_expert_bias=True,
                     layer_types=["conv", "full_attention", "conv"]),
    "qwen3_5": dict(PLAIN, model_type="qwen3_5_text", tie_word_embeddings=True, head_dim=32,
                    layer_types=["linear_attention", "full_attention", "linear_attention"], linear_num_key_heads=2,
                    linear_num_value_heads=4, linear_key_head_dim=32, linear_value_head_dim=32, linear_conv_kernel_dim=4,
                    rope_parameters=dict(ROPE, rope_type="default", partial_rotary_factor=0.25, mrope_section=[2, 1, 1])),
    "qwen3_5-moe": dict({k: v for k, v in PLAIN.items() if k != "intermediate_size"}, model_type="qwen3_5_moe_text",
                        tie_word_embeddings=False, head_dim=32, layer_types=["linear_attention", "full_attention", "linear_attention"],
                        linear_num_key_heads=2, linear_num_value_heads=4, linear_key_head_dim=32, linear_value_head_dim=32,
                        linear_conv_kernel_dim=4, num_experts=10, num_experts_per_tok=2, moe_intermediate_size=32,
                        shared_expert_intermediate_size=64,
                        rope_parameters=dict(ROPE, rope_type="default", partial_rotary_factor=0.25, mrope_section=[2, 1, 1])),
    "qwen3-next": dict(PLAIN, model_type="qwen3_next", tie_word_embeddings=False, head_dim=32,
                       layer_types=["linear_attention", "full_attention", "linear_attention"], linear_num_key_heads=2,
                       linear_num_value_heads=4, linear_key_head_dim=32, linear_value_head_dim=32, linear_conv_kernel_dim=4,
                       num_experts=12, num_experts_per_tok=10, moe_intermediate_size=32, shared_expert_intermediate_size=64,
                       norm_topk_prob=True, rope_theta=10000.0, partial_rotary_factor=0.25),
    "glm4-moe": dict(PLAIN, model_type="glm4_moe", tie_word_embeddings=False, head_dim=32, attention_bias=True,
                     n_routed_experts=10, num_experts_per_tok=2, moe_intermediate_size=32, n_shared_experts=2,
                     first_k_dense_replace=1, norm_topk_prob=True, routed_scaling_factor=1.5, n_group=1, topk_group=1,
                     use_qk_norm=True, partial_rotary_factor=0.5),
    # transformers has no Ling; its layer is GLM 4.5's under other names.
    "ling": dict(PLAIN, model_type="bailing_moe", tie_word_embeddings=False, head_dim=32, num_experts=12, num_experts_per_tok=4,
                 moe_intermediate_size=32, num_shared_experts=1, first_k_dense_replace=1, norm_topk_prob=True, routed_scaling_factor=2.5,
                 n_group=4, topk_group=2, use_qk_norm=True, partial_rotary_factor=0.5, score_function="sigmoid"),
    "mamba2": dict(SHARED, model_type="mamba2", num_hidden_layers=3, num_heads=8, head_dim=16, state_size=32, n_groups=2, expand=2,
                   conv_kernel=4, layer_norm_epsilon=1e-6, tie_word_embeddings=False),
    "nemotron-h": dict(NEMOTRON, hybrid_override_pattern="M-*M-", num_hidden_layers=5, intermediate_size=96),
    "nemotron-nano": dict(NEMOTRON, hybrid_override_pattern="M-*M-", num_hidden_layers=5, intermediate_size=96, mamba_num_heads=4,
                          mamba_head_dim=80, ssm_state_size=128),
    "nemotron3": dict(NEMOTRON, hybrid_override_pattern="ME*ME", num_hidden_layers=5, n_routed_experts=10, num_experts_per_tok=2,
                      moe_intermediate_size=32, moe_shared_expert_intermediate_size=64, n_shared_experts=1, norm_topk_prob=True,
                      routed_scaling_factor=2.5, n_group=1, topk_group=1),
    "minimax-m2": dict(PLAIN, model_type="minimax_m2", head_dim=32, tie_word_embeddings=False, num_local_experts=10, num_experts_per_tok=2,
                       intermediate_size=32, rotary_dim=16),
    "falcon-h1": dict(PLAIN, model_type="falcon_h1", head_dim=32, tie_word_embeddings=False, mamba_d_ssm=96, mamba_n_heads=6,
                      mamba_d_head=16, mamba_d_state=32, mamba_n_groups=2, mamba_d_conv=4, mamba_rms_norm=False,
                      embedding_multiplier=1.5, lm_head_multiplier=0.7, key_multiplier=0.6,
                      attention_in_multiplier=0.5, attention_out_multiplier=0.9, ssm_in_multiplier=2.0, ssm_out_multiplier=0.8,
                      ssm_multipliers=[0.7, 0.5, 0.4, 0.6, 0.9], mlp_multipliers=[0.8, 0.7]),
    "ernie4_5": dict(PLAIN, model_type="ernie4_5", tie_word_embeddings=True, head_dim=16),
    "smollm3": dict(PLAIN, model_type="smollm3", num_hidden_layers=4, tie_word_embeddings=True),
    "llama": dict(SHARED, model_type="llama", num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2,
                  tie_word_embeddings=True, rope_theta=10000.0,
                  rope_scaling=dict(rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
                                    original_max_position_embeddings=64)),
    "llama-untied": dict(SHARED, model_type="llama", hidden_size=96, num_hidden_layers=2, num_attention_heads=6,
                         num_key_value_heads=2, tie_word_embeddings=False, rope_theta=100000.0, rms_norm_eps=1e-5),
    "qwen3": dict(SHARED, model_type="qwen3", num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=1,
                  head_dim=32, tie_word_embeddings=True, rope_theta=1000000.0),
    "qwen3-ragged": dict(SHARED, model_type="qwen3", vocab_size=259, hidden_size=90, intermediate_size=150,
                         num_hidden_layers=3, num_attention_heads=6, num_key_value_heads=2, head_dim=20,
                         tie_word_embeddings=True, rope_theta=1000000.0),
    "gemma3": dict(SHARED, model_type="gemma3_text", num_hidden_layers=5, num_attention_heads=4, num_key_value_heads=1,
                   head_dim=32, sliding_window=50, layer_types=GEMMA_LAYERS, query_pre_attn_scalar=24,
                   rope_theta=1000000.0, rope_local_base_freq=10000.0, rope_scaling=dict(rope_type="linear", factor=8.0),
                   hidden_activation="gelu_pytorch_tanh", final_logit_softcapping=15.0,
                   tie_word_embeddings=True),
    "gemma4": dict(GEMMA4, num_hidden_layers=5, layer_types=GEMMA_LAYERS, attention_k_eq_v=True,
                   num_global_key_value_heads=1),
    "gemma4-moe": dict(GEMMA4, num_hidden_layers=2, layer_types=WINDOWED[1:], attention_k_eq_v=True, num_global_key_value_heads=1,
                       enable_moe_block=True, num_experts=6, top_k_experts=2, moe_intermediate_size=32),
    "gemma4-e2b": dict(GEMMA4, num_hidden_layers=5, num_kv_shared_layers=2, use_double_wide_mlp=True, vocab_size_per_layer_input=256,
                       hidden_size_per_layer_input=16, layer_types=GEMMA_LAYERS, num_key_value_heads=1),
    "gemma4-e4b": dict(GEMMA4, num_hidden_layers=3, vocab_size_per_layer_input=256, hidden_size_per_layer_input=32,
                       layer_types=WINDOWED),
    "gemma4-shared": dict(GEMMA4, num_hidden_layers=4, num_kv_shared_layers=2, use_double_wide_mlp=True,
                          layer_types=["sliding_attention", "full_attention"] * 2, attention_k_eq_v=False),
}

# Chosen so that no more than one position in a hundred has two tokens that tie within transformers' own BF16 error. Of a mixture,
# so that the last chosen expert and the next one are far apart in every row: another expert is another row.
SEEDS = {"qwen2": 100, "ministral": 100, "ministral3": 101, "phi3": 103, "gemma2": 6, "olmo2": 103, "olmo3": 100, "granite": 9,
         "granite4": 10, "granite4-h": 10, "granite4-moe": 167, "smollm3": 102, "ernie4_5": 103, "lfm2": 705, "lfm2-moe": 301, "qwen3_5": 936,
         "qwen3_5-moe": 1249, "qwen3-next": 182, "qwen3-moe": 310, "olmoe": 295, "gpt-oss": 543, "mixtral": 372, "granite-moe": 358, "glm4-moe": 828, "ling": 217,
         "mamba2": 11, "nemotron-h": 9, "nemotron-nano": 30, "nemotron3": 19, "falcon-h1": 13, "minimax-m2": 571, "llama": 2000, "llama-untied": 12, "qwen3": 3002, "qwen3-ragged": 4007, "gemma3": 1003, "gemma4": 1004, "gemma4-moe": 1032,
         "gemma4-e2b": 1033, "gemma4-e4b": 1034, "gemma4-shared": 1005}


# Of a matrix, how much of its input's spread its output has.
GAINS = {"self_attn.q_proj": 0.5, "self_attn.k_proj": 0.5, "conv.in_proj": 0.6, "linear_attn.out_proj": 0.4}


def randomise(model, generator):
    """Weights of a spread that keeps every layer's output of the order of its input, in BF16 values."""
    buffers = [b for b in model.named_buffers() if b[0].endswith(("layer_scalar", "correction_bias", "expert_bias"))]
    for name, tensor in list(model.named_parameters()) + buffers:
        noise = torch.randn(tensor.shape, generator=generator)
        if "layer_scalar" in name:
            value = 1.0 + 0.25 * noise
        elif name.endswith(("correction_bias", "expert_bias")):
            value = 0.1 * noise
        elif name.endswith("bias") and not name.endswith("dt_bias"):
            value = 0.5 * noise
        elif name.endswith("A_log"):
            value = 0.5 * noise
        elif name.endswith("dt_bias"):  # states that fade over tens of positions
            value = noise - 4.0
        elif name.endswith("sinks"):
            value = noise
        elif name.endswith("router.scale"):  # Gemma 4 divides by the root of the width
            value = (1.0 + 0.2 * noise) * tensor.shape[0] ** 0.5
        elif tensor.dim() == 1:  # norms: Gemma 2 and 3 add 1 to what is stored, and Qwen 3.5 and Next do in most
            zero = model.config.model_type in ("gemma2", "gemma3_text") or (
                model.config.model_type.startswith(("qwen3_5", "qwen3_next")) and "linear_attn" not in name)
            value = 0.2 * noise + (0.0 if zero else 1.0)
            if model.config.model_type == "gemma4_text" and ("q_norm" in name or "k_norm" in name):
                value = 0.5 * value  # its scores are not scaled
        elif "embed_tokens" in name or "embeddings" in name:
            tied = model.config.tie_word_embeddings
            scaled = model.config.model_type.startswith("gemma")
            value = noise * (0.25 if tied or scaled else 1.0)
        elif "lm_head" in name:
            value = 2.0 * noise / tensor.shape[-1] ** 0.5
        else:
            gain = GAINS.get(name.rpartition(".")[0].split(".", 3)[-1], 0.9)
            value = gain * noise / tensor.shape[-1] ** 0.5
        with torch.no_grad():
            tensor.copy_(value.to(torch.bfloat16).to(tensor.dtype))


# The names of an expert's gate, up and down in published checkpoints.
EXPERT = {"qwen3_moe": ("mlp.experts.{}.gate_proj", "mlp.experts.{}.up_proj", "mlp.experts.{}.down_proj"),
          "mixtral": ("block_sparse_moe.experts.{}.w1", "block_sparse_moe.experts.{}.w3", "block_sparse_moe.experts.{}.w2")}
EXPERT["lfm2_moe"] = tuple(name.replace("block_sparse_moe", "feed_forward") for name in EXPERT["mixtral"])
EXPERT["minimax_m2"] = EXPERT["mixtral"]
EXPERT["olmoe"] = EXPERT["glm4_moe"] = EXPERT["qwen3_next"] = EXPERT["qwen3_moe"]
ROUTER = {"mixtral": ("mlp.gate.", "block_sparse_moe.gate."), "granitemoe": ("moe.router.", "moe.router.layer.")}
ROUTER["granitemoehybrid"] = ROUTER["granitemoe"]
ROUTER["minimax_m2"] = ("mlp.", "block_sparse_moe.")


def published(state, model_type):
    """The tensors as published checkpoints have them: transformers keeps all experts of a layer in two tensors."""
    out = {}
    for name, tensor in state.items():
        if model_type == "nemotron_h":
            name = name.replace("model.", "backbone.", 1)
            layer, _, part = name.partition(".experts.")
            parts = [(f"{layer}.experts.{i}.{part}.weight", own) for i, own in enumerate(tensor)] if part else [(name, tensor)]
            out |= {own: rows.contiguous() for own, rows in parts}
            continue
        places = ("mlp.experts.", "block_sparse_moe.experts.", "feed_forward.experts.")
        layer, _, part = name.partition(next((place for place in places if place in name), places[0]))
        if not part or model_type.startswith(("qwen3_5", "gpt_oss")):
            out[name.replace(*ROUTER.get(model_type, ("", "")))] = tensor
        elif model_type.startswith("granitemoe"):
            own = {"gate_up_proj": "input_linear", "down_proj": "output_linear"}[part]
            out[f"{layer}block_sparse_moe.{own}.weight"] = tensor
        else:
            gate, up, down = EXPERT[model_type]
            for expert, matrix in enumerate(tensor):
                parts = zip((gate, up), matrix.chunk(2)) if part == "gate_up_proj" else [(down, matrix)]
                out |= {f"{layer}{own.format(expert)}.weight": rows.contiguous() for own, rows in parts}
    return out


LING = {"model.embed_tokens": "model.word_embeddings", "self_attn.o_proj": "attention.dense", "self_attn.q_norm": "attention.query_layernorm",
        "self_attn.k_norm": "attention.key_layernorm", "gate.e_score_correction_bias": "gate.expert_bias"}


def lings(state):
    """GLM's tensors with Ling's names: queries, keys and values are one."""
    out = {}
    for name, tensor in state.items():
        for own, theirs in LING.items():
            name = name.replace(own, theirs)
        layer, _, part = name.partition("self_attn.")
        if part in ("k_proj.weight", "v_proj.weight"):
            continue
        if part == "q_proj.weight":
            tensor = torch.cat([state[f"{layer}self_attn.{x}_proj.weight"] for x in "qkv"])
            name = f"{layer}attention.query_key_value.weight"
        out[name] = tensor
    return out


def make(name, settings, seed):
    torch.manual_seed(seed)
    generator = torch.Generator().manual_seed(seed)
    settings = json.loads(json.dumps(settings))
    model_type = settings.pop("model_type")
    ling = model_type == "bailing_moe"
    if ling:
        model_type = "glm4_moe"
        settings |= {"n_routed_experts": settings.pop("num_experts"), "n_shared_experts": settings.pop("num_shared_experts")}
    config = AutoConfig.for_model(model_type, **settings)
    config._attn_implementation = config._experts_implementation = "eager"
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32, attn_implementation="eager").eval()
    randomise(model, generator)
    tokens = torch.randint(3, 256, (TOKENS,), generator=generator)
    state = {k: v.to(torch.bfloat16).contiguous() for k, v in published(model.state_dict(), model_type).items()}
    if ling:
        state = lings(state)
    if config.tie_word_embeddings:
        state.pop("lm_head.weight", None)
    with torch.no_grad():  # hidden states: else 5.23.0 fails on shared layers without per-layer embeddings
        exact = model(tokens[None], output_hidden_states=True).logits[0].float()
        rounded = model.to(torch.bfloat16)(tokens[None], output_hidden_states=True).logits[0]
    folder = OUT / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    source = "made by goldens/tiny.py"
    text = json.dumps({"_source": source, "model_type": model_type, **CONFIGS[name]}, indent=2)
    (folder / "config.json").write_text(text + "\n")
    save_file(state, folder / "model.safetensors")
    golden = {"tokens": tokens.int(), "logits_f32": exact.contiguous(), "logits_bf16": rounded.bfloat16().contiguous()}
    save_file(golden, folder / "golden.safetensors")
    off = (rounded.float() - exact).abs().max().item()
    kl = torch.nn.functional.kl_div(rounded.float().log_softmax(-1), exact.log_softmax(-1), log_target=True,
                                    reduction="none").sum(-1).max().item()
    same = (rounded.argmax(-1) == exact.argmax(-1)).float().mean().item()
    size = sum(f.stat().st_size for f in folder.iterdir())
    print(f"{name}: std {exact.std():.2f}, bf16 off by {off:.3f}, KL up to {kl:.1e}, top-1 equal {same:.3f}, {size} bytes")


if __name__ == "__main__":
    for name, settings in CONFIGS.items():
        if len(sys.argv) == 1 or name in sys.argv[1:]:
            make(name, settings, SEEDS[name])
