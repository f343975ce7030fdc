"""Common clients of the API, each against a started server: what it asks, and whether it got it.

    python3 -m venv clients
    clients/bin/pip install uv
    clients/bin/uv pip install --python clients/bin/python openai anthropic litellm langchain-openai langchain-anthropic \\
        'llama-index-llms-openai-like>=0.8' llm vllm-router==0.1.17 'lm-eval[api]==0.4.13' transformers mcp ollama
    npm install --prefix clients ai @ai-sdk/openai-compatible @ai-sdk/openai zod ollama
    vosti serve --port 8000 &
    clients/bin/python bench/server/clients.py http://127.0.0.1:8000

Prints a table. Passes (exit code 0) if every client is installed and got what it asked for; with --only NAME,... only these are tried.
Clients in JavaScript are in clients.mjs, and `npm:` stands before their names.
"""

import argparse
import importlib.metadata
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time
import traceback
import urllib.error
import urllib.request

KEY = "none"
ASK = [{"role": "user", "content": "Why is the sky blue?"}]
TOOL = {"type": "object", "properties": {"city": {"enum": ["Paris", "Rome"]}}, "required": ["city"],
        "additionalProperties": False}
FUNCTION = {"type": "function", "function": {"name": "weather", "description": "The weather of a city", "parameters": TOOL}}
CLIENTS = {}


def client(package):
    """Registers a function as a test of the package."""
    def register(function):
        CLIENTS.setdefault(package, []).append(function)
        return function
    return register


def check(what, found=""):
    if not what:
        raise AssertionError(found or "not what was asked for")


@client("openai")
def chat(base, model):
    """chat: twice, streamed, a tool, the answer sent back as it came"""
    import openai
    api = openai.OpenAI(base_url=base + "/v1", api_key=KEY)
    ask = dict(model=model, messages=ASK, seed=7, max_tokens=24)
    one, two = (api.chat.completions.create(**ask).choices[0].message for _ in range(2))
    check(one == two, (one, two))
    stream = api.chat.completions.create(stream=True, **ask)
    check("".join(chunk.choices[0].delta.content or "" for chunk in stream) == one.content)
    call = api.chat.completions.create(tools=[FUNCTION], tool_choice="required", parallel_tool_calls=False, **{**ask, "max_tokens": 64})
    message = call.choices[0].message
    check(json.loads(message.tool_calls[0].function.arguments)["city"] in ("Paris", "Rome"))
    result = {"role": "tool", "tool_call_id": message.tool_calls[0].id, "content": "sunny"}
    check(api.chat.completions.create(**{**ask, "messages": [*ASK, message.model_dump(), result]}).choices[0].message.content)


@client("openai")
def responses(base, model):
    """responses: twice, streamed, a tool and its output, a schema by pydantic"""
    import openai
    import pydantic
    api = openai.OpenAI(base_url=base + "/v1", api_key=KEY)
    ask = dict(model=model, input="Why is the sky blue?", instructions="Be brief.", max_output_tokens=24, extra_body={"seed": 7})
    one, two = (api.responses.create(**ask).output_text for _ in range(2))
    check(one and one == two, (one, two))
    with api.responses.stream(**ask) as stream:
        events = list(stream)
        parts = "".join(event.delta for event in events if event.type == "response.output_text.delta")
        # The package has no helper for an answer that max_output_tokens ended.
        check(parts == one == events[-1].response.output_text and events[-1].type == "response.incomplete", parts)
    tool = {"type": "function", "name": "weather", "parameters": TOOL, "strict": True}
    tools = dict(tools=[tool], tool_choice="required", parallel_tool_calls=False)
    call = api.responses.create(**{**ask, "max_output_tokens": 64}, **tools)
    check(json.loads(call.output[0].arguments)["city"] in ("Paris", "Rome"))
    with api.responses.stream(**{**ask, "max_output_tokens": 64}, **tools) as stream:
        check(stream.get_final_response().output[0].arguments == call.output[0].arguments)
    told = [{"role": "user", "content": "x"}, *call.output,
            {"type": "function_call_output", "call_id": call.output[0].call_id, "output": "sunny"}]
    check(api.responses.create(**{**ask, "input": told}).output_text)

    class City(pydantic.BaseModel):
        name: str = pydantic.Field(max_length=12)
    parsed = api.responses.parse(**{**ask, "max_output_tokens": 64}, text_format=City).output_parsed
    check(isinstance(parsed, City), parsed)


