"""Makes ../tests/text/*: tokens, chat texts and dequantised blocks, as the reference libraries give them.

    python text.py SMOLLM2.gguf GEMMA3.gguf     # versions in requirements.txt

tokens-*.json: texts and their tokens, from the `tokenizers` library set up by gguf_tokenizers.py; `llama_cpp.py`
compares them with a running llama-server (all were equal for SmolLM2 and Gemma 3; Gemma 4's form was once compared by
llama_tokenize, with the vocabulary that llama.cpp's source has as models/ggml-vocab-gemma-4.gguf).
tiny-gemma4.gguf: a small vocabulary in Gemma 4's form, and its tokens.
tiny-tokenizer/: a small tokenizer.json with Llama 3's split, and its tokens. chat.json: templates and what
transformers renders. blocks.safetensors: random bytes of each GGML type and what `gguf` expands them to.
"""
import json
import random
import sys
from datetime import datetime
from pathlib import Path
from unittest import mock

import gguf
import numpy
from safetensors.numpy import save_file
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from transformers.utils import chat_template_utils

import gguf_tokenizers

HERE = Path(__file__).resolve().parent
OUT = HERE.parent / "tests" / "text"

PIECES = ["the", "Hello", "world", "don't", "it's", "I'LL", "naïve", "façade", "Zürich", "日本語", "東京", "안녕하세요", "Привет",
          "مرحبا", "שלום", "हिन्दी", "ไทย", "🙂", "👩‍👩‍👧", "🇫🇷", "e\u0301", "\u200b", "1234567", "3.14159", "0x1F", "42", "٣٤", "½", "x²",
          "def f(x):", "return x", "{\"a\": [1, 2]}", "<b>", "</b>", "a_b", "snake_case", "CamelCase", "https://example.org/?q=1&r=2",
          "!", "?!", "...", "—", "“quoted”", "(", ")", "$5.00", "%", "\\n", "\t", "\n", "\n\n", "\r\n", " ", "  ", "    ", "        ",
          "<0x0A>", "▁", "Ġ", "<|im_start|>", "<|im_end|>", "<start_of_turn>", "<eos>", "\x00", "\x7f", "\ufeff", "\U0001d54f", "ﬁ"]


def texts():
    chance = random.Random(7)
    out = ["", " ", "a", "\n", "The three laws of robotics are", *PIECES]
    for _ in range(200):
        separator = chance.choice(["", " ", " ", "  ", "\n"])
        out.append(separator.join(chance.choice(PIECES) for _ in range(chance.randint(2, 12))))
    for _ in range(60):
        out.append("".join(chr(chance.choice([chance.randint(32, 126), chance.randint(160, 0x2fff), chance.randint(0x4e00, 0x9fff),
                                              chance.randint(0x1f300, 0x1f6ff)])) for _ in range(chance.randint(1, 30))))
    return out


def texts_gemma4():
    """Newlines are what llama.cpp treats apart from the merges."""
    runs = [t for n in (3, 7, 8, 9, 16, 31, 32, 39) for t in ("\n" * n, "a" + "\n" * n + " b")]
    return texts() + runs + ["<|turn>user\nHi<turn|>\n<|tool_call>x<tool_call|>", "a\n \nb", "\n▁\n"]


def write(name, value):
    path = OUT / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value, ensure_ascii=True, separators=(",", ":")) + "\n")
    print(name, path.stat().st_size)


def tokens_of_gguf(name, path, texts):
    reader = gguf.GGUFReader(path)
    tokenizer = gguf_tokenizers.tokenizer(lambda key: reader.fields[key].contents())
    cases = [[text, tokenizer.encode(text, add_special_tokens=False).ids] for text in texts]
    write(f"tokens-{name}.json", cases)


LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|"
          r"\s+(?!\S)|\s+")


