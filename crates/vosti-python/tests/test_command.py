"""The `vosti` command that comes with the wheel."""
import json
import subprocess
import sys
import unittest
from pathlib import Path

from vosti import LLM, SamplingParams, __version__

COMMAND = Path(sys.executable).parent / "vosti"


def vosti(*words):
    return subprocess.run([COMMAND, *words], stdin=subprocess.DEVNULL, capture_output=True, text=True)


class TestCommand(unittest.TestCase):
    def test_it_says_its_version_and_its_models(self):
        self.assertEqual(vosti("--version").stdout.split(), ["vosti", __version__])
        self.assertIn("smollm2-135m", str(json.loads(vosti("models", "--json").stdout)))

    def test_it_generates_what_the_package_generates(self):
        done = vosti("generate", "--raw", "-n", "4", "--temperature", "0", "--context", "256", "The capital of France is")
        self.assertEqual(done.returncode, 0, done.stderr)
        llm = LLM("smollm2-135m", max_model_len=256)
        text = llm.generate("The capital of France is", SamplingParams(temperature=0, max_tokens=4))[0].outputs[0].text
        self.assertIn(text.strip(), done.stdout)

    def test_wrong_input_is_one_line_and_exit_code_2(self):
        done = vosti("generat")
        self.assertEqual((done.returncode, done.stdout), (2, ""))
        self.assertEqual(done.stderr.count("\n"), 1)
        self.assertIn("'generate'", done.stderr)


if __name__ == "__main__":
    unittest.main()