@client("anthropic")
def messages(base, model):
    """messages: twice, streamed, tools and results, a prefill, counted tokens"""
    import anthropic
    api = anthropic.Anthropic(base_url=base, api_key=KEY)
    ask = dict(model=model, max_tokens=24, messages=ASK, system="Be brief.", extra_body={"seed": 7})
    one, two = (api.messages.create(**ask).content[0].text for _ in range(2))
    check(one and one == two, (one, two))
    with api.messages.stream(**ask) as stream:
        check("".join(stream.text_stream) == one)
    tool = {"name": "weather", "description": "The weather of a city", "input_schema": TOOL}
    forced = {"type": "any", "disable_parallel_tool_use": True}
    call = api.messages.create(**{**ask, "max_tokens": 64}, tools=[tool], tool_choice=forced)
    check(call.stop_reason == "tool_use" and call.content[0].input["city"] in ("Paris", "Rome"), call)
    with api.messages.stream(**{**ask, "max_tokens": 64}, tools=[tool], tool_choice=forced) as stream:
        check(stream.get_final_message().content[0].input == call.content[0].input)
    result = {"type": "tool_result", "tool_use_id": call.content[0].id, "content": "sunny"}
    told = [*ASK, {"role": "assistant", "content": call.content}, {"role": "user", "content": [result]}]
    check(api.messages.create(**{**ask, "messages": told}, tools=[tool]).content)
    check(api.messages.create(**{**ask, "messages": [*ASK, {"role": "assistant", "content": "Because"}]}).content)
    check(api.messages.count_tokens(model=model, messages=ASK).input_tokens > 5)
    try:
        api.messages.create(**{**ask, "extra_body": {"temperature": -1}})
    except anthropic.BadRequestError as error:
        check("temperature" in str(error), error)
    else:
        check(False, "temperature -1 was taken")


@client("litellm")
def completion(base, model):
    """chat, a stream, a tool; the same server as OpenAI's and as Anthropic's"""
    # Its list of prices is not asked for from elsewhere.
    os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"
    import litellm
    litellm.suppress_debug_info = True
    for kind, url in (("openai", base + "/v1"), ("hosted_vllm", base + "/v1"), ("anthropic", base)):
        ask = dict(model=f"{kind}/{model}", api_base=url, api_key=KEY, messages=ASK, max_tokens=24, temperature=0)
        one = litellm.completion(**ask).choices[0].message
        check(one.content, one)
        parts = [chunk.choices[0].delta.content or "" for chunk in litellm.completion(stream=True, **ask)]
        check("".join(parts) == one.content, parts)
        call = litellm.completion(tools=[FUNCTION], tool_choice="required", **{**ask, "max_tokens": 64}).choices[0].message
        check(json.loads(call.tool_calls[0].function.arguments)["city"], call)
        result = {"role": "tool", "tool_call_id": call.tool_calls[0].id, "content": "sunny"}
        told = [*ASK, call.model_dump(), *[{**result, "tool_call_id": other.id} for other in call.tool_calls]]
        check(litellm.completion(tools=[FUNCTION], **{**ask, "messages": told}).choices[0].message)


@client("langchain-openai")
def langchain_openai(base, model):
    """invoke, stream, bind_tools, with_structured_output"""
    import langchain_openai
    chat = langchain_openai.ChatOpenAI(base_url=base + "/v1", api_key=KEY, model=model, max_tokens=64, seed=7)
    one = chat.invoke("Why is the sky blue?")
    check(one.content and "".join(part.content for part in chat.stream("Why is the sky blue?")) == one.content)
    check(chat.bind_tools([FUNCTION], tool_choice="required").invoke("Rome?").tool_calls[0]["args"]["city"])
    check(chat.with_structured_output({**TOOL, "title": "City"}, method="json_schema").invoke("Rome?")["city"])
    check(chat.invoke([("user", "hi"), one, ("user", "more")]).content)
    newer = langchain_openai.ChatOpenAI(base_url=base + "/v1", api_key=KEY, model=model, use_responses_api=True)
    check(newer.bind(max_output_tokens=16).invoke("hi").text)


@client("langchain-anthropic")
def langchain_anthropic(base, model):
    """invoke, stream, bind_tools"""
    import langchain_anthropic
    chat = langchain_anthropic.ChatAnthropic(base_url=base, api_key=KEY, model=model, max_tokens=64, temperature=0)
    one = chat.invoke("Why is the sky blue?")
    check(one.content and "".join(part.text for part in chat.stream("Why is the sky blue?")) == one.text)
    check(chat.bind_tools([FUNCTION], tool_choice="any").invoke("Rome?").tool_calls[0]["args"]["city"])


