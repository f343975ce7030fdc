"""Rates of a model's shapes in torch, to compare Vosti's with: BF16, random weights, about ten kernels a layer.

    python3 bench/gpu/torch_peer.py --config config.json > torch.json
    python3 bench/gpu/torch_peer.py --config config.json --mode invariant > invariant.json
    python3 bench/gpu/torch_peer.py --config config.json --mode triton --vllm FOLDER > triton.json
    python3 bench/gpu/torch_peer.py --config config.json --device cpu --values       # does it compute the model?

Matrices are cuBLAS's; norms, rotation and the gate are one kernel each by `torch.compile`, with the addition before a norm in it;
attention is FlashAttention 3 over pages where FOLDER has vLLM's build of it (`vllm_kernels.py`), else torch's own; decode is a
CUDA graph. It is not vLLM: no scheduler, no sampling, no server, and one length stands for all of a measurement.

`--mode invariant` is the setting of vLLM's batch-invariant mode on Hopper and Blackwell: cuBLASLt does not split sums, and
FlashAttention has one split. `--mode triton` takes vLLM's own batch-invariant Triton kernels for matrices and norms.

With each rate of decoding it reports how many of a row's logits differ from those that the row has alone, and, on a GPU, the time of
each kernel. `--values` compares the logits of a prompt in chunks and of decoding with a plain FP64 model of the same weights, and
exits with 1 if they are further apart than rounding. Only configurations of Llama's kind are built.
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
PAGE = 64
THETA = 10000.0
# What computes `x @ weight.T`, root mean square norms and attention over pages.
linear, norm, flash, SPLITS = F.linear, None, None, 0


def rms(x, weight, eps):
    wide = x.float()
    return (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + eps)).to(x.dtype) * weight


def add_norm(x, more, weight, eps):
    total = x + more
    return total, rms(total, weight, eps)


def gate(both):
    left, right = both.chunk(2, dim=-1)
    return F.silu(left.float()).to(both.dtype) * right


def rotated(x, cos, sin):
    """`x` (rows by heads) turned by its positions: the halves of a head are the two parts of complex numbers."""
    a, b = x.float().chunk(2, dim=-1)
    cos, sin = cos[:, None], sin[:, None]
    return torch.cat([a * cos - b * sin, b * cos + a * sin], dim=-1).to(x.dtype)


def spread(qkv, cos, sin, heads, kv, dim):
    """Queries and keys turned, and values, each contiguous."""
    q, k, v = qkv.split([heads * dim, kv * dim, kv * dim], dim=-1)
    q, k = q.unflatten(-1, (heads, dim)), k.unflatten(-1, (kv, dim))
    return rotated(q, cos, sin), rotated(k, cos, sin), v.unflatten(-1, (kv, dim)).contiguous()


def wait():
    if DEVICE == "cuda":
        torch.cuda.synchronize()


def timed(work, repeat):
    """Seconds of each repetition, after two to warm up."""
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
    """Bytes read from memory in a second, and operations in a second of large matrix products."""
    a = torch.randint(1 << 30, (1 << (29 if DEVICE == "cuda" else 22),), dtype=torch.int32, device=DEVICE)
    memory = 4 * a.numel() / min(timed(a.sum, 20))
    del a
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
        torch.manual_seed(1)

        def matrix(rows, columns):
            return (torch.randn(rows, columns, device=DEVICE) * columns ** -0.5).to(DTYPE)
        q, kv = self.heads * self.dim, self.kv * self.dim
        self.weights = [(matrix(q + 2 * kv, self.hidden), matrix(self.hidden, q), matrix(2 * self.wide, self.hidden),
                         matrix(self.hidden, self.wide)) for _ in range(self.layers)]
        self.embed = matrix(self.vocab, self.hidden)
        self.norm = (1 + 0.1 * torch.randn(self.hidden, device=DEVICE)).to(DTYPE)

    def cache(self, batch, length):
        """Random keys and values of every layer, each sequence's pages one after the other."""
        shape = (batch * -(-length // PAGE), PAGE, self.kv, self.dim)
        return [tuple(torch.randn(shape, device=DEVICE).to(DTYPE) for _ in range(2)) for _ in range(self.layers)]

    def attend(self, q, keys, values, batch, rows, seen, fixed):
        """Queries of `rows` last positions of `seen` over pages: rows by heads by numbers."""
        if flash:
            starts, lengths, table = fixed
            return flash(q, keys, values, starts, lengths, table, rows, seen, self.dim ** -0.5, SPLITS)
        pages = keys.shape[0] // batch
        q = q.view(batch, rows, self.heads, self.dim).transpose(1, 2)
        k, v = (x.view(batch, pages * PAGE, self.kv, self.dim)[:, :seen].transpose(1, 2) for x in (keys, values))
        mask = None
        if rows > 1 and seen > rows:
            from torch.nn.attention.bias import causal_lower_right
            mask = causal_lower_right(rows, seen)
        out = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=rows > 1 and seen == rows,
                                             enable_gqa=self.heads != self.kv)
        return out.transpose(1, 2).reshape(batch * rows, self.heads, self.dim)

    def prepared(self, batch, rows, depth, pages):
        """Inputs of a step that stay the same when a step of this size is repeated: angles, lengths and page tables."""
        angles = torch.arange(depth, depth + rows, device=DEVICE)[:, None].float()
        angles = angles * THETA ** (-torch.arange(self.dim // 2, device=DEVICE).float() / (self.dim // 2))
        cos, sin = (part.repeat(batch, 1) for part in (angles.cos(), angles.sin()))
        ints = {"dtype": torch.int32, "device": DEVICE}
        fixed = (torch.arange(0, batch * rows + 1, rows, **ints), torch.full((batch,), depth + rows, **ints),
                 torch.arange(batch * pages, **ints).view(batch, pages))
        return cos, sin, fixed

    def forward(self, tokens, depth, cache, prepared):
        """Logits of each sequence's last row; `tokens` are batch by rows."""
        batch, rows = tokens.shape
        cos, sin, fixed = prepared
        x = F.embedding(tokens.reshape(-1), self.embed)
        h = norm(x, self.norm, self.eps)
        for (qkv, out, up, down), (keys, values) in zip(self.weights, cache):
            q, k, v = spread(linear(h, qkv), cos, sin, self.heads, self.kv, self.dim)
            for kept, new in ((keys, k), (values, v)):
                kept.view(batch, -1, self.kv, self.dim)[:, depth:depth + rows] = new.view(batch, rows, self.kv, self.dim)
            a = self.attend(q, keys, values, batch, rows, depth + rows, fixed)
            x, h = add_norm(x, linear(a.reshape(batch * rows, -1), out), self.norm, self.eps)
            x, h = add_norm(x, linear(gate(linear(h, up)), down), self.norm, self.eps)
        return linear(h.view(batch, rows, -1)[:, -1], self.embed)

    def plainly(self, tokens):
        """Logits of every row of one sequence in FP64: the model written a second time, without kernels or pages."""
        wide = lambda x: x.double()
        n = tokens.numel()
        angle = torch.arange(n).double()[:, None] * THETA ** (-torch.arange(self.dim // 2).double() / (self.dim // 2))
        turn = torch.polar(torch.ones_like(angle), angle).to(DEVICE)[:, None]

        def rotate(x):
            pair = torch.complex(x[..., :self.dim // 2], x[..., self.dim // 2:]) * turn
            return torch.cat([pair.real, pair.imag], dim=-1)

        def normed(x):
            return x / (x.square().mean(-1, keepdim=True) + self.eps).sqrt() * wide(self.norm)
        x = wide(self.embed)[tokens]
        unseen = torch.ones(n, n, dtype=torch.bool, device=DEVICE).triu(1)
        for qkv, out, up, down in self.weights:
            rows = (normed(x) @ wide(qkv).T).view(n, -1, self.dim)
            q, k = rotate(rows[:, :self.heads]), rotate(rows[:, self.heads:self.heads + self.kv])
            k, v = (t.repeat_interleave(self.heads // self.kv, dim=1) for t in (k, rows[:, self.heads + self.kv:]))
            scores = torch.einsum("qhd,khd->hqk", q, k) * self.dim ** -0.5
            a = torch.einsum("hqk,khd->qhd", scores.masked_fill(unseen, -torch.inf).softmax(-1), v)
            x = x + a.reshape(n, -1) @ wide(out).T
            left, right = (normed(x) @ wide(up).T).chunk(2, dim=-1)
            x = x + (left * torch.sigmoid(left) * right) @ wide(down).T
        return normed(x) @ wide(self.embed).T


def pages_of(cache, batch):
    return cache[0][0].shape[0] // batch


def prefill(model, tokens, depth, repeat):
    cache = model.cache(1, depth + tokens)
    ids = torch.randint(0, model.vocab, (1, tokens), device=DEVICE)
    prepared = model.prepared(1, tokens, depth, pages_of(cache, 1))
    work = lambda: model.forward(ids, depth, cache, prepared)
    rates = [tokens / s for s in timed(work, repeat)]
    return {"all": rates, "kernels": kernels(work, 1)}


def decode(model, tokens, batch, depth, repeat):
    # Every step of the measurement has the same length, that of its middle.
    depth = max(depth, 1) + tokens // 2
    cache = model.cache(batch, depth + 1)
    ids = torch.randint(0, model.vocab, (batch, 1), device=DEVICE)
    prepared = model.prepared(batch, 1, depth, pages_of(cache, batch))
    step = recorded(lambda: model.forward(ids, depth, cache, prepared))

    def steps():
        for _ in range(tokens):
            ids.copy_(step().argmax(dim=-1, keepdim=True))
    rates = [tokens * batch / s for s in timed(steps, repeat)]
    return {"all": rates, "kernels": kernels(step, 4), **bits(model, ids, depth, cache, step)}


def bits(model, ids, depth, cache, step):
    """How many of the first sequence's logits differ when it is computed alone."""
    together = step()[0].clone()
    pages = pages_of(cache, len(ids))
    own = [tuple(x[:pages] for x in layer) for layer in cache]
    alone = model.forward(ids[:1], depth, own, model.prepared(1, 1, depth, pages))[0]
    same = torch.int16 if DTYPE == torch.bfloat16 else torch.int32
    return {"logits": alone.numel(), "logits_that_differ": int((alone.view(same) != together.view(same)).sum())}


def kernels(work, times):
    """Launches and seconds of each kernel in one run, the slowest first; empty without a GPU or its profiler."""
    if DEVICE != "cuda":
        return []
    try:
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as seen:
            for _ in range(times):
                work()
            wait()
        all = [(event.key[:80], event.count / times, event.self_device_time_total * 1e-6 / times) for event in seen.key_averages()]
        return [{"name": n, "launches": c, "seconds": s} for n, c, s in sorted(all, key=lambda k: -k[2]) if s > 0][:12]
    except RuntimeError as error:
        print(f"no times of kernels: {error}", file=sys.stderr)
        return []


def recorded(work):
    """`work` as a CUDA graph; on a processor `work` itself. Each call gives what `work` gives."""
    if DEVICE != "cuda":
        return work
    side = torch.cuda.Stream()
    # The tensors that `work` reads were made on the current stream.
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


def values(model):
    """How far logits are from plain ones, in units of their root mean square: a prompt in chunks, then single tokens."""
    length, chunks = 150, [97, 40, 1, 1, 1, 1, 9]
    ids = torch.randint(0, model.vocab, (1, length), device=DEVICE)
    wanted = model.plainly(ids[0])
    cache, worst, depth = model.cache(1, length), 0.0, 0
    for rows in chunks:
        prepared = model.prepared(1, rows, depth, pages_of(cache, 1))
        found = model.forward(ids[:, depth:depth + rows], depth, cache, prepared)[0].double()
        depth += rows
        row = wanted[depth - 1]
        worst = max(worst, float((found - row).abs().max() / row.square().mean().sqrt()))
    most = 1e-4 if DTYPE == torch.float32 else 0.15
    json.dump({"device": DEVICE, "dtype": str(DTYPE), "worst": worst, "most": most, "passed": worst <= most}, sys.stdout)
    print()
    sys.exit(0 if worst <= most else 1)


def choose(arguments):
    """Sets what computes matrices, norms and attention; gives it a name."""
    global linear, norm, flash, SPLITS, add_norm, gate, spread
    name = ["cuBLAS"]
    if DEVICE == "cuda" or arguments.compile:
        add_norm, gate, spread = (torch.compile(f, dynamic=False) for f in (add_norm, gate, spread))
    norm = rms
    if arguments.vllm:
        import vllm_kernels
        flash = vllm_kernels.flash(arguments.vllm) if DEVICE == "cuda" else None
    if arguments.mode == "triton":
        import vllm_kernels
        made = vllm_kernels.load(arguments.vllm)
        linear, norm = made.linear_batch_invariant, made.rms_norm_batch_invariant

        def add_norm(x, more, weight, eps):
            total = x + more
            return total, norm(total, weight, eps)
        name = ["vLLM's batch-invariant Triton kernels"]
    if arguments.mode == "invariant":
        # As vLLM sets it: without a workspace nothing is split. Read when the library is first used.
        os.environ["CUBLAS_WORKSPACE_CONFIG"], os.environ["CUBLASLT_WORKSPACE_SIZE"] = ":16:8", "1"
        torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False
        if DEVICE == "cuda":
            torch.backends.cuda.preferred_blas_library(backend="cublaslt")
        name = ["cuBLASLt without split sums"]
    SPLITS = 0 if arguments.mode == "fast" else 1
    name.append("FlashAttention 3" + (", one split" if SPLITS else "") if flash else "torch's attention")
    return ", ".join(name)


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
    parser.add_argument("--mode", choices=["fast", "invariant", "triton"], default="fast")
    parser.add_argument("--vllm", metavar="FOLDER")
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--values", action="store_true")
    parser.add_argument("--dtype", choices=["bfloat16", "float32"], default="bfloat16")
    parser.add_argument("--compile", action="store_true", help="on a processor too")
    arguments = parser.parse_args()
    if arguments.mode == "triton" and not arguments.vllm:
        parser.error("--mode triton needs --vllm FOLDER")
    global DEVICE, DTYPE
    DEVICE, DTYPE = arguments.device, getattr(torch, arguments.dtype)
    by = choose(arguments)
    with open(arguments.config) as file:
        model = Model(json.load(file))
    if arguments.values:
        values(model)
    memory, flops = ceilings()
    report = {"device": torch.cuda.get_device_name() if DEVICE == "cuda" else "cpu: these numbers mean nothing",
              "torch": torch.__version__, "by": by, "read_bytes_per_s": memory, "dot_flops_per_s": flops, "cases": []}
    for depth in arguments.depth:
        cases = [{"what": "prefill", "tokens": arguments.prefill, "depth": depth}]
        cases += [{"what": "decode", "tokens": arguments.decode, "batch": batch, "depth": depth} for batch in arguments.batch]
        for case in cases:
            if case["what"] == "prefill":
                found = prefill(model, arguments.prefill, depth, arguments.repeat)
            else:
                found = decode(model, arguments.decode, case["batch"], depth, arguments.repeat)
            report["cases"].append({**case, "tokens_per_s": statistics.median(found["all"]), **found})
            # The report so far, on a line of its own: the last line counts.
            print(json.dumps(report), flush=True)


main()
