"""Draws the pictures of docs/concepts.md: python3 docs/picture/concepts.py"""
import pathlib

HERE = pathlib.Path(__file__).parent
INK, PALE, MARK, WARM = "#334155", "#e2e8f0", "#bfdbfe", "#fde68a"


class Picture:
    """Boxes, arrows and words on a white card, so that it is readable on dark pages too."""

    def __init__(self, width, height, says):
        self.size, self.says, self.parts = (width, height), says, []

    def box(self, x, y, w, h, text="", fill=PALE):
        self.parts.append(f'<rect x="{x}" y="{y}" width="{w}" height="{h}" rx="5" fill="{fill}" stroke="{INK}"/>')
        if text:
            lines = text.split("\n")
            for i, line in enumerate(lines):
                self.text(x + w / 2, y + h / 2 + 5 + 17 * (i - (len(lines) - 1) / 2), line)
        return self

    def text(self, x, y, text, anchor="middle", weight="normal"):
        text = text.replace("&", "&amp;").replace("<", "&lt;")
        self.parts.append(f'<text x="{x}" y="{y}" text-anchor="{anchor}" font-weight="{weight}">{text}</text>')
        return self

    def arrow(self, x1, y1, x2, y2):
        self.parts.append(f'<path d="M{x1} {y1} L{x2} {y2}" stroke="{INK}" stroke-width="1.6" marker-end="url(#a)"/>')
        return self

    def write(self, name):
        w, h = self.size
        marker = (f'<marker id="a" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="7" markerHeight="7" orient="auto">'
                  f'<path d="M0 0 L10 5 L0 10 z" fill="{INK}"/></marker>')
        head = (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {w} {h}" width="{w}" height="{h}" role="img" '
                f'font-family="sans-serif" font-size="14" fill="{INK}">\n<title>{self.says}</title>\n<defs>{marker}</defs>\n'
                f'<rect width="{w}" height="{h}" rx="8" fill="#ffffff"/>\n')
        (HERE / f"{name}.svg").write_text(head + "\n".join(self.parts) + "\n</svg>\n")


def page():
    p = Picture(640, 190, "Two sequences share the pages of their common beginning")
    p.text(20, 42, "sequence A", "start").text(20, 162, "sequence B", "start").text(20, 102, "KV pool", "start", "bold")
    for i, (text, fill) in enumerate([("prompt\n0 to 63", MARK), ("prompt\n64 to 127", MARK), ("A's\nanswer", PALE),
                                      ("B's\nanswer", WARM), ("free", "#ffffff")]):
        p.box(120 + 100 * i, 74, 90, 46, text, fill)
    for x in (165, 265, 365):
        p.arrow(110, 38, x - 10, 72)
    for x in (165, 265, 465):
        p.arrow(110, 157, x - 10, 122)
    p.write("page")


def step():
    p = Picture(640, 210, "Rows of several requests go through the ops of a step together")
    rows = [("A: prompt 64 to 127", MARK), ("B: token 301", WARM), ("C: token 12 and 3 drafts", PALE)]
    for i, (text, fill) in enumerate(rows):
        p.box(20, 30 + 55 * i, 190, 42, text, fill)
        p.arrow(212, 51 + 55 * i, 256, 51 + 55 * i)
        p.arrow(500, 51 + 55 * i, 540, 51 + 55 * i)
    for i, op in enumerate(["norm", "linear", "attend", "..."]):
        p.box(260 + 60 * i, 30, 54, 152, op)
    p.text(585, 56, "K, V").text(585, 111, "logits").text(585, 166, "logits")
    p.text(110, 20, "rows of one step", weight="bold").text(380, 20, "ops of the program", weight="bold")
    p.write("step")


def seam():
    p = Picture(640, 230, "The verified core above, devices below, and the seam between them")
    p.box(120, 20, 400, 60, "core: requests, pages, steps (verified)", MARK)
    p.box(120, 100, 400, 40, "the seam: what a device is asked, what it promises", WARM)
    for i, device in enumerate(["processor", "GPU", "toy device"]):
        p.box(120 + 140 * i, 165, 120, 45, device)
        p.arrow(180 + 140 * i, 142, 180 + 140 * i, 163)
    p.arrow(320, 82, 320, 98)
    p.write("seam")


def contract():
    p = Picture(640, 200, "A row of the output depends on its own inputs only")
    p.text(110, 28, "run 1", weight="bold").text(410, 28, "run 2", weight="bold")
    for side, rows in ((20, ["x", "a", "b"]), (320, ["c", "d", "x", "e"])):
        for i, row in enumerate(rows):
            fill = MARK if row == "x" else "#ffffff"
            p.box(side, 42 + 34 * i, 80, 28, f"row {row}", fill).box(side + 200, 42 + 34 * i, 80, 28, f"out {row}", fill)
            p.arrow(side + 82, 56 + 34 * i, side + 198, 56 + 34 * i)
    p.text(320, 192, "the same row, another place in another batch: the same bits")
    p.write("contract")


def certificate():
    p = Picture(640, 200, "A kernel's text and contract become a certificate, which admission asks for")
    p.box(20, 30, 130, 44, "kernel's IR", PALE).box(20, 120, 130, 44, "contract", WARM)
    p.box(215, 72, 110, 50, "verifier", MARK).box(385, 72, 100, 50, "certificate").box(530, 72, 95, 50, "admission", MARK)
    p.arrow(152, 52, 213, 88).arrow(152, 142, 213, 108).arrow(327, 97, 383, 97).arrow(487, 97, 528, 97)
    p.text(577, 150, "a kernel runs").text(577, 168, "or is refused")
    p.write("certificate")


def fingerprint():
    p = Picture(640, 250, "What decides an answer is hashed into one name")
    parts = ["program", "kernels", "weights", "tokenizer", "context", "version", "a few logits"]
    for i, part in enumerate(parts):
        p.box(20, 12 + 33 * i, 130, 27, part)
        p.arrow(152, 25 + 33 * i, 268, 124)
    p.box(270, 100, 170, 48, "vosti-6e8d902f...", MARK)
    p.text(545, 60, "not in it:", weight="bold")
    for i, part in enumerate(["batch, chunks", "pool, caches", "threads", "drafts", "form of weights"]):
        p.text(545, 84 + 21 * i, part)
    p.write("fingerprint")


for draw in (page, step, seam, contract, certificate, fingerprint):
    draw()
