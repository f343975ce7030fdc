"""The page as a person uses it, by keys and buttons, with the model's own answers: `page.py BROWSER URL KEY [FOLDER]`."""

import json
import time

from browser import KEY, URL, claim, run

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
    claim("each token shows its probability and the next likely ones", tokens >= 3 and tip.count(" %") == 6, (tokens, tip))
    spelled = browser.run("[document.querySelector('.tokens').textContent, now(chat.messages.at(-1)).content]")
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
    claim("the system prompt is kept, and the key in this tab only", browser.run("document.querySelector('#system').value") != ""
          and browser.run("document.querySelector('#key').value") == KEY and KEY not in browser.run("JSON.stringify(localStorage)"))

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
    heavy = [">" * 20_000, "".join("`" * n + "a" for n in range(1, 150)), "*a " * 10_000, "**~~" * 3_000 + "x" + "~~**" * 3_000, "[a" * 10_000]
    lengths = browser.run(f"{json.dumps(heavy)}.map(text => {{ const box = document.createElement('div'); box.append(markdown(text));"
                          " return box.textContent.length; })")
    claim("text of nothing but marks is shown", all(lengths), lengths)
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
    browser.size(390, 780, mobile=True)
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
    logged = [e["params"]["entry"]["text"] for e in browser.events if e.get("method") == "Log.entryAdded"]
    blocked = [text for text in logged if "Security Policy" in text and "example.com" not in text]
    claim("the policy blocked nothing of the page's own", not blocked, blocked)


run(main)
