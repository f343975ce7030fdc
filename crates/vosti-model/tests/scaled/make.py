"""Tiny folders of every way in which weights are stored with scales beside them, and what NumPy reads of the same files.

    python make.py FOLDER CONFIG      # CONFIG: a config.json of a Llama

FOLDER/NAME has config.json and model.safetensors, and FOLDER/NAME/expected/TENSOR the FP32 elements of each matrix, read back
from that file. The layouts are those of DeepSeek's and Qwen's FP8 checkpoints (`weight_scale_inv`) and of the
compressed-tensors package (`pack_to_int32`, `weight_scale`, `weight_zero_point`, `weight_shape`).
"""
import json
import sys
from pathlib import Path

import numpy as np

FOLDER, CONFIG = Path(sys.argv[1]), json.loads(Path(sys.argv[2]).read_text())
CHANCE = np.random.default_rng(18)
TYPES = {"F32": np.float32, "F16": np.float16, "BF16": np.uint16, "I8": np.int8, "I32": np.int32, "I64": np.int64, "F8_E4M3": np.uint8}


def write(path, tensors):
    header, place = {}, 0
    for name, (kind, array) in tensors.items():
        header[name] = {"dtype": kind, "shape": list(array.shape), "data_offsets": [place, place + array.nbytes]}
        place += array.nbytes
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + b"".join(array.tobytes() for _, array in tensors.values()))


def read(path):
    data = path.read_bytes()
    start = 8 + int.from_bytes(data[:8], "little")
    tensors = {}
    for name, entry in json.loads(data[8:start]).items():
        first, end = entry["data_offsets"]
        array = np.frombuffer(data[start + first:start + end], TYPES[entry["dtype"]]).reshape(entry["shape"])
        tensors[name] = (entry["dtype"], array)
    return tensors


def bf16(values):
    bits = np.asarray(values, np.float32).view(np.uint32)
    return ((bits + 0x7fff + (bits >> 16 & 1)) >> 16).astype(np.uint16)


def number(kind, array):
    if kind == "BF16":
        return (array.astype(np.uint32) << 16).view(np.float32)
    if kind == "F8_E4M3":
        exponent, low = array >> 3 & 15, (array & 7).astype(np.float32)
        size = np.where(exponent == 0, low / 512, (1 + low / 8) * np.exp2(exponent.astype(np.float32) - 7))
        return np.where(array & 128, -size, size).astype(np.float32)
    return array.astype(np.float32)


def scales(shape, kind):
    values = CHANCE.uniform(0.001, 0.01, shape).astype(np.float32)
    return (kind, {"F32": values, "F16": values.astype(np.float16), "BF16": bf16(values)}[kind])


def pack(codes, bits):
    """Signed codes of the last axis in words of 32 bits, lowest first."""
    each = 32 // bits
    codes = np.pad(codes.astype(np.int64) + (1 << bits - 1), ((0, 0), (0, -codes.shape[1] % each)))
    words = (codes.reshape(codes.shape[0], -1, each) << np.arange(0, 32, bits)).sum(axis=2)
    return words.astype(np.uint32).view(np.int32)


def unpack(words, bits, columns):
    codes = words.view(np.uint32)[..., None] >> np.arange(0, 32, bits, dtype=np.uint32) & (1 << bits) - 1
    return codes.reshape(words.shape[0], -1)[:, :columns].astype(np.int32) - (1 << bits - 1)


def float8(rows, columns):
    codes = CHANCE.integers(0, 256, (rows, columns)).astype(np.uint8)
    return np.where(codes & 127 == 127, 0, codes).astype(np.uint8)


def signed(bits, shape):
    return CHANCE.integers(-(1 << bits - 1), 1 << bits - 1, shape)


def fp8(name, shape_of, kind):
    def tensors(rows, columns):
        return {"": ("F8_E4M3", float8(rows, columns)), name: scales(shape_of(rows, columns), kind)}
    return tensors


def int8(shape_of, kind, zeros):
    def tensors(rows, columns):
        found = {"": ("I8", signed(8, (rows, columns)).astype(np.int8)), "_scale": scales(shape_of(rows, columns), kind)}
        if zeros:
            found["_zero_point"] = ("I8", signed(8, found["_scale"][1].shape).astype(np.int8))
        return found
    return tensors


