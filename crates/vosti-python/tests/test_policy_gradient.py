"""Two steps of reinforcement learning on a tiny model: what is rolled out and what is scored are the same bits at each step, and
the steps lead to the same weights however many sequences run together.

`examples/policy_gradient.py` does the same on a real model, with torch's gradients. Here the gradient is taken along one random
direction, from scores under weights on both sides (Spall's simultaneous perturbation), so NumPy is enough.
"""
import json
import shutil
import tempfile
import unittest
from pathlib import Path

import numpy as np
from test_update_weights import TINY, read, tokenizer

from vosti import LLM, SamplingParams

PROMPTS, ANSWERS, STEPS = ["The sea is", "a clock", "x"], 4, 2


def to_bf16(numbers):
    """Rounded to nearest, ties to even, as FP32."""
    bits = numbers.astype("<f4").view("<u4").astype("<u8")
    return (((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype("<u4") << 16).view("<f4").reshape(numbers.shape)


def rollouts(llm, step):
    """(prompt, answer, log-probabilities of the answer's tokens) of each rollout."""
    params = SamplingParams(temperature=1, seed=step, n=ANSWERS, max_tokens=8, logprobs=0, ignore_eos=True)
    return [(output.prompt_token_ids, choice.token_ids,
             np.array([row[token].logprob for row, token in zip(choice.logprobs, choice.token_ids)], np.float32))
            for output in llm.generate(PROMPTS, params, use_tqdm=False) for choice in output.outputs]


def scores(llm, rolled):
    rows = llm.score([prompt + answer for prompt, answer, _ in rolled], use_tqdm=False)
    return [row[-len(answer):] for row, (_, answer, _) in zip(rows, rolled)]


class TestPolicyGradient(unittest.TestCase):
    def train(self, folder, weights, together):
        """The number of differing bits of each step, and the resulting fingerprints and numbers."""
        llm, draw = LLM(folder, max_num_seqs=together), np.random.default_rng(1)
        differing, fingerprints, seen = [], [llm.fingerprint], []
        for step in range(STEPS):
            rolled = rollouts(llm, step)
            scored = scores(llm, rolled)
            differing.append(sum(int(np.unpackbits((a.view(np.uint32) ^ b.view(np.uint32)).view(np.uint8)).sum())
                                 for (_, _, a), b in zip(rolled, scored)))
            reward = np.array([np.mean([token % 2 for token in answer]) for _, answer, _ in rolled])
            advantage = reward - reward.mean()
            direction = {name: draw.standard_normal(numbers.shape).astype("f4") for name, numbers in sorted(weights.items())}

            def objective(sign):
                llm.update_weights({name: numbers + sign * 0.02 * direction[name] for name, numbers in weights.items()})
                return sum(a * row.astype("f8").sum() for a, row in zip(advantage, scores(llm, rolled)))

            slope = (objective(1) - objective(-1)) / 0.04
            self.assertNotEqual(slope, 0)
            weights = {name: to_bf16(numbers + 0.02 * np.sign(slope) * direction[name]) for name, numbers in weights.items()}
            llm.update_weights(weights)
            fingerprints.append(llm.fingerprint)
            seen.append([answer for _, answer, _ in rolled])
        return differing, fingerprints, seen, rollouts(llm, STEPS)

    def test_rollouts_are_what_is_scored_at_every_step(self):
        with tempfile.TemporaryDirectory() as place:
            folder = Path(place)
            for name in ("config.json", "model.safetensors"):
                shutil.copyfile(TINY / name, folder / name)
            (folder / "tokenizer.json").write_text(json.dumps(tokenizer()))
            _, weights = read(folder)
            alone, together = (self.train(folder, weights, sequences) for sequences in (1, 16))
        self.assertEqual(alone[0], [0] * STEPS)
        self.assertEqual(len(set(alone[1])), STEPS + 1, "each step has a fingerprint of its own")
        self.assertEqual(alone[:3], together[:3])
        for (_, left, a), (_, right, b) in zip(alone[3], together[3]):
            self.assertEqual((left, a.tobytes()), (right, b.tobytes()))


if __name__ == "__main__":
    unittest.main()
