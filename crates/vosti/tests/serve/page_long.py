"""The page with long answers, two tabs, errors, reloads and files: `page_long.py BROWSER URL KEY [FOLDER]`.

Long answers come from a stand-in for `fetch`, at once and always the same; what continues an answer is asked of the server.
"""

import json

from browser import KEY, URL, claim, run

SIZES = [("desktop", 1280, 800, False), ("phone", 390, 780, True)]
DONE = "!document.querySelector('#send').disabled && document.querySelectorAll('#talk article').length"
# Lines of text, then code, a table and formulas; `pace` is the milliseconds between chunks.
STAND_IN = r"""
window.bodies = [];
window.pace = 0;
window.lines = 120;
window.refuse = null;
window.real ??= window.fetch;
window.fetch = (path, options) => {
  if (!String(path).startsWith('v1/chat')) return window.real(path, options);
  window.bodies.push(JSON.parse(options.body));
  if (window.refuse) return Promise.resolve(new Response(JSON.stringify({ error: { message: window.refuse[1] } }), { status: window.refuse[0] }));
  const parts = [...Array(window.lines).keys()].map(i => 'Line ' + i + ' of a long answer that goes on and on, so that it wraps on a phone.\n\n');
  parts.push('```rust\n// a remark that is long ' + 'x'.repeat(200) + '\nfn main() { let n = 42; println!("hi"); }\n```\n\n', '| name | a long head of a column, which wraps on a phone |\n| - | - |\n| 1 | 2 |\n\n',
    'Euler: $e^{i\\pi} + 1 = 0$ for 5$ and 6$.\n\n', '$$\\int_0^1 \\frac{x^2}{\\sqrt{2}} \\, dx = \\begin{pmatrix} a & b \\\\ c & d \\end{pmatrix}$$\n\n', 'The end.');
  const usage = n => ({ prompt_tokens: 10, completion_tokens: n, total_tokens: 10 + n });
  const chunk = (text, i, end) => 'data: ' + JSON.stringify({ system_fingerprint: 'vosti-test', usage: usage(i + 1), choices: [{ index: 0,
    delta: { content: text }, finish_reason: end ? 'stop' : null, token_ids: [i] }] }) + '\n\n';
  const body = new ReadableStream({ async start(to) {
    const encoder = new TextEncoder();
    options.signal?.addEventListener('abort', () => { try { to.error(new DOMException('stopped', 'AbortError')); } catch {} });
    try {
      for (const [i, part] of parts.entries()) {
        to.enqueue(encoder.encode(chunk(part, i, i === parts.length - 1)));
        await new Promise(done => setTimeout(done, window.pace));
      }
      to.enqueue(encoder.encode('data: [DONE]\n\n'));
      to.close();
    } catch { /* Stopped. */ }
  } });
  return Promise.resolve(new Response(body));
};"""
IN_SIGHT = "(() => { const b = document.querySelector('%s').getBoundingClientRect(); return b.height > 0 && b.top >= 0 && b.bottom <= innerHeight && b.right <= innerWidth })()"


def in_sight(browser, selector):
    return browser.run(IN_SIGHT % selector)


def visit(browser):
    session = browser.open(URL + "/")
    browser.until("document.querySelector('#model').textContent")
    browser.run(f"document.querySelector('#key').value = {json.dumps(KEY)}; document.querySelector('#settings').onclose()")
    browser.run(STAND_IN)
    return session


def send(browser, text):
    browser.click("#say")
    browser.type(text)
    browser.key("Enter")


def press(browser, text):
    browser.run(f"[...document.querySelectorAll('#talk article:last-child button')].find(b => b.textContent === {json.dumps(text)}).click()")


def long_answers(browser, size):
    browser.run("window.pace = 15")
    send(browser, "Tell me everything.")
    browser.until("document.querySelector('#talk').scrollHeight > 2 * innerHeight")
    claim(f"{size}: the window does not grow with an answer", browser.run("document.documentElement.scrollHeight <= innerHeight"
          " && document.documentElement.scrollWidth <= innerWidth"), browser.run("[document.documentElement.scrollHeight, innerHeight]"))
    claim(f"{size}: message and Stop stay in sight while it streams", in_sight(browser, "#say") and in_sight(browser, "#stop"))
    claim(f"{size}: the conversation scrolls along", browser.until("following() && document.querySelector('#talk').scrollTop > 100", 5))
    browser.screenshot(size + ", streaming")
    browser.run("document.querySelector('#talk').scrollTop = 0")
    browser.run("new Promise(done => setTimeout(done, 300))")
    claim(f"{size}: who reads above stays there", browser.run("document.querySelector('#talk').scrollTop === 0 && talking !== null"))
    browser.run("window.pace = 0")
    browser.until(DONE)
    claim(f"{size}: also when the answer ends", browser.run("document.querySelector('#talk').scrollTop") == 0)
    browser.click("#down")
    claim(f"{size}: a button leads to the end", browser.until("following()", 5) and in_sight(browser, "#talk article:last-child .tools"))
    claim(f"{size}: nothing is wider than the window", browser.run(
        "document.querySelector('#talk').scrollWidth <= document.querySelector('#talk').clientWidth"))
    broken = browser.run("[...document.querySelectorAll('#talk th:first-child')].filter(cell => { const range = document.createRange();"
                         " range.selectNodeContents(cell); return range.getClientRects().length !== 1 }).length")
    claim(f"{size}: a table's words are whole", browser.run("document.querySelectorAll('#talk th').length") == 2 and broken == 0, broken)
    browser.screenshot(size + ", long")


