"""Random shapes of every family, on Vosti and on transformers: log-probabilities of a random text.

    V/bin/pip install target/wheels/vosti-*.whl       # beside requirements.txt
    V/bin/python shapes.py [COUNT [FIRST]]            # 180 models from seed 0

A seed draws dimensions (heads of 6 to 128 numbers, groups of 1 to 8, widths and vocabularies that nothing divides) and weights in
BF16. Vosti computes with BF16 activations and transformers in FP32, so they differ by BF16's rounding: a model fails if the mean
difference is more than SHARE of the log-probabilities' standard deviation. Exit code 1 if one fails, or does not load.
"""
import json
import random
import sys
import tempfile
import warnings
from pathlib import Path

import numpy as np
import torch
import transformers
from transformers import AutoConfig, AutoModelForCausalLM
from vosti import LLM

from tiny import CONFIGS

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "bench" / "cpu"))
from two_processors import tokenizer  # noqa: E402

SHARE = 0.03
#: Widths below this make BF16's rounding too large to see anything else.
WIDTH = 24


def drawn(family, draw):
    """A configuration of the family that nobody wrote down."""
    config = json.loads(json.dumps(CONFIGS[family]))
    kv_heads, group, head = draw.choice([1, 2, 3, 5]), draw.randint(1, 8), 2 * draw.choice([3, 4, 5, 8, 12, 17, 20, 32, 40, 48, 56, 64])
    heads = kv_heads * group
    # Some configurations of transformers want a hidden size that the heads divide.
    least = -(-WIDTH // heads)
    if "head_dim" in config:
        config["head_dim"], config["hidden_size"] = head, heads * draw.randint(least, max(least, 400 // heads))
    else:
        head = min(head, max(2, 400 // heads // 2 * 2))
        config["hidden_size"] = heads * head
    config.update(num_attention_heads=heads, num_key_value_heads=kv_heads, intermediate_size=draw.randint(17, 300),
                  vocab_size=draw.randint(256, 400))
    if "query_pre_attn_scalar" in config:
        config["query_pre_attn_scalar"] = head
    if "global_head_dim" in config:
        config["global_head_dim"] = 2 * draw.choice([4, 8, 17, 20, 32, 64])
    if "num_global_key_value_heads" in config:
        config["num_global_key_value_heads"] = 1 if heads <= 16 else kv_heads
    if "shared_intermediate_size" in config:
        config.update(shared_intermediate_size=config["intermediate_size"], mamba_n_heads=1, mamba_d_head=2 * config["hidden_size"])
    scaling = config.get("rope_scaling") or {}
    if "partial_rotary_factor" in config:
        # The part of a head that turns has an even number of elements.
        head = max(8, head // 8 * 8)
        config["hidden_size"] = heads * head
    if "long_factor" in scaling:
        pairs = int(head * config.get("partial_rotary_factor", 1.0)) // 2
        scaling.update(short_factor=[1.0 + 0.05 * i for i in range(pairs)], long_factor=[1.5 + 0.3 * i for i in range(pairs)])
    return config


def model_of(folder, seed):
    """A random model in the folder, and itself in FP32."""
    torch.manual_seed(seed)
    model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(folder), attn_implementation="eager").to(torch.bfloat16)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if weight.dim() == 1:
                weight.add_(torch.rand_like(weight) * 0.4 - 0.2)
            else:
                weight.copy_(torch.randn(weight.shape) * (0.7 if "embed" in name else 1.2 * weight.shape[-1] ** -0.5))
    config = (folder / "config.json").read_text()
    model.save_pretrained(folder)
    # As drawn, not as this version of transformers writes it.
    (folder / "config.json").write_text(config)
    return model.float().eval()


def difference(folder, seed, draw):
    """The mean difference as a share of the standard deviation."""
    model = model_of(folder, seed)
    tokens = [draw.randrange(3, 256) for _ in range(draw.choice([30, 70, 130]))]
    with torch.no_grad():
        # Hidden states are asked for because transformers 5.24 otherwise fails where layers share keys.
        logits = model(torch.tensor([tokens]), output_hidden_states=True).logits[0].float()
    wanted = torch.log_softmax(logits, -1)[:-1].gather(1, torch.tensor(tokens[1:])[:, None])[:, 0].numpy()
    # The factors of a long context follow the served length here, and the text's in transformers.
    given = LLM(str(folder), max_model_len=64 if len(tokens) <= 64 else 256).score([tokens], use_tqdm=False)[0]
    return float(np.abs(wanted - given).mean() / wanted.std())


def main(count=180, first=0):
    warnings.simplefilter("ignore")
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    torch.set_num_threads(1)
    families, failed, largest = sorted(CONFIGS), 0, 0.0
    for seed in range(first, first + count):
        draw = random.Random(seed)
        family = families[seed % len(families)]
        config = drawn(family, draw)
        with tempfile.TemporaryDirectory() as name:
            Path(name, "config.json").write_text(json.dumps(config))
            Path(name, "tokenizer.json").write_text(json.dumps(tokenizer(config["vocab_size"])))
            try:
                share, why = difference(Path(name), seed, draw), ""
            except (ValueError, RuntimeError) as error:
                share, why = float("inf"), str(error)
        largest = max(largest, share)
        if share > SHARE:
            failed += 1
            print(f"seed {seed}: {family}, {share:.4f} {why} {json.dumps(config)}", flush=True)
    print(f"{count} models of {len(families)} families, {failed} failed; largest share {largest:.4f}")
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main(*map(int, sys.argv[1:])))
