// ---- One request alone and among others ----

const NEIGHBOURS = ["Tell me a story about a river.", "Count from one to twenty.", "What is a prime number?", "List five animals."];
// The place of the answer in question in its chat; none: the prompt that is typed here.
let subject = null;

function compareOpen(i) {
  subject = i;
  const given = i !== null;
  $("prompt").hidden = given;
  $("prompt").required = !given;
  $("subject").textContent = given ? "The request is this chat up to the answer, with its seed " + now(chat.messages[i]).seed + "." : "";
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
    : request(chat.messages.slice(0, subject), now(chat.messages[subject]).asked, now(chat.messages[subject]).seed);
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
