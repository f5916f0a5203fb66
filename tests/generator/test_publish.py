"""The files of a site: words for scripts in front of the script that all others come after."""

from __future__ import annotations

import json

from generator import publish
from generator.lean_script import lean


def test_words_for_scripts_come_through_whole_and_end_no_script():
    words = {"done": '</script><!-- \u2028 “ja” \\ "quo\'te"', "nested": {"of": "{n} von {of}"}}
    line = publish.words_for_scripts(words)
    start, end = b"window.proofbook=", b";\n"
    assert line.startswith(start)
    assert line.endswith(end)
    told = line[len(start) : -len(end)]
    assert json.loads(told) == {"words": words}
    assert line.isascii()
    assert b"<" not in line
    assert line.count(b"\n") == 1


def test_the_first_line_of_the_first_script_holds_the_words_and_the_rest_is_the_file(book, root):
    files = publish.site_files(book, root / "tests" / "book" / "content")
    first, rest = files["assets/proofbook.js"].split(b"\n", 1)
    assert b'"words":' in first
    assert rest == lean((publish.ASSETS / "proofbook.js").read_text(encoding="utf-8")).encode()
    others = {name: text for name, text in files.items() if name.endswith(".js")}
    del others["assets/proofbook.js"]
    assert others
    assert not any(b'"words":' in text for text in others.values())