def contents(browser):
    shown = browser.run("(() => { const all = s => [...document.querySelectorAll('#talk .assistant ' + s)].map(e => e.textContent);"
                        " return {word: all('.word'), remark: all('.remark').length, quoted: all('.quoted'), number: all('pre .number'), math: all('math').length,"
                        " text: all('p').find(t => t.startsWith('Euler')), frac: all('mfrac').length, cells: all('mtd')} })()")
    claim("code is coloured and formulas are set", shown == {"word": ["fn", "let"], "remark": 1, "quoted": ['"hi"'], "number": ["42"], "math": 2,
          "text": "Euler: eiπ+1=0 for 5$ and 6$.", "frac": 1, "cells": ["a", "b", "c", "d"]}, shown)
    told = browser.run("document.querySelector('#talk article:last-child .tools').textContent")
    claim("an answer tells its tokens, speed, context and seed", "125 tokens" in told and "/s" in told and "context 135 of " in told and "seed 1" in told, told)


def errors(browser):
    browser.run("document.querySelector('#talk').scrollTop = 0; window.refuse = [500, 'the disk is full']")
    press(browser, "Regenerate")
    browser.until(DONE)
    browser.run("document.querySelector('#talk').scrollTop = 0")
    claim("an error is in sight wherever the conversation stands", in_sight(browser, "#told") and "the disk is full" in
          browser.run("document.querySelector('#told').textContent"))
    browser.screenshot("error")
    browser.run("window.refuse = [401, 'the API key is missing']")
    press(browser, "Regenerate")
    browser.until(DONE)
    browser.click("#told button")
    claim("a missing key leads to its field", browser.run("document.activeElement.id") == "key")
    browser.key("Escape")
    browser.run("window.refuse = null; window.lines = 1")
    press(browser, "Regenerate")
    browser.until(DONE)
    told = "document.querySelector('#talk article:last-child .tools').textContent"
    claim("an answer's versions are kept, and failed ones are not", "2/2" in browser.run(told) and "seed 2" in browser.run(told), browser.run(told))
    press(browser, "‹")
    claim("an earlier version is shown again", "1/2" in browser.run(told) and "seed 1" in browser.run(told), browser.run(told))


def settings(browser):
    browser.click("#settings-open")
    claim("a setting shows the value behind its default", browser.until("document.querySelector('#temperature').placeholder === "
          "'default ' + card.default_sampling_params.temperature", 5), browser.run("document.querySelector('#temperature').placeholder"))
    browser.screenshot("settings")
    browser.run("for (const [id, value] of Object.entries({min_p: 0.25, presence_penalty: 1, repetition_penalty: 1.5, stops: 'END\\n\\\\n\\\\n', theme: 'dark'}))"
                " { document.querySelector('#' + id).value = value }")
    browser.run("document.querySelector('#theme').onchange()")
    claim("the theme is a setting", browser.run("getComputedStyle(document.body).backgroundColor") == "rgb(23, 24, 26)")
    browser.click("#settings .main")
    browser.run("attach([new File(['one\\ntwo'], 'notes.txt'), new File([new Uint8Array([0, 255])], 'picture.png')])")
    browser.until("document.querySelectorAll('.chip').length === 1 && !document.querySelector('#told').hidden")
    claim("a file that is no text is refused", "picture.png" in browser.run("document.querySelector('#told').textContent"))
    send(browser, "Read this.")
    browser.until(DONE)
    body = browser.run("window.bodies.at(-1)")
    claim("penalties, min-p and stops are in the request", (body["min_p"], body["presence_penalty"], body["repetition_penalty"], body["stop"])
          == (0.25, 1, 1.5, ["END", "\n\n"]) and "temperature" not in body, body)
    claim("a file's text goes with the message", body["messages"][-1]["content"] == "Read this.\n\nnotes.txt:\n```\none\ntwo\n```", body["messages"][-1])
    browser.screenshot("dark")
    browser.run("document.querySelector('#reset').click(); document.querySelector('#theme').value = 'auto'; document.querySelector('#settings').onclose(); themed()")


LISTED = "[...document.querySelectorAll('#list div button:first-child')].map(e => e.textContent)"


