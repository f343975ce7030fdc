"""Reinforcement learning without a mismatch: REINFORCE on a small model, torch for the gradients, Vosti for the rollouts.

    pip install target/wheels/vosti-*.whl torch transformers gguf
    python policy_gradient.py --steps 6

At each step Vosti answers, torch takes the gradient, and `update_weights` puts the new weights into the running model. The
log-probabilities of the rollout and those of `score`, which a trainer takes for its ratio, are compared bit for bit: none differs,
so the ratio of the first update is 1 and needs no correction for how the answers were batched.

The reward is the share of the letter "e" in an answer: easy to see, and nothing to fetch.
"""
import argparse
import glob
import os
import tempfile
import time

import numpy as np
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from vosti import LLM, SamplingParams

PROMPTS = ["The sea is", "Once upon a time", "My favourite food is", "In the evening we", "The old house", "Every child",
           "A good friend", "The train was late"]


def reward(text):
    letters = [letter for letter in text.lower() if letter.isalpha()]
    return letters.count("e") / max(len(letters), 1)


def bits_that_differ(a, b):
    return int(np.unpackbits((a.view(np.uint32) ^ b.view(np.uint32)).view(np.uint8)).sum())


def answer_log_probabilities(model, prompt, answer):
    """Log-probabilities of the answer's tokens, with gradients."""
    tokens = torch.tensor([prompt + answer])
    logits = model(tokens[:, :-1]).logits[0, len(prompt) - 1:]
    return torch.log_softmax(logits.float(), -1).gather(1, tokens[0, len(prompt):, None])[:, 0]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--model", help="a folder of transformers, or a GGUF file [default: SmolLM2 135M, where `vosti` keeps it]")
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--answers", type=int, default=4, help="of each prompt")
    parser.add_argument("--tokens", type=int, default=24)
    parser.add_argument("--rate", type=float, default=2e-5)
    options = parser.parse_args()
    path = options.model
    if path is None:
        cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
        path = glob.glob(os.path.join(cache, "vosti", "**", "*SmolLM2-135M*.gguf"), recursive=True)[0]
    place = (os.path.dirname(path), {"gguf_file": os.path.basename(path)}) if path.endswith(".gguf") else (path, {})
    read = AutoModelForCausalLM.from_pretrained(place[0], dtype=torch.float32, **place[1])
    # transformers does not save a model that came from a GGUF file, because it counts as quantised: so its numbers are copied.
    if hasattr(read.config, "quantization_config"):
        del read.config.quantization_config
    model = type(read)(read.config)
    model.load_state_dict(read.state_dict())
    folder = tempfile.TemporaryDirectory()
    # Vosti runs the trained weights rounded to BF16, the type of the folder's files.
    model.to(torch.bfloat16).save_pretrained(folder.name)
    AutoTokenizer.from_pretrained(place[0], **place[1]).save_pretrained(folder.name)
    model.float()
    llm = LLM(folder.name, max_model_len=512)
    optimizer = torch.optim.AdamW(model.parameters(), lr=options.rate, weight_decay=0)
    print(f"{sum(p.numel() for p in model.parameters()) / 1e6:.0f}M parameters, {llm.fingerprint}")
    for step in range(options.steps):
        begun = time.monotonic()
        params = SamplingParams(temperature=1, seed=step, n=options.answers, max_tokens=options.tokens, logprobs=0)
        rolled = [(output.prompt_token_ids, choice) for output in llm.generate(PROMPTS, params, use_tqdm=False)
                  for choice in output.outputs]
        given = [np.array([row[token].logprob for row, token in zip(choice.logprobs, choice.token_ids)], np.float32)
                 for _, choice in rolled]
        scored = llm.score([prompt + choice.token_ids for prompt, choice in rolled], use_tqdm=False)
        pairs = [(one, row[-len(one):]) for one, row in zip(given, scored)]
        differ, bits = sum(bits_that_differ(*pair) for pair in pairs), 32 * sum(len(one) for one in given)
        at_vosti = time.monotonic() - begun

        rewards = np.array([reward(choice.text) for _, choice in rolled])
        groups = rewards.reshape(len(PROMPTS), options.answers)
        advantages = ((groups - groups.mean(1, keepdims=True)) / (groups.std() + 1e-6)).reshape(-1)
        optimizer.zero_grad()
        apart, begun = 0.0, time.monotonic()
        for (prompt, choice), advantage, one in zip(rolled, advantages, given):
            found = answer_log_probabilities(model, prompt, choice.token_ids)
            apart = max(apart, float((found.detach() - torch.from_numpy(one)).abs().max()))
            (-advantage * found.sum() / len(rolled)).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        # A tied head is one tensor with the embeddings, and stands once in the files.
        tied = {"lm_head.weight"} if model.config.tie_word_embeddings else set()
        llm.update_weights({name: tensor for name, tensor in model.state_dict().items() if name not in tied})
        print(f"step {step}: reward {rewards.mean():.4f}; rollout and score differ in {differ} of {bits} bits; torch's own are up to "
              f"{apart:.3f} away; {at_vosti:.1f} s at Vosti, {time.monotonic() - begun:.1f} s for the gradient and the new weights",
              flush=True)
        if differ:
            raise SystemExit("the rollout is not what is scored")
    print(f"now {llm.fingerprint}")


if __name__ == "__main__":
    main()
