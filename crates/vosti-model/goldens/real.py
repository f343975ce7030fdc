"""Makes ../tests/real/*: what transformers computes with the two real models' dequantised weights.

    python real.py NAME FILE.gguf        # NAME: smollm2-135m or gemma-3-270m

The GGUF's tensors are expanded by the `gguf` package and rounded to BF16, as Vosti does at load, then run by
transformers in FP32 and in BF16. A prompt of the instructed model is continued by its own greedy answer, so that
most positions are of the kind that a server computes. golden.safetensors holds, for prompts packed one after the other:
`tokens` and `lengths`; `top_f32` and `top_bf16`, the best token at every position; `rows` (packed positions)
and, for each of them, all logits, `logits_f32`; `spread_rows`, many more positions, and for each the KEPT largest logits,
`spread_logits`, whose tokens are `spread_tokens`, and the logarithm of the sum of all exponentials, `spread_sums`. Of
transformers' own BF16 the largest difference from these, `off_bf16`, and the divergence by the KEPT largest and the rest taken
together, `kl_bf16` (never more than the whole divergence). `tokens` come from the `tokenizers` library set up as in
gguf_tokenizers.py.
"""
import json
import sys
from pathlib import Path

import gguf
import torch
from safetensors.torch import save_file
from transformers import AutoConfig, AutoModelForCausalLM

import gguf_tokenizers

HERE = Path(__file__).resolve().parent
PROMPTS = json.loads((HERE / "prompts.json").read_text())
ROWS = {"smollm2-135m": 6, "gemma-3-270m": 3}
SPREAD = 256
KEPT = 64
ANSWER = {"smollm2-135m": 160, "gemma-3-270m": 0}

NAMES = {"attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj",
         "attn_output": "self_attn.o_proj", "attn_q_norm": "self_attn.q_norm", "attn_k_norm": "self_attn.k_norm",
         "attn_norm": "input_layernorm", "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj",
         "ffn_down": "mlp.down_proj", "post_attention_norm": "post_attention_layernorm",
         "post_ffw_norm": "post_feedforward_layernorm"}


def hugging_face_name(name, gemma):
    if name in ("token_embd.weight", "output_norm.weight"):
        return {"t": "model.embed_tokens.weight", "o": "model.norm.weight"}[name[0]]
    _, layer, part, _ = name.split(".")
    if part == "ffn_norm":
        hf = "pre_feedforward_layernorm" if gemma else "post_attention_layernorm"
    else:
        hf = NAMES[part]
    return f"model.layers.{layer}.{hf}.weight"


def state_of(reader, config):
    gemma = config.model_type == "gemma3_text"
    state = {}
    for tensor in reader.tensors:
        value = torch.from_numpy(gguf.dequantize(tensor.data, tensor.tensor_type).copy()).float()
        value = value.reshape([int(n) for n in reversed(tensor.shape)])
        if value.dim() == 2:
            value = value.bfloat16().float()
        elif gemma:
            value = value - 1.0
        heads = {"attn_q": config.num_attention_heads, "attn_k": config.num_key_value_heads}.get(
            tensor.name.split(".")[-2])
        if heads and not gemma:  # llama.cpp interleaves the halves of each head
            rows, columns = value.shape
            value = value.reshape(heads, rows // heads // 2, 2, columns).swapaxes(1, 2).reshape(rows, columns)
        state[hugging_face_name(tensor.name, gemma)] = value
    state["lm_head.weight"] = state["model.embed_tokens.weight"]
    return state


def main(name, path):
    reader = gguf.GGUFReader(path)
    settings = json.loads((HERE.parent / "configs" / f"{name}.json").read_text())
    settings.pop("_source")
    config = AutoConfig.for_model(settings.pop("model_type"), **settings)
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32, attn_implementation="eager").eval()
    missing, unexpected = model.load_state_dict(state_of(reader, config), strict=False)
    assert not missing and not unexpected, (missing, unexpected)

    field = lambda key: reader.fields[key].contents()
    tokenizer = gguf_tokenizers.tokenizer(field)
    first = [field("tokenizer.ggml.bos_token_id")] if name.startswith("gemma") else []
    prompts = [first + tokenizer.encode(text, add_special_tokens=False).ids for text in PROMPTS[name]]

    prompts = [answered(model, p, ANSWER[name]) for p in prompts]
    exact = [hidden_states(model, p) for p in prompts]
    heads = model.lm_head.weight
    model = model.to(torch.bfloat16)
    rounded = [hidden_states(model, p) for p in prompts]
    total = sum(map(len, prompts))
    rows = torch.linspace(5, total - 1, ROWS[name]).long()
    exact, rounded = torch.cat(exact), torch.cat(rounded)
    top_f32 = best(exact, heads.float())
    top_bf16 = best(rounded, heads.bfloat16())
    logits = exact[rows] @ heads.float().T
    spread = torch.linspace(5, total - 1, SPREAD).long()
    kept, own = [], []
    for part in spread.split(16):
        wanted = exact[part] @ heads.float().T
        top = wanted.topk(KEPT, -1)
        kept.append((top.indices, top.values, wanted.logsumexp(-1)))
        logits_bf16 = (rounded[part] @ heads.bfloat16().T).float()
        own.append((logits_bf16.gather(-1, top.indices), logits_bf16.logsumexp(-1)))
    tokens, values, sums = (torch.cat(parts) for parts in zip(*kept))
    own_values, own_sums = (torch.cat(parts) for parts in zip(*own))
    golden = {
        "tokens": torch.tensor([t for p in prompts for t in p], dtype=torch.int32),
        "lengths": torch.tensor([len(p) for p in prompts], dtype=torch.int32),
        "top_f32": top_f32.int(), "top_bf16": top_bf16.int(), "rows": rows.int(), "logits_f32": logits.contiguous(),
        "spread_rows": spread.int(), "spread_tokens": tokens.int(), "spread_logits": values, "spread_sums": sums,
        "off_bf16": (own_values - values).abs().amax(-1),
        "kl_bf16": divergence(values.double() - sums.double()[:, None], own_values.double() - own_sums.double()[:, None]),
    }
    folder = HERE.parent / "tests" / "real" / name
    folder.mkdir(parents=True, exist_ok=True)
    save_file(golden, folder / "golden.safetensors")
    print(name, "tokens", total, "bf16 off by", golden["off_bf16"].max().item(), "KL mean", golden["kl_bf16"].mean().item(),
          "largest", golden["kl_bf16"].max().item(), "top-1 equal", (top_f32 == top_bf16).float().mean().item(), tokenizer.decode(top_f32[-8:].tolist()))


def answered(model, tokens, count):
    if not count:
        return tokens
    with torch.no_grad():
        prompt = torch.tensor([tokens])
        return model.generate(prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=count, do_sample=False,
                              eos_token_id=2, pad_token_id=2)[0].tolist()


def hidden_states(model, tokens):
    with torch.no_grad():
        return model.model(torch.tensor([tokens])).last_hidden_state[0]


def divergence(wanted, got):
    """Of the kept tokens' log-probabilities, the other tokens taken together."""
    rest = [(1 - logs.exp().sum(-1)).clamp_min(1e-12) for logs in (wanted, got)]
    kept = (wanted.exp() * (wanted - got)).sum(-1)
    return (kept + rest[0] * (rest[0].log() - rest[1].log())).float()


def best(hidden, heads):
    return torch.cat([(chunk @ heads.T).argmax(-1) for chunk in hidden.split(32)])


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