def chats(browser):
    browser.click("#new")
    send(browser, "About whales.")
    browser.until(DONE)
    browser.run("document.querySelector('#list div button[aria-label^=Rename]').click()")
    browser.run("document.querySelector('#list input').value = 'Sea'")
    browser.key("Enter")
    claim("a chat is renamed", browser.run(LISTED)[0] == "Sea", browser.run(LISTED))
    browser.run("document.querySelector('#search').value = 'whales'; listed()")
    claim("chats are searched by their words", browser.run(LISTED) == ["Sea"], browser.run(LISTED))
    browser.run("document.querySelector('#search').value = ''; listed()")
    all_ = browser.run(LISTED)
    browser.run("document.querySelector('#list div button[aria-label^=Delete]').click()")
    gone = browser.run(LISTED)
    browser.click("#told button")
    claim("a deleted chat is gone, and comes back by Undo", len(gone) == len(all_) - 1 and sorted(browser.run(LISTED)) == sorted(all_), gone)
    browser.run("window.blobs = []; URL.createObjectURL = blob => { window.blobs.push(blob); return 'data:,' }; exported()")
    browser.run("document.querySelector('#forget').click()")
    claim("all chats are deleted at once", browser.run(LISTED) == [] and not browser.run("Object.keys(localStorage).some(k => k.startsWith(CHAT))"))
    browser.run("imported(new File([window.blobs[0]], 'chats.json'))")
    browser.until("document.querySelectorAll('#list div').length")
    claim("exported chats are imported", sorted(browser.run(LISTED)) == sorted(all_), browser.run(LISTED))
    browser.run("imported(new File(['{}'], 'other.json'))")
    claim("another file is refused", browser.until("document.querySelector('#told').textContent.includes('other.json')", 5))
    browser.run("forget([...chats.values()]); hush()")


def two_tabs(browser, one):
    browser.click("#new")
    send(browser, "From the first tab.")
    browser.until(DONE)
    two = visit(browser)
    browser.run("window.lines = 1")
    send(browser, "From the second tab.")
    browser.until(DONE)
    both = {"From the first tab.", "From the second tab."}
    claim("a second tab keeps the first's chats", set(browser.run(LISTED)) == both, browser.run(LISTED))
    browser.front(one)
    claim("the first lists the second's chat at once", browser.until(f"{LISTED}.includes('From the second tab.')", 5), browser.run(LISTED))
    send(browser, "More from the first.")
    browser.until(DONE)
    browser.call("Page.reload")
    browser.until("document.querySelectorAll('#list div').length")
    claim("and the first keeps the second's", set(browser.run(LISTED)) == both, browser.run(LISTED))
    # The same chat in both, where both go on at the same time.
    browser.run(STAND_IN + "; window.pace = 20; open([...chats.values()].find(c => title(c).includes('first')))")
    send(browser, "A goes on.")
    browser.front(two)
    browser.run("window.pace = 20; window.lines = 60; open([...chats.values()].find(c => title(c).includes('first')))")
    send(browser, "B goes on.")
    browser.until(DONE)
    browser.front(one)
    browser.until(DONE)
    browser.call("Page.reload")
    browser.until("document.querySelectorAll('#list div').length")
    texts = browser.run("[...chats.values()].flatMap(c => c.messages.map(words))")
    claim("two tabs in one chat lose nothing", {"A goes on.", "B goes on."} <= set(texts) and sum("The end." in text for text in texts) >= 4, texts)


def reloads(browser):
    browser.run(STAND_IN + "; window.pace = 20; window.lines = 1000; open(null)")
    send(browser, "Do not lose this.")
    browser.until("document.querySelector('#talk').textContent.includes('Line 30 ')")
    browser.call("Page.reload")
    browser.until("document.querySelectorAll('#list div').length && document.querySelector('#model').textContent")
    claim("the key is kept in this tab, and nowhere else", browser.run("document.querySelector('#key').value") == KEY
          and KEY not in browser.run("JSON.stringify(localStorage)"))
    browser.run("document.querySelector('#list div button').click()")
    told = browser.run("document.querySelector('#talk article:last-child').textContent")
    claim("a reload keeps what had come, and says so", "Line 30 " in told and "not finished" in told and "Continue" in told, told[-200:])


def continues(browser):
    """Of the server: an answer that was cut, and went on twice, is the answer that was not cut."""
    answer = "document.querySelector('#talk article:last-child .text').textContent"
    browser.run("open(null); document.querySelector('#max_tokens').value = 30")
    send(browser, "Write about the sea.")
    browser.until(DONE)
    whole = browser.run(answer)
    browser.run("open(null); document.querySelector('#max_tokens').value = 10")
    send(browser, "Write about the sea.")
    browser.until(DONE)
    first = browser.run(answer)
    browser.call("Page.reload")
    browser.until("document.querySelectorAll('#list div').length && document.querySelector('#model').textContent")
    browser.run("document.querySelector('#list div button').click()")
    for _ in range(2):
        press(browser, "Continue")
        browser.until(DONE)
    claim("an answer goes on after its limit and a reload, with the bits of the whole", len(first) < len(whole) and browser.run(answer) == whole,
          (first, whole, browser.run(answer)))


def main(browser):
    one = visit(browser)
    for size, width, height, mobile in SIZES:
        browser.size(width, height, mobile)
        browser.run("open(null)")
        long_answers(browser, size)
    browser.size(1280, 800)
    contents(browser)
    errors(browser)
    settings(browser)
    chats(browser)
    two_tabs(browser, one)
    reloads(browser)
    continues(browser)


if __name__ == "__main__":
    run(main)
