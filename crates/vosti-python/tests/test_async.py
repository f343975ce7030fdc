"""Requests that start and stop at any time, compared with the same requests in one batch."""
import asyncio
import gc
import subprocess
import sys
import threading
import time
import unittest

from vosti import LLM, AsyncLLM, SamplingParams, StructuredOutputsParams

PROMPTS = ["The capital of France is", "Once upon a time", "def add(a, b):", "1, 2, 3,", "Water boils at"]
KINDS = [SamplingParams(temperature=0, max_tokens=12), SamplingParams(seed=3, max_tokens=12, n=2, logprobs=1),
         SamplingParams(seed=4, max_tokens=24, structured_outputs=StructuredOutputsParams(choice=["yes", "perhaps"])),
         SamplingParams(seed=5, max_tokens=16, presence_penalty=0.5, stop=["."])]


def content(output):
    return output.prompt_token_ids, output.outputs


class TestAsyncLLM(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.llm = AsyncLLM("smollm2-135m", max_model_len=512)
        cls.alone = LLM("smollm2-135m", max_model_len=512)

    @classmethod
    def tearDownClass(cls):
        cls.llm.shutdown()

    async def whole(self, *args, **kwargs):
        outputs = [output async for output in self.llm.generate(*args, **kwargs)]
        for before, after in zip(outputs, outputs[1:]):
            for former, later in zip(before.outputs, after.outputs):
                self.assertEqual(later.token_ids[:len(former.token_ids)], former.token_ids)
                self.assertTrue(later.text.startswith(former.text))
        self.assertEqual([output.finished for output in outputs], [False] * (len(outputs) - 1) + [True])
        return outputs[-1]

    def test_answers_are_those_of_a_batch(self):
        async def all_at_once():
            asked = [(prompt, params) for params in KINDS for prompt in PROMPTS]
            return await asyncio.gather(*(self.whole(*one) for one in asked))

        expected = [output for params in KINDS for output in self.alone.generate(PROMPTS, [params] * len(PROMPTS), use_tqdm=False)]
        self.assertEqual([content(o) for o in asyncio.run(all_at_once())], [content(o) for o in expected])

    def test_an_answer_goes_on_wherever_it_was_cut(self):
        async def cut(params, whole):
            seen = [output async for output in self.llm.generate(PROMPTS[0], params)]
            for had in seen:
                again = [output async for output in self.llm.generate(PROMPTS[0], params, resume=had)]
                self.assertEqual(content(again[-1]), content(whole))
                self.assertTrue(all(len(a.token_ids) >= len(b.token_ids) for a, b in zip(again[0].outputs, had.outputs)))

        for params in KINDS:
            whole = self.alone.generate(PROMPTS[0], params)[0]
            asyncio.run(cut(params, whole))

    def test_a_generator_that_is_closed_gives_its_request_up(self):
        aborted = self.llm._engine.counts()[3]

        async def leave():
            params = SamplingParams(temperature=0, max_tokens=400, ignore_eos=True)
            for _ in range(20):
                answers = self.llm.generate(PROMPTS[1], params)
                await answers.__anext__()
                await answers.aclose()
            await self.whole(PROMPTS[0], KINDS[0])

        asyncio.run(leave())
        self.assertEqual(self.llm._queues, {})
        # The engine learns of an abort at its next step.
        until = time.monotonic() + 60
        while self.llm._engine.counts()[:2] != (0, 0) and time.monotonic() < until:
            time.sleep(0.05)
        running, waiting, _, now = self.llm._engine.counts()
        self.assertEqual((running, waiting, now - aborted), (0, 0, 20))

    def test_an_aborted_request_ends_its_generator(self):
        async def abort():
            params = SamplingParams(temperature=0, max_tokens=400, ignore_eos=True)
            seen = 0
            async for _ in self.llm.generate(PROMPTS[1], params, "mine"):
                seen += 1
                with self.assertRaisesRegex(ValueError, "mine runs already"):
                    await self.llm.generate(PROMPTS[1], params, "mine").__anext__()
                await self.llm.abort("mine")
            return seen

        self.assertLess(asyncio.run(abort()), 400)

    def test_wrong_input_is_raised_where_it_was_asked(self):
        async def wrong():
            for prompt, params, says in ((5, KINDS[0], "the prompt is 5"), ("x", {"n": 1}, "the sampling parameters are {'n': 1}")):
                with self.assertRaisesRegex(ValueError, says):
                    await self.whole(prompt, params)
            with self.assertRaisesRegex(ValueError, "600 tokens|context"):
                await self.whole([1] * 600, KINDS[0])
            await self.whole("x", KINDS[0])

        asyncio.run(wrong())

    def test_scores_are_those_of_a_batch(self):
        given = asyncio.run(self.llm.score(PROMPTS))
        expected = self.alone.score(PROMPTS, use_tqdm=False)
        self.assertEqual([row.tobytes() for row in given], [row.tobytes() for row in expected])

    def test_a_model_that_nobody_holds_and_a_program_that_ends_leave_no_thread(self):
        before = set(threading.enumerate())
        llm = AsyncLLM("smollm2-135m", max_model_len=64)
        [thread] = set(threading.enumerate()) - before
        del llm
        gc.collect()
        thread.join(10)
        self.assertFalse(thread.is_alive())
        program = "import vosti; llm = vosti.AsyncLLM('smollm2-135m', max_model_len=64); print(llm.fingerprint)"
        ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
        self.assertEqual((ended.returncode, ended.stderr), (0, ""))


if __name__ == "__main__":
    unittest.main()
