// ---- Files: their text goes into the message ----

const FILE_BYTES_MAX = 1 << 20;
let attached = [];

async function attach(files) {
  for (const file of files) {
    if (file.size > FILE_BYTES_MAX) { tell("“" + file.name + "” has " + Math.ceil(file.size / 1024) + " KiB; the page takes texts up to " + FILE_BYTES_MAX / 1024 + " KiB."); continue; }
    try {
      const text = new TextDecoder("utf-8", { fatal: true }).decode(await file.arrayBuffer());
      if (text.includes("\0")) throw new Error();
      attached.push({ name: file.name, text });
    } catch { tell("“" + file.name + "” is no text (UTF-8)."); }
  }
  attachments();
}

function attachments() {
  $("files").replaceChildren(...attached.map(file => button(file.name + " ✕", "Remove " + file.name, () => {
    attached = attached.filter(other => other !== file);
    attachments();
  }, "chip")));
  $("say").required = !attached.length;
}

$("attach").onclick = () => $("file").click();
$("file").onchange = event => { attach([...event.target.files]); event.target.value = ""; };
document.ondragover = event => { if (event.dataTransfer.types.includes("Files")) event.preventDefault(); };
document.ondrop = event => { if (event.dataTransfer.files.length) { event.preventDefault(); attach([...event.dataTransfer.files]); } };
$("say").onpaste = event => { if (event.clipboardData.files.length) { event.preventDefault(); attach([...event.clipboardData.files]); } };
