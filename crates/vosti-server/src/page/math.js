// ---- Formulas: the part of TeX that answers use, as MathML; a command that is not known here shows as its name ----

const MATHML = $("math").namespaceURI;
const node = (tag, ...inside) => {
  const made = document.createElementNS(MATHML, tag);
  made.append(...inside);
  return made;
};
const row = parts => parts.length === 1 ? parts[0] : node("mrow", ...parts);

const SYMBOLS = {};
const symbols = (tag, pairs) => pairs.split(" ").forEach(pair => { const [name, text] = pair.split("="); SYMBOLS[name] = [tag, text]; });
symbols("mi", "alpha=α beta=β gamma=γ delta=δ epsilon=ϵ varepsilon=ε zeta=ζ eta=η theta=θ vartheta=ϑ iota=ι kappa=κ lambda=λ mu=μ nu=ν xi=ξ pi=π rho=ρ sigma=σ tau=τ upsilon=υ phi=ϕ varphi=φ chi=χ psi=ψ omega=ω Gamma=Γ Delta=Δ Theta=Θ Lambda=Λ Xi=Ξ Pi=Π Sigma=Σ Upsilon=Υ Phi=Φ Psi=Ψ Omega=Ω infty=∞ ell=ℓ hbar=ℏ partial=∂ nabla=∇ emptyset=∅ Re=ℜ Im=ℑ aleph=ℵ degree=°");
symbols("mo", "times=× cdot=⋅ div=÷ pm=± mp=∓ le=≤ leq=≤ ge=≥ geq=≥ ne=≠ neq=≠ approx=≈ equiv=≡ sim=∼ simeq=≃ cong=≅ propto=∝ to=→ rightarrow=→ leftarrow=← Rightarrow=⇒ Leftarrow=⇐ implies=⟹ iff=⟺ leftrightarrow=↔ mapsto=↦ in=∈ notin=∉ subset=⊂ subseteq=⊆ supset=⊃ supseteq=⊇ cup=∪ cap=∩ setminus=∖ forall=∀ exists=∃ neg=¬ land=∧ wedge=∧ lor=∨ vee=∨ oplus=⊕ otimes=⊗ circ=∘ ast=∗ star=⋆ bullet=• ldots=… dots=… cdots=⋯ vdots=⋮ ddots=⋱ mid=∣ parallel=∥ perp=⊥ angle=∠ prime=′ langle=⟨ rangle=⟩ lfloor=⌊ rfloor=⌋ lceil=⌈ rceil=⌉ ll=≪ gg=≫ therefore=∴ because=∵ lvert=| rvert=| lVert=‖ rVert=‖ Vert=‖ vert=|");
symbols("sum", "sum=∑ prod=∏ int=∫ iint=∬ oint=∮ bigcup=⋃ bigcap=⋂");
const NAMED = new Set("sin cos tan cot sec csc sinh cosh tanh arcsin arccos arctan log ln lg exp det dim gcd ker Pr arg deg".split(" "));
const LIMITS = new Set("lim max min sup inf argmax argmin limsup liminf".split(" "));
const ACCENTS = { hat: "^", bar: "¯", overline: "¯", vec: "→", dot: "˙", ddot: "¨", tilde: "~", widehat: "^" };
const SPACES = { ",": ".17em", ":": ".22em", ";": ".28em", " ": ".28em", quad: "1em", qquad: "2em", "!": "-.17em" };
const FONTS = { mathbb: "double-struck", mathbf: "bold", mathcal: "script", mathrm: "normal", mathit: "italic", boldsymbol: "bold" };
const LETTERS = { mathbb: { C: "ℂ", H: "ℍ", N: "ℕ", P: "ℙ", Q: "ℚ", R: "ℝ", Z: "ℤ", E: "𝔼", F: "𝔽" } };
const CLOSED = { pmatrix: "()", bmatrix: "[]", vmatrix: "||", Bmatrix: "{}", matrix: "", cases: "{", aligned: "", align: "", "align*": "", array: "", gather: "", "gather*": "", split: "" };

class Formula {
  constructor(text) {
    this.words = text.match(/\\[a-zA-Z]+|\\[\s\S]|[0-9]+(?:\.[0-9]+)?|\S|\s+/g) ?? [];
    this.at = 0;
    this.deep = 0;
  }

  peek() { while (/^\s+$/.test(this.words[this.at] ?? "")) this.at++; return this.words[this.at]; }
  next() { const word = this.peek(); this.at++; return word; }

  // Until one of these words, which is taken.
  until(...ends) {
    const parts = [];
    if (++this.deep > 40) throw new Error("too deep");
    for (let word = this.peek(); word !== undefined && !ends.includes(word); word = this.peek()) parts.push(this.scripted());
    this.deep--;
    this.at++;
    return parts;
  }

  // The text between braces, as it stands.
  raw() {
    if (this.peek() !== "{") return this.next() ?? "";
    let text = "", deep = 1;
    for (this.at++; this.at < this.words.length; this.at++) {
      const word = this.words[this.at];
      deep += (word === "{") - (word === "}");
      if (!deep) break;
      text += word;
    }
    this.at++;
    return text;
  }

