"""The `tokenizers` library set up from GGUF metadata, as src/tokenizer/ does it: an independent second reading.

`field(key)` gives a metadata field's contents. Token types: 1 normal, 3 control, 4 user-defined, 6 byte.
"""
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers


def tokenizer(field):
    built = {"gpt2": byte_level, "llama": gemma3, "gemma4": gemma4}[field("tokenizer.ggml.model")](field)
    kinds = list(zip(field("tokenizer.ggml.tokens"), field("tokenizer.ggml.token_type")))
    built.add_special_tokens([AddedToken(s, special=True, normalized=False) for s, kind in kinds if kind == 3])
    built.add_tokens([AddedToken(s, normalized=False) for s, kind in kinds if kind == 4])
    return built


def byte_level(field):
    assert field("tokenizer.ggml.pre") == "smollm"
    vocab = {s: i for i, s in enumerate(field("tokenizer.ggml.tokens"))}
    merges = [tuple(m.split(" ", 1)) for m in field("tokenizer.ggml.merges")]
    built = Tokenizer(models.BPE(vocab=vocab, merges=merges))
    digits = pre_tokenizers.Digits(individual_digits=True)
    built.pre_tokenizer = pre_tokenizers.Sequence([digits, pre_tokenizers.ByteLevel(add_prefix_space=False)])
    built.decoder = decoders.ByteLevel()
    return built


def gemma4(field):
    return sentencepiece(field, [tuple(m.split(" ", 1)) for m in field("tokenizer.ggml.merges")])


def gemma3(field):
    """Every split of a normal token into two tokens is a merge, the best score first, then the lowest ids."""
    tokens, kinds, scores = (field(f"tokenizer.ggml.{k}") for k in ("tokens", "token_type", "scores"))
    vocab = {s: i for i, s in enumerate(tokens)}
    parts = {s: i for s, i in vocab.items() if kinds[i] in (1, 4)}
    merges = []
    for i, token in enumerate(tokens):
        if kinds[i] == 1:
            splits = ((token[:k], token[k:]) for k in range(1, len(token)))
            merges += [(-scores[i], parts[a], parts[b], a, b) for a, b in splits if a in parts and b in parts]
    return sentencepiece(field, [(a, b) for _, _, _, a, b in sorted(merges)])


def sentencepiece(field, merges):
    vocab = {s: i for i, s in enumerate(field("tokenizer.ggml.tokens"))}
    built = Tokenizer(models.BPE(vocab=vocab, merges=merges, byte_fallback=True, fuse_unk=True, unk_token="<unk>"))
    built.normalizer = normalizers.Replace(" ", "\u2581")
    built.decoder = decoders.Sequence([decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse()])
    return built