@client("llama-index-llms-openai-like")
def llama_index(base, model):
    """complete, chat, stream"""
    from llama_index.core.llms import ChatMessage
    from llama_index.llms.openai_like import OpenAILike
    llm = OpenAILike(api_base=base + "/v1", api_key=KEY, model=model, is_chat_model=True, max_tokens=24, temperature=0)
    one = llm.chat([ChatMessage(role="user", content="Why is the sky blue?")]).message.content
    check(one)
    parts = list(llm.stream_chat([ChatMessage(role="user", content="Why is the sky blue?")]))
    check(parts[-1].message.content == one)
    plain = OpenAILike(api_base=base + "/v1", api_key=KEY, model=model, is_chat_model=False, max_tokens=24, temperature=0)
    check(plain.complete("The sky is").text)


@client("llm")
def llm_command(base, model):
    """the command, with the server as an extra OpenAI model"""
    with tempfile.TemporaryDirectory() as folder:
        models = pathlib.Path(folder, "extra-openai-models.yaml")
        models.write_text(f"- model_id: vosti\n  model_name: {model}\n  api_base: {base}/v1\n")
        environment = {**os.environ, "LLM_USER_PATH": folder, "OPENAI_API_KEY": KEY}
        for more in ([], ["--no-stream"]):
            command = [sys.executable, "-m", "llm", "-m", "vosti", "-o", "max_tokens", "24", "-o", "temperature", "0", *more]
            done = subprocess.run([*command, "Why is the sky blue?"], env=environment, capture_output=True, text=True)
            check(done.returncode == 0 and done.stdout.strip(), done.stderr)


