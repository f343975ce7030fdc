"use strict";
// Whatever a model or a user wrote becomes text nodes, never HTML.

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

// ---- The server ----

let model = "";

async function ask(body, signal) {
  const headers = { "content-type": "application/json" };
  if ($("key").value) headers.authorization = "Bearer " + $("key").value;
  const reply = await fetch("v1/chat/completions", { method: "POST", headers, body: JSON.stringify(body), signal });
  if (reply.ok) return reply;
  const error = await reply.json().catch(() => null);
  throw new Error(error?.error?.message ?? "the server answered " + reply.status);
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
      if (!line.startsWith("data: ") || line === "data: [DONE]") continue;
      const data = JSON.parse(line.slice(6));
      if (data.error) throw new Error(data.error.message);
      yield data;
    }
  }
}

// The engine's state, once a second while someone looks at the page.
let before = null;
async function look() {
  if (document.hidden) return;
  try {
    const s = await (await fetch("status")).json(), now = performance.now();
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

// ---- Markdown, as far as answers use it ----

const INLINE = /(`+)([\s\S]+?)\1(?!`)|\*\*(\S[\s\S]*?)\*\*|(?<![\w*])\*([^\s*](?:[\s\S]*?[^\s*])?)\*(?![\w*])|~~(\S[\s\S]*?)~~|\[([^\]\n]+)\]\((https?:\/\/[^\s)]+)\)|https?:\/\/[^\s<>()"'`]+/g;

function link(text, to) {
  const made = make("a", text);
  made.href = to;
  made.target = "_blank";
  made.rel = "noopener noreferrer";
  return made;
}

function inline(text) {
  const out = document.createDocumentFragment();
  const plain = part => part.split("\n").forEach((line, i) => { if (i) out.append(make("br")); out.append(line); });
  const nested = (tag, part) => { const made = make(tag); made.append(inline(part)); out.append(made); };
  let at = 0;
  for (const found of text.matchAll(INLINE)) {
    plain(text.slice(at, found.index));
    at = found.index + found[0].length;
    if (found[1]) out.append(make("code", found[2]));
    else if (found[3]) nested("strong", found[3]);
    else if (found[4]) nested("em", found[4]);
    else if (found[5]) nested("del", found[5]);
    else if (found[6]) out.append(link(found[6], found[7]));
    else out.append(link(found[0], found[0]));
  }
  plain(text.slice(at));
  return out;
}

const ITEM = /^(\s*)(?:[-*+]|(\d{1,9})[.)])\s+(.*)$/, FENCE = /^\s*(```+|~~~+)\s*([\w+#.-]*)/;
const RULE = /^\s*([-*_])(\s*\1){2,}\s*$/, HEAD = /^(#{1,6})\s+(.*)$/, BARS = /^\s*\|?\s*:?-+:?\s*(\|\s*:?-+:?\s*)*\|?\s*$/;
const begins = (line, next) => FENCE.test(line) || RULE.test(line) || HEAD.test(line) || ITEM.test(line) || /^\s*>/.test(line)
  || (line.includes("|") && next !== undefined && next.includes("-") && BARS.test(next));

function fenced(language, code) {
  const block = make("pre"), inside = make("code", code);
  if (language) block.dataset.language = language;
  block.append(inside, button("Copy", "Copy code", event => copy(code, event.target)));
  return block;
}

function table(lines) {
  const cells = line => line.trim().replace(/^\||\|$/g, "").split("|").map(cell => cell.trim());
  const made = make("table");
  lines.filter((_, i) => i !== 1).forEach((line, i) => {
    const row = make("tr");
    for (const cell of cells(line)) { const box = make(i ? "td" : "th"); box.append(inline(cell)); row.append(box); }
    made.append(row);
  });
  return made;
}

// A list's lines: each item is its own text with the lines under it that are indented.
function list(lines) {
  const [, indent, number] = lines[0].match(ITEM);
  const made = make(number === undefined ? "ul" : "ol");
  if (number !== undefined) made.start = Number(number);
  const items = [], below = new RegExp("^\\s{0," + (indent.length + 3) + "}");
  for (const line of lines) {
    const found = line.match(ITEM);
    if (found && found[1].length <= indent.length) items.push([found[3]]);
    else items.at(-1).push(line.replace(below, ""));
  }
  for (const item of items) {
    const li = make("li");
    li.append(item.length === 1 ? inline(item[0]) : markdown(item.join("\n")));
    made.append(li);
  }
  return made;
}

function markdown(text) {
  const out = document.createDocumentFragment(), lines = text.split("\n");
  for (let i = 0; i < lines.length;) {
    const line = lines[i], start = i, fence = line.match(FENCE), head = line.match(HEAD);
    if (!line.trim()) i++;
    else if (fence) {
      for (i++; i < lines.length && !lines[i].trim().startsWith(fence[1]);) i++;
      out.append(fenced(fence[2], lines.slice(start + 1, i++).join("\n")));
    } else if (head) { const made = make("h" + Math.min(4, head[1].length)); made.append(inline(head[2])); out.append(made); i++; }
    else if (RULE.test(line)) { out.append(make("hr")); i++; }
    else if (/^\s*>/.test(line)) {
      while (i < lines.length && /^\s*>/.test(lines[i])) i++;
      const made = make("blockquote");
      made.append(markdown(lines.slice(start, i).map(quoted => quoted.replace(/^\s*> ?/, "")).join("\n")));
      out.append(made);
    } else if (ITEM.test(line)) {
      const depth = line.match(ITEM)[1].length;
      const inside = (here, next) => ITEM.test(here) || /^\s/.test(here) && here.trim()
        || !here.trim() && next !== undefined && (/^\s+\S/.test(next) || ITEM.test(next));
      for (i++; i < lines.length && inside(lines[i], lines[i + 1]);) i++;
      out.append(list(lines.slice(start, i).map(item => item.slice(Math.min(depth, item.search(/\S|$/))))));
    } else if (begins(line, lines[i + 1])) {
      while (i < lines.length && lines[i].includes("|")) i++;
      out.append(table(lines.slice(start, i)));
    } else {
      for (i++; i < lines.length && lines[i].trim() && !begins(lines[i], lines[i + 1]);) i++;
      const made = make("p");
      made.append(inline(lines.slice(start, i).join("\n")));
      out.append(made);
    }
  }
  return out;
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

// ---- Conversations and settings, kept in this browser ----

const kept = (name, otherwise) => { try { return JSON.parse(localStorage.getItem("vosti." + name)) ?? otherwise; } catch { return otherwise; } };
const keep = (name, value) => { try { localStorage.setItem("vosti." + name, JSON.stringify(value)); } catch { /* Full or forbidden: this visit only. */ } };

let chats = kept("chats", []);
let chat = null;
let talking = null;

function save() {
  if (chat.messages.length && !chats.includes(chat)) chats.unshift(chat);
  // Log-probabilities are many and only of this visit.
  keep("chats", chats.map(one => ({ ...one, messages: one.messages.map(({ tokens, ...message }) => message) })));
  listed();
}

function listed() {
  $("list").replaceChildren(...chats.map(one => {
    const row = make("div", undefined, one === chat ? "now" : ""), title = one.messages[0]?.content.slice(0, 60) || "New chat";
    row.append(button(title, undefined, () => open(one)), button("✕", "Delete " + title, () => {
      chats = chats.filter(other => other !== one);
      if (one === chat) open(null); else save();
      keep("chats", chats);
      listed();
    }));
    return row;
  }));
}

function open(one) {
  talking?.abort();
  chat = one ?? { messages: [] };
  side(false);
  listed();
  drawn();
  $("say").focus();
}

const FIELDS = ["system", "temperature", "top_p", "top_k", "max_tokens", "seed"];

function side(shown) {
  $("side").classList.toggle("open", shown);
  $("menu").setAttribute("aria-expanded", shown);
}

// The request for an answer to these messages.
function request(messages, seed) {
  const system = $("system").value.trim();
  const said = messages.map(({ role, content }) => ({ role, content }));
  const body = { model, messages: system ? [{ role: "system", content: system }, ...said] : said, seed };
  for (const name of ["temperature", "top_p", "top_k", "max_tokens"]) if ($(name).value !== "") body[name] = Number($(name).value);
  return body;
}

// ---- The talk ----

function drawn() {
  const said = chat.messages.map((message, i) => shown(message, i));
  $("talk").replaceChildren(...(said.length ? said : [welcome()]));
  $("talk").scrollTop = $("talk").scrollHeight;
}

// What a chat shows before its first message.
function welcome() {
  const made = make("div", undefined, "welcome"), row = make("div");
  row.append(...["Why is the sky blue?", "Write a haiku about winter.", "Explain recursion to a child."].map(text =>
    button(text, undefined, () => { if (!talking) say(text); }, "")));
  made.append(make("h2", "Ask the model something"), make("p", "The same words with the same seed give the same answer, to the last "
    + "bit, whatever else the server does. “Same bits?” shows it for any answer."), row);
  return made;
}

function shown(message, i) {
  const article = make("article", undefined, message.role), text = make("div", undefined, "text"), tools = make("div", undefined, "tools");
  if (message.role === "user") {
    text.textContent = message.content;
    tools.append(button("Edit", "Edit and send again", () => edit(article, i)), button("Copy", "Copy message", e => copy(message.content, e.target)));
  } else {
    fill(text, message);
    tools.append(button("Copy", "Copy answer", e => copy(message.content, e.target)));
    if (i === chat.messages.length - 1) tools.append(button("Regenerate", "Answer again with the next seed", () => again(i)));
    if (message.tokens?.length) tools.append(button("Tokens", "Show tokens and their probabilities", () => fill(text, message, text.dataset.as !== "tokens")));
    if (message.content) tools.append(button("Same bits?", "Compare this answer alone and among others", () => compareOpen(i)));
    if (message.ended === "length") tools.append(make("span", "cut off at its token limit"));
    if (message.seed !== undefined) tools.append(make("span", "seed " + message.seed));
    if (message.error) tools.prepend(make("span", message.error, "bad"));
  }
  article.append(text, tools);
  return article;
}

function fill(text, message, tokens = false) {
  text.dataset.as = tokens ? "tokens" : "text";
  text.replaceChildren();
  if (message.thought) {
    const more = make("details");
    more.append(make("summary", "Thought"), make("p", message.thought));
    text.append(more);
  }
  text.append(tokens ? probabilities(message.tokens) : markdown(message.content));
}

const percent = logprob => (100 * Math.exp(logprob)).toFixed(logprob > -0.02 ? 2 : 1).padStart(6) + " %";

function probabilities(tokens) {
  const made = make("div", undefined, "tokens");
  made.setAttribute("role", "group");
  made.setAttribute("aria-label", "Tokens; arrow keys go from one to the next");
  made.append(...tokens.map((token, i) => {
    const span = make("span", token.token);
    span.tabIndex = i ? -1 : 0;
    span.style.background = `color-mix(in srgb, var(--accent) ${Math.round(55 * (1 - Math.exp(token.logprob)))}%, transparent)`;
    const tip = () => hint(span, [percent(token.logprob) + "  " + JSON.stringify(token.token), "",
      ...(token.top_logprobs ?? []).map(other => percent(other.logprob) + "  " + JSON.stringify(other.token))].join("\n"));
    span.onmouseenter = span.onfocus = tip;
    span.onmouseleave = span.onblur = () => { $("tip").hidden = true; };
    return span;
  }));
  made.onkeydown = event => {
    const to = { ArrowRight: "nextSibling", ArrowLeft: "previousSibling" }[event.key];
    if (to) { event.preventDefault(); document.activeElement[to]?.focus(); }
  };
  return made;
}

function hint(at, text) {
  const tip = $("tip"), box = at.getBoundingClientRect();
  tip.textContent = text;
  tip.hidden = false;
  tip.style.left = Math.max(4, Math.min(box.left, innerWidth - tip.offsetWidth - 8)) + "px";
  tip.style.top = (box.bottom + tip.offsetHeight + 8 < innerHeight ? box.bottom + 4 : box.top - tip.offsetHeight - 4) + "px";
}

function edit(article, i) {
  if (talking) return;
  const form = make("form", undefined, "edit"), box = make("textarea"), row = make("div", undefined, "tools");
  box.value = chat.messages[i].content;
  box.rows = Math.min(12, box.value.split("\n").length + 1);
  box.setAttribute("aria-label", "Edited message");
  const done = () => { if (box.value.trim()) { chat.messages.length = i; say(box.value); } };
  form.onsubmit = event => { event.preventDefault(); done(); };
  box.onkeydown = event => {
    if (event.key === "Enter" && !event.shiftKey && !event.isComposing) { event.preventDefault(); done(); }
    if (event.key === "Escape") { event.stopPropagation(); drawn(); }
  };
  row.append(make("button", "Send"), button("Cancel", undefined, drawn));
  form.append(box, row);
  article.replaceChildren(form);
  box.focus();
}

function say(content) {
  chat.messages.push({ role: "user", content });
  answer(Number($("seed").value || 1));
}

function again(i) {
  if (talking) return;
  const seed = (chat.messages[i].seed ?? 0) + 1;
  chat.messages.length = i;
  answer(seed);
}

async function answer(seed) {
  const here = chat, control = new AbortController(), message = { role: "assistant", content: "", seed };
  const body = { ...request(here.messages, seed), stream: true };
  if ($("logprobs").checked) Object.assign(body, { logprobs: true, top_logprobs: 5 });
  here.messages.push(message);
  save();
  drawn();
  talking = control;
  $("send").disabled = true;
  $("stop").disabled = false;
  const text = $("talk").lastElementChild.querySelector(".text");
  let due = false;
  const draw = () => {
    if (due || here !== chat) return;
    due = true;
    requestAnimationFrame(() => {
      due = false;
      const talk = $("talk"), follows = talk.scrollHeight - talk.scrollTop - talk.clientHeight < 80;
      fill(text, message);
      if (follows) talk.scrollTop = talk.scrollHeight;
    });
  };
  try {
    for await (const chunk of events(await ask(body, control.signal))) {
      const choice = chunk.choices[0];
      message.content += choice?.delta?.content ?? "";
      message.ended = choice?.finish_reason ?? message.ended;
      if (choice?.delta?.reasoning_content) message.thought = (message.thought ?? "") + choice.delta.reasoning_content;
      if (choice?.logprobs?.content) (message.tokens ??= []).push(...choice.logprobs.content);
      draw();
    }
  } catch (error) {
    if (error.name !== "AbortError") message.error = error.message;
  }
  // A stop before the first token leaves no answer; an error stays to be read, and to be asked again.
  if (!message.content && !message.thought && !message.error) here.messages.pop();
  if (talking === control) {
    talking = null;
    $("send").disabled = false;
    $("stop").disabled = true;
  }
  if (chats.includes(here)) save();
  if (here === chat) drawn();
}

// ---- One request alone and among others ----

const NEIGHBOURS = ["Tell me a story about a river.", "Count from one to twenty.", "What is a prime number?", "List five animals."];
// The place of the answer in question in its chat; none: the prompt that is typed here.
let subject = null;

function compareOpen(i) {
  subject = i;
  const given = i !== null;
  $("prompt").hidden = given;
  $("prompt").required = !given;
  $("subject").textContent = given ? "The request is this chat up to the answer, with its seed " + chat.messages[i].seed + "." : "";
  $("table").hidden = true;
  $("rows").replaceChildren();
  $("verdict").textContent = "";
  $("same").showModal();
}

async function whole(body, signal) {
  return (await (await ask(body, signal)).json()).choices;
}

async function compare() {
  const most = Number($("others").value), loads = [0, 1, Math.ceil(most / 3), most];
  const own = subject === null
    ? { model, messages: [{ role: "user", content: $("prompt").value }], temperature: 0.8, seed: 42, max_tokens: 32 }
    : request(chat.messages.slice(0, subject), chat.messages[subject].seed);
  own.max_tokens = Math.min(own.max_tokens ?? 64, 64);
  const digests = [];
  for (const load of loads) {
    const company = new AbortController();
    // Browsers open six connections at most, so many neighbours come as choices of a few requests.
    const requests = Math.min(load, 4);
    const others = Array.from({ length: requests }, (_, i) => whole({ model, messages: [{ role: "user", content: NEIGHBOURS[i] }],
      temperature: 0.8, seed: i, max_tokens: 128, n: Math.ceil((load - i) / requests) }, company.signal).catch(() => null));
    const start = performance.now();
    let choice;
    try { [choice] = await whole({ ...own, vosti_digest: true }); } finally {
      company.abort();
      await Promise.all(others);
    }
    const seconds = (performance.now() - start) / 1000, digest = choice.vosti_receipt.digest;
    digests.push(digest);
    const row = make("tr");
    row.append(make("td", load === 0 ? "nothing" : load + (load === 1 ? " other" : " others")),
      make("td", digest.slice(0, 16), "mono digest " + (digest === digests[0] ? "good" : "bad")),
      make("td", choice.message.content ?? ""), make("td", seconds.toFixed(1)));
    row.title = digest;
    $("rows").append(row);
  }
  return digests;
}

$("proof").onsubmit = async event => {
  event.preventDefault();
  $("compare").disabled = true;
  $("table").hidden = false;
  $("rows").replaceChildren();
  $("verdict").textContent = "asking …";
  $("verdict").className = "";
  try {
    const digests = await compare(), same = digests.every(digest => digest === digests[0]);
    $("verdict").textContent = same ? "All " + digests.length + " digests agree: the load changed no bit." : "The digests differ.";
    $("verdict").className = same ? "good" : "bad";
  } catch (error) { $("verdict").textContent = error.message; $("verdict").className = "bad"; }
  $("compare").disabled = false;
};

// ---- Keys and buttons ----

$("chat").onsubmit = event => {
  event.preventDefault();
  const content = $("say").value;
  if (talking || !content.trim()) return;
  $("say").value = "";
  say(content);
};
$("say").onkeydown = event => {
  if (event.key === "Enter" && !event.shiftKey && !event.isComposing) { event.preventDefault(); $("chat").requestSubmit(); }
  const last = chat.messages.findLastIndex(message => message.role === "user");
  if (event.key === "ArrowUp" && !$("say").value && last >= 0) { event.preventDefault(); edit($("talk").children[last], last); }
};
document.onkeydown = event => { if (event.key === "Escape") { talking?.abort(); side(false); } };
$("stop").onclick = () => talking?.abort();
$("new").onclick = () => open(null);
$("menu").onclick = () => side(!$("side").classList.contains("open"));
$("forget").onclick = () => { if (confirm("Delete all chats of this browser?")) { chats = []; keep("chats", chats); open(null); } };
$("settings-open").onclick = () => $("settings").showModal();
$("same-open").onclick = () => compareOpen(null);
$("same-close").onclick = () => $("same").close();
for (const [name, value] of Object.entries(kept("settings", {}))) if (FIELDS.includes(name)) $(name).value = value;
$("logprobs").checked = kept("logprobs", false);
$("settings").onclose = () => {
  keep("settings", Object.fromEntries(FIELDS.map(name => [name, $(name).value])));
  keep("logprobs", $("logprobs").checked);
};
open(null);
look();
setInterval(look, 1000);