def tiny_tokenizer():
    built = Tokenizer(models.BPE(ignore_merges=True))
    split = pre_tokenizers.Split(Regex(LLAMA3), "isolated")
    built.pre_tokenizer = pre_tokenizers.Sequence([split, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    built.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=512, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False,
                                  special_tokens=["<|begin_of_text|>", "<|eot_id|>"])
    built.train_from_iterator(texts(), trainer)
    folder = OUT / "tiny-tokenizer"
    folder.mkdir(parents=True, exist_ok=True)
    built.save(str(folder / "tokenizer.json"), pretty=False)
    write("tiny-tokenizer/tokenizer_config.json", {"bos_token": "<|begin_of_text|>", "eos_token": {"content": "<|eot_id|>"}})
    write("tiny-tokenizer/tokens.json", [[t, built.encode(t, add_special_tokens=False).ids] for t in texts()])


def tiny_gemma4():
    control, visible = ["<pad>", "<eos>", "<bos>", "<unk>", "<|turn>", "<turn|>"], ["<|tool_call>", "<tool_call|>"]
    octets = [f"<0x{i:02X}>" for i in range(256)]
    learner = Tokenizer(models.BPE())
    learner.normalizer = normalizers.Replace(" ", "\u2581")
    learner.train_from_iterator(["Hello, the world\n\n\n\ndon't  naïve 日本語"] * 9 + PIECES[:20] * 2,
                                trainers.BpeTrainer(vocab_size=160, show_progress=False))
    learnt = json.loads(learner.to_str())["model"]
    tokens = control + visible + octets + sorted(learnt["vocab"], key=learnt["vocab"].get)
    path = OUT / "tiny-gemma4.gguf"
    writer = gguf.GGUFWriter(path, "gemma4")
    writer.add_tokenizer_model("gemma4")
    writer.add_token_list(tokens)
    writer.add_token_scores([-1000.0] * len(tokens))
    writer.add_token_types([3] * len(control) + [4] * len(visible) + [6] * 256 + [1] * len(learnt["vocab"]))
    writer.add_token_merges([" ".join(pair) for pair in learnt["merges"]])
    writer.add_bos_token_id(2)
    writer.add_eos_token_id(1)
    writer.add_unk_token_id(3)
    writer.add_add_space_prefix(False)
    writer.add_add_bos_token(False)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    tokens_of_gguf("tiny-gemma4", path, texts_gemma4())


TEMPLATES = {
    # Written for this test; each uses what the published template of its namesake uses.
    "like-llama3": """{{- bos_token }}
{%- if not date_string is defined %}
    {%- if strftime_now is defined %}
        {%- set date_string = strftime_now("%d %b %Y") %}
    {%- else %}
        {%- set date_string = "26 Jul 2024" %}
    {%- endif %}
{%- endif %}
{%- if messages[0]['role'] == 'system' %}
    {%- set system_message = messages[0]['content']|trim %}
    {%- set messages = messages[1:] %}
{%- else %}
    {%- set system_message = "" %}
{%- endif %}
<|system|>
Today: {{ date_string }}
{{ system_message }}
{%- if tools is not none %}
{%- for t in tools %}

{{ t | tojson(indent=4) }}
{%- endfor %}
{%- endif %}
{%- for message in messages %}
    {%- if message.role == 'tool' or message.role == "ipython" %}
        {{- "<|tool|>" }}
        {%- if message.content is mapping or message.content is iterable and message.content is not string %}
            {{- message.content | tojson }}
        {%- else %}
            {{- message.content }}
        {%- endif %}
    {%- else %}
        {{- '<|' + message['role'] + '|>\\n\\n'+ message['content'] | trim + '<|eot|>' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|assistant|>\\n\\n' }}
{%- endif %}
""",
    "like-gemma": """{{ bos_token }}
{%- if messages[0]['role'] == 'system' -%}
    {%- set first_user_prefix = messages[0]['content'] + '

' -%}
    {%- set loop_messages = messages[1:] -%}
{%- else -%}
    {%- set first_user_prefix = "" -%}
    {%- set loop_messages = messages -%}
{%- endif -%}
{%- for message in loop_messages -%}
    {%- if (message['role'] == 'user') != (loop.index0 % 2 == 0) -%}
        {{ raise_exception("Conversation roles must alternate user/assistant/user/assistant/...") }}
    {%- endif -%}
    {%- if (message['role'] == 'assistant') -%}
        {%- set role = "model" -%}
    {%- else -%}
        {%- set role = message['role'] -%}
    {%- endif -%}
    {{ '<start_of_turn>' + role + '
' + (first_user_prefix if loop.first else "") }}
    {%- if message['content'] is string -%}
        {{ message['content'] | trim }}
    {%- elif message['content'] is iterable -%}
        {%- for item in message['content'] -%}
            {%- if item['type'] == 'text' -%}
                {{ item['text'] | trim }}
            {%- endif -%}
        {%- endfor -%}
    {%- else -%}
        {{ raise_exception("Invalid content type") }}
    {%- endif -%}
    {{ '<end_of_turn>
' }}
{%- endfor -%}
{%- if add_generation_prompt -%}
    {{'<start_of_turn>model
'}}
{%- endif -%}
""",
    "like-qwen3": """{%- macro header(role) -%}<|im_start|>{{ role }}
{% endmacro -%}
{%- set ns = namespace(multi_step_tool=true, last=messages|length - 1) %}
{%- for message in messages[::-1] %}
    {%- set index = (messages|length - 1) - loop.index0 %}
    {%- if ns.multi_step_tool and message.role == "user" and not(message.content.startswith('<tool>') and message.content.endswith('</tool>')) %}
        {%- set ns.multi_step_tool = false %}
        {%- set ns.last = index %}
    {%- endif %}
{%- endfor %}
{%- for message in messages %}
    {%- if message.role == 'skip' %}{% continue %}{% endif %}
    {%- if message.role == 'stop' %}{% break %}{% endif %}
    {%- set content = message.content %}
    {%- if '</think>' in content %}
        {%- set content = content.split('</think>')[-1].lstrip('\\n') %}
    {%- endif %}
    {{- header(message.role) + content }}
    {%- if message.tool_calls %}
        {%- for call in message.tool_calls %}
            {{- '\\n' + (call.function.arguments | tojson) + ' ' + call.function.name.upper() }}
        {%- endfor %}
    {%- endif %}
    {{- '<|im_end|>\\n' }}
    {% if loop.last %}
    {{ ns.last }} {{ true }} {{ none }} {{ loop.index0 == ns.last }} {{ 1.5 }} {{ messages | map(attribute='role') | join(',') }}
    {% endif %}
{%- endfor %}
{%- for key, value in {'b': 1, 'a': [true, none, 2.5, "é\\"<&>"]}.items() %}
{{ key }}={{ value | tojson }}
{% endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}
        {{- '<think>\\n\\n</think>\\n\\n' }}
    {%- endif %}
{%- endif %}
""",
}

TOOL = {"type": "function", "function": {"name": "weather", "description": "The weather <now> & here: «é»",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}, "required": ["city"]}}}
CHATS = {
    "one": [{"role": "user", "content": "Hello & <bye>!"}],
    "system": [{"role": "system", "content": " Be brief. "}, {"role": "user", "content": " Hi \n"},
               {"role": "assistant", "content": "<think>hm</think>\n\nHello é 日本 🙂"}, {"role": "user", "content": "Bye"}],
    "tool": [{"role": "user", "content": "<tool>x</tool>"}, {"role": "assistant", "content": "", "tool_calls": [
        {"type": "function", "function": {"name": "weather", "arguments": {"city": "Köln", "days": 3, "exact": 0.5}}}]},
        {"role": "tool", "content": "{\"sunny\": true}"}, {"role": "skip", "content": "no"}, {"role": "user", "content": "ok"},
        {"role": "stop", "content": ""}, {"role": "user", "content": "unseen"}],
    "parts": [{"role": "user", "content": [{"type": "text", "text": " one "}, {"type": "image"}, {"type": "text", "text": "two"}]}],
}


