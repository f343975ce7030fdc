// ---- The conversation ----

const following = () => $("talk").scrollHeight - $("talk").scrollTop - $("talk").clientHeight < 60;
const toEnd = () => { $("talk").scrollTop = $("talk").scrollHeight; };
const scrolled = () => { $("down").hidden = following(); };

function drawn(end = following()) {
  const at = $("talk").scrollTop;
  const said = chat.messages.map((message, i) => shown(message, i));
  $("talk").replaceChildren(...(said.length ? said : [welcome()]));
  if (end) toEnd(); else $("talk").scrollTop = at;
  scrolled();
}

// What a chat shows before its first message.
function welcome() {
  const made = make("div", undefined, "welcome"), line = make("div");
  line.append(...["Why is the sky blue?", "Write a haiku about winter.", "Explain recursion to a child."].map(text =>
    button(text, undefined, () => { if (!talking) say(text); }, "")));
  made.append(make("h2", "Ask the model something"), make("p", "The same words with the same seed give the same answer, to the last "
    + "bit, whatever else the server does. “Same bits?” shows it for any answer."), line);
  return made;
}

function shown(message, i) {
  const article = make("article", undefined, message.role), text = make("div", undefined, "text"), tools = make("div", undefined, "tools");
  if (message.role === "user") {
    text.textContent = message.content;
    for (const file of message.files ?? []) {
      const more = make("details");
      more.append(make("summary", file.name), make("pre", file.text));
      text.append(more);
    }
    tools.append(button("Edit", "Edit and send again", () => edit(article, i)), button("Copy", "Copy message", e => copy(message.content, e.target)));
  } else {
    const answer = now(message);
    fill(text, answer);
    if (talking?.version !== answer) tools.append(...offered(message, answer, i, text));
    tools.append(make("span", about(answer)));
    if (answer.error) tools.prepend(make("span", answer.error, "bad"));
  }
  article.append(text, tools);
  return article;
}

// What can be done with an answer that has ended.
function offered(message, answer, i, text) {
  const last = i === chat.messages.length - 1, all = [...versions(message), button("Copy", "Copy answer", e => copy(answer.content, e.target))];
  if (last) all.push(button("Regenerate", "Answer again with the next seed", () => again(i)));
  if (last && goes(answer)) all.push(button("Continue", "Continue this answer", () => goOn(i)));
  if (answer.tokens?.length) all.push(button("Tokens", "Show tokens and their probabilities", () => fill(text, answer, text.dataset.as !== "tokens")));
  if (answer.content) all.push(button("Same bits?", "Compare this answer alone and among others", () => compareOpen(i)));
  return all;
}

// Which of the answers to one message is shown.
function versions(message) {
  const all = message.versions.length;
  if (all < 2) return [];
  const to = step => () => { if (!talking) { message.pick = (message.pick + step + all) % all; save(); drawn(); } };
  return [button("‹", "Earlier answer", to(-1)), make("span", message.pick + 1 + "/" + all), button("›", "Later answer", to(1))];
}

// Tokens, speed and context that an answer took, and how it ended.
function about(answer) {
  const { usage, seconds, seed, ended, error } = answer, parts = [];
  if (usage) {
    parts.push(usage.answer + (usage.answer === 1 ? " token" : " tokens"));
    if (seconds > 0 && usage.answer > 1) parts.push(((usage.answer - 1) / seconds).toFixed(1) + "/s");
    const used = usage.prompt + usage.answer;
    parts.push(card ? "context " + used + " of " + card.max_model_len : "context " + used);
  }
  if (seed !== undefined) parts.push("seed " + seed);
  if (ended === "length") parts.push("cut off at its token limit");
  else if (!ended && !error && talking?.version !== answer) parts.push("not finished");
  return parts.join(" · ");
}

const room = ({ usage }) => card && usage ? card.max_model_len - usage.prompt - usage.answer : Infinity;
const goes = answer => answer.ids?.length > 0 && answer.ended !== "stop" && answer.ended !== "tool_calls" && room(answer) > 0;

