"""`vosti.evals` without `lm_eval`: its base class is a stand-in unless the package is there."""
import importlib.util
import sys
import types
import unittest

from vosti import SamplingParams

if importlib.util.find_spec("lm_eval") is None:
    for name in ("lm_eval", "lm_eval.api", "lm_eval.api.model"):
        sys.modules[name] = types.ModuleType(name)
    sys.modules["lm_eval.api.model"].TemplateLM = object

from vosti.evals import Vosti  # noqa: E402

CONTEXT = 128


class TestEvals(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.model = Vosti("smollm2-135m", max_model_len=CONTEXT)

    def until(self, text, **asked):
        return self.model.generate_until([types.SimpleNamespace(args=(text, asked))], disable_tqdm=True)[0]

    def test_a_continuation_alone_is_scored(self):
        llm = self.model.llm
        context, continuation = llm.tokenize("The capital of France is"), llm.tokenize(" Paris, and")
        rows = [(None, context, continuation), (None, context, []), (None, context[:1], context[1:])]
        (some, _), empty, (rest, _) = self.model._loglikelihood_tokens(rows)
        scores = llm.score([context + continuation], use_tqdm=False)[0]
        self.assertAlmostEqual(some, float(scores[len(context) - 1:].sum()), places=3)
        self.assertAlmostEqual(rest, float(scores[:len(context) - 1].sum()), places=3)
        self.assertEqual(empty, (0.0, True))

    def test_a_long_prompt_keeps_its_end_and_an_answer_without_room_for_it_is_refused(self):
        text = "One, two, three, four. " * 40
        tokens = self.model.tok_encode(text)
        self.assertGreater(len(tokens), CONTEXT)
        for count in (8, CONTEXT - 1):
            params = SamplingParams(temperature=0, seed=1234, max_tokens=count)
            wanted = self.model.llm.generate([tokens[-(CONTEXT - count):]], params, use_tqdm=False)[0].outputs[0].text
            self.assertEqual(self.until(text, max_gen_toks=count), wanted)
        for count in (CONTEXT, CONTEXT + 8):
            with self.assertRaisesRegex(ValueError, f"max_gen_toks is {count} and max_model_len {CONTEXT}"):
                self.until(text, max_gen_toks=count)


if __name__ == "__main__":
    unittest.main()
