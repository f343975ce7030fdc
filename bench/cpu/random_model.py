"""A Llama of a given shape whose weights are random Q4_K_M blocks, as a GGUF file.

    python random_model.py 1.7b|8b VOCABULARY.gguf OUT.gguf

Speed and memory depend on a file's shape and types, not on its numbers, and models of these sizes cannot be fetched from
everywhere. Types follow llama.cpp's recipe of Q4_K_M (`llama_tensor_get_type_impl`, src/llama-quant.cpp): Q6_K for the output
matrix and, in half of the layers, for values and the perceptron's way down. The tokenizer is VOCABULARY's.
"""
import sys

import numpy as np
from gguf import GGMLQuantizationType as Type
from gguf import GGUFReader, GGUFValueType, GGUFWriter

# hidden, layers, heads, key-value heads, intermediate, context, rotary base, tied
SHAPES = {
    # SmolLM2 1.7B
    "1.7b": (2048, 24, 32, 32, 8192, 8192, 130000.0, True),
    # Llama 3.1 8B
    "8b": (4096, 32, 32, 8, 14336, 131072, 500000.0, False),
}
# Bytes of a block of 256 elements.
BLOCK = {Type.Q4_K: 144, Type.Q6_K: 210}


def more_bits(layer, layers):
    return layer < layers // 8 or layer >= 7 * layers // 8 or (layer - layers // 8) % 3 == 2


def blocks(rng, kind, rows, columns):
    """Random blocks whose weights are a few hundredths: scales are set, everything else is drawn."""
    data = rng.integers(0, 256, (rows, columns // 256, BLOCK[kind]), dtype=np.uint8)
    if kind == Type.Q4_K:
        data[:, :, 0:4] = np.array([1e-4, 7.5e-4], np.float16).view(np.uint8)
    else:
        data[:, :, 208:210] = np.array([1.5e-5], np.float16).view(np.uint8)
    return data.reshape(rows, -1)


def tensors(shape, vocabulary):
    """Name, type, rows and columns of each tensor, in the order in which they are written; norms have no type."""
    hidden, layers, heads, kv_heads, intermediate, _, _, tied = shape
    head = hidden // heads
    yield "token_embd.weight", Type.Q6_K if tied else Type.Q4_K, vocabulary, hidden
    for layer in range(layers):
        best = Type.Q6_K if more_bits(layer, layers) else Type.Q4_K
        for name, kind, rows, columns in [
            ("attn_norm", None, 1, hidden),
            ("attn_q", Type.Q4_K, hidden, hidden),
            ("attn_k", Type.Q4_K, kv_heads * head, hidden),
            ("attn_v", best, kv_heads * head, hidden),
            ("attn_output", Type.Q4_K, hidden, hidden),
            ("ffn_norm", None, 1, hidden),
            ("ffn_gate", Type.Q4_K, intermediate, hidden),
            ("ffn_up", Type.Q4_K, intermediate, hidden),
            ("ffn_down", best, hidden, intermediate),
        ]:
            yield f"blk.{layer}.{name}.weight", kind, rows, columns
    yield "output_norm.weight", None, 1, hidden
    if not tied:
        yield "output.weight", Type.Q6_K, vocabulary, hidden


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
    shape = SHAPES[name]
    hidden, layers, heads, kv_heads, intermediate, context, base, _ = shape
    writer = GGUFWriter(out, "llama")
    writer.add_name(f"random {name}")
    size = tokenizer(writer, vocabulary)
    writer.add_block_count(layers)
    writer.add_context_length(context)
    writer.add_embedding_length(hidden)
    writer.add_feed_forward_length(intermediate)
    writer.add_head_count(heads)
    writer.add_head_count_kv(kv_heads)
    writer.add_rope_dimension_count(hidden // heads)
    writer.add_rope_freq_base(base)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(size)
    writer.add_file_type(15)
    for tensor, kind, rows, columns in tensors(shape, size):
        if kind is None:
            writer.add_tensor_info(tensor, (columns,), np.dtype(np.float32), 4 * columns)
        else:
            row = columns // 256 * BLOCK[kind]
            writer.add_tensor_info(tensor, (rows, row), np.dtype(np.uint8), rows * row, kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    rng = np.random.default_rng(1)
    for _, kind, rows, columns in tensors(shape, size):
        writer.write_tensor_data(np.ones(columns, np.float32) if kind is None else blocks(rng, kind, rows, columns))
    writer.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