function fill(text, answer, tokens = false) {
  const made = document.createDocumentFragment();
  text.dataset.as = tokens ? "tokens" : "text";
  if (answer.thought) {
    // The one that is there may be open.
    const there = text.querySelector(":scope > details"), more = make("details");
    more.open = there ? there.open : false;
    more.append(make("summary", "Thought"), make("p", answer.thought));
    made.append(more);
  }
  made.append(tokens ? probabilities(answer.tokens) : markdown(answer.content));
  refill(text, made);
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
  const form = make("form", undefined, "edit"), box = make("textarea"), line = make("div", undefined, "tools");
  const { content, files } = chat.messages[i];
  box.value = content;
  box.rows = Math.min(12, box.value.split("\n").length + 1);
  box.setAttribute("aria-label", "Edited message");
  const done = () => {
    if (!box.value.trim() && !files) return;
    const here = chat, dropped = here.messages.splice(i);
    say(box.value, files);
    if (dropped.length > 2) tell("What followed the message is gone.", false, "Undo", () => {
      talking?.control.abort();
      here.messages.splice(i, Infinity, ...dropped);
      save(here);
      if (here === chat) drawn(true);
    }, 30);
  };
  form.onsubmit = event => { event.preventDefault(); done(); };
  box.onkeydown = event => {
    if (event.key === "Enter" && !event.shiftKey && !event.isComposing) { event.preventDefault(); done(); }
    if (event.key === "Escape") { event.stopPropagation(); drawn(); }
  };
  line.append(make("button", "Send"), button("Cancel", undefined, () => drawn()));
  form.append(box, line);
  article.replaceChildren(form);
  box.focus();
}

// ---- Asking ----

function say(content, files) {
  chat.messages.push({ role: "user", content, ...(files?.length ? { files } : {}) });
  const version = { content: "", seed: Number($("seed").value || 1), asked: asked() };
  chat.messages.push({ role: "assistant", versions: [version], pick: 0 });
  answer(chat.messages.length - 1);
}

function again(i) {
  if (talking) return;
  const message = chat.messages[i];
  // An answer that never began is not worth keeping, and the one after it has its seed.
  const begun = message.versions.filter(version => version.content || version.thought);
  const seed = begun.length ? Math.max(...begun.map(version => version.seed)) + 1 : message.versions[0].seed;
  message.versions = begun;
  message.pick = message.versions.push({ content: "", seed, asked: asked() }) - 1;
  answer(i);
}

// The same request with the part that is here, which the server continues bit for bit; a limit that ended it counts anew.
function goOn(i) {
  if (talking) return;
  const version = now(chat.messages[i]), limit = version.asked.max_tokens, more = { ...version.asked };
  if (version.ended === "length" && limit) more.max_tokens = Math.min(version.ids.length + limit, version.ids.length + room(version));
  delete version.error;
  answer(i, { ...more, vosti_resume: { fingerprint: version.fingerprint, choices: [{ index: 0, token_ids: version.ids }] } });
}

// Streams into the shown version of message number `i`.
async function answer(i, more) {
  const here = chat, message = here.messages[i], version = now(message), control = new AbortController();
  const body = { ...request(here.messages.slice(0, i), more ?? version.asked, version.seed), stream: true,
    stream_options: { include_usage: true, continuous_usage_stats: true }, return_token_ids: true };
  // Those of the part before a reload are gone, so the rest's alone would not be the answer's.
  if ($("logprobs").checked && (!more || version.tokens)) Object.assign(body, { logprobs: true, top_logprobs: 5 });
  else delete version.tokens;
  talking = { chat: here, control, version };
  hush();
  save(here);
  drawn(true);
  busy(true);
  let due = false, first = 0, saved = performance.now();
  const spent = version.seconds ?? 0, had = version.ids?.length ?? 0;
  const draw = () => {
    if (due || here !== chat) return;
    due = true;
    requestAnimationFrame(() => {
      due = false;
      const text = $("talk").children[i]?.querySelector(".text"), follows = following();
      if (here !== chat || !text || talking?.version !== version) return;
      fill(text, version);
      text.nextElementSibling.textContent = about(version);
      if (follows) toEnd(); else scrolled();
    });
  };
  delete version.ended;
  try {
    let whole = false;
    for await (const chunk of events(await ask(body, control.signal))) {
      if (chunk === null) { whole = true; break; }
      took(version, chunk);
      if (version.ids?.length > had) first ||= performance.now();
      if (first) version.seconds = spent + (performance.now() - first) / 1000;
      // A reload loses a second at most.
      if (performance.now() - saved > 1000 && here.messages.includes(message)) { saved = performance.now(); save(here); }
      draw();
    }
    if (!whole) throw new Refused("the connection ended before the answer did", 0);
  } catch (error) {
    if (error.name !== "AbortError") { version.error = error.message; if (here === chat) failed(error); }
  }
  finished(here, message, version, control);
}