  argument() { return row(this.one()); }

  // One thing with what stands below and above it.
  scripted() {
    const [base, limits] = this.base();
    let below, above;
    for (;;) {
      const word = this.peek();
      if (word === "_" && !below) { this.at++; below = this.argument(); }
      else if (word === "^" && !above) { this.at++; above = this.argument(); }
      else if (word === "'" && !above) { let marks = ""; while (this.peek() === "'") { marks += "′"; this.at++; } above = node("mo", marks); }
      else if (word === "\\limits" || word === "\\nolimits") this.at++;
      else break;
    }
    if (!below && !above) return base;
    const [both, under, over] = limits ? ["munderover", "munder", "mover"] : ["msubsup", "msub", "msup"];
    return below && above ? node(both, base, below, above) : below ? node(under, base, below) : node(over, base, above);
  }

  base() {
    const word = this.peek(), name = word?.slice(1);
    if (LIMITS.has(name) && word[0] === "\\") { this.at++; return [node("mo", name), true]; }
    if (SYMBOLS[name]?.[0] === "sum" && word[0] === "\\") { this.at++; return [node("mo", SYMBOLS[name][1]), !/int$/.test(name)]; }
    return [row(this.one()), false];
  }

  one() {
    const word = this.next();
    if (word === undefined) return [node("mrow")];
    if (word === "{") return [node("mrow", ...this.until("}"))];
    if (/^[0-9]/.test(word)) return [node("mn", word)];
    if (/^\p{L}$/u.test(word)) return [node("mi", word)];
    if (word[0] !== "\\") return [node("mo", word === "-" ? "−" : word === "*" ? "∗" : word)];
    return this.command(word.slice(1));
  }

  command(name) {
    if (SYMBOLS[name]) return [node(SYMBOLS[name][0] === "mi" ? "mi" : "mo", SYMBOLS[name][1])];
    if (NAMED.has(name) || LIMITS.has(name)) return [node("mi", name)];
    if (/^[dt]?frac$/.test(name)) return [node("mfrac", this.argument(), this.argument())];
    if (name === "binom") { const over = node("mfrac", this.argument(), this.argument()); over.setAttribute("linethickness", "0"); return [node("mo", "("), over, node("mo", ")")]; }
    if (name === "sqrt") {
      if (this.peek() !== "[") return [node("msqrt", this.argument())];
      this.at++;
      const degree = row(this.until("]"));
      return [node("mroot", this.argument(), degree)];
    }
    if (["text", "textbf", "textit", "mathrm", "operatorname", "mbox"].includes(name)) return [node(name === "operatorname" ? "mi" : "mtext", this.raw())];
    if (FONTS[name]) {
      const text = this.raw(), styled = node("mi", [...text].map(letter => LETTERS[name]?.[letter] ?? letter).join(""));
      if (FONTS[name] === "bold") styled.classList.add("bold");
      return [styled];
    }
    if (ACCENTS[name]) { const over = node("mover", this.argument(), node("mo", ACCENTS[name])); over.setAttribute("accent", "true"); return [over]; }
    if (SPACES[name]) { const space = node("mspace"); space.setAttribute("width", SPACES[name]); return [space]; }
    if (name === "left" || name === "right" || /^[bB]igg?[lrm]?$/.test(name)) return this.fence();
    if (name === "begin") return this.table(this.raw());
    if (name === "boxed" || name === "displaystyle" || name === "underline") return name === "displaystyle" ? [] : this.one();
    if (/^[a-zA-Z]/.test(name)) return [node("mtext", "\\" + name)];
    return [node("mo", name === "|" ? "‖" : name)];
  }

  fence() {
    const word = this.next();
    if (word === undefined || word === ".") return [];
    const name = word[0] === "\\" ? word.slice(1) : word;
    return [node("mo", SYMBOLS[name]?.[1] ?? name)];
  }

  table(name) {
    const [open, close] = CLOSED[name] ?? "", lines = [];
    if (name === "array") this.raw();
    for (let cells = [], cell = []; ;) {
      const word = this.peek();
      const ends = word === undefined || word === "\\end";
      if (word === "&" || word === "\\\\" || ends) {
        this.at++;
        cells.push(node("mtd", ...cell));
        cell = [];
        if (word !== "&") { if (cells.length > 1 || cells[0].childNodes.length) lines.push(node("mtr", ...cells)); cells = []; }
        if (ends) { if (word) this.raw(); break; }
      } else cell.push(this.scripted());
    }
    const made = node("mtable", ...lines);
    if (/^(aligned|align\*?|split)$/.test(name)) made.classList.add("aligned");
    if (name === "cases") made.classList.add("cases");
    return [...(open ? [node("mo", open)] : []), made, ...(close ? [node("mo", close)] : [])];
  }
}

// A formula as an element; its own text if it cannot be read.
function formula(text, block) {
  try {
    const made = node("math", ...new Formula(text).until());
    if (block) made.setAttribute("display", "block");
    made.setAttribute("aria-label", text);
    return made;
  } catch { return make("code", text); }
}
