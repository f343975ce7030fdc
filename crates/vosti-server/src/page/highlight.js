// ---- Colours in code: comments, texts, numbers and keywords; enough to read by, and no grammar of any language ----

const KEYWORDS = {
  c: "auto bool break case char const continue default do double else enum extern float for goto if inline int long return short signed sizeof static struct switch typedef union unsigned void volatile while class namespace template typename public private protected virtual override new delete this try catch throw using nullptr true false import package final extends implements interface instanceof super abstract boolean byte func go defer chan range map type var string fn",
  rust: "as async await break const continue crate dyn else enum extern false fn for if impl in let loop match mod move mut pub ref return self Self static struct super trait true type unsafe use where while",
  js: "async await break case catch class const continue default delete do else enum export extends false finally for from function if implements import in instanceof interface let new null of return static super switch this throw true try type typeof undefined var void while with yield",
  python: "and as assert async await break class continue def del elif else except False finally for from global if import in is lambda match None nonlocal not or pass raise return True try while with yield self",
  shell: "if then else elif fi for in do done while until case esac function return export local set echo cd exit source alias sudo",
  sql: "select from where insert into values update set delete create table drop alter add primary key foreign references join left right inner outer on as and or not null is in like between group by order having limit distinct union case when then else end",
};
const LIKE = { rs: "rust", javascript: "js", typescript: "js", ts: "js", jsx: "js", tsx: "js", json: "js", py: "python", python3: "python",
  sh: "shell", bash: "shell", zsh: "shell", console: "shell", "c++": "c", cpp: "c", java: "c", go: "c", "c#": "c", cs: "c", kotlin: "c", swift: "c" };
const HASH = new Set(["python", "shell", "yaml", "yml", "toml", "ruby", "rb", "r", "makefile", "dockerfile"]);

function coloured(code, language) {
  const name = LIKE[language.toLowerCase()] ?? language.toLowerCase();
  const keywords = new Set((KEYWORDS[name] ?? "").split(" ")), out = make("code");
  if (!KEYWORDS[name] && !HASH.has(name)) { out.textContent = code; return out; }
  const comment = HASH.has(name) ? "#[^\\n]*" : name === "sql" ? "--[^\\n]*" : "\\/\\/[^\\n]*|\\/\\*[\\s\\S]*?(?:\\*\\/|$)";
  const triple = name === "python" ? '"""[\\s\\S]*?(?:"""|$)|' : "";
  // In Rust a quote may begin a lifetime.
  const single = name === "rust" ? "'(?:\\\\.|[^\\\\'\\n])'" : "'(?:\\\\.|[^\\\\'\\n])*'";
  const parts = new RegExp(`(${comment})|(${triple}"(?:\\\\.|[^\\\\"\\n])*"|${single}|\`(?:\\\\.|[^\\\\\`])*\`)|\\b(\\d[\\w.]*)\\b|([A-Za-z_]\\w*)`, "g");
  let at = 0;
  for (const found of code.matchAll(parts)) {
    const word = found[4], known = word && keywords.has(name === "sql" ? word.toLowerCase() : word);
    const kind = found[1] ? "remark" : found[2] ? "quoted" : found[3] ? "number" : known ? "word" : null;
    if (!kind) continue;
    out.append(code.slice(at, found.index), make("span", found[0], kind));
    at = found.index + found[0].length;
  }
  out.append(code.slice(at));
  return out;
}
