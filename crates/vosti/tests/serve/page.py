"""The page in headless Chromium, driven over its debugging pipe: `page.py BROWSER URL KEY [FOLDER]`. Prints one line
per claim; with a folder, it leaves screenshots there."""

import base64
import json
import os
import subprocess
import sys
import tempfile
import time

BROWSER, URL, KEY = sys.argv[1:4]
FOLDER = sys.argv[4] if len(sys.argv) > 4 else None


class Browser:
    def __init__(self, profile):
        # The browser reads commands from descriptor 3 and writes answers to 4, each ended by a zero byte.
        command_read, self.command = os.pipe()
        self.answer, answer_write = os.pipe()

        def place():
            # Both out of the way first: either may have the other's number.
            reader, writer = os.dup(command_read), os.dup(answer_write)
            low = [fd for fd in (reader, writer) if fd in (3, 4)]
            assert not low, low
            os.dup2(reader, 3)
            os.dup2(writer, 4)

        flags = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--remote-debugging-pipe",
                 "--no-first-run", "--disable-background-networking", f"--user-data-dir={profile}"]
        self.process = subprocess.Popen([BROWSER, *flags], preexec_fn=place, close_fds=False,
                                        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(command_read)
        os.close(answer_write)
        self.rest, self.number, self.session, self.events = b"", 0, None, []

    def call(self, method, **params):
        self.number += 1
        message = {"id": self.number, "method": method, "params": params}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.command, json.dumps(message).encode() + b"\0")
        while True:
            answer = self.read()
            if answer.get("id") == self.number:
                assert "error" not in answer, answer
                return answer["result"]
            self.events.append(answer)

    def read(self):
        while b"\0" not in self.rest:
            part = os.read(self.answer, 1 << 16)
            assert part, "the browser ended"
            self.rest += part
        first, self.rest = self.rest.split(b"\0", 1)
        return json.loads(first)

    def open(self, url):
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        self.call("Runtime.enable")
        self.call("Log.enable")
        self.call("Page.enable")
        self.call("Page.navigate", url=url)

    def run(self, script):
        """The value of a script, awaited."""
        result = self.call("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in result, result
        return result["result"].get("value")

    def until(self, script, seconds=100):
        """Waits inside the page until the script gives something true, and gives it."""
        return self.run(f"""(async () => {{ for (let i = 0; i < {seconds * 20}; i++) {{
            let seen = null; try {{ seen = ({script}) }} catch {{}}
            if (seen) return seen;
            await new Promise(done => setTimeout(done, 50)); }} return null }})()""")

    def key(self, key, shift=False):
        """A key as a person presses it."""
        codes = {"Enter": (13, "\r"), "Escape": (27, ""), "ArrowUp": (38, ""), "ArrowRight": (39, "")}
        code, text = codes[key]
        parts = {"key": key, "code": key, "windowsVirtualKeyCode": code, "modifiers": 8 if shift else 0}
        self.call("Input.dispatchKeyEvent", type="keyDown" if text else "rawKeyDown", **parts, **({"text": text} if text else {}))
        self.call("Input.dispatchKeyEvent", type="keyUp", **parts)

    def type(self, text):
        self.call("Input.insertText", text=text)

    def click(self, selector):
        """Clicks on the middle of an element with the mouse: anything that lies over it would take the click."""
        box = self.run(f"(() => {{ const e = document.querySelector({json.dumps(selector)}); e.scrollIntoView({{block: 'nearest'}});"
                       " const b = e.getBoundingClientRect(); return [b.x + b.width / 2, b.y + b.height / 2] })()")
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=box[0], y=box[1], button="left", clickCount=1)

    def screenshot(self, name):
        if FOLDER:
            data = self.call("Page.captureScreenshot", format="png")["data"]
            with open(os.path.join(FOLDER, name + ".png"), "wb") as file:
                file.write(base64.b64decode(data))


def claim(text, holds, seen=""):
    print(("ok   " if holds else "FAIL ") + text + (f": {seen}" if not holds else ""), flush=True)
    if not holds:
        raise SystemExit(1)


ANSWERED = "!document.querySelector('#send').disabled && document.querySelector('#talk article:last-child.assistant .text')?.textContent"
MARKDOWN = """# Head
Some **bold**, *thin*, ~~gone~~ and `code <b>` at [a place](https://example.com/x?a=1&b=2), 2 * 3 * 4, snake_case_name.

1. one
2. two
   - deep

| a | b |
| - | - |
| 1 | `2` |

> said

```rust
fn main() { println!("<script>"); }
```
<img src=x onerror="document.title='broken'">"""


