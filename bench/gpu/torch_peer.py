"""The same shapes through torch: cuBLAS matrices and scaled-dot-product attention, BF16, random weights, nothing invariant.

    python3 bench/gpu/torch_peer.py --config config.json > torch.json
    python3 bench/gpu/torch_peer.py --config config.json --products no-split-k > no-split-k.json
    python3 bench/gpu/torch_peer.py --config config.json --vllm FOLDER > vllm.json

With `--vllm` matrices and norms go through vLLM's own batch-invariant Triton kernels, from files of its wheel
(`vllm_kernels.py` says which). On Hopper and Blackwell vLLM itself takes them for some ops only and has cuBLASLt not split sums
for matrices: `--products no-split-k` is that setting. Attention is torch's in all of them: vLLM's needs vLLM.

Measures the device's ceilings (a copy, large BF16 matrix products), then prefill and decode as `vosti bench` does: prefill of
one sequence after `depth` cached tokens, decode of a batch. Decode is recorded as a CUDA graph, as ours is. Only the
configurations of Llama's kind are built; layers of Gemma have more norms, which cost little beside their matrices.

`--device cpu`, with small sizes, tries the script itself where there is no GPU: its numbers mean nothing then.
"""
import argparse
import json
import os
import statistics
import sys
import time

import torch
import torch.nn.functional as F

DEVICE, DTYPE = "cuda", torch.bfloat16
# What computes `x @ weight.T` and root mean square norms.
linear, norm = F.linear, lambda x, weight, eps: F.rms_norm(x, weight.shape, weight, eps)


def wait():
    if DEVICE == "cuda":
        torch.cuda.synchronize()


def timed(work, repeat):
    """Seconds of each repetition, after two that do not count."""
    seconds = []
    for i in range(repeat + 2):
        wait()
        start = time.perf_counter()
        work()
        wait()
        if i >= 2:
            seconds.append(time.perf_counter() - start)
    return seconds


def ceilings():
    n = 1 << (29 if DEVICE == "cuda" else 24)
    a, b = torch.zeros(n, dtype=torch.uint8, device=DEVICE), torch.zeros(n, dtype=torch.uint8, device=DEVICE)
    memory = 2 * n / min(timed(lambda: b.copy_(a), 20))
    del a, b
    flops = 0.0
    for size in (4096, 8192) if DEVICE == "cuda" else (256,):
        x, y = (torch.randn(size, size, device=DEVICE, dtype=DTYPE) for _ in range(2))
        flops = max(flops, 2 * size ** 3 / min(timed(lambda: x @ y, 20)))
    return memory, flops


