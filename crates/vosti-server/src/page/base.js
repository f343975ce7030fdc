"use strict";
// Elements, the server, and the line that tells what went wrong. Whatever a model or a user wrote becomes text nodes, never HTML.

const $ = id => document.getElementById(id);
const make = (tag, text, name) => {
  const element = document.createElement(tag);
  if (text !== undefined) element.textContent = text;
  if (name) element.className = name;
  return element;
};
const button = (text, label, act, name = "plain") => {
  const made = make("button", text, name);
  made.type = "button";
  if (label) made.setAttribute("aria-label", label);
  made.onclick = act;
  return made;
};

// Replaces children from the first that differs, so that a selection in the text before it stays.
function refill(box, made) {
  const before = [...box.childNodes], after = [...made.childNodes];
  let same = 0;
  while (same < before.length && same < after.length && before[same].isEqualNode(after[same])) same++;
  before.slice(same).forEach(node => node.remove());
  box.append(...after.slice(same));
}

// One line above the composer, where it is seen wherever the conversation stands; `act` is one thing to do about it.
let toldUntil = 0;
function tell(text, bad = true, label, act, seconds = 0) {
  const line = $("told");
  line.className = bad ? "bad" : "";
  line.replaceChildren(make("span", text));
  if (label) line.append(button(label, undefined, () => { hush(); act(); }, ""));
  line.append(button("✕", "Close this line", hush));
  line.hidden = false;
  clearTimeout(toldUntil);
  if (seconds) toldUntil = setTimeout(hush, seconds * 1000);
}
function hush() { $("told").hidden = true; }

// ---- The server ----

let model = "", card = null, cardWanted = false;

const signed = headers => $("key").value ? { ...headers, authorization: "Bearer " + $("key").value } : headers;

class Refused extends Error {
  constructor(message, status) { super(message); this.status = status; }
}

async function sent(path, options) {
  let reply;
  try { reply = await fetch(path, options); } catch (error) {
    throw error.name === "AbortError" ? error : new Refused("the server does not answer: is it running?", 0);
  }
  if (reply.ok) return reply;
  const error = await reply.json().catch(() => null);
  throw new Refused(error?.error?.message ?? "the server answered " + reply.status, reply.status);
}

const ask = (body, signal) => sent("v1/chat/completions",
  { method: "POST", headers: signed({ "content-type": "application/json" }), body: JSON.stringify(body), signal });

// What went wrong, with the remedy if the page has one.
function failed(error) {
  if (error.status === 401) tell(error.message, true, "Enter the key", () => { openSettings(); $("key").focus(); });
  else tell(error.message);
}

// The data of server-sent events, one JSON value after the other.
async function* events(reply) {
  const reader = reply.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const lines = (rest + value).split("\n");
    rest = lines.pop();
    for (const line of lines) {
      if (!line.startsWith("data: ")) continue;
      if (line === "data: [DONE]") { yield null; return; }
      const data = JSON.parse(line.slice(6));
      if (data.error) throw new Refused(data.error.message, 500);
      yield data;
    }
  }
}

// The model's context and the sampling of requests that give none.
async function getCard() {
  cardWanted = true;
  try {
    card = (await (await sent("v1/models", { headers: signed({}) })).json()).data[0];
    for (const input of document.querySelectorAll("[data-number]")) {
      const own = card.default_sampling_params[input.id];
      input.placeholder = "default " + (own ?? input.dataset.number);
    }
    $("max_tokens").placeholder = "default: up to the context of " + card.max_model_len;
    $("source").textContent = "Defaults are " + (card.default_sampling_params.source ?? "OpenAI's") + ".";
  } catch { card = null; /* Not loaded yet, or the key is missing: asked again when the settings open. */ }
}

// The engine's state, once a second while someone looks at the page.
let before = null;
async function look() {
  if (document.hidden) return;
  try {
    const s = await (await fetch("status")).json(), now = performance.now();
    if (!cardWanted && s.status === "ready") getCard();
    model = s.model;
    $("model").textContent = s.model;
    $("fingerprint").textContent = s.system_fingerprint ?? s.status;
    const rate = before ? Math.max(0, s.tokens - before.tokens) / (now - before.now) * 1000 : 0;
    before = { tokens: s.tokens, now };
    const hit = s.prefix_query_tokens ? Math.round(100 * s.prefix_hit_tokens / s.prefix_query_tokens) + " %" : "–";
    const used = s.pages_total - s.pages_free - s.pages_cached_unused;
    const shown = { status: s.status, running: s.running, waiting: s.waiting, "tokens/s": rate.toFixed(1),
      "pages in use": used + " of " + s.pages_total, "pages cached": s.pages_cached_unused, "cache hits": hit,
      steps: s.steps, tokens: s.tokens, aborted: s.aborted };
    $("state").replaceChildren(...Object.entries(shown).map(([name, value]) => {
      const cell = make("div");
      cell.append(make("dt", name), make("dd", value));
      return cell;
    }));
  } catch { $("state").replaceChildren(make("div", "the server does not answer")); }
}

async function copy(text, from) {
  const said = from.textContent;
  try { await navigator.clipboard.writeText(text); } catch {
    // Pages of other machines without TLS have no clipboard.
    const box = make("textarea", text);
    document.body.append(box);
    box.select();
    document.execCommand("copy");
    box.remove();
  }
  from.textContent = "Copied";
  setTimeout(() => { from.textContent = said; }, 1200);
}
