"""Makes ../tests/text/templates.json: what transformers renders of llama.cpp's chat templates.

    python templates.py FOLDER      # llama.cpp's models/templates; versions in requirements.txt

`cargo xtask llama-cpp` fetches the folder. No template's text is kept: only the SHA-256 of what it gives for each chat of text.py,
alone and with a tool; "refused" where the template itself refuses the chat, null where Jinja fails on it.
"""
import hashlib
import sys
from pathlib import Path
from unittest import mock

from jinja2.exceptions import TemplateError
from transformers.utils import chat_template_utils

from text import CHATS, TOOL, Today, write


def render(source, messages, tools, prompt):
    try:
        text = chat_template_utils.render_jinja_template(
            conversations=[messages], chat_template=source, tools=tools, add_generation_prompt=prompt,
            bos_token="<s>", eos_token="</s>")[0][0]
    except Exception as error:
        return "refused" if type(error) is TemplateError else None
    return hashlib.sha256(text.encode()).hexdigest()


if __name__ == "__main__":
    out = {}
    with mock.patch.object(chat_template_utils, "datetime", Today):
        for path in sorted(Path(sys.argv[1]).glob("*.jinja")):
            source = path.read_text()
            out[path.stem] = {chat: [render(source, messages, None, True), render(source, messages, [TOOL], False)]
                              for chat, messages in CHATS.items()}
    write("templates.json", {"date": "2025-02-09", "tool": TOOL, "chats": CHATS, "templates": out})
