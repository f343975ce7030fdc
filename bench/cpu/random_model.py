"""A Llama, a mixture, a Gemma 4 or a Qwen 3.5 of a given shape whose weights are random Q4_K_M blocks, as a GGUF file.

    python random_model.py 1.7b|8b|30b-a3b|e2b|e4b|qwen3.5-4b[:LAYERS] VOCABULARY.gguf OUT.gguf

Speed and memory depend on a file's shape and types, not on its numbers, and models of these sizes cannot be fetched from
everywhere. Types follow llama.cpp's recipe of Q4_K_M (`llama_tensor_get_type_impl`, src/llama-quant.cpp): Q6_K for the output
matrix and, in half of the layers, for values and the perceptron's way down, and Q5_K for queries, keys and values in one.
The tokenizer is VOCABULARY's.
"""
import sys
from typing import NamedTuple

import numpy as np
from gguf import GGMLQuantizationType as Type
from gguf import GGUFReader, GGUFValueType, GGUFWriter


class Shape(NamedTuple):
    architecture: str
    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head: int
    #: Of the perceptron, or of each expert.
    intermediate: int
    context: int
    base: float
    tied: bool
    #: Experts of a layer, and how many of them a row chooses; 0 for a perceptron.
    experts: int = 0
    chosen: int = 0
    #: Of Gemma 4: every so many layers one sees all positions, so many share a cache, and their perceptrons may be twice as wide.
    period: int = 0
    shared: int = 0
    double: bool = False
    #: Of Qwen 3.5: heads of keys and of values of a gated delta rule, which all layers but every fourth have, and their size.
    rule: tuple[int, int, int] | None = None

    def slides(self, layer):
        return (layer + 1) % self.period != 0

    def shares(self, layer):
        return layer >= self.layers - self.shared

    def head_of(self, layer):
        return self.head if self.slides(layer) else 2 * self.head

    def width_of(self, layer):
        return self.intermediate * (2 if self.double and self.shares(layer) else 1)


SHAPES = {
    # SmolLM2 1.7B
    "1.7b": Shape("llama", 2048, 24, 32, 32, 64, 8192, 8192, 130000.0, True),
    # Llama 3.1 8B
    "8b": Shape("llama", 4096, 32, 32, 8, 128, 14336, 131072, 500000.0, False),
    # Qwen 3 30B-A3B
    "30b-a3b": Shape("qwen3moe", 2048, 48, 32, 4, 128, 768, 40960, 1000000.0, False, 128, 8),
    # Gemma 4 E2B and E4B
    "e2b": Shape("gemma4", 1536, 35, 8, 1, 256, 6144, 131072, 1000000.0, True, period=5, shared=20, double=True),
    "e4b": Shape("gemma4", 2560, 42, 8, 2, 256, 10240, 131072, 1000000.0, True, period=6, shared=18),
    # Qwen 3.5 4B
    "qwen3.5-4b": Shape("qwen35", 2560, 32, 16, 4, 256, 9216, 262144, 10000000.0, True, rule=(16, 32, 128)),
}
# Numbers of its own that a layer of Gemma 4 E2B and E4B gets of a token.
PER_LAYER = 256
# Bytes of a block of 256 elements.
BLOCK = {Type.Q4_K: 144, Type.Q5_K: 176, Type.Q6_K: 210}


def more_bits(layer, layers):
    return layer < layers // 8 or layer >= 7 * layers // 8 or (layer - layers // 8) % 3 == 2


