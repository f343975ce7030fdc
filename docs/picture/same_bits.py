"""Draws docs/picture/same_bits.svg: one request alone, and the same request among 63 others.

    vosti serve &
    python3 docs/picture/same_bits.py http://127.0.0.1:8000 docs/picture/same_bits.svg

Each cell is a token of the answer; its colour and its four digits are the head of the digest of every token so far and
every bit of its logits (`vosti_receipt`). Needs Python alone. Ends with 1, and draws nothing, if a digest differs or if the
second answer had no company.
"""

import html
import json
import sys
import threading
import time
import urllib.request

PROMPT = "The three laws of robotics are"
TOKENS = 12
OTHERS = 63


def ask(url, prompt, seed, tokens, digest=False):
    body = {"model": MODEL, "prompt": prompt, "seed": seed, "temperature": 0.4, "max_tokens": tokens,
            "vosti_digest": digest}
    request = urllib.request.Request(f"{url}/v1/completions", json.dumps(body).encode(),
                                     {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=600) as answer:
        return json.load(answer)["choices"][0]


def running(url):
    with urllib.request.urlopen(f"{url}/metrics") as page:
        lines = page.read().decode().splitlines()
    return int(float(next(line.split()[-1] for line in lines if line.startswith("vllm:num_requests_running"))))


def among(url):
    """The same request while others run; and how many ran at its busiest."""
    stories = [f"Story number {i}. " + "Once upon a time there was a king. " * (i % 9) for i in range(OTHERS)]
    threads = [threading.Thread(target=ask, args=(url, s, i, 96 + i)) for i, s in enumerate(stories)]
    most, done = [0], threading.Event()

    def watch():
        while not done.wait(0.05):
            most[0] = max(most[0], running(url))

    watcher = threading.Thread(target=watch)
    for thread in [*threads, watcher]:
        thread.start()
    time.sleep(1.5)
    answer = ask(url, PROMPT, 7, TOKENS, digest=True)
    done.set()
    for thread in [*threads, watcher]:
        thread.join()
    return answer, most[0]


def cells(receipt, tokens, y):
    out = []
    for i, (link, token) in enumerate(zip(receipt["links"], tokens)):
        hue = int(link[:4], 16) % 360
        x = 24 + i * 68
        out.append(f'<rect x="{x}" y="{y}" width="66" height="40" rx="4" fill="hsl({hue} 55% 42%)"/>'
                   f'<text x="{x + 33}" y="{y + 17}" class="t">{html.escape(token.strip() or "␣")[:9]}</text>'
                   f'<text x="{x + 33}" y="{y + 33}" class="h">{link[:4]}</text>')
    return "".join(out)


def draw(alone, company, flying, tokens, fingerprint):
    width = 24 * 2 + TOKENS * 68
    rows = []
    for y, title, receipt in [(78, "alone", alone), (176, f"among {flying} requests in flight", company)]:
        rows.append(f'<text x="24" y="{y - 12}" class="s">{title}</text>{cells(receipt, tokens, y)}'
                    f'<text x="{width - 24}" y="{y - 12}" class="d">digest {receipt["digest"][:32]}…</text>')
    return f'''<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} 262" role="img"
 aria-label="One request alone and among {flying}: every digest is the same">
<!-- made by docs/picture/same_bits.py -->
<style>text{{font:13px ui-monospace,Menlo,Consolas,monospace;fill:#e8e8ea}}.t,.h{{text-anchor:middle;font-size:11px}}
.h{{fill:#fffc;font-size:10px}}.d{{text-anchor:end;fill:#9fd8a4}}.s{{fill:#fff}}.f{{fill:#9a9aa2;font-size:11px}}</style>
<rect width="100%" height="100%" rx="8" fill="#17181c"/>
<text x="24" y="34" class="s">"{PROMPT}", seed 7, temperature 0.4</text>
{"".join(rows)}
<text x="24" y="244" class="f">colour and digits: the digest of every token so far and every bit of its logits · \
{fingerprint}</text>
</svg>
'''


def main():
    global MODEL
    url, out = sys.argv[1].rstrip("/"), sys.argv[2]
    with urllib.request.urlopen(f"{url}/v1/models") as models:
        MODEL = json.load(models)["data"][0]["id"]
    alone = ask(url, PROMPT, 7, TOKENS, digest=True)
    company, flying = among(url)
    (a, b) = (choice["vosti_receipt"] for choice in (alone, company))
    if a["digest"] != b["digest"] or a["links"] != b["links"]:
        sys.exit(f"the digests differ: {a['digest']} alone, {b['digest']} among {flying}")
    if flying < OTHERS // 2:
        sys.exit(f"only {flying} requests were in flight: this shows nothing")
    tokens = []
    for token in a["tokens"]:
        request = urllib.request.Request(f"{url}/detokenize", json.dumps({"model": MODEL, "tokens": [token]}).encode(),
                                         {"Content-Type": "application/json"})
        with urllib.request.urlopen(request) as text:
            tokens.append(json.load(text)["prompt"])
    with open(out, "w") as file:
        file.write(draw(a, b, flying, tokens, a["fingerprint"]))
    print(f"{a['digest']} alone and among {flying}; {out}")


main()
