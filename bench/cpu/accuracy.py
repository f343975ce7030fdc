"""How close next-token distributions are to the file's own numbers: a table for one GGUF file.

    OMP_NUM_THREADS=1 target/python/bin/python bench/cpu/accuracy.py FILE.gguf --vosti target/release/vosti [--peer DIR]

The text is accuracy.txt, its first 512 tokens (with the token that begins a text, if the model has one). The reference is a
forward pass in FP64 here, of the weights that the `gguf` package reads from the file; it shares no code with the engine.
It knows the families of the two pinned models, `llama` and `gemma3`. `--peer` names a folder with llama.cpp's `llama-server`,
which `cargo xtask bench cpu` builds.

A server gives the log-probabilities of the 20 tokens that it finds most likely, and of the token that follows in the text.
So the divergence of the reference from the server is that of 21 or 22 classes a position: these tokens, and all others taken
together. It is never more than the divergence of the whole distributions. `llama-server` gives no log-probabilities of a
prompt, so it is asked token by token, with its prefix cache, and of each answer the same 20 or 21 tokens are used.

Needs numpy and gguf (`cargo xtask python` has both) and one core for a minute or two.
"""
import argparse
import json
import shutil
import socket
import subprocess
import time
import urllib.request
from pathlib import Path

import gguf
import numpy as np

TEXT = Path(__file__).with_suffix(".txt")
LISTED = 20
# llama-server lists only its most likely tokens, so the following token is among these or the list is the vocabulary.
PEER_LISTED = 1000
CONFIGURATIONS = {
    "bf16": ["--arithmetic", "bf16"],
    "integers, 16 bits": ["--arithmetic", "integers", "--activations", "16"],
    "integers, 8 bits": ["--arithmetic", "integers", "--activations", "8"],
}


class File:
    """A GGUF file. Tensors are FP64, `[rows, columns]`."""

    def __init__(self, path):
        reader = gguf.GGUFReader(path)
        self.fields, self.stored = reader.fields, {tensor.name: tensor for tensor in reader.tensors}
        self.family = self.fields["general.architecture"].contents()
        if self.family not in ("llama", "gemma3") or any(".rope.scaling." in name for name in self.fields):
            raise SystemExit(f"{path}: this script knows llama and gemma3 without scaled rotary embeddings")
        if "rope_freqs.weight" in self.stored:
            raise SystemExit(f"{path}: this script knows no rope_freqs.weight")

    def field(self, name, default=None):
        field = self.fields.get(f"{self.family}.{name}")
        return default if field is None else field.contents()

    def tensor(self, name):
        stored = self.stored[name]
        return gguf.dequantize(stored.data, stored.tensor_type).astype(np.float64)


def norm(x, weight, eps):
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * weight


def rotate(x, base, halves):
    """Rotary embedding of `[tokens, heads, head]`. A pair is columns (i, i + head / 2) if `halves`, else (2i, 2i + 1)."""
    tokens, heads, head = x.shape
    angles = np.arange(tokens)[:, None] * base ** (-np.arange(0, head, 2) / head)
    cos, sin = np.cos(angles)[:, None], np.sin(angles)[:, None]
    pairs = x.reshape(tokens, heads, 2, -1) if halves else x.reshape(tokens, heads, -1, 2).swapaxes(2, 3)
    a, b = pairs[:, :, 0], pairs[:, :, 1]
    turned = np.stack([a * cos - b * sin, a * sin + b * cos], 2)
    return (turned if halves else turned.swapaxes(2, 3)).reshape(x.shape)


def attend(q, k, v, window):
    """Causal attention of `[tokens, heads, head]`, with fewer heads of keys and values; the scale is head^-0.5."""
    tokens, heads, head = q.shape
    q = q.reshape(tokens, k.shape[1], -1, head)
    scores = np.einsum("ighd,jgd->ghij", q, k, optimize=True) * head**-0.5
    distance = np.arange(tokens)[:, None] - np.arange(tokens)
    scores = np.where((distance >= 0) & (distance < (window or tokens)), scores, -np.inf)
    shares = np.exp(scores - scores.max(-1, keepdims=True))
    shares /= shares.sum(-1, keepdims=True)
    return np.einsum("ghij,jgd->ighd", shares, v, optimize=True).reshape(tokens, heads * head)


