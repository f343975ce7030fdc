"""Checks that two builds of `vosti` give the same bits: fingerprint and digests of logits of every tiny model of the tests.

    python3 bench/cpu/two_processors.py target/debug/vosti "qemu-aarch64-static -L /usr/aarch64-linux-gnu target/aarch64-unknown-linux-gnu/debug/vosti"

Each argument is a command line that runs a `vosti`; the second may be of another processor, through an emulator or a shell on another
machine that sees the same temporary folder. Exit code 0 if every model has one fingerprint and one set of digests.
"""
import json
import pathlib
import shlex
import shutil
import subprocess
import sys
import tempfile

MODELS = pathlib.Path(__file__).parents[2] / "crates/vosti-model/tests/tiny"


def byte_letters():
    """The letters that stand for bytes in a byte-level vocabulary, as in GPT-2."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    return [chr(byte) for byte in plain] + [chr(256 + i) for i in range(256 - len(plain))]


def tokenizer(vocabulary):
    """A token for each byte, and names for the rest."""
    letters = byte_letters()
    tokens = letters[:vocabulary] + [f"<unused {i}>" for i in range(vocabulary - len(letters))]
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    model = {"type": "BPE", "vocab": {token: place for place, token in enumerate(tokens)}, "merges": []}
    return {"version": "1.0", "added_tokens": [], "pre_tokenizer": level, "decoder": level, "model": model}


def asked(command, folder):
    found = subprocess.run([*shlex.split(command), "check", "--model", folder, "--digests"], capture_output=True, text=True)
    if found.returncode:
        raise SystemExit(f"{command}: {found.stderr.strip()}")
    return found.stdout


def main():
    if len(sys.argv) != 3:
        raise SystemExit(__doc__)
    differing = 0
    for source in sorted(MODELS.iterdir()):
        with tempfile.TemporaryDirectory() as folder:
            for name in ("config.json", "model.safetensors"):
                shutil.copy(source / name, folder)
            config = json.loads((source / "config.json").read_text())
            vocabulary = config.get("text_config", config)["vocab_size"]
            pathlib.Path(folder, "tokenizer.json").write_text(json.dumps(tokenizer(vocabulary)))
            first, second = (asked(command, folder) for command in sys.argv[1:])
        differing += first != second
        print(f"{source.name:16} {'same' if first == second else 'DIFFERS'}  {first.strip().splitlines()[-1][:100]}", flush=True)
    return 1 if differing else 0


if __name__ == "__main__":
    raise SystemExit(main())
