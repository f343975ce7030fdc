"""The wheel as users install it: `python -m unittest` in an environment that has only the wheel and NumPy."""
import copy
import dataclasses
import json
import operator
import os
import pickle
import signal
import subprocess
import sysconfig
import tempfile
import threading
import time
import tracemalloc
import unittest

import numpy as np

from vosti import LLM, SamplingParams, StructuredOutputsParams

PROMPTS = ["The capital of France is", "Once upon a time", "def add(a, b):", "1, 2, 3,", "Water boils at"]


class TestLLM(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.llm = LLM("smollm2-135m", max_model_len=512)

    def ids(self, outputs):
        return [[choice.token_ids for choice in output.outputs] for output in outputs]

    def steps(self):
        """Steps of the engine since its start."""
        return self.llm._engine.counts()[2]

    def test_a_prompt_alone_and_among_others_gives_the_same_tokens(self):
        for params in (SamplingParams(temperature=0, max_tokens=12), SamplingParams(seed=3, max_tokens=12, n=2)):
            together = self.ids(self.llm.generate(PROMPTS, [params] * len(PROMPTS), use_tqdm=False))
            alone = [self.ids(self.llm.generate(prompt, params))[0] for prompt in PROMPTS]
            self.assertEqual(together, alone)

    def test_equal_prompts_of_one_call_draw_numbers_of_their_own(self):
        params = SamplingParams(seed=3, max_tokens=12)
        first = self.ids(self.llm.generate([PROMPTS[1]] * 4, params, use_tqdm=False))
        self.assertEqual(len({str(ids) for ids in first}), 4)
        self.assertEqual(first, self.ids(self.llm.generate([PROMPTS[1]] * 4, params, use_tqdm=False)))
        self.assertEqual(first[:1], self.ids(self.llm.generate(PROMPTS[1], params)))

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

    def test_prompt_log_probabilities_are_those_of_a_score(self):
        params = SamplingParams(temperature=0, max_tokens=1, prompt_logprobs=1)
        output = self.llm.generate(PROMPTS[1], params)[0]
        tokens = output.prompt_token_ids
        rows = [row[token].logprob for row, token in zip(output.prompt_logprobs[1:], tokens[1:])]
        self.assertIsNone(output.prompt_logprobs[0])
        self.assertEqual(np.array(rows, dtype=np.float32).tobytes(), self.llm.score([tokens])[0].tobytes())

    def test_an_answer_keeps_to_what_it_is_held_to(self):
        schema = {"type": "object", "properties": {"name": {"type": "string", "maxLength": 8}}, "required": ["name"],
                  "additionalProperties": False}
        held = {"json": schema, "regex": "[0-9]{3}-[0-9]{2}", "choice": ["yes", "no"], "grammar": 'start: "a" | "b" start'}
        for name, value in held.items():
            params = SamplingParams(seed=1, max_tokens=60, structured_outputs=StructuredOutputsParams(**{name: value}))
            text = self.llm.generate(PROMPTS[0], params)[0].outputs[0].text
            if name == "json":
                self.assertEqual(list(json.loads(text)), ["name"])
            else:
                self.assertRegex(text, {"regex": "^[0-9]{3}-[0-9]{2}$", "choice": "^(yes|no)$", "grammar": "^b*a$"}[name])
            as_text = StructuredOutputsParams(json=json.dumps(schema)) if name == "json" else params.structured_outputs
            again = self.llm.generate(PROMPTS[0], dataclasses.replace(params, structured_outputs=as_text))[0]
            self.assertEqual(again.outputs[0].text, text)

    def test_an_answer_goes_on_behind_what_there_is_of_it(self):
        kinds = [SamplingParams(temperature=0, max_tokens=12), SamplingParams(seed=2, n=2, max_tokens=12, logprobs=1),
                 SamplingParams(seed=2, max_tokens=12, receipt=True, repetition_penalty=1.2)]
        for params in kinds:
            whole = self.llm.generate(PROMPTS[:2], params, use_tqdm=False)
            for length in (0, 1, 7):
                cut = [dataclasses.replace(output, outputs=[
                    dataclasses.replace(choice, token_ids=choice.token_ids[:length], finish_reason=None)
                    for choice in output.outputs]) for output in whole]
                again = self.llm.generate(PROMPTS[:2], params, use_tqdm=False, resume=cut)
                def without_time(outputs):
                    return [[dataclasses.replace(choice, receipt=choice.receipt and {**choice.receipt, "created": 0})
                             for choice in output.outputs] for output in outputs]
                self.assertEqual(without_time(again), without_time(whole))
            again = self.llm.generate(PROMPTS[:2], params, use_tqdm=False, resume=whole)
            self.assertEqual(self.ids(again), self.ids(whole))

    def test_an_answer_that_the_request_cannot_have_given_is_refused(self):
        params = SamplingParams(temperature=0, max_tokens=8)
        whole = self.llm.generate(PROMPTS[0], params)[0]
        ids = whole.outputs[0].token_ids

        def other(token_ids, **changes):
            return dataclasses.replace(whole, outputs=[dataclasses.replace(
                whole.outputs[0], token_ids=token_ids, finish_reason=None)], **changes)

        wrong = [(other(ids[:3] + [ids[3] + 1]), "prompt 0: choice 0 has token .* at position 3"),
                 (other(ids + [1]), "position 8, where this request's answer has ended"),
                 (other([1 << 31]), "the vocabulary ends before"),
                 (dataclasses.replace(other(ids[:3]), fingerprint="vosti-0"), "fingerprint vosti-0, and this deployment has vosti-"),
                 (dataclasses.replace(whole, outputs=whole.outputs * 2), "choice 1 is to be resumed, and the request asks for 1")]
        for resume, says in wrong:
            with self.assertRaisesRegex(ValueError, says):
                self.llm.generate(PROMPTS[0], params, resume=resume)
        self.assertEqual(self.ids(self.llm.generate(PROMPTS[0], params)), [[ids]])

    def test_the_command_replays_a_receipt(self):
        params = SamplingParams(seed=11, n=2, max_tokens=8, receipt=True,
                                structured_outputs=StructuredOutputsParams(regex="[a-z ]+"))
        receipt = self.llm.generate(PROMPTS[1], params)[0].outputs[1].receipt
        command = os.path.join(sysconfig.get_path("scripts"), "vosti")
        for change, code in (({}, 0), ({"seed": 12}, 1)):
            with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
                json.dump({**receipt, **change}, file)
                file.flush()
                ended = subprocess.run([command, "replay", file.name, "--context", "512"], capture_output=True, text=True)
            self.assertEqual(ended.returncode, code, ended.stdout + ended.stderr)

    def test_calls_of_several_threads_run_together(self):
        params = SamplingParams(seed=3, max_tokens=24)
        begun = self.steps()
        expected, given = self.ids(self.llm.generate(PROMPTS, params, use_tqdm=False)), {}
        one_call = self.steps() - begun

        def ask(place):
            given[place] = self.ids(self.llm.generate(PROMPTS, params, use_tqdm=False))

        threads = [threading.Thread(target=ask, args=(place,)) for place in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(list(given.values()), [expected] * 4)
        # Calls that wait for each other take the steps of each.
        self.assertLess(self.steps() - begun - one_call, 3 * one_call)

    def test_a_chat_answers_by_the_model_s_template(self):
        messages = [{"role": "user", "content": "What is the capital of France?"}]
        output = self.llm.chat(messages, SamplingParams(temperature=0, max_tokens=24))[0]
        self.assertIn("<|im_start|>user", output.prompt)
        self.assertIn("Paris", output.outputs[0].text)

    def test_wrong_input_is_a_value_error_that_names_it(self):
        wrong = [
            (lambda: self.llm.generate([[]]), "prompt 0: it is empty"),
            (lambda: self.llm.generate([[1 << 31]]), "not in the vocabulary"),
            (lambda: self.llm.generate([[5], [1 << 32]]), "prompt 1: "),
            (lambda: self.llm.generate([[5], [-1]]), "prompt 1: "),
            (lambda: self.llm.generate("x", SamplingParams(temperature="warm")), "prompt 0: .*temperature"),
            (lambda: self.llm.generate("x", SamplingParams(temperature=-1)), "temperature"),
            (lambda: self.llm.generate("x", SamplingParams(max_tokens=-1)), "max_tokens"),
            (lambda: self.llm.generate("x", SamplingParams(top_k=-2)), "top_k is -2"),
            (lambda: self.llm.generate("x", SamplingParams(top_k=1 << 32)), "top_k is 4294967296"),
            (lambda: self.llm.generate(["x", "y"], [SamplingParams()]), "2 prompts and 1"),
            (lambda: self.llm.generate([[1] * 600]), "prompt 0"),
            (lambda: self.llm.generate("x", SamplingParams(structured_outputs=StructuredOutputsParams())), "asks for nothing"),
            (lambda: self.llm.generate("x", SamplingParams(structured_outputs=StructuredOutputsParams(regex="a", choice=["b"]))),
             "regex and choice"),
            (lambda: self.llm.generate("x", SamplingParams(structured_outputs=StructuredOutputsParams(regex="("))),
             "prompt 0: structured_outputs cannot be turned into a grammar"),
            (lambda: self.llm.generate(["x", "y"], resume=[None]), "2 prompts and 1 answers"),
            (lambda: self.llm.score([[5]]), "sequence 0: it has 1 tokens"),
            (lambda: LLM("no-such-model"), "no model is called"),
            (lambda: LLM(weights="tiny"), "as-they-come"),
        ]
        for call, says in wrong:
            with self.assertRaisesRegex(ValueError, says):
                call()
        self.assertEqual(len(self.llm.generate("x", SamplingParams(max_tokens=1))), 1)
        kept = [self.llm.generate("x", SamplingParams(seed=1, max_tokens=4, top_k=k)) for k in (0, -1)]
        self.assertEqual(self.ids(kept[0]), self.ids(kept[1]))

    def test_ctrl_c_ends_a_call_and_the_next_one_runs(self):
        params = SamplingParams(temperature=0, max_tokens=400, ignore_eos=True)
        # A shell starts background jobs with Ctrl-C ignored, and Python leaves it ignored.
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

    def test_an_output_is_plain_data_with_the_caller_s_ids(self):
        ids = self.llm.tokenize(PROMPTS[0])
        output = self.llm.generate([ids], SamplingParams(temperature=0, max_tokens=4, logprobs=1, receipt=True))[0]
        self.assertIs(output.prompt_token_ids, ids)
        self.assertIsNone(output.prompt)
        self.assertEqual((output.request_id, output.finished, output.fingerprint), ("0", True, self.llm.fingerprint))
        self.assertEqual(output.outputs[0].finish_reason, "length")
        for same in (copy.copy(output), copy.deepcopy(output), pickle.loads(pickle.dumps(output)), dataclasses.replace(output)):
            self.assertEqual((same, repr(same)), (output, repr(output)))
        self.assertNotEqual(dataclasses.replace(output, finished=False), output)
        with self.assertRaises(dataclasses.FrozenInstanceError):
            output.finished = False

    def test_equal_ids_are_one_object(self):
        params = SamplingParams(temperature=0, max_tokens=8)
        first, second = (output.prompt_token_ids + output.outputs[0].token_ids
                         for output in self.llm.generate([PROMPTS[0]] * 2, params, use_tqdm=False))
        self.assertGreater(max(first), 256)  # Python shares smaller ints itself.
        self.assertTrue(all(map(operator.is_, first, second)))

    def test_prompts_that_wait_for_the_engine_get_their_own_answers(self):
        llm = LLM("smollm2-135m", max_model_len=512, max_num_seqs=1)
        params = [SamplingParams(seed=seed, max_tokens=4 + seed) for seed in range(len(PROMPTS))]
        expected = self.llm.generate(PROMPTS, params, use_tqdm=False)
        given = llm.generate(PROMPTS, params, use_tqdm=False)
        self.assertEqual([output.outputs for output in given], [output.outputs for output in expected])
        self.assertEqual([output.prompt for output in given], PROMPTS)

    def test_a_prompt_that_another_thread_changes_is_refused_by_name(self):
        llm = LLM("smollm2-135m", max_model_len=512, max_num_seqs=1)
        prompts = [[1000 + place] for place in range(4)]

        def change():
            while llm._engine.counts()[2] == 0:
                time.sleep(0.001)
            prompts[3][0] = 1 << 31

        other = threading.Thread(target=change)
        other.start()
        with self.assertRaisesRegex(ValueError, "prompt 3: token 2147483648 is not in the vocabulary"):
            llm.generate(prompts, SamplingParams(temperature=0, max_tokens=100, ignore_eos=True), use_tqdm=False)
        other.join()

    def test_a_prompt_takes_no_more_memory_than_its_tokens(self):
        params, tokens = SamplingParams(temperature=0, max_tokens=1, ignore_eos=True), 200

        def peak(count):
            prompts = [[1000] * (tokens - 1) + [1000 + place] for place in range(count)]
            tracemalloc.start()
            try:
                self.llm.generate(prompts, params, use_tqdm=False)
                return tracemalloc.get_traced_memory()[1]
            finally:
                tracemalloc.stop()

        peak(1)
        # Python's part alone: `bench/python/generate.py memory` measures the whole.
        self.assertLess((peak(250) - peak(50)) / 200, 4 * tokens)


if __name__ == "__main__":
    unittest.main()