def gelu_tanh(x):
    return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


def silu(x):
    return x / (1 + np.exp(-x))


def times(x, file, name):
    """The product of rows and a stored matrix."""
    return x @ file.tensor(name).T


def hidden_states(file, tokens):
    """The rows that the output matrix multiplies, `[tokens, hidden]`."""
    gemma = file.family == "gemma3"
    hidden, heads = file.field("embedding_length"), file.field("attention.head_count")
    head, kv_heads = file.field("attention.key_length", hidden // heads), file.field("attention.head_count_kv", heads)
    eps, base = file.field("attention.layer_norm_rms_epsilon"), file.field("rope.freq_base", 1e6 if gemma else 1e4)
    local_base, pattern = file.field("rope.freq_base_swa", 1e4), file.field("attention.sliding_window_pattern", 6)
    x = file.tensor("token_embd.weight")[tokens] * (hidden**0.5 if gemma else 1)
    for layer in range(file.field("block_count")):
        weight = lambda name: file.tensor(f"blk.{layer}.{name}.weight")
        product = lambda rows, name: times(rows, file, f"blk.{layer}.{name}.weight")
        after = lambda rows, name: norm(rows, weight(name), eps) if gemma else rows
        local = gemma and (layer + 1) % pattern != 0
        rows = norm(x, weight("attn_norm"), eps)
        q = product(rows, "attn_q").reshape(-1, heads, head)
        k = product(rows, "attn_k").reshape(-1, kv_heads, head)
        v = product(rows, "attn_v").reshape(-1, kv_heads, head)
        turn = local_base if local else base
        q, k = rotate(after(q, "attn_q_norm"), turn, gemma), rotate(after(k, "attn_k_norm"), turn, gemma)
        mixed = attend(q, k, v, file.field("attention.sliding_window") if local else None)
        x = x + after(product(mixed, "attn_output"), "post_attention_norm")
        rows = norm(x, weight("ffn_norm"), eps)
        gate = (gelu_tanh if gemma else silu)(product(rows, "ffn_gate"))
        x = x + after(product(gate * product(rows, "ffn_up"), "ffn_down"), "post_ffw_norm")
    return norm(x, file.tensor("output_norm.weight"), eps)


class Reference:
    """The distributions behind each prefix of `tokens`: logits are computed where they are asked for."""

    def __init__(self, file, tokens):
        self.rows = hidden_states(file, tokens)[:-1]
        name = "output.weight" if "output.weight" in file.stored else "token_embd.weight"
        self.matrix = file.tensor(name)
        self.best, self.sums = [], []
        for part in np.array_split(self.rows, max(1, len(tokens) // 32)):
            logits = part @ self.matrix.T
            top = logits.max(-1)
            self.best += logits.argmax(-1).tolist()
            self.sums += (top + np.log(np.exp(logits - top[:, None]).sum(-1))).tolist()

    def logs(self, place, tokens):
        return self.matrix[tokens] @ self.rows[place] - self.sums[place]


class Server:
    """A server that this script starts, and stops at the end of the `with`."""

    def __init__(self, command, ready):
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", 0))
            self.port = listener.getsockname()[1]
        self.command, self.ready = [*map(str, command), "--port", str(self.port)], ready

    def __enter__(self):
        self.process = subprocess.Popen(self.command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        while True:
            try:
                self.ask(self.ready, seconds=5)
                return self
            except OSError:  # refused, 503, or silent
                if self.process.poll() is not None:
                    raise SystemExit(f"ended with {self.process.returncode} before it was ready: {' '.join(self.command)}")
                time.sleep(0.2)

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait()

    def ask(self, path, body=None, seconds=300):
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", data, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=seconds) as answer:
            return json.load(answer)


def vosti_logs(server, tokens):
    """For each token but the first, a map from listed tokens to their log-probabilities, most likely first."""
    body = {"prompt": tokens, "max_tokens": 1, "prompt_logprobs": LISTED}
    listed = server.ask("/v1/completions", body)["choices"][0]["prompt_logprobs"][1:]
    by_rank = lambda row: sorted(row.items(), key=lambda item: item[1]["rank"])
    return [{int(token): entry["logprob"] for token, entry in by_rank(row)} for row in listed]


def peer_logs(server, tokens, vocabulary):
    """The same of a llama-server."""
    out = []
    for place in range(1, len(tokens)):
        for count in (PEER_LISTED, vocabulary):
            body = {"prompt": tokens[:place], "n_predict": 1, "n_probs": count, "temperature": 1.0, "cache_prompt": True}
            entries = server.ask("/completion", body)["completion_probabilities"][0]["top_logprobs"]
            listed = {entry["id"]: entry["logprob"] for entry in entries}
            if tokens[place] in listed:
                break
        kept = [*list(listed)[:LISTED], tokens[place]]
        out.append({token: listed[token] for token in kept})
    return out


def divergence(wanted, got):
    """Of classes with these log-probabilities, and one more that has the rest."""
    rest = [max(1 - np.exp(logs).sum(), 1e-12) for logs in (wanted, got)]
    return (np.exp(wanted) * (wanted - got)).sum() + rest[0] * np.log(rest[0] / rest[1])


def row(name, reference, tokens, logs):
    divergences, best, following = [], [], []
    for place, listed in enumerate(logs):
        ids, got = list(listed), np.array(list(listed.values()))
        divergences.append(divergence(reference.logs(place, ids), got))
        best.append(ids[0] == reference.best[place])
        following.append(listed[tokens[place + 1]])
    mean, high = np.mean(divergences), np.quantile(divergences, 0.99)
    print(f"| {name} | {mean:.1e} | {high:.1e} | {np.mean(best):.1%} | {np.exp(-np.mean(following)):.3f} |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("file", metavar="FILE.gguf")
    parser.add_argument("--vosti", default="target/release/vosti", metavar="BINARY")
    parser.add_argument("--peer", type=Path, metavar="DIR", help="a folder with llama.cpp's llama-server")
    parser.add_argument("--tokens", type=int, default=512)
    parser.add_argument("--threads", type=int, default=1, help="of each server")
    options = parser.parse_args()
    peer = options.peer and options.peer / "llama-server"
    for program in filter(None, (options.vosti, peer)):
        if not shutil.which(program):
            parser.error(f"{program} is not a program")

    served = [options.vosti, "serve", "-m", options.file, "--threads", options.threads, "--log-format", "off"]
    found = {}
    for name, flags in CONFIGURATIONS.items():
        with Server([*served, *flags], "/ready") as server:
            tokens = server.ask("/tokenize", {"prompt": TEXT.read_text()})["tokens"][:options.tokens]
            if len(tokens) < options.tokens:
                raise SystemExit(f"{TEXT} has {len(tokens)} tokens, and {options.tokens} are wanted")
            found[name] = vosti_logs(server, tokens)
    reference = Reference(File(options.file), tokens)
    if peer:
        command = [peer, "-m", options.file, "--threads", options.threads, "--parallel", 1]
        with Server([*command, "--ctx-size", 2 * options.tokens], "/health") as server:
            found["llama.cpp"] = peer_logs(server, tokens, len(reference.matrix))

    print("| arithmetic | KL, mean | KL, 99% | same best token | perplexity |\n| --- | --- | --- | --- | --- |")
    following = [reference.logs(place, [token])[0] for place, token in enumerate(tokens[1:])]
    print(f"| FP64 reference | | | | {np.exp(-np.mean(following)):.3f} |")
    for name, logs in found.items():
        row(name, reference, tokens, logs)
    listed = [np.exp(reference.logs(place, list(row))).sum() for place, row in enumerate(found["bf16"])]
    print(f"{len(tokens)} tokens; the listed tokens have {np.mean(listed):.0%} of the reference's probability")


if __name__ == "__main__":
    main()
