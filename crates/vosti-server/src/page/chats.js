// ---- Conversations, kept in this browser: each under its own key, so that two tabs never overwrite each other's ----

// A chat is { id, at, title, saved, messages }. A user's message is { role, content, files }; an answer is { role, versions, pick },
// and a version { content, thought, ended, error, seed, asked, ids, fingerprint, usage, seconds, tokens }.

const CHAT = "vosti.chat.";
const kept = (name, otherwise) => { try { return JSON.parse(localStorage.getItem("vosti." + name)) ?? otherwise; } catch { return otherwise; } };
const keep = (key, value) => {
  try { localStorage.setItem(key, JSON.stringify(value)); return true; } catch {
    tell("This browser has no room for more chats: export them, then delete some. The last changes are of this visit only.");
    return false;
  }
};
const fresh = () => ({ id: Date.now().toString(36) + Math.random().toString(36).slice(2, 8), at: Date.now(), saved: 0, messages: [] });
const read = key => { try { return JSON.parse(localStorage.getItem(key)); } catch { return null; } };
const isChat = one => one && typeof one.id === "string" && Array.isArray(one.messages) && one.messages.every(message =>
  message.role === "user" ? typeof message.content === "string" : message.role === "assistant" && message.versions?.[message.pick]);

let chats = new Map();
let chat = fresh();
let talking = null;

function load() {
  const keys = Object.keys(localStorage).filter(key => key.startsWith(CHAT));
  chats = new Map(keys.map(read).filter(isChat).map(one => [one.id, one]));
}

const now = message => message.versions[message.pick];
const words = message => message.role === "user" ? message.content : now(message).content;
const title = one => one.title || one.messages[0]?.content.trim().slice(0, 60) || one.messages[0]?.files?.[0]?.name || "New chat";

function save(one = chat) {
  const stored = read(CHAT + one.id);
  if (stored && stored.saved !== one.saved) {
    // Another tab wrote this chat meanwhile: its version stays, and ours becomes a chat of its own.
    Object.assign(one, { id: fresh().id, title: title(one) + " (copy)" });
    tell("Another tab changed this chat too. This tab continues in a copy of it.", false, undefined, undefined, 10);
    load();
  }
  one.saved++;
  one.at = Date.now();
  chats.set(one.id, one);
  // Log-probabilities are many and only of this visit.
  const version = ({ tokens, ...rest }) => rest;
  keep(CHAT + one.id, { ...one, messages: one.messages.map(message =>
    message.versions ? { ...message, versions: message.versions.map(version) } : message) });
  listed();
}

// What another tab wrote.
addEventListener("storage", event => {
  if (event.key !== null && !event.key.startsWith(CHAT)) return;
  if (event.key === null) load();
  else {
    const id = event.key.slice(CHAT.length), one = read(event.key);
    if (!isChat(one)) chats.delete(id);
    else if (id !== chat.id) chats.set(id, one);
    else if (talking?.chat !== chat) {
      Object.assign(chat, one);
      if (!document.querySelector("#talk .edit")) drawn();
    }
  }
  listed();
});

function listed() {
  const wanted = $("search").value.trim().toLowerCase();
  const found = one => !wanted || title(one).toLowerCase().includes(wanted) || one.messages.some(message => words(message).toLowerCase().includes(wanted));
  const all = [...chats.values()].filter(found).sort((a, b) => b.at - a.at);
  $("list").replaceChildren(...all.map(one => {
    const line = make("div", undefined, one.id === chat.id ? "now" : "");
    line.append(button(title(one), undefined, () => open(one)), button("✎", "Rename " + title(one), () => rename(one, line)),
      button("✕", "Delete " + title(one), () => forget([one])));
    return line;
  }));
  if (!all.length && wanted) $("list").append(make("p", "No chat has these words.", "hint"));
}

function rename(one, line) {
  const box = make("input");
  box.value = title(one);
  box.setAttribute("aria-label", "New name");
  box.onkeydown = event => {
    event.stopPropagation();
    if (event.key === "Enter") { one.title = box.value.trim(); save(one); }
    if (event.key === "Escape") listed();
  };
  box.onblur = listed;
  line.replaceChildren(box);
  box.select();
}

function forget(some) {
  const copies = structuredClone(some);
  for (const one of some) { chats.delete(one.id); localStorage.removeItem(CHAT + one.id); }
  if (some.some(one => one.id === chat.id)) open(null); else listed();
  tell(some.length === 1 ? "“" + title(some[0]) + "” is deleted." : some.length + " chats are deleted.", false, "Undo", () => {
    for (const one of copies) { chats.set(one.id, one); keep(CHAT + one.id, one); }
    if (copies.length === 1) open(copies[0]); else listed();
  }, 30);
}

function open(one) {
  talking?.control.abort();
  chat = one ?? fresh();
  side(false);
  listed();
  drawn(true);
  $("say").focus();
}

function side(shown) {
  $("side").classList.toggle("open", shown);
  $("menu").setAttribute("aria-expanded", shown);
}

// ---- Export and import ----

function exported() {
  const file = new Blob([JSON.stringify({ vosti_chats: 1, chats: [...chats.values()] }, null, 1)], { type: "application/json" });
  const to = make("a");
  to.href = URL.createObjectURL(file);
  to.download = "vosti-chats.json";
  to.click();
  setTimeout(() => URL.revokeObjectURL(to.href), 60000);
}

async function imported(file) {
  try {
    const told = JSON.parse(await file.text());
    if (told?.vosti_chats !== 1 || !Array.isArray(told.chats) || !told.chats.every(isChat)) throw new Error("it has no chats of this page");
    // A chat that is here with the same contents is not doubled; one that went on elsewhere comes as a copy.
    const same = one => JSON.stringify(chats.get(one.id)?.messages) === JSON.stringify(one.messages);
    const others = told.chats.filter(one => !chats.has(one.id) || !same(one));
    for (const one of others) {
      if (chats.has(one.id)) one.id = fresh().id;
      if (keep(CHAT + one.id, one)) chats.set(one.id, one);
    }
    listed();
    tell(others.length + " of " + told.chats.length + " chats are new.", false, undefined, undefined, 10);
  } catch (error) { tell("“" + file.name + "” cannot be imported: " + error.message); }
}
