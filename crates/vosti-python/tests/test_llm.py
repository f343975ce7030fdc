"""The wheel as its user has it: `python -m unittest` in an environment that has nothing but the wheel and NumPy."""
import os
import signal
import threading
import unittest

import numpy as np

from vosti import LLM, SamplingParams

PROMPTS = ["The capital of France is", "Once upon a time", "def add(a, b):", "1, 2, 3,", "Water boils at"]


class TestLLM(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.llm = LLM("smollm2-135m", max_model_len=512)

    def ids(self, outputs):
        return [[choice.token_ids for choice in output.outputs] for output in outputs]

    def test_a_prompt_alone_and_among_others_gives_the_same_tokens(self):
        for params in (SamplingParams(temperature=0, max_tokens=12), SamplingParams(seed=3, max_tokens=12, n=2)):
            together = self.ids(self.llm.generate(PROMPTS, params, use_tqdm=False))
            alone = [self.ids(self.llm.generate(prompt, params))[0] for prompt in PROMPTS]
            self.assertEqual(together, alone)

    def test_scored_and_generated_log_probabilities_are_the_same_bits(self):
        params = SamplingParams(temperature=0.9, seed=5, max_tokens=16, logprobs=2)
        outputs = self.llm.generate(PROMPTS, params, use_tqdm=False)
        scores = self.llm.score([o.prompt_token_ids + o.outputs[0].token_ids for o in outputs], use_tqdm=False)
        for output, score in zip(outputs, scores):
            choice = output.outputs[0]
            listed = [row[token].logprob for row, token in zip(choice.logprobs, choice.token_ids)]
            self.assertEqual(score.dtype, np.float32)
            self.assertEqual(len(score), len(output.prompt_token_ids) + len(choice.token_ids) - 1)
            given = np.array(listed, dtype=np.float32)
            np.testing.assert_array_equal(score[-len(given):].view(np.uint32), given.view(np.uint32))
            self.assertTrue(all(2 <= len(row) <= 3 for row in choice.logprobs))

    def test_text_and_token_ids_are_the_same_prompt(self):
        params = SamplingParams(temperature=0, max_tokens=4)
        ids = self.llm.tokenize(PROMPTS[0])
        asked = [PROMPTS[0], ids, {"prompt": PROMPTS[0]}, {"prompt_token_ids": ids}]
        self.assertEqual(len({str(self.ids(self.llm.generate(prompt, params))) for prompt in asked}), 1)
        self.assertEqual(self.llm.detokenize(ids), PROMPTS[0])

    def test_a_stop_string_ends_the_answer_and_is_no_part_of_it(self):
        params = SamplingParams(temperature=0, max_tokens=40, stop=".")
        choice = self.llm.generate(PROMPTS[0], params)[0].outputs[0]
        self.assertEqual(choice.finish_reason, "stop")
        self.assertNotIn(".", choice.text)

    def test_a_chat_answers_by_the_model_s_template(self):
        messages = [{"role": "user", "content": "What is the capital of France?"}]
        output = self.llm.chat(messages, SamplingParams(temperature=0, max_tokens=24))[0]
        self.assertIn("<|im_start|>user", output.prompt)
        self.assertIn("Paris", output.outputs[0].text)

    def test_wrong_input_is_a_value_error_that_names_it(self):
        wrong = [
            (lambda: self.llm.generate([[]]), "prompt 0: it is empty"),
            (lambda: self.llm.generate([[1 << 31]]), "not in the vocabulary"),
            (lambda: self.llm.generate("x", SamplingParams(temperature=-1)), "temperature"),
            (lambda: self.llm.generate("x", SamplingParams(max_tokens=-1)), "max_tokens"),
            (lambda: self.llm.generate(["x", "y"], [SamplingParams()]), "2 prompts and 1"),
            (lambda: self.llm.generate([[1] * 600]), "prompt 0"),
            (lambda: self.llm.score([[5]]), "sequence 0 has 1 tokens"),
            (lambda: LLM("no-such-model"), "no model is called"),
            (lambda: LLM(weights="tiny"), "as-they-come"),
        ]
        for call, says in wrong:
            with self.assertRaisesRegex(ValueError, says):
                call()
        self.assertEqual(len(self.llm.generate("x", SamplingParams(max_tokens=1))), 1)

    def test_ctrl_c_ends_a_call_and_the_next_one_runs(self):
        params = SamplingParams(temperature=0, max_tokens=400, ignore_eos=True)
        # A job in the background is started with Ctrl-C ignored, and Python leaves it so.
        before = signal.signal(signal.SIGINT, signal.default_int_handler)
        self.addCleanup(signal.signal, signal.SIGINT, before)
        timer = threading.Timer(0.5, lambda: os.kill(os.getpid(), signal.SIGINT))
        timer.start()
        with self.assertRaises(KeyboardInterrupt):
            self.llm.generate(PROMPTS * 8, params, use_tqdm=False)
        timer.join()
        expected = self.ids(self.llm.generate(PROMPTS[0], SamplingParams(temperature=0, max_tokens=4)))
        self.assertEqual(expected, self.ids(LLM("smollm2-135m", max_model_len=512).generate(
            PROMPTS[0], SamplingParams(temperature=0, max_tokens=4))))

    def test_no_prompts_give_no_answers(self):
        self.assertEqual(self.llm.generate([]), [])


if __name__ == "__main__":
    unittest.main()