def fresh(browser):
    browser.click("#new")
    browser.run("document.querySelector('#say').value = ''")


def main(browser):
    browser.open(URL + "/")
    claim("the page shows the model and the engine", browser.until(
        "document.querySelector('#model').textContent && document.querySelectorAll('#state dt').length >= 8"))
    claim("the fingerprint is shown", browser.run("document.querySelector('#fingerprint').textContent").startswith("vosti-"))

    # A chat by keys alone: the line has the focus when the page opens.
    browser.type("Say hello.")
    browser.key("Enter")
    refused = browser.until("document.querySelector('#talk .bad')?.textContent")
    claim("without a key the chat says what is missing", refused and "key" in refused.lower(), refused)
    browser.click("#settings-open")
    browser.run(f"document.querySelector('#key').value = {json.dumps(KEY)}; document.querySelector('#max_tokens').value = 24;"
                "document.querySelector('#system').value = 'You answer in one sentence.'; document.querySelector('#logprobs').checked = true")
    browser.screenshot("settings")
    browser.key("Escape")
    fresh(browser)
    browser.type("Say hello.")
    browser.key("Enter", shift=True)
    browser.type("Be brief.")
    browser.key("Enter")
    first = browser.until(ANSWERED)
    claim("Enter sends and a chat is answered", first)
    claim("Shift and Enter make a line", browser.run("document.querySelector('#talk .user .text').textContent") == "Say hello.\nBe brief.")

    # Tokens and their probabilities, by keys.
    press = "[...document.querySelectorAll('#talk article:last-child button')].find(b => b.textContent === '%s').click()"
    browser.run(press % "Tokens")
    tokens = browser.run("document.querySelectorAll('.tokens span').length")
    browser.run("document.querySelector('.tokens span').focus()")
    browser.key("ArrowRight")
    tip = browser.run("document.querySelector('#tip').hidden ? '' : document.querySelector('#tip').textContent")
    claim("each token shows its probability and the next likely ones", tokens > 3 and tip.count(" %") == 6, (tokens, tip))
    spelled = browser.run("[document.querySelector('.tokens').textContent, chat.messages.at(-1).content]")
    claim("the tokens are the answer", spelled[0].startswith(spelled[1]), spelled)
    browser.screenshot("tokens")

    # Regenerating, editing, stopping.
    browser.run(press % "Regenerate")
    second = browser.until(ANSWERED)
    claim("regenerating takes the next seed", browser.run("document.querySelector('#talk').textContent.includes('seed 2')"), second)
    browser.click("#say")
    browser.key("ArrowUp")
    browser.run("document.activeElement.value = 'Say goodbye.'")
    browser.key("Enter")
    browser.until(ANSWERED)
    claim("an edited message takes the place of what followed", browser.run(
        "[...document.querySelectorAll('#talk .user .text')].map(e => e.textContent).join()") == "Say goodbye.")
    browser.run("document.querySelector('#max_tokens').value = 2000")
    browser.click("#say")
    browser.type("Write a long story about the sea.")
    browser.key("Enter")
    streams = browser.until("document.querySelector('#talk article:last-child.assistant .text')?.textContent.length > 20")
    busy = browser.until("[...document.querySelectorAll('#state div')].find(e => e.textContent === 'running1')?.textContent", 20)
    claim("a long answer streams", streams and busy, (streams, busy))
    browser.key("Escape")
    stopped = browser.until(ANSWERED)
    time.sleep(0.5)
    claim("Esc stops and what came stays", stopped and stopped == browser.run(ANSWERED), stopped)
    idle = browser.until("[...document.querySelectorAll('#state div')].find(e => e.textContent === 'running0')?.textContent", 20)
    claim("the server stops too", idle, idle)
    browser.run("document.querySelector('#max_tokens').value = 24")

    # What is kept, and what is not.
    browser.call("Page.reload")
    browser.until("document.querySelectorAll('#list div').length && document.querySelector('#model').textContent")
    listed = browser.run("[...document.querySelectorAll('#list div button:first-child')].map(e => e.textContent)")
    claim("chats are kept, newest first", listed == ["Say goodbye.", "Say hello."], listed)
    browser.run("document.querySelector('#list div button').click()")
    claim("a chat is opened again", browser.run("document.querySelectorAll('#talk article').length") >= 4)
    claim("the system prompt is kept, the key is not", browser.run("document.querySelector('#system').value") != ""
          and browser.run("document.querySelector('#key').value") == "" and KEY not in browser.run("JSON.stringify(localStorage)"))
    browser.run(f"document.querySelector('#key').value = {json.dumps(KEY)}")

    # Text of any kind.
    shown = browser.run(f"(() => {{ const box = document.createElement('div'); box.append(markdown({json.dumps(MARKDOWN)}));"
                        " const all = s => [...box.querySelectorAll(s)].map(e => e.textContent);"
                        " return {h: all('h1'), strong: all('strong'), em: all('em'), del: all('del'), code: all('p code'), a: box.querySelector('a').href,"
                        " li: all('ol > li').length, deep: all('ol ul li'), th: all('th'), td: all('td'), quote: all('blockquote'), pre: all('pre code'),"
                        " copy: all('pre button'), bad: box.querySelectorAll('img, script').length} })()")
    wanted = {"h": ["Head"], "strong": ["bold"], "em": ["thin"], "del": ["gone"], "code": ["code <b>"], "a": "https://example.com/x?a=1&b=2",
              "li": 2, "deep": ["deep"], "th": ["a", "b"], "td": ["1", "2"], "quote": ["said"],
              "pre": ['fn main() { println!("<script>"); }'], "copy": ["Copy"], "bad": 0}
    claim("Markdown becomes elements, and nothing else does", shown == wanted, shown)
    fresh(browser)
    hostile = "<img src=x onerror=\"document.title='broken'\"><script>document.title='broken'</script>"
    browser.type(hostile)
    browser.key("Enter")
    browser.until(ANSWERED)
    shown = browser.run("document.querySelector('#talk .user .text').textContent")
    claim("text is shown and never run", shown == hostile and browser.run("document.title") == "Vosti"
          and not browser.run("document.querySelectorAll('#talk img, #talk script').length"), shown)
    browser.screenshot("chat")

    # The same bits: of a prompt, and of an answer in a chat.
    for name, start in [("a prompt", "document.querySelector('#same-open').click(); document.querySelector('#compare').click()"),
                        ("an answer of a chat", press % "Same bits?" + "; document.querySelector('#compare').click()")]:
        browser.run(start)
        verdict = browser.until("!document.querySelector('#compare').disabled && document.querySelector('#verdict').textContent", 300)
        digests = browser.run("[...document.querySelectorAll('.digest')].map(cell => cell.textContent)")
        claim(f"{name} has one digest under four loads", len(digests) == 4 and len(set(digests)) == 1, (verdict, digests))
        claim("the page says so", verdict and verdict.startswith("All 4 digests agree"), verdict)
        browser.screenshot("same bits, " + name)
        browser.key("Escape")

    # A phone.
    browser.call("Emulation.setDeviceMetricsOverride", width=390, height=780, deviceScaleFactor=1, mobile=True)
    claim("nothing is wider than a phone", browser.run("document.documentElement.scrollWidth") <= 390)
    hidden = browser.run("getComputedStyle(document.querySelector('#side')).visibility")
    browser.click("#menu")
    open_ = browser.until("getComputedStyle(document.querySelector('#side')).visibility === 'visible'", 5)
    claim("the list of chats opens and closes", hidden == "hidden" and open_, (hidden, open_))
    browser.screenshot("phone, list")
    browser.key("Escape")
    browser.until("getComputedStyle(document.querySelector('#side')).visibility === 'hidden'", 5)
    browser.screenshot("phone")

    unnamed = browser.run("[...document.querySelectorAll('button, input, textarea, select')].filter(e => !(e.textContent.trim() || e.ariaLabel"
                          " || e.labels?.length)).map(e => e.id)")
    claim("everything that is used has a name for a screen reader", not unnamed, unnamed)
    blocked = browser.run("fetch('https://example.com/').then(() => 'fetched', () => 'blocked')")
    claim("the page may ask nobody else", blocked == "blocked", blocked)
    wrong = [event["params"] for event in browser.events if event.get("method") == "Runtime.exceptionThrown"]
    claim("no script of the page failed", not wrong, wrong)
    logged = [e["params"]["entry"]["text"] for e in browser.events if e.get("method") == "Log.entryAdded"]
    blocked = [text for text in logged if "Security Policy" in text and "example.com" not in text]
    claim("the policy blocked nothing of the page's own", not blocked, blocked)


with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
    browser = Browser(profile)
    try:
        main(browser)
    finally:
        browser.process.kill()
        browser.process.wait()
print("all claims hold")