class Model:
    def __init__(self, config):
        text = config.get("text_config", config)
        self.hidden, self.layers = text["hidden_size"], text["num_hidden_layers"]
        self.heads = text["num_attention_heads"]
        self.kv = text.get("num_key_value_heads", self.heads)
        self.dim = text.get("head_dim") or self.hidden // self.heads
        self.wide, self.vocab = text["intermediate_size"], text["vocab_size"]
        self.eps = text.get("rms_norm_eps", 1e-6)

        def matrix(rows, columns):
            return torch.randn(rows, columns, device=DEVICE, dtype=DTYPE) * columns ** -0.5
        q, kv = self.heads * self.dim, self.kv * self.dim
        self.weights = [(matrix(q + 2 * kv, self.hidden), matrix(self.hidden, q), matrix(2 * self.wide, self.hidden),
                         matrix(self.hidden, self.wide)) for _ in range(self.layers)]
        self.embed = matrix(self.vocab, self.hidden)
        self.norm = torch.ones(self.hidden, device=DEVICE, dtype=DTYPE)

    def cache(self, batch, length):
        shape = (batch, self.kv, length, self.dim)
        return [tuple(torch.randn(shape, device=DEVICE, dtype=DTYPE) for _ in range(2)) for _ in range(self.layers)]

    def rope(self, positions):
        half = torch.arange(self.dim // 2, device=DEVICE, dtype=torch.float32)
        angles = positions[:, None].float() * 10000.0 ** (-half / (self.dim // 2))
        return angles.cos().to(DTYPE), angles.sin().to(DTYPE)

    def turn(self, x, cos, sin):
        a, b = x.chunk(2, dim=-1)
        return torch.cat([a * cos - b * sin, b * cos + a * sin], dim=-1)

    def forward(self, tokens, depth, cache, last):
        """Rows of `tokens` [batch, rows] after `depth` tokens; logits of each sequence's last row if `last`."""
        batch, rows = tokens.shape
        cos, sin = self.rope(torch.arange(depth, depth + rows, device=DEVICE))
        x = F.embedding(tokens, self.embed)
        mask = None
        if rows > 1 and depth > 0:
            from torch.nn.attention.bias import causal_lower_right
            mask = causal_lower_right(rows, depth + rows)
        for (qkv, out, up, down), (keys, values) in zip(self.weights, cache):
            h = linear(norm(x, self.norm, self.eps), qkv)
            q, k, v = h.split([self.heads * self.dim, self.kv * self.dim, self.kv * self.dim], dim=-1)
            q, k, v = (t.view(batch, rows, -1, self.dim).transpose(1, 2) for t in (q, k, v))
            keys[:, :, depth:depth + rows] = self.turn(k, cos, sin)
            values[:, :, depth:depth + rows] = v
            seen = depth + rows
            a = F.scaled_dot_product_attention(self.turn(q, cos, sin), keys[:, :, :seen], values[:, :, :seen],
                                               attn_mask=mask, is_causal=rows > 1 and depth == 0,
                                               enable_gqa=self.heads != self.kv)
            x = x + linear(a.transpose(1, 2).reshape(batch, rows, -1), out)
            gate, factor = linear(norm(x, self.norm, self.eps), up).chunk(2, dim=-1)
            x = x + linear(F.silu(gate) * factor, down)
        return linear(norm(x[:, -1:], self.norm, self.eps), self.embed) if last else None


def prefill(model, tokens, depth, repeat):
    cache = model.cache(1, depth + tokens)
    ids = torch.randint(0, model.vocab, (1, tokens), device=DEVICE)
    return [tokens / s for s in timed(lambda: model.forward(ids, depth, cache, True), repeat)]


def decode(model, tokens, batch, depth, repeat):
    # One length stands for all of the measurement: its middle.
    depth = max(depth, 1) + tokens // 2
    cache = model.cache(batch, depth + 1)
    ids = torch.randint(0, model.vocab, (batch, 1), device=DEVICE)
    step = recorded(lambda: model.forward(ids, depth, cache, True))

    def steps():
        for _ in range(tokens):
            ids.copy_(step().argmax(dim=-1))
    return [tokens * batch / s for s in timed(steps, repeat)]


def recorded(work):
    """`work` as a CUDA graph; on a processor as it is. Each call gives what it gives."""
    if DEVICE != "cuda":
        return work
    side = torch.cuda.Stream()
    # What it works on was made on this one.
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            work()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = work()

    def replay():
        graph.replay()
        return result
    return replay


def choose(arguments):
    """Sets what matrices and norms are computed by; gives it a name."""
    global linear, norm
    if arguments.vllm:
        import vllm_kernels
        kernels = vllm_kernels.load(arguments.vllm)
        linear, norm = kernels.linear_batch_invariant, kernels.rms_norm_batch_invariant
        return "vLLM's Triton kernels"
    if arguments.products == "no-split-k":
        # As vLLM sets it: without a workspace nothing is split. Read when the library is first used.
        os.environ["CUBLAS_WORKSPACE_CONFIG"], os.environ["CUBLASLT_WORKSPACE_SIZE"] = ":16:8", "1"
        torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False
        torch.backends.cuda.preferred_blas_library(backend="cublaslt")
        return "cuBLASLt without split sums"
    return "torch"


def numbers(text):
    return [int(n) for n in text.split(",")]


@torch.inference_mode()
def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--config", required=True)
    parser.add_argument("--prefill", type=int, default=2048)
    parser.add_argument("--decode", type=int, default=128)
    parser.add_argument("--batch", type=numbers, default=[4])
    parser.add_argument("--depth", type=numbers, default=[0, 4096, 8192, 12288, 16384])
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--products", choices=["torch", "no-split-k"], default="torch")
    parser.add_argument("--vllm", metavar="FOLDER")
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    arguments = parser.parse_args()
    global DEVICE
    DEVICE = arguments.device
    products = choose(arguments)
    with open(arguments.config) as file:
        config = json.load(file)
    memory, flops = ceilings()
    model, cases = Model(config), []
    for depth in arguments.depth:
        rates = prefill(model, arguments.prefill, depth, arguments.repeat)
        cases.append({"what": "prefill", "tokens": arguments.prefill, "depth": depth,
                      "tokens_per_s": statistics.median(rates), "all": rates})
        for batch in arguments.batch:
            rates = decode(model, arguments.decode, batch, depth, arguments.repeat)
            cases.append({"what": "decode", "tokens": arguments.decode, "batch": batch, "depth": depth,
                          "tokens_per_s": statistics.median(rates), "all": rates})
    name = torch.cuda.get_device_name() if DEVICE == "cuda" else "cpu: these numbers mean nothing"
    json.dump({"device": name, "torch": torch.__version__, "products": products, "read_bytes_per_s": memory, "dot_flops_per_s": flops,
               "cases": cases}, sys.stdout, indent=1)
    print()


main()