def packed(bits, group, kind, zeros):
    def tensors(rows, columns):
        shape = (rows, columns // group if group else 1)
        found = {"_packed": ("I32", pack(signed(bits, (rows, columns)), bits)), "_scale": scales(shape, kind),
                 "_shape": ("I64", np.array([rows, columns]))}
        if zeros:
            found["_zero_point"] = ("I32", np.ascontiguousarray(pack(signed(bits, shape).T, bits).T))
        return found
    return tensors


def blocks(rows, columns):
    return -(-rows // 48), -(-columns // 32)


def each_row(rows, columns):
    return rows, 1


def compressed(form, **weights):
    return {"quant_method": "compressed-tensors", "format": form, "quantization_status": "compressed", "ignore": ["lm_head"],
            "config_groups": {"group_0": {"targets": ["Linear"], "input_activations": {"num_bits": 8}, "weights": weights}}}


BLOCK = {"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic", "weight_block_size": [48, 32]}
METHODS = {
    "fp8-blocks": (BLOCK, fp8("_scale_inv", blocks, "F32")),
    "fp8-blocks-bf16": (BLOCK, fp8("_scale_inv", blocks, "BF16")),
    "fp8-tensor": ({"quant_method": "fp8", "activation_scheme": "static"}, fp8("_scale_inv", lambda *_: (), "BF16")),
    "float-rows": (compressed("float-quantized", num_bits=8, type="float", strategy="channel"), fp8("_scale", each_row, "F32")),
    "float-tensor": (compressed("float-quantized", num_bits=8, type="float", strategy="tensor"), fp8("_scale", lambda *_: (1,), "F32")),
    "float-blocks": (compressed("float-quantized", num_bits=8, type="float", strategy="block", block_structure=[48, 32]),
                     fp8("_scale", blocks, "F16")),
    "int8-rows": (compressed("int-quantized", num_bits=8, type="int", strategy="channel"), int8(each_row, "BF16", False)),
    "int8-zeros": (compressed("int-quantized", num_bits=8, type="int", symmetric=False), int8(each_row, "F16", True)),
    "packed8-rows": (compressed("pack-quantized", num_bits=8, type="int", strategy="channel"), packed(8, None, "BF16", False)),
    "packed4-groups": (compressed("pack-quantized", num_bits=4, type="int", strategy="group", group_size=32), packed(4, 32, "BF16", False)),
    "packed4-small": (compressed("pack-quantized", num_bits=4, type="int", strategy="group", group_size=16), packed(4, 16, "BF16", False)),
    "packed4-f32": (compressed("pack-quantized", num_bits=4, type="int", strategy="group", group_size=32), packed(4, 32, "F32", False)),
    "packed4-zeros": (compressed("pack-quantized", num_bits=4, type="int", symmetric=False), packed(4, 64, "BF16", True)),
    "packed8-zeros": (compressed("pack-quantized", num_bits=8, type="int", symmetric=False), packed(8, 32, "F16", True)),
}


def spread(scale, shape):
    """A scale, or a zero, for each element."""
    if scale.size == 1:
        return np.broadcast_to(scale.reshape(1, 1), shape)
    scale = scale.reshape(scale.shape[0], -1)
    if scale.shape[0] == shape[0]:
        return np.repeat(scale, shape[1] // scale.shape[1], axis=1)
    return np.repeat(np.repeat(scale, 48, axis=0), 32, axis=1)[:shape[0], :shape[1]]


def expand(tensors, name):
    """A matrix in FP32, from what the file has of it."""
    if name in tensors and tensors[name][0] == "BF16":
        return number(*tensors[name])
    scale = next(tensors[name + end] for end in ("_scale", "_scale_inv") if name + end in tensors)
    scale = number(*scale)
    if name in tensors:
        codes, bits = number(*tensors[name]), None
    else:
        columns = int(tensors[name + "_shape"][1][1])
        words = tensors[name + "_packed"][1]
        bits = 32 * words.shape[1] // columns
        codes = unpack(words, bits, columns).astype(np.float32)
    if name + "_zero_point" in tensors:
        kind, zeros = tensors[name + "_zero_point"]
        zeros = unpack(zeros.T.copy(), bits, scale.shape[0]).T if kind == "I32" else zeros
        codes = codes - spread(zeros.astype(np.float32), codes.shape)
    return (spread(scale, codes.shape) * codes).astype(np.float32)


def matrices():
    hidden, wide = CONFIG["hidden_size"], CONFIG["intermediate_size"]
    heads = hidden // CONFIG["num_attention_heads"]
    keys = heads * CONFIG["num_key_value_heads"]
    for layer in range(CONFIG["num_hidden_layers"]):
        at = f"model.layers.{layer}."
        yield from ((at + f"self_attn.{name}_proj.weight", shape) for name, shape in
                    {"q": (hidden, hidden), "k": (keys, hidden), "v": (keys, hidden), "o": (hidden, hidden)}.items())
        yield from ((at + f"mlp.{name}_proj.weight", shape) for name, shape in
                    {"gate": (wide, hidden), "up": (wide, hidden), "down": (hidden, wide)}.items())


for method, (stored, tensors_of) in METHODS.items():
    folder = FOLDER / method
    (folder / "expected").mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps({**CONFIG, "quantization_config": stored}))
    ones = [f"model.layers.{i}.{norm}.weight" for i in range(CONFIG["num_hidden_layers"])
            for norm in ("input_layernorm", "post_attention_layernorm")]
    tensors = {name: ("BF16", bf16(np.ones(CONFIG["hidden_size"]))) for name in [*ones, "model.norm.weight"]}
    table = CHANCE.uniform(-1, 1, (CONFIG["vocab_size"], CONFIG["hidden_size"]))
    tensors["model.embed_tokens.weight"] = ("BF16", bf16(table))
    for name, shape in matrices():
        tensors.update({name + end: tensor for end, tensor in tensors_of(*shape).items()})
    write(folder / "model.safetensors", tensors)
    found = read(folder / "model.safetensors")
    for name in [name for name, _ in matrices()] + ["model.embed_tokens.weight"]:
        expand(found, name).tofile(folder / "expected" / name.removeprefix("model."))
