"""Compares the tokens of ../tests/text/tokens-*.json with a running llama.cpp server's /tokenize.

    llama-server -m SMOLLM2.gguf --port 8089 &        # `cargo xtask bench cpu` builds llama.cpp
    python llama_cpp.py smollm2-135m http://127.0.0.1:8089

Standard library only. Control tokens in a text are parsed, as Hugging Face does.
"""
import json
import sys
import urllib.request
from pathlib import Path


def tokens_of(server, text):
    body = json.dumps({"content": text, "add_special": False, "parse_special": True}).encode()
    request = urllib.request.Request(f"{server}/tokenize", body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request) as answer:
        return json.load(answer)["tokens"]


def main(name, server):
    path = Path(__file__).resolve().parent.parent / "tests" / "text" / f"tokens-{name}.json"
    cases = json.loads(path.read_text())
    different = [(text, ours, theirs) for text, ours in cases if (theirs := tokens_of(server, text)) != ours]
    for text, ours, theirs in different[:10]:
        print(repr(text), "ours", ours, "llama.cpp", theirs)
    print(f"{name}: {len(cases) - len(different)} of {len(cases)} texts have llama.cpp's tokens")
    sys.exit(1 if different else 0)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
