"""The official `openai` package against a server: `openai_client.py BASE_URL KEY`. Prints one line per claim.

Run by `serve_openai.rs`; runs as well by hand against any `vosti serve --api-key KEY`.
"""

import json
import sys
import time
import urllib.request

import openai

BASE, KEY = sys.argv[1], sys.argv[2]
client = openai.OpenAI(base_url=BASE + "/v1", api_key=KEY, max_retries=0, timeout=120)
MODEL = client.models.list().data[0].id
ASK = [{"role": "user", "content": "Name three colours."}]


def chat(**more):
    return client.chat.completions.create(**{"model": MODEL, "messages": ASK, "max_tokens": 16, "seed": 7, **more})


def claim(text, holds, seen=""):
    print(("ok   " if holds else "FAIL ") + text + (f": {seen}" if not holds else ""), flush=True)
    if not holds:
        sys.exit(1)


def refused(text, kind, status, says, ask):
    try:
        got = ask()
    except kind as error:
        claim(text, error.status_code == status and says in str(error), repr(error))
        return error
    claim(text, False, got)


def status():
    with urllib.request.urlopen(BASE + "/status") as reply:
        return json.load(reply)


def models():
    claim("a model can be looked up by its name", client.models.retrieve(MODEL).id == MODEL)
    refused("an unknown model is 404", openai.NotFoundError, 404, "nobody", lambda: chat(model="nobody"))


def chats():
    first, again = chat(), chat()
    text = first.choices[0].message.content
    claim("a chat is answered", bool(text) and first.choices[0].finish_reason in ("stop", "length"), first)
    claim("the same seed gives the same answer", text == again.choices[0].message.content, again)
    claim("the fingerprint names the deployment", first.system_fingerprint.startswith("vosti-"), first)
    claim("usage adds up", first.usage.total_tokens == first.usage.prompt_tokens + first.usage.completion_tokens)
    others = {chat(seed=seed, temperature=1.0).choices[0].message.content for seed in range(5)}
    claim("other seeds give other answers", len(others) > 1, others)
    claim("a fresh seed is told", "vosti_seed" in chat(seed=None).model_dump())


def streams():
    whole = chat(stream_options=openai.omit) if hasattr(openai, "omit") else chat()
    parts, usage, reason = [], None, None
    for chunk in chat(stream=True, stream_options={"include_usage": True}):
        if chunk.choices:
            parts.append(chunk.choices[0].delta.content or "")
            reason = chunk.choices[0].finish_reason or reason
        usage = chunk.usage or usage
    claim("a stream gives the whole answer's text", "".join(parts) == whole.choices[0].message.content, parts)
    claim("a stream ends with a reason and the usage", reason and usage.total_tokens == whole.usage.total_tokens, usage)
    raw = client.completions.create(model=MODEL, prompt="One, two,", max_tokens=8, temperature=0)
    streamed = client.completions.create(model=MODEL, prompt="One, two,", max_tokens=8, temperature=0, stream=True)
    text = "".join(chunk.choices[0].text for chunk in streamed if chunk.choices)
    claim("a text completion streams alike", text == raw.choices[0].text, text)


def logprobs():
    answer = chat(logprobs=True, top_logprobs=4, temperature=0)
    content = answer.choices[0].logprobs.content
    claim("every token has its log-probability and the likeliest", all(len(t.top_logprobs) == 4 for t in content))
    claim("greedy takes the likeliest", all(t.token == t.top_logprobs[0].token for t in content), content)
    again = chat(logprobs=True, top_logprobs=4, temperature=0)
    claim("log-probabilities repeat exactly", again.choices[0].logprobs == answer.choices[0].logprobs)
    text = client.completions.create(model=MODEL, prompt="One, two,", max_tokens=4, logprobs=2, echo=True, temperature=0)
    shown = text.choices[0].logprobs
    claim("echo shows the prompt's too", shown.token_logprobs[0] is None and text.choices[0].text.startswith("One, two,"))


def choices():
    answer = chat(n=3, temperature=1.0)
    texts = [choice.message.content for choice in answer.choices]
    claim("n gives n choices, in order", [c.index for c in answer.choices] == [0, 1, 2] and len(set(texts)) > 1, texts)
    claim("choice 0 is the only choice of n = 1", texts[0] == chat(temperature=1.0).choices[0].message.content, texts)
    batch = client.completions.create(model=MODEL, prompt=["One,", "Two,"], max_tokens=4, n=2, temperature=0)
    claim("prompts come in batches", [c.index for c in batch.choices] == [0, 1, 2, 3], batch)


PERSON = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 12}, "age": {"type": "integer", "minimum": 0, "maximum": 99}},
    "required": ["name", "age"],
    "additionalProperties": False,
}


def schemas():
    form = {"type": "json_schema", "json_schema": {"name": "person", "schema": PERSON, "strict": True}}
    answers = [chat(response_format=form, max_tokens=64, temperature=1.2) for _ in range(2)]
    person = json.loads(answers[0].choices[0].message.content)
    claim("a schema is kept", sorted(person) == ["age", "name"] and 0 <= person["age"] <= 99, person)
    claim("a schema leaves the answer deterministic", answers[0].choices[0].message == answers[1].choices[0].message)
    wrong = {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "object", "if": {}}}}
    refused("a schema that cannot be kept is 400", openai.BadRequestError, 400, "if", lambda: chat(response_format=wrong))
    jail = chat(response_format={"type": "json_object"}, max_tokens=8, temperature=0)
    claim("json_object begins an object", jail.choices[0].message.content.startswith("{"), jail)


