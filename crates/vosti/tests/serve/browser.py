"""A headless Chromium, driven over its debugging pipe, for `page.py` and `page_long.py`: `SCRIPT BROWSER URL KEY [FOLDER]`. Each prints
one line per claim; with a folder, it leaves screenshots there."""

import base64
import json
import os
import subprocess
import sys
import tempfile

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
                 "--no-first-run", "--disable-background-networking", "--disable-background-timer-throttling",
                 "--disable-renderer-backgrounding", "--disable-backgrounding-occluded-windows", f"--user-data-dir={profile}"]
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
        """Opens a tab, which takes the commands that follow, and gives its session."""
        self.session = None
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        self.call("Runtime.enable")
        self.call("Log.enable")
        self.call("Page.enable")
        self.call("Page.navigate", url=url)
        return self.session

    def front(self, session):
        """Another tab takes the commands that follow, and is the one that a person sees."""
        self.session = session
        self.call("Page.bringToFront")

    def size(self, width, height, mobile=False):
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=mobile)

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


def run(main):
    """Runs the claims in a browser of a fresh profile."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        browser = Browser(profile)
        try:
            main(browser)
            wrong = [event["params"] for event in browser.events if event.get("method") == "Runtime.exceptionThrown"]
            claim("no script of the page failed", not wrong, wrong)
        finally:
            browser.process.kill()
            browser.process.wait()
    print("all claims hold")