@client("vllm-router")
def router(base, model):
    """the router in front of the server: chat, a stream, text"""
    import socket
    import openai
    with socket.socket() as free, socket.socket() as other:
        free.bind(("127.0.0.1", 0))
        other.bind(("127.0.0.1", 0))
        port, metrics = free.getsockname()[1], other.getsockname()[1]
    command = [sys.executable, "-m", "vllm_router.launch_router", "--worker-urls", base, "--host", "127.0.0.1", "--port", str(port),
               "--prometheus-port", str(metrics)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        url = f"http://127.0.0.1:{port}"
        wait(url + "/health", process)
        api = openai.OpenAI(base_url=url + "/v1", api_key=KEY)
        straight = openai.OpenAI(base_url=base + "/v1", api_key=KEY)
        ask = dict(model=model, messages=ASK, seed=7, max_tokens=24)
        one = api.chat.completions.create(**ask).choices[0].message.content
        check(one == straight.chat.completions.create(**ask).choices[0].message.content)
        check("".join(chunk.choices[0].delta.content or "" for chunk in api.chat.completions.create(stream=True, **ask)) == one)
        check(api.completions.create(model=model, prompt="The sky is", max_tokens=8, seed=7).choices[0].text)
    finally:
        process.terminate()
        process.wait(20)


def wait(url, process, seconds=60):
    end = time.monotonic() + seconds
    while True:
        try:
            return urllib.request.urlopen(url, timeout=5).read()
        except OSError as error:
            check(time.monotonic() < end and process.poll() is None, f"{url}: {error}")
            time.sleep(0.3)


@client("lm-eval")
def lm_eval(base, model):
    """local-completions with the server's own tokenizer: a tiny task of its own, at concurrency 1 and 8, the same results"""
    import lm_eval
    with tempfile.TemporaryDirectory() as folder:
        data = pathlib.Path(folder, "data.jsonl")
        rows = [("The sky is", [" blue", " made of cheese"], 0), ("Two and two are", [" four", " Friday"], 0)]
        data.write_text("".join(json.dumps({"q": q, "choices": choices, "gold": gold}) + "\n" for q, choices, gold in rows))
        task = {"task": "vosti_tiny", "dataset_path": "json", "dataset_kwargs": {"data_files": {"test": str(data)}},
                "test_split": "test", "output_type": "multiple_choice", "doc_to_text": "{{q}}", "doc_to_choice": "{{choices}}",
                "doc_to_target": "{{gold}}", "metric_list": [{"metric": "acc"}]}
        results = []
        for together in (1, 8):
            arguments = dict(model=model, base_url=base + "/v1/completions", tokenizer_backend="remote", num_concurrent=together)
            found = lm_eval.simple_evaluate(model="local-completions", model_args=arguments, tasks=[task], log_samples=True,
                                            bootstrap_iters=0)
            results.append([sample["resps"] for sample in found["samples"]["vosti_tiny"]])
        check(results[0] == results[1], results)


@client("open-webui")
def open_webui(base, model):
    """the requests that it sends, written by hand: models, a chat with usage, a title, a failed one"""
    def ask(path, body=None):
        headers = {"Content-Type": "application/json", "Authorization": f"Bearer {KEY}", "User-Agent": "Mozilla/5.0 (compatible; Open WebUI)"}
        data = None if body is None else json.dumps(body).encode()
        try:
            return urllib.request.urlopen(urllib.request.Request(base + "/v1" + path, data, headers))
        except urllib.error.HTTPError as error:
            return error
    check(model in [entry["id"] for entry in json.load(ask("/models"))["data"]])
    told = [{"role": "system", "content": "Be brief."}, *ASK, {"role": "assistant", "content": "It scatters."},
            {"role": "user", "content": [{"type": "text", "text": "What does?"}]}]
    chat = {"stream": True, "model": model, "messages": told, "stream_options": {"include_usage": True}, "temperature": 0.8,
            "max_tokens": 24, "frequency_penalty": 0, "seed": 7, "stop": ["###"]}
    events = [line[6:] for line in ask("/chat/completions", chat).read().decode().splitlines() if line.startswith("data: ")]
    chunks = [json.loads(event) for event in events[:-1]]
    check(events[-1] == "[DONE]" and chunks[-1]["usage"]["completion_tokens"] > 0, events[-2:])
    check("".join(chunk["choices"][0]["delta"].get("content") or "" for chunk in chunks[:-1]))
    title = {"model": model, "messages": ASK, "stream": False, "max_completion_tokens": 1000, "stop": ["\n"]}
    check(json.load(ask("/chat/completions", title))["choices"][0]["message"]["role"] == "assistant")
    refused = ask("/chat/completions", {**chat, "model": "absent"})
    check(refused.status == 404 and "absent" in json.load(refused)["error"]["message"])


@client("ollama")
def ollama(base, model):
    """chat: twice, streamed, a tool, a schema; generate, the list of models, a model that is not there"""
    import ollama
    api = ollama.Client(host=base)
    ask = dict(model=model, messages=ASK, options={"seed": 7, "num_predict": 24})
    one, two = (api.chat(**ask) for _ in range(2))
    check(one.message.content == two.message.content and one.eval_count == 24, (one, two))
    check("".join(part.message.content for part in api.chat(stream=True, **ask)) == one.message.content)
    city = json.loads(api.chat(**{**ask, "options": {"seed": 7, "num_predict": 64}}, format=TOOL).message.content)["city"]
    check(city in ("Paris", "Rome"), city)
    check(api.chat(tools=[FUNCTION], **ask).done)
    check(api.generate(model=model, prompt="Why is the sky blue?", options=ask["options"]).response == one.message.content)
    check(model in [entry.model for entry in api.list().models] and api.show(model).modelinfo)
    try:
        check(not api.chat(model="absent", messages=ASK), "a model that is not there answers")
    except ollama.ResponseError as error:
        check(error.status_code == 404 and "absent" in error.error, error)


def post(base, path, body):
    """The status, the headers and the text of an answer to a request written by hand."""
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {KEY}", "x-api-key": KEY}
    try:
        answer = urllib.request.urlopen(urllib.request.Request(base + path, json.dumps(body).encode(), headers))
    except urllib.error.HTTPError as error:
        answer = error
    return answer.status, answer.headers, answer.read().decode()


@client("claude-code")
def claude_code(base, model):
    """the shape of its requests, written by hand: system blocks, tools, context_management, a large max_tokens, streamed"""
    cached = {"cache_control": {"type": "ephemeral"}}
    schema = {"$schema": "https://json-schema.org/draft/2020-12/schema", "type": "object", "additionalProperties": False,
              "properties": {"command": {"type": "string", "description": "The command"}, "timeout": {"type": "number"}}, "required": ["command"]}
    body = {"model": model, "max_tokens": 32000, "stream": True, "metadata": {"user_id": "u"}, "thinking": {"type": "adaptive"},
            "system": [{"type": "text", "text": "You are an agent.", **cached}],
            "messages": [{"role": "user", "content": [{"type": "text", "text": "Say hello.", **cached}]}],
            "tools": [{"name": "Bash", "description": "Runs a command.", "input_schema": schema}],
            "output_config": {"effort": "medium"}, "context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]}}
    status, headers, text = post(base, "/v1/messages?beta=true", body)
    check(status == 200 and "event: message_stop" in text, text[:500])
    check(headers["x-vosti-ignored"] == "context_management" and "max_tokens" in headers["x-vosti-warning"], headers)
    status, _, text = post(base, "/v1/messages/count_tokens?beta=true", {key: body[key] for key in ("model", "system", "messages", "tools")})
    check(status == 200 and json.loads(text)["input_tokens"] > 0, text)


@client("codex")
def codex(base, model):
    """the shape of its requests, written by hand: instructions, tools, verbosity, streamed; a tool of the server is named"""
    shell = {"type": "function", "name": "shell", "description": "Runs a command.", "strict": False, "parameters": {
        "type": "object", "properties": {"command": {"type": "array", "items": {"type": "string"}}}, "required": ["command"]}}
    body = {"model": model, "instructions": "You are an agent.", "stream": True, "store": False, "tool_choice": "auto", "tools": [shell],
            "input": [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Say hello."}]}],
            "parallel_tool_calls": False, "reasoning": {"effort": "medium", "summary": "auto"}, "include": ["reasoning.encrypted_content"],
            "prompt_cache_key": "k", "text": {"verbosity": "low"}, "truncation": "auto", "client_metadata": {"id": "i"}, "max_output_tokens": 64}
    status, headers, text = post(base, "/v1/responses", body)
    check(status == 200 and ("event: response.completed" in text or "event: response.incomplete" in text), text[:500])
    check(headers["x-vosti-ignored"] == "text.verbosity", headers)
    status, headers, text = post(base, "/v1/responses", {**body, "tools": [shell, {"type": "web_search"}]})
    check(status == 200 and "tools[1].type" in headers["x-vosti-ignored"] or "--unknown-fields warn" in text, text[:500])


@client("continue")
def fill_in_the_middle(base, model):
    """the shape of its completions, written by hand: a gap is filled, or the message says that the model cannot"""
    body = {"model": model, "prompt": "def add(a, b):\n    return ", "suffix": "\n\nprint(add(1, 2))\n", "max_tokens": 16, "temperature": 0.01,
            "stop": ["\n\n"], "stream": True}
    status, _, text = post(base, "/v1/completions", body)
    check(status == 200 and "[DONE]" in text or status == 400 and "fills gaps" in text, text)


def javascript(package, base, model):
    """Runs a client of clients.mjs with the packages that npm put beside this Python's."""
    script = pathlib.Path(__file__).with_suffix(".mjs").read_text()
    command = ["node", "--input-type=module", "-", package, base, model]
    done = subprocess.run(command, input=script, cwd=sys.prefix, capture_output=True, text=True)
    check(done.returncode == 0, f"node ended with {done.returncode}: {done.stderr}")


@client("npm:ai")
def ai_sdk(base, model):
    """generateObject by chat and by Responses: an object, an enum, a list, any object; streamObject, a tool, streamText"""
    javascript("ai", base, model)


@client("npm:ollama")
def ollama_javascript(base, model):
    """chat: with the seed of an earlier answer, streamed, a schema; the list of models, a model that is not there"""
    javascript("ollama", base, model)


#: Requests that are written like a program's own need no package.
BY_HAND = ("open-webui", "claude-code", "codex", "continue")


def version(package):
    """The installed version; "" if there is none."""
    if package in BY_HAND:
        return "-"
    try:
        if package.startswith("npm:"):
            described = pathlib.Path(sys.prefix, "node_modules", package.removeprefix("npm:"), "package.json")
            return json.loads(described.read_text())["version"]
        return importlib.metadata.version(package)
    except (importlib.metadata.PackageNotFoundError, FileNotFoundError):
        return ""


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("url")
    parser.add_argument("--only", help="these packages, separated by commas", default="")
    options = parser.parse_args()
    base = options.url.rstrip("/")
    model = json.load(urllib.request.urlopen(base + "/v1/models"))["data"][0]["id"]
    wanted = [name for name in options.only.split(",") if name] or list(CLIENTS)
    failures = []
    print("| client | version | asked for | |\n| --- | --- | --- | --- |", flush=True)
    for package in wanted:
        found = version(package)
        if not found:
            print(f"| {package} | | | not installed |", flush=True)
            failures.append(f"{package} is not installed")
            continue
        for function in CLIENTS[package]:
            result = "passed"
            try:
                function(base, model)
            except Exception as error:  # A client may fail in any way.
                result = "failed"
                failures.append("".join(traceback.format_exception(error)[-3:]))
            print(f"| {package} | {found} | {function.__doc__} | {result} |", flush=True)
    for failure in failures:
        print(failure, file=sys.stderr)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
