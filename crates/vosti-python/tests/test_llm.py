"""The wheel as users install it: `python -m unittest` in an environment that has only the wheel and NumPy."""
import copy
import dataclasses
import json
import operator
import os
import pickle
import shutil
import signal
import socket
import subprocess
import sysconfig
import tempfile
import threading
import time
import tracemalloc
import unittest
from pathlib import Path
from unittest import mock

import numpy as np
from test_update_weights import TINY, tokenizer

from vosti import LLM, AsyncLLM, SamplingParams, StructuredOutputsParams

PROMPTS = ["The capital of France is", "Once upon a time", "def add(a, b):", "1, 2, 3,", "Water boils at"]


class TestInterrupted(unittest.TestCase):
    def test_ctrl_c_ends_a_fetch_from_a_hub_that_is_silent(self):
        before = signal.signal(signal.SIGINT, signal.default_int_handler)
        self.addCleanup(signal.signal, signal.SIGINT, before)
        hub = socket.create_server(("127.0.0.1", 0))
        self.addCleanup(hub.close)

        def answer():
            self.asked = hub.accept()[0]
            self.asked.recv(1 << 16)
            os.kill(os.getpid(), signal.SIGINT)

        server = threading.Thread(target=answer)
        server.start()
        with tempfile.TemporaryDirectory() as folder:
            places = {"HF_ENDPOINT": f"http://127.0.0.1:{hub.getsockname()[1]}", "HF_HUB_CACHE": folder}
            with mock.patch.dict(os.environ, places), self.assertRaises(KeyboardInterrupt):
                LLM("some/model")
            self.assertEqual(list(Path(folder).iterdir()), [])
        server.join()
        self.asked.close()

    def test_what_a_handler_raises_ends_the_loading_of_a_model(self):
        class Enough(Exception):
            pass

        def enough(*_):
            raise Enough

        before = signal.signal(signal.SIGALRM, enough)
        self.addCleanup(signal.signal, signal.SIGALRM, before)
        with tempfile.TemporaryDirectory() as folder:
            large = {**json.loads((TINY / "config.json").read_text()), "hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 8, "vocab_size": 65536}
            config = Path(folder, "config.json")
            config.write_text(json.dumps({**large, "num_attention_heads": 16, "num_key_value_heads": 4}))
            signal.setitimer(signal.ITIMER_REAL, 0.2)
            with self.assertRaises(Enough):
                LLM(str(config))


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

    def test_the_experts_of_an_answer_are_those_of_its_replay(self):
        with tempfile.TemporaryDirectory() as place:
            folder = Path(place) / "moe"
            shutil.copytree(TINY.parent / "qwen3-moe", folder)
            (folder / "tokenizer.json").write_text(json.dumps(tokenizer()))
            llm = LLM(str(folder), max_model_len=128)
        asked = SamplingParams(seed=1, max_tokens=9, ignore_eos=True, routed_experts=True)
        output = llm.generate([[5, 6, 7, 8, 9]], asked)[0]
        tokens = [5, 6, 7, 8, 9, *output.outputs[0].token_ids]
        experts = output.outputs[0].routed_experts
        self.assertEqual((experts.shape, experts.dtype), ((len(tokens) - 1, 2, 2), np.int32))
        again = llm.generate([tokens], SamplingParams(max_tokens=1, temperature=0, routed_experts=True))[0]
        np.testing.assert_array_equal(again.outputs[0].routed_experts[:-1], experts)
        with self.assertRaisesRegex(ValueError, "no mixture of experts"):
            self.llm.generate(PROMPTS[0], SamplingParams(max_tokens=1, routed_experts=True))

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
            (lambda: self.llm.generate([[5], [1 << 32]]), "prompt 1: a token id is negative or not in the vocabulary"),
            (lambda: self.llm.generate([[5], [-1]]), "prompt 1: a token id is negative"),
            (lambda: SamplingParams(temperature="warm"), "SamplingParams: temperature is 'warm': must be real number"),
            (lambda: SamplingParams(ignore_eos="no"), "SamplingParams: ignore_eos is 'no': .*bool"),
            (lambda: SamplingParams(top_k=1.5), "SamplingParams: top_k is 1.5: .*integer"),
            (lambda: SamplingParams(temperature=-1), "temperature is -1; it must be between 0 and 100"),
            (lambda: SamplingParams(max_tokens=-1), "max_tokens is -1"),
            (lambda: SamplingParams(max_tokens=0), "max_tokens is 0"),
            (lambda: SamplingParams(min_tokens=5, max_tokens=4), "min_tokens is 5, and max_tokens 4"),
            (lambda: SamplingParams(n=0), "n is 0"),
            (lambda: SamplingParams(top_k=-2), "top_k is -2"),
            (lambda: SamplingParams(top_k=1 << 32), "top_k is 4294967296"),
            (lambda: SamplingParams(seed="7"), "seed is '7'"),
            (lambda: SamplingParams(seed=1 << 64), "seed is 18446744073709551616"),
            (lambda: SamplingParams(stop=["a", ""]), "stop string number 1 is empty"),
            (lambda: SamplingParams(stop=5), "stop is 5: give a list of texts"),
            (lambda: SamplingParams(stop_token_ids=["a"]), "stop_token_ids is .*: give a list of token ids"),
            (lambda: SamplingParams(logit_bias={"3": 1}), "logit_bias is .*: give a dict by token ids"),
            (lambda: SamplingParams(logit_bias={3: 200}), "logit_bias for token 3 is 200"),
            (lambda: SamplingParams(logit_bias={3: "much"}), "logit_bias for token 3 is 'much': give a number"),
            (lambda: SamplingParams(logprobs_mode="cooked"), "logprobs_mode is"),
            (lambda: SamplingParams(structured_outputs={"regex": "a"}), "structured_outputs is .*: give a StructuredOutputsParams"),
            (lambda: dataclasses.replace(SamplingParams(), top_p=2), "top_p is 2"),
            (lambda: self.llm.generate("x", {"temperature": 1}), "sampling_params is"),
            (lambda: self.llm.generate(["x", "y"], [SamplingParams(), None]), "the sampling parameters of prompt 1 are None"),
            (lambda: self.llm.generate(5), "the prompts are 5: give a list"),
            (lambda: self.llm.generate(None), "the prompts are None"),
            (lambda: self.llm.generate(["x", None]), "prompt 1 is None: a prompt is a text, a list of token ids"),
            (lambda: self.llm.generate([[1, 2.5]]), "prompt 0 is .*2.5"),
            (lambda: self.llm.generate([b"x"]), "prompt 0 is b'x'"),
            (lambda: self.llm.generate(b"x"), "the prompt is b'x'"),
            (lambda: self.llm.generate({"prompt": 3}), "the prompt is 3"),
            (lambda: self.llm.generate({"prompt_embeds": 3}), "the prompt has the keys .'prompt_embeds'"),
            (lambda: self.llm.score(["x", 3]), "sequence 1 is 3"),
            (lambda: self.llm.chat("hello"), "the messages are 'hello'"),
            (lambda: self.llm.chat([{"role": "user", "content": {1, 2}}]), "must be JSON"),
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

    def test_arguments_of_vllm_are_taken_or_refused_by_name(self):
        taken = LLM("smollm2-135m", max_model_len=64, tensor_parallel_size=1, dtype="bfloat16", trust_remote_code=True,
                    enforce_eager=True, enable_prefix_caching=True, disable_log_stats=True, seed=0)
        self.assertEqual(taken.max_model_len, 64)
        self.assertEqual(SamplingParams(seed=1, skip_special_tokens=True, best_of=None, bad_words=[]), SamplingParams(seed=1))
        refused = [
            (lambda: LLM(gpu_memory_utilization=0.9), ValueError, r"LLM\(gpu_memory_utilization=0.9\): the model runs on the processor"),
            (lambda: AsyncLLM(tensor_parallel_size=2), ValueError, r"AsyncLLM\(tensor_parallel_size=2\): one process"),
            (lambda: LLM(enable_prefix_caching=False), ValueError, "always on, and changes no bit"),
            (lambda: LLM(dtype="float16"), ValueError, "BF16"),
            (lambda: LLM(max_model_length=64), TypeError, "LLM has no argument max_model_length: did you mean max_model_len?"),
            (lambda: SamplingParams(best_of=3), ValueError, r"SamplingParams\(best_of=3\): all `n` answers"),
            (lambda: SamplingParams(temprature=1), TypeError, "SamplingParams has no argument temprature: did you mean temperature?"),
            (lambda: self.llm.beam_search, AttributeError, "LLM has no beam_search: answers are drawn"),
            (lambda: self.llm.no_such_thing, AttributeError, "LLM has no no_such_thing$"),
        ]
        for call, kind, says in refused:
            with self.assertRaisesRegex(kind, says):
                call()

    def test_without_a_seed_calls_differ_and_the_output_says_how_to_repeat_it(self):
        for params in (SamplingParams(max_tokens=12), SamplingParams(max_tokens=12, seed=-1), None):
            first, second = (self.llm.generate(PROMPTS[:2], params, use_tqdm=False) for _ in range(2))
            self.assertEqual(len({output.seed for output in first + second}), 4)
            if params is None:
                continue  # An answer to its end is long.
            self.assertNotEqual(self.ids(first), self.ids(second))
            for output, prompt in zip(first, PROMPTS):
                again = self.llm.generate(prompt, dataclasses.replace(params, seed=output.seed))
                self.assertEqual((self.ids(again), again[0].seed), ([[output.outputs[0].token_ids]], output.seed))
            # An answer that goes on keeps its seed, whatever else is drawn in the call.
            cut = [None, dataclasses.replace(first[1], outputs=[dataclasses.replace(
                first[1].outputs[0], token_ids=first[1].outputs[0].token_ids[:3], finish_reason=None)])]
            for asked in (params, [params] * 2):
                resumed = self.llm.generate(PROMPTS[:2], asked, use_tqdm=False, resume=cut)
                self.assertEqual(self.ids(resumed)[1], self.ids(first)[1])

    def test_default_parameters_are_the_numbers_that_the_model_s_makers_wrote(self):
        params = self.llm.get_default_sampling_params()
        self.assertEqual((params.temperature, params.top_p), (0.2, 0.9))

    def test_an_engine_s_seed_repeats_a_program(self):
        def program(seed):
            llm = LLM("smollm2-135m", max_model_len=64, seed=seed)
            return [self.ids(llm.generate(PROMPTS[:2], SamplingParams(max_tokens=8), use_tqdm=False)) for _ in range(2)]

        self.assertEqual(program(7), program(7))
        self.assertNotEqual(*program(7))
        self.assertNotEqual(program(7), program(8))

    @unittest.skipUnless(hasattr(os, "fork"), "needs fork")
    def test_a_forked_process_is_refused_at_once(self):
        calls = [lambda: self.llm.generate("x"), lambda: self.llm.score(["a b c"]), lambda: LLM("smollm2-135m", max_model_len=64)]
        for call in calls:
            reads, writes = os.pipe()
            child = os.fork()
            if child == 0:
                try:
                    signal.alarm(20)
                    call()
                    said = "it ran"
                except BaseException as error:
                    said = f"{type(error).__name__}: {error}"
                os.write(writes, said.encode())
                os._exit(0)
            os.close(writes)
            with open(reads) as pipe:
                self.assertRegex(pipe.read(), "^RuntimeError: this process was forked .*spawn")
            self.assertEqual(os.waitpid(child, 0)[1], 0)

    def test_a_tokenizer_gives_the_ids_of_a_prompt(self):
        tokenizer, messages = self.llm.get_tokenizer(), [{"role": "user", "content": "Hi"}]
        ids = tokenizer.encode(PROMPTS[0])
        self.assertEqual((ids, tokenizer(PROMPTS[0])["input_ids"]), (self.llm.tokenize(PROMPTS[0]), ids))
        self.assertEqual(tokenizer.decode(ids), PROMPTS[0])
        self.assertGreater(len(tokenizer), max(ids))
        text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
        output = self.llm.chat(messages, SamplingParams(max_tokens=1))[0]
        self.assertEqual(text, output.prompt)
        self.assertEqual(tokenizer.apply_chat_template(messages, add_generation_prompt=True), output.prompt_token_ids)

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