function took(version, chunk) {
  const choice = chunk.choices[0];
  version.fingerprint = chunk.system_fingerprint ?? version.fingerprint;
  if (chunk.usage) version.usage = { prompt: chunk.usage.prompt_tokens, answer: chunk.usage.completion_tokens };
  if (!choice) return;
  version.content += choice.delta?.content ?? "";
  version.ended = choice.finish_reason ?? version.ended;
  if (choice.delta?.reasoning_content) version.thought = (version.thought ?? "") + choice.delta.reasoning_content;
  if (choice.token_ids) (version.ids ??= []).push(...choice.token_ids);
  if (choice.logprobs?.content) (version.tokens ??= []).push(...choice.logprobs.content);
}

function finished(here, message, version, control) {
  // Only an answer that can go on needs its tokens.
  if (version.ended === "stop") delete version.ids;
  // A stop before the first token leaves no answer; an error stays to be read, and to be asked again.
  if (!version.content && !version.thought && !version.error && !version.ended) {
    message.versions = message.versions.filter(other => other !== version);
    message.pick = Math.max(0, message.versions.length - 1);
    if (!message.versions.length) here.messages = here.messages.filter(other => other !== message);
  }
  if (talking?.control === control) {
    talking = null;
    busy(false);
  }
  if (chats.has(here.id)) save(here);
  if (here === chat) drawn();
}

function busy(on) {
  $("send").disabled = on;
  $("stop").disabled = !on;
}

addEventListener("pagehide", () => { if (talking && chats.has(talking.chat.id)) save(talking.chat); });

// ---- Keys and buttons ----

$("chat").onsubmit = event => {
  event.preventDefault();
  const content = $("say").value;
  if (talking || !content.trim() && !attached.length) return;
  $("say").value = "";
  const files = attached;
  attached = [];
  attachments();
  say(content, files);
};
$("say").onkeydown = event => {
  if (event.key === "Enter" && !event.shiftKey && !event.isComposing) { event.preventDefault(); $("chat").requestSubmit(); }
  const last = chat.messages.findLastIndex(message => message.role === "user");
  if (event.key === "ArrowUp" && !$("say").value && last >= 0) { event.preventDefault(); edit($("talk").children[last], last); }
};
document.onkeydown = event => { if (event.key === "Escape") { talking?.control.abort(); side(false); } };
$("talk").onscroll = scrolled;
$("down").onclick = toEnd;
$("stop").onclick = () => talking?.control.abort();
$("new").onclick = () => open(null);
$("search").oninput = listed;
$("menu").onclick = () => side(!$("side").classList.contains("open"));
$("forget").onclick = () => { if (chats.size) forget([...chats.values()]); };
$("export").onclick = exported;
$("import").onclick = () => $("imported").click();
$("imported").onchange = event => { if (event.target.files[0]) imported(event.target.files[0]); event.target.value = ""; };
$("settings-open").onclick = openSettings;
$("same-open").onclick = () => compareOpen(null);
$("same-close").onclick = () => $("same").close();
new ResizeObserver(scrolled).observe($("talk"));
restore();
load();
open(null);
look();
setInterval(look, 1000);