def blocks(rng, kind, dims, columns):
    """Random blocks whose weights are a few hundredths: scales are set, everything else is drawn."""
    data = rng.integers(0, 256, (*dims, columns // 256, BLOCK[kind]), dtype=np.uint8)
    if kind in (Type.Q4_K, Type.Q5_K):
        data[..., 0:4] = np.array([1e-4, 7.5e-4], np.float16).view(np.uint8)
    else:
        data[..., 208:210] = np.array([1.5e-5], np.float16).view(np.uint8)
    return data.reshape(*dims, -1)


def tensors(shape, vocabulary):
    """Name, type, rows (behind the number of experts, if each has a matrix) and columns of each tensor, in the order in which they are
    written; norms and routers have no type and are FP32."""
    hidden, inner, layers = shape.hidden, shape.intermediate, shape.layers
    wide, narrow = shape.heads * shape.head, shape.kv_heads * shape.head
    each, end = ((shape.experts,), "_exps") if shape.experts else ((), "")
    yield "token_embd.weight", Type.Q6_K if shape.tied else Type.Q4_K, (vocabulary,), hidden
    for layer in range(layers):
        best = Type.Q6_K if more_bits(layer, layers) else Type.Q4_K
        mixture = [
            ("attn_q_norm", None, (), shape.head),
            ("attn_k_norm", None, (), shape.head),
            ("ffn_gate_inp", None, each, hidden),
        ]
        for name, kind, rows, columns in [
            ("attn_norm", None, (), hidden),
            ("attn_q", Type.Q4_K, (wide,), hidden),
            ("attn_k", Type.Q4_K, (narrow,), hidden),
            ("attn_v", best, (narrow,), hidden),
            ("attn_output", Type.Q4_K, (hidden,), wide),
            ("ffn_norm", None, (), hidden),
            *(mixture if shape.experts else []),
            (f"ffn_gate{end}", Type.Q4_K, (*each, inner), hidden),
            (f"ffn_up{end}", Type.Q4_K, (*each, inner), hidden),
            (f"ffn_down{end}", best, (*each, hidden), inner),
        ]:
            yield f"blk.{layer}.{name}.weight", kind, rows, columns
    yield "output_norm.weight", None, (), hidden
    if not shape.tied:
        yield "output.weight", Type.Q6_K, (vocabulary,), hidden


def gemma_tensors(shape, vocabulary):
    """As `tensors`, of a Gemma 4 with per-layer embeddings."""
    hidden, own = shape.hidden, PER_LAYER
    yield "token_embd.weight", Type.Q6_K, (vocabulary,), hidden
    yield "per_layer_token_embd.weight", Type.Q6_K, (vocabulary,), shape.layers * own
    yield "per_layer_model_proj.weight", None, (shape.layers * own,), hidden
    yield "per_layer_proj_norm.weight", None, (), own
    for layer in range(shape.layers):
        best = Type.Q6_K if more_bits(layer, shape.layers) else Type.Q4_K
        head, inner = shape.head_of(layer), shape.width_of(layer)
        wide, narrow = shape.heads * head, shape.kv_heads * head
        stored = [("attn_k", Type.Q4_K, (narrow,), hidden), ("attn_v", best, (narrow,), hidden), ("attn_k_norm", None, (), head)]
        for name, kind, rows, columns in [
            ("attn_norm", None, (), hidden),
            ("attn_q", Type.Q4_K, (wide,), hidden),
            ("attn_q_norm", None, (), head),
            *([] if shape.shares(layer) else stored),
            ("attn_output", Type.Q4_K, (hidden,), wide),
            ("post_attention_norm", None, (), hidden),
            ("ffn_norm", None, (), hidden),
            ("ffn_gate", Type.Q4_K, (inner,), hidden),
            ("ffn_up", Type.Q4_K, (inner,), hidden),
            ("ffn_down", best, (hidden,), inner),
            ("post_ffw_norm", None, (), hidden),
            ("inp_gate", Type.Q4_K, (own,), hidden),
            ("proj", Type.Q4_K, (hidden,), own),
            ("post_norm", None, (), hidden),
            ("layer_output_scale", None, (), 1),
        ]:
            yield f"blk.{layer}.{name}.weight", kind, rows, columns
    yield "output_norm.weight", None, (), hidden
    yield "rope_freqs.weight", None, (), shape.head


def rule_tensors(shape, vocabulary):
    """As `tensors`, of a Qwen 3.5."""
    hidden, inner = shape.hidden, shape.intermediate
    wide, narrow = shape.heads * shape.head, shape.kv_heads * shape.head
    keys, values, size = shape.rule
    channels = (2 * keys + values) * size
    yield "token_embd.weight", Type.Q6_K, (vocabulary,), hidden
    for layer in range(shape.layers):
        best = Type.Q6_K if more_bits(layer, shape.layers) else Type.Q4_K
        attention = [
            ("attn_q.weight", Type.Q4_K, (2 * wide,), hidden),
            ("attn_k.weight", Type.Q4_K, (narrow,), hidden),
            ("attn_v.weight", best, (narrow,), hidden),
            ("attn_q_norm.weight", None, (), shape.head),
            ("attn_k_norm.weight", None, (), shape.head),
            ("attn_output.weight", Type.Q4_K, (hidden,), wide),
        ]
        rule = [
            ("attn_qkv.weight", Type.Q5_K, (channels,), hidden),
            ("attn_gate.weight", Type.Q4_K, (values * size,), hidden),
            ("ssm_alpha.weight", Type.Q4_K, (values,), hidden),
            ("ssm_beta.weight", Type.Q4_K, (values,), hidden),
            ("ssm_conv1d.weight", None, (channels,), 4),
            ("ssm_a", None, (), values),
            ("ssm_dt.bias", None, (), values),
            ("ssm_norm.weight", None, (), size),
            ("ssm_out.weight", Type.Q4_K, (hidden,), values * size),
        ]
        for name, kind, rows, columns in [
            ("attn_norm.weight", None, (), hidden),
            *(attention if layer % 4 == 3 else rule),
            ("post_attention_norm.weight", None, (), hidden),
            ("ffn_gate.weight", Type.Q4_K, (inner,), hidden),
            ("ffn_up.weight", Type.Q4_K, (inner,), hidden),
            ("ffn_down.weight", best, (hidden,), inner),
        ]:
            yield f"blk.{layer}.{name}", kind, rows, columns
    yield "output_norm.weight", None, (), hidden


def rule_fields(writer, shape):
    keys, values, size = shape.rule
    writer.add_ssm_conv_kernel(4)
    writer.add_ssm_state_size(size)
    writer.add_ssm_group_count(keys)
    writer.add_ssm_time_step_rank(values)
    writer.add_ssm_inner_size(values * size)
    writer.add_key_length(shape.head)
    writer.add_value_length(shape.head)
    writer.add_rope_dimension_sections([11, 11, 10, 0])


def gemma_fields(writer, shape):
    layers = range(shape.layers)
    writer.add_feed_forward_length([shape.width_of(layer) for layer in layers])
    for length, add in [(2 * shape.head, ""), (shape.head, "_swa")]:
        for name in ("key_length", "value_length", "rope_dimension_count"):
            getattr(writer, f"add_{name}{add}")(length)
    writer.add_rope_freq_base_swa(10000.0)
    writer.add_sliding_window(512)
    writer.add_sliding_window_pattern([shape.slides(layer) for layer in layers])
    writer.add_shared_kv_layers(shape.shared)
    writer.add_embedding_length_per_layer_input(PER_LAYER)
    writer.add_final_logit_softcapping(30.0)


def numbers(rng, shape, name, dims, columns):
    """Ones for a norm, small random numbers for a router, so that rows choose different experts, and for a convolution. Gemma 4 does
    not scale scores, so its queries and keys are small, and of a head that sees all positions a quarter rotates. A state decays."""
    if name == "rope_freqs.weight":
        return np.where(np.arange(columns) < columns // 4, 1.0, 1e30).astype(np.float32)
    if name.endswith(("ssm_a", "ssm_dt.bias")):
        return np.full(columns, -1.0, np.float32)
    if not dims:
        small = shape.period and name.endswith(("attn_q_norm.weight", "attn_k_norm.weight"))
        return np.full(columns, 0.25 if small else 1.0, np.float32)
    return (rng.standard_normal((*dims, columns), np.float32) / 32).astype(np.float32)


def tokenizer(writer, path):
    """Copies the tokenizer's fields, and gives its size."""
    size = 0
    for name, field in GGUFReader(path).fields.items():
        if not name.startswith("tokenizer."):
            continue
        kind = field.types[0]
        value = field.contents()
        if name == "tokenizer.ggml.tokens":
            size = len(value)
        if kind == GGUFValueType.ARRAY:
            writer.add_array(name, value)
        else:
            writer.add_key_value(name, value, kind)
    return size


def main(name, vocabulary, out):
    name, _, layers = name.partition(":")
    shape = SHAPES[name]
    if layers:
        shape = shape._replace(layers=int(layers), shared=shape.shared * int(layers) // shape.layers)
    writer = GGUFWriter(out, shape.architecture)
    writer.add_name(f"random {name}")
    size = tokenizer(writer, vocabulary)
    writer.add_block_count(shape.layers)
    writer.add_context_length(shape.context)
    writer.add_embedding_length(shape.hidden)
    writer.add_head_count(shape.heads)
    writer.add_head_count_kv(shape.kv_heads)
    writer.add_rope_freq_base(shape.base)
    if shape.period:
        gemma_fields(writer, shape)
    else:
        writer.add_feed_forward_length(shape.intermediate)
        writer.add_rope_dimension_count(shape.head // 4 if shape.rule else shape.head)
    writer.add_layer_norm_rms_eps(1e-5)
    if shape.rule:
        rule_fields(writer, shape)
    if shape.experts:
        writer.add_key_length(shape.head)
        writer.add_value_length(shape.head)
        writer.add_expert_count(shape.experts)
        writer.add_expert_used_count(shape.chosen)
        writer.add_expert_feed_forward_length(shape.intermediate)
    writer.add_vocab_size(size)
    writer.add_file_type(15)
    own = gemma_tensors if shape.period else rule_tensors if shape.rule else tensors
    listed = list(own(shape, size))
    for tensor, kind, dims, columns in listed:
        if kind is None:
            writer.add_tensor_info(tensor, (*dims, columns), np.dtype(np.float32), 4 * int(np.prod(dims)) * columns)
        else:
            row = columns // 256 * BLOCK[kind]
            writer.add_tensor_info(tensor, (*dims, row), np.dtype(np.uint8), int(np.prod(dims)) * row, kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    rng = np.random.default_rng(1)
    for tensor, kind, dims, columns in listed:
        made = numbers(rng, shape, tensor, dims, columns) if kind is None else blocks(rng, kind, dims, columns)
        writer.write_tensor_data(made)
    writer.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