WEATHER = {"type": "function", "function": {"name": "get_weather", "description": "The weather of a city", "parameters": {
    "type": "object", "properties": {"city": {"enum": ["Paris", "Rome"]}}, "required": ["city"],
    "additionalProperties": False}}}
CLOCK = {"type": "function", "function": {"name": "now"}}


def tools():
    named = {"type": "function", "function": {"name": "get_weather"}}
    for choice in (named, "required"):
        answer = chat(tools=[WEATHER] if choice == "required" else [WEATHER, CLOCK], tool_choice=choice,
                      parallel_tool_calls=False, max_tokens=64)
        call = answer.choices[0].message.tool_calls[0].function
        city = json.loads(call.arguments)["city"]
        claim(f"a {choice if choice == 'required' else 'named'} tool is called with arguments that fit",
              call.name == "get_weather" and city in ("Paris", "Rome"), answer)
        claim("the reason is tool_calls", answer.choices[0].finish_reason == "tool_calls", answer)
    calls = [call for chunk in chat(tools=[WEATHER], tool_choice="required", parallel_tool_calls=False, max_tokens=64, stream=True)
             for choice in chunk.choices for call in choice.delta.tool_calls or []]
    claim("calls stream", calls[0].function.name == "get_weather" and calls[0].id, calls)
    free = chat(tools=[WEATHER], tool_choice="auto", max_tokens=24)
    claim("auto answers", free.choices[0].message.content or free.choices[0].message.tool_calls, free)
    none = chat(tools=[WEATHER], tool_choice="none", max_tokens=8)
    claim("none calls nothing", not none.choices[0].message.tool_calls, none)
    call = {"id": "c1", "type": "function", "function": {"name": "get_weather", "arguments": '{"city": "Rome"}'}}
    told = ASK + [{"role": "assistant", "content": None, "tool_calls": [call]},
                  {"role": "tool", "tool_call_id": "c1", "content": "sunny"}]
    claim("a tool's result is taken", chat(messages=told, tools=[WEATHER]).choices[0].finish_reason)
    said = answer.choices[0].message.model_dump()
    result = {"role": "tool", "tool_call_id": said["tool_calls"][0]["id"], "content": "sunny"}
    claim("an answer may be sent back as it came", chat(messages=[*ASK, said, result], tools=[WEATHER]).choices[0].finish_reason)


def cuts():
    """A call that max_tokens cuts off comes once, and only as a call."""
    for tokens in range(1, 40):
        ask = dict(tools=[WEATHER], tool_choice="required", max_tokens=tokens, seed=3)
        whole = chat(**ask).choices[0].message
        parts = [choice.delta for chunk in chat(stream=True, **ask) for choice in chunk.choices]
        calls = [call for delta in parts for call in delta.tool_calls or []]
        text = "".join(delta.content or "" for delta in parts)
        arguments = {}
        for call in calls:
            arguments[call.index] = arguments.get(call.index, "") + call.function.arguments
        wanted = [call.function.arguments for call in whole.tool_calls or []]
        if (text, whole.content or "", [arguments[index] for index in sorted(arguments)]) != ("", "", wanted):
            claim(f"a call cut at {tokens} tokens comes once", False, (whole, parts))
    claim("a call that is cut comes once, and only as a call", True)


def errors():
    stranger = openai.OpenAI(base_url=BASE + "/v1", api_key="wrong", max_retries=0)
    refused("a wrong key is 401", openai.AuthenticationError, 401, "key", stranger.models.list)
    bad = openai.BadRequestError
    refused("a value out of range is named", bad, 400, "temperature", lambda: chat(temperature=-1))
    refused("an unknown field is named", bad, 400, "frobnicate", lambda: chat(extra_body={"frobnicate": 1}))
    refused("an unsupported field is named", bad, 400, "best_of",
            lambda: client.completions.create(model=MODEL, prompt="x", best_of=2))
    refused("a prompt too long is 400", bad, 400, "context", lambda: client.completions.create(
        model=MODEL, prompt=[1] * 20000, max_tokens=1))


def aborts():
    begun = status()["aborted"]
    stream = chat(stream=True, max_tokens=2000, extra_body={"ignore_eos": True})
    next(iter(stream))
    stream.close()
    for _ in range(200):
        now = status()
        if now["running"] == 0 and now["aborted"] > begun:
            break
        time.sleep(0.05)
    claim("a client that leaves ends its request, and the pages come back",
          now["running"] == 0 and now["pages_free"] + now["pages_cached_unused"] == now["pages_total"], now)


def receipts():
    answer = chat(extra_body={"vosti_digest": True}, temperature=0.9).model_dump()
    receipt = answer["choices"][0]["vosti_receipt"]
    claim("a receipt has a link for each token", len(receipt["links"]) == len(receipt["tokens"]), receipt)
    again = chat(extra_body={"vosti_digest": True}, temperature=0.9).model_dump()["choices"][0]["vosti_receipt"]
    claim("the digest repeats", again["digest"] == receipt["digest"])
    if len(sys.argv) > 3:
        with open(sys.argv[3], "w") as out:
            json.dump(receipt, out)


for part in (models, chats, streams, logprobs, choices, schemas, tools, cuts, errors, aborts, receipts):
    part()
print("all claims hold")
