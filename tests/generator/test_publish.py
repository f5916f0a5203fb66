"""The files of a site: small scripts, and words in front of the one that others come after."""

from __future__ import annotations

import gzip
import json
import re

import pytest

from generator.evidence.folio import interface_words
from generator.website import publish

OURS = sorted(
    path.name for path in publish.ASSETS.glob("*.js") if not path.name.startswith(publish.VENDORED)
)
MOST_BYTES = 14_000  # of scripts, compressed, on any page
SAID = re.compile(r'"(?:\\.|[^"\\\n])*"|`(?:\\.|[^`\\])*`')


@pytest.fixture(scope="module")
def scripts(book, root):
    files = publish.site_files(book, root / "tests" / "book" / "content")
    return {name: files[f"assets/{name}"] for name in OURS}


@pytest.mark.parametrize("folder", [".", "content", "content/../content"])
def test_pages_never_take_the_place_of_what_they_are_made_from(copy, folder):
    before = sorted(copy.content.rglob("*"))
    with pytest.raises(OSError, match="pages may not stand where the content is"):
        publish.publish(copy.load(), copy.content, copy.content.parent / folder)
    assert sorted(copy.content.rglob("*")) == before


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


def test_the_first_line_of_the_first_script_and_of_no_other_holds_the_words(scripts):
    first, rest = scripts["proofbook.js"].split(b"\n", 1)
    assert b'"words":' in first
    assert rest.startswith(b"(function(){")
    assert len(scripts) > 3
    assert not any(b'"words":' in text for name, text in scripts.items() if name != "proofbook.js")


@pytest.mark.parametrize("name", OURS)
def test_a_published_script_says_every_text_of_its_source_and_no_comment(scripts, name):
    source = (publish.ASSETS / name).read_text(encoding="utf-8")
    code = "\n".join(line for line in source.splitlines() if not line.strip().startswith("//"))
    published = scripts[name].decode()
    assert len(published.split("\n", 1)[-1]) < len(source)
    assert SAID.search(code)
    assert all(text in published for text in SAID.findall(code))
    assert source.splitlines()[0].removeprefix("// ") not in published


@pytest.mark.parametrize("left_out", [{"recall"}, {"figures", "calculator"}])
def test_our_scripts_with_their_words_stay_small_on_any_page(scripts, left_out):
    """A Recall page has neither figures nor a calculator, and no other page loads `recall`."""
    loaded = {name: one for name, one in scripts.items() if name[:-3] not in left_out}
    sizes = {name: len(gzip.compress(text, 9)) for name, text in loaded.items()}
    assert interface_words()["script"]["right"].encode() in scripts["proofbook.js"]
    assert sum(sizes.values()) < MOST_BYTES, sizes
