"""The page in headless Chromium, driven over its debugging pipe: `page.py BROWSER URL KEY`. Prints one line per claim."""

import json
import os
import subprocess
import sys
import tempfile

BROWSER, URL, KEY = sys.argv[1:]


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


def claim(text, holds, seen=""):
    print(("ok   " if holds else "FAIL ") + text + (f": {seen}" if not holds else ""), flush=True)
    if not holds:
        raise SystemExit(1)


def main(browser):
    browser.open(URL + "/")
    claim("the page shows the model and the engine", browser.until(
        "document.querySelector('#model').textContent && document.querySelectorAll('#state dt').length >= 8"))
    claim("the fingerprint is shown", browser.run("document.querySelector('#fingerprint').textContent").startswith("vosti-"))

    send = "document.querySelector('#say').value = 'Say hello.'; document.querySelector('#send').click()"
    browser.run(send)
    refused = browser.until("document.querySelector('#talk .bad')?.textContent")
    claim("without a key the chat says what is missing", refused and "key" in refused.lower(), refused)
    browser.run(f"document.querySelector('#key').value = {json.dumps(KEY)}; document.querySelector('#talk').replaceChildren()")
    browser.run(send)
    done = "!document.querySelector('#send').disabled && document.querySelector('#talk .assistant').textContent"
    claim("a chat is answered", browser.until(done))

    hostile = "<img src=x onerror=\"document.title='broken'\"><script>document.title='broken'</script>"
    browser.run("document.querySelector('#talk').replaceChildren();"
                f"document.querySelector('#say').value = {json.dumps(hostile)}; document.querySelector('#send').click()")
    browser.until(done)
    shown = browser.run("document.querySelector('#talk .user').textContent")
    claim("text is shown and never run", shown == hostile and browser.run("document.title") == "Vosti"
          and not browser.run("document.querySelectorAll('#talk img, #talk script').length"), shown)

    browser.run("document.querySelector('#compare').click()")
    verdict = browser.until("!document.querySelector('#compare').disabled && document.querySelector('#verdict').textContent", 300)
    digests = browser.run("[...document.querySelectorAll('.digest')].map(cell => cell.textContent)")
    claim("one prompt under four loads has one digest", len(digests) == 4 and len(set(digests)) == 1, (verdict, digests))
    claim("the page says so", verdict and verdict.startswith("All 4 digests agree"), verdict)

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
