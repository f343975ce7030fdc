// ---- Markdown, as far as answers use it ----

// What is nested deeper than this is shown as it is: an answer may be of any kind.
const DEPTH_MAX = 12;

const INLINE = /(?<!`)(`+)(?!`)([\s\S]+?)(?<!`)\1(?!`)|\*\*(\S[\s\S]*?)\*\*|(?<![\w*])\*([^\s*](?:[\s\S]*?[^\s*])?)\*(?![\w*])|~~(\S[\s\S]*?)~~|\[([^\]\n]+)\]\((https?:\/\/[^\s)]+)\)|\\\(([\s\S]+?)\\\)|\$\$([\s\S]+?)\$\$|(?<![\w$\\])\$(?![\s$])([^$\n]*?[^\s$\\])\$(?![\w$])|https?:\/\/[^\s<>()"'`]+/g;

function link(text, to) {
  const made = make("a", text);
  made.href = to;
  made.target = "_blank";
  made.rel = "noopener noreferrer";
  return made;
}

function inline(text, depth = 0) {
  const out = document.createDocumentFragment();
  const plain = part => part.split("\n").forEach((line, i) => { if (i) out.append(make("br")); out.append(line); });
  const nested = (tag, part) => { const made = make(tag); made.append(depth < DEPTH_MAX ? inline(part, depth + 1) : part); out.append(made); };
  let at = 0;
  for (const found of text.matchAll(INLINE)) {
    plain(text.slice(at, found.index));
    at = found.index + found[0].length;
    if (found[1]) out.append(make("code", found[2]));
    else if (found[3]) nested("strong", found[3]);
    else if (found[4]) nested("em", found[4]);
    else if (found[5]) nested("del", found[5]);
    else if (found[6]) out.append(link(found[6], found[7]));
    else if (found[8] ?? found[9] ?? found[10]) out.append(formula(found[8] ?? found[9] ?? found[10], Boolean(found[9])));
    else out.append(link(found[0], found[0]));
  }
  plain(text.slice(at));
  return out;
}

const ITEM = /^(\s*)(?:[-*+]|(\d{1,9})[.)])\s+(.*)$/, FENCE = /^\s*(```+|~~~+)\s*([\w+#.-]*)/;
const RULE = /^\s*([-*_])(\s*\1){2,}\s*$/, HEAD = /^(#{1,6})\s+(.*)$/, BARS = /^\s*\|?\s*:?-+:?\s*(\|\s*:?-+:?\s*)*\|?\s*$/;
const BLOCK = /^\s*(?:\$\$|\\\[)/;
const begins = (line, next) => BLOCK.test(line) || FENCE.test(line) || RULE.test(line) || HEAD.test(line) || ITEM.test(line) || /^\s*>/.test(line)
  || (line.includes("|") && next !== undefined && next.includes("-") && BARS.test(next));

function fenced(language, code) {
  const block = make("pre"), inside = coloured(code, language);
  if (language) block.dataset.language = language;
  block.append(button("Copy", "Copy code", event => copy(code, event.target)), inside);
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
function list(lines, depth) {
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
    li.append(item.length === 1 ? inline(item[0]) : markdown(item.join("\n"), depth + 1));
    made.append(li);
  }
  return made;
}

function markdown(text, depth = 0) {
  const out = document.createDocumentFragment(), lines = text.split("\n");
  if (depth > DEPTH_MAX) { out.append(text); return out; }
  for (let i = 0; i < lines.length;) {
    const line = lines[i], start = i, fence = line.match(FENCE), head = line.match(HEAD);
    if (!line.trim()) i++;
    else if (fence) {
      for (i++; i < lines.length && !lines[i].trim().startsWith(fence[1]);) i++;
      out.append(fenced(fence[2], lines.slice(start + 1, i++).join("\n")));
    } else if (BLOCK.test(line)) {
      const end = line.includes("$$") ? "$$" : "\\]";
      let text = line.trim().slice(2);
      for (i++; !text.includes(end) && i < lines.length && lines[i].trim(); i++) text += "\n" + lines[i];
      const at = text.indexOf(end), rest = at < 0 ? "" : text.slice(at + 2).trim();
      out.append(formula(at < 0 ? text : text.slice(0, at), true));
      if (rest) { const made = make("p"); made.append(inline(rest)); out.append(made); }
    } else if (head) { const made = make("h" + Math.min(4, head[1].length)); made.append(inline(head[2])); out.append(made); i++; }
    else if (RULE.test(line)) { out.append(make("hr")); i++; }
    else if (/^\s*>/.test(line)) {
      while (i < lines.length && /^\s*>/.test(lines[i])) i++;
      const made = make("blockquote");
      made.append(markdown(lines.slice(start, i).map(quoted => quoted.replace(/^\s*> ?/, "")).join("\n"), depth + 1));
      out.append(made);
    } else if (ITEM.test(line)) {
      const indent = line.match(ITEM)[1].length;
      const inside = (here, next) => ITEM.test(here) || /^\s/.test(here) && here.trim()
        || !here.trim() && next !== undefined && (/^\s+\S/.test(next) || ITEM.test(next));
      for (i++; i < lines.length && inside(lines[i], lines[i + 1]);) i++;
      out.append(list(lines.slice(start, i).map(item => item.slice(Math.min(indent, item.search(/\S|$/)))), depth));
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
