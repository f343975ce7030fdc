"""New weights in a running model, compared with a model that is loaded with them."""
import json
import shutil
import struct
import tempfile
import unittest
from pathlib import Path

import numpy as np

from vosti import LLM, SamplingParams

TINY = Path(__file__).resolve().parents[2] / "vosti-model" / "tests" / "tiny" / "llama"
PARAMS = SamplingParams(seed=3, max_tokens=24, logprobs=1, ignore_eos=True)
EMBEDDINGS = "model.embed_tokens.weight"


def tokenizer():
    """Single bytes, written as byte-level vocabularies write them."""
    def prints(byte):
        return 0x21 <= byte < 0x7F or 0xA1 <= byte < 0xAD or 0xAE <= byte
    letters = [chr(b) if prints(b) else chr(256 + sum(not prints(a) for a in range(b))) for b in range(256)]
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    return {"version": "1.0", "added_tokens": [], "normalizer": None, "pre_tokenizer": level, "decoder": level,
            "model": {"type": "BPE", "vocab": {letter: b for b, letter in enumerate(letters)}, "merges": []}}


def read(folder):
    """The header of a safetensors file, with its length in front, and its BF16 tensors as FP32."""
    file = (folder / "model.safetensors").read_bytes()
    start = 8 + struct.unpack("<Q", file[:8])[0]
    tensors = {}
    for name, about in json.loads(file[8:start]).items():
        if name != "__metadata__":
            begin, end = (start + offset for offset in about["data_offsets"])
            bits = np.frombuffer(file[begin:end], "<u2").astype("<u4") << 16
            tensors[name] = bits.view("<f4").reshape(about["shape"])
    return file[:start], tensors


def write(folder, header, tensors):
    """The same file with other numbers, which BF16 must hold."""
    places = {name: about["data_offsets"] for name, about in json.loads(header[8:]).items() if name != "__metadata__"}
    parts = [(tensors[name].view("<u4") >> 16).astype("<u2").tobytes() for name in sorted(places, key=places.get)]
    (folder / "model.safetensors").write_bytes(header + b"".join(parts))


class Torch:
    """A BF16 tensor as torch has it: `numpy` works only after a conversion to FP32."""

    dtype = "torch.bfloat16"

    def __init__(self, numbers):
        self.numbers, self.shape, self.host = numbers, numbers.shape, False

    def detach(self):
        return self

    def cpu(self):
        self.host = True
        return self

    def float(self):
        assert self.host
        return type("Float", (), {"dtype": "torch.float32", "numpy": lambda _: self.numbers})()

    def numpy(self):
        raise TypeError("Got unsupported ScalarType BFloat16")


class TestUpdateWeights(unittest.TestCase):
    def setUp(self):
        place = tempfile.TemporaryDirectory()
        self.addCleanup(place.cleanup)
        self.folders = [Path(place.name) / name for name in ("a", "b")]
        for folder in self.folders:
            folder.mkdir()
            for name in ("config.json", "model.safetensors"):
                shutil.copyfile(TINY / name, folder / name)
            (folder / "tokenizer.json").write_text(json.dumps(tokenizer()))
        self.header, self.tensors = read(self.folders[0])
        self.llm = LLM(self.folders[0])

    def answer(self, llm):
        prompts = ["The sea is", "x" * 200]
        return [(c.token_ids, c.logprobs) for o in llm.generate(prompts, PARAMS, use_tqdm=False) for c in o.outputs]

    def changed(self):
        # Negated tensors would give the same logits: every sign cancels.
        return {name: np.roll(numbers, 1, axis=0) if numbers.ndim > 1 else numbers for name, numbers in self.tensors.items()}

    def test_the_same_weights_change_no_bit_and_forget_keys_and_values(self):
        before, fingerprint = self.answer(self.llm), self.llm.fingerprint
        self.assertGreater(self.llm.generate("x" * 200, PARAMS)[0].num_cached_tokens, 0)
        self.llm.update_weights(self.tensors)
        self.assertEqual(self.llm.generate("x" * 200, PARAMS)[0].num_cached_tokens, 0)
        self.assertEqual((self.answer(self.llm), self.llm.fingerprint), (before, fingerprint))

    def test_a_flag_of_a_folder_whose_token_is_missing_is_a_warning_where_the_model_is_made(self):
        (self.folders[1] / "tokenizer_config.json").write_text(json.dumps({"add_bos_token": True}))
        with self.assertWarnsRegex(UserWarning, "add_bos_token") as told:
            LLM(self.folders[1])
        self.assertEqual(told.filename, __file__)

    def test_other_weights_give_what_a_folder_with_them_gives(self):
        write(self.folders[1], self.header, self.changed())
        fresh = LLM(self.folders[1])
        before = self.answer(self.llm), self.llm.fingerprint
        expected = self.answer(fresh), fresh.fingerprint
        self.assertNotEqual(before[0], expected[0])
        self.assertNotEqual(before[1], expected[1])
        for kind in (lambda a: a, Torch, lambda a: a.astype("f8"), np.asfortranarray):
            self.llm.update_weights({name: kind(numbers) for name, numbers in self.changed().items()})
            self.assertEqual((self.answer(self.llm), self.llm.fingerprint), expected)
            self.llm.update_weights(self.tensors)
            self.assertEqual((self.answer(self.llm), self.llm.fingerprint), before)

    def test_numbers_are_rounded_to_the_type_of_the_files(self):
        near = {name: numbers * np.float32(1 + 2.0 ** -10) for name, numbers in self.tensors.items()}
        before = self.answer(self.llm), self.llm.fingerprint
        self.llm.update_weights(near)
        self.assertEqual((self.answer(self.llm), self.llm.fingerprint), before)

    def test_wrong_tensors_are_named_and_change_nothing(self):
        before = self.answer(self.llm), self.llm.fingerprint
        last = sorted(self.tensors)[-1]
        wrong = []
        for value in (np.inf, np.nan, -np.nan, 3.4e38):
            bad = self.changed()[last].copy()
            bad.flat[-1] = value
            wrong.append(({last: bad}, f"{last} is not finite at"))
        wrong += [
            ({last: self.tensors[last][:-1]}, f"{last} has shape"),
            ({last: 5}, f"{last} has shape"),
            ({last: self.tensors[last].astype("i4")}, f"{last} has type int32"),
            ({"lm_tail.weight": self.tensors[last]}, "lm_tail.weight is not in the model's files"),
        ]
        for change, says in wrong:
            with self.assertRaisesRegex(ValueError, says):
                self.llm.update_weights({**self.changed(), **change})
            self.assertEqual((self.answer(self.llm), self.llm.fingerprint), before)
        for missing in (EMBEDDINGS, last):
            with self.assertRaisesRegex(ValueError, f"tensor {missing} is missing"):
                self.llm.update_weights({name: t for name, t in self.changed().items() if name != missing})
        with self.assertRaisesRegex(ValueError, "more are missing"):
            self.llm.update_weights({})
        self.assertEqual((self.answer(self.llm), self.llm.fingerprint), before)

    def test_a_gguf_file_is_refused(self):
        with self.assertRaisesRegex(ValueError, "Hugging Face folder"):
            LLM("smollm2-135m", max_model_len=64).update_weights({})


if __name__ == "__main__":
    unittest.main()
