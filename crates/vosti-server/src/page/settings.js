// ---- Settings: kept in this browser, apart from the key, which ends with the tab ----

const TEXTS = ["system", "stops", "max_tokens", "seed"];
const numbers = () => [...document.querySelectorAll("[data-number]")];
const fields = () => [...TEXTS, ...numbers().map(input => input.id)];

// The request's fields that the settings give, apart from the seed.
function asked() {
  const body = {}, stops = $("stops").value.split("\n").filter(line => line);
  for (const input of numbers()) if (input.value !== "") body[input.id] = Number(input.value);
  if ($("max_tokens").value !== "") body.max_tokens = Number($("max_tokens").value);
  if (stops.length) body.stop = stops.map(line => line.replaceAll("\\n", "\n"));
  const system = $("system").value.trim();
  return system ? { ...body, system } : body;
}

// The request for an answer to these messages, with what an answer keeps as `asked`.
function request(messages, { system, ...body }, seed) {
  const said = messages.map(message => ({ role: message.role, content: message.files
    ? [message.content, ...message.files.map(file => `${file.name}:\n\`\`\`\n${file.text}\n\`\`\``)].filter(Boolean).join("\n\n") : words(message) }));
  return { model, messages: system ? [{ role: "system", content: system }, ...said] : said, seed, ...body };
}

function themed() {
  document.documentElement.dataset.theme = $("theme").value;
}

function openSettings() {
  if (!card) getCard();
  $("settings").showModal();
}

$("settings").onclose = () => {
  keep("vosti.settings", Object.fromEntries(fields().map(name => [name, $(name).value])));
  keep("vosti.logprobs", $("logprobs").checked);
  keep("vosti.theme", $("theme").value);
  try { sessionStorage.setItem("vosti.key", $("key").value); } catch { /* Forbidden: this visit only. */ }
  if (!card) getCard();
};
$("theme").onchange = themed;
$("reset").onclick = () => { for (const name of fields()) $(name).value = ""; };

function restore() {
  for (const [name, value] of Object.entries(kept("settings", {}))) if (fields().includes(name)) $(name).value = value;
  $("logprobs").checked = kept("logprobs", false);
  $("theme").value = kept("theme", "auto");
  try { $("key").value = sessionStorage.getItem("vosti.key") ?? ""; } catch { /* Forbidden. */ }
  themed();
}