class Today(datetime):
    @classmethod
    def now(cls, tz=None):
        return cls(2025, 2, 9)


def chats(smollm2):
    reader = gguf.GGUFReader(smollm2)
    templates = {"smollm2": reader.fields["tokenizer.chat_template"].contents(), **TEMPLATES}
    cases = []
    with mock.patch.object(chat_template_utils, "datetime", Today):
        for template, source in templates.items():
            for chat, messages in CHATS.items():
                for tools, prompt, variables in [(None, True, {}), ([TOOL], False, {"enable_thinking": False})]:
                    case = dict(template=template, chat=chat, tools=tools, add_generation_prompt=prompt, variables=variables)
                    try:
                        case["text"] = chat_template_utils.render_jinja_template(
                            conversations=[messages], chat_template=source, tools=tools, add_generation_prompt=prompt,
                            bos_token="<s>", eos_token="</s>", **variables)[0][0]
                    except Exception as error:
                        case["error"] = str(error)
                    cases.append(case)
    write("chat.json", dict(date="2025-02-09", templates=templates, chats=CHATS, cases=cases))


# Where each quantised type's blocks have halves.
FP16_SCALES = {"Q8_0": [0], "Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "Q2_K": [80, 82], "Q3_K": [108], "Q4_K": [0, 2],
               "Q5_K": [0, 2], "Q6_K": [208], "IQ4_NL": [0], "IQ4_XS": [0], "MXFP4": []}


def blocks():
    out = {}
    for name in ["F16", "BF16", *FP16_SCALES]:
        kind = gguf.GGMLQuantizationType[name]
        elements, size = gguf.GGML_QUANT_SIZES[kind]
        count = 512 if elements == 1 else 8
        generator = numpy.random.default_rng([3, kind])
        data = generator.integers(0, 256, (count, size), dtype=numpy.uint8)
        if name == "MXFP4":  # from 253 on some of a block is infinite
            data[:, 0] %= 253
        for at in FP16_SCALES.get(name, []):  # random halves would be infinite or NaN now and then
            data[:, at:at + 2] = generator.normal(0, 0.05, (count, 1)).astype(numpy.float16).view(numpy.uint8)
        if elements == 1:
            data = generator.normal(0, 3, count).astype(numpy.float32)
            data = gguf.quantize(data, kind).view(numpy.uint8)
        values = gguf.dequantize(data.reshape(1, -1), kind).astype(numpy.float32).ravel()
        out[f"{name}.bytes"], out[f"{name}.values"] = data.ravel(), values
    OUT.mkdir(parents=True, exist_ok=True)
    save_file(out, OUT / "blocks.safetensors")


if __name__ == "__main__":
    blocks()
    tiny_tokenizer()
    tiny_gemma4()
    chats(sys.argv[1])
    tokens_of_gguf("smollm2-135m", sys.argv[1], texts())
    tokens_of_gguf("gemma-3-270m", sys.argv[2], texts())
