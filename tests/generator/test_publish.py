"""The files of a site: small scripts, and words in front of the one that others come after."""

from __future__ import annotations

import gzip
import json
import re

import pytest

from generator.evidence.folio import interface_words
from generator.website import publish

SOURCES = {
    path.name: (path,)
    for path in publish.ASSETS.glob("*.js")
    if not path.name.startswith(publish.VENDORED)
} | {"quiz.js": publish.QUIZ_PARTS}
OURS = sorted(SOURCES)
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
    line = publish.words_for_scripts("words", words)
    start, end = b"(window.proofbook=window.proofbook||{}).words=", b";\n"
    assert line.startswith(start)
    assert line.endswith(end)
    told = line[len(start) : -len(end)]
    assert json.loads(told) == words
    assert line.isascii()
    assert b"<" not in line
    assert line.count(b"\n") == 1


@pytest.mark.parametrize(
    ("script", "name"), [("proofbook.js", b".words="), ("sources.js", b".source=")]
)
def test_the_first_line_of_one_script_and_of_no_other_holds_the_words(scripts, script, name):
    first, rest = scripts[script].split(b"\n", 1)
    assert name in first
    assert rest.startswith(b"(function(){")
    assert len(scripts) > 3
    start = b"(window.proofbook=window.proofbook||{})" + name
    assert [one for one, text in scripts.items() if text.startswith(start)] == [script]


@pytest.mark.parametrize("name", OURS)
def test_a_published_script_says_every_text_of_its_source_and_no_comment(scripts, name):
    source = "".join(path.read_text(encoding="utf-8") for path in SOURCES[name])
    code = "\n".join(line for line in source.splitlines() if not line.strip().startswith("//"))
    published = scripts[name].decode()
    assert len(published.split("\n", 1)[-1]) < len(source)
    assert SAID.search(code)
    assert all(text in published for text in SAID.findall(code))
    assert source.splitlines()[0].removeprefix("// ") not in published


@pytest.mark.parametrize("left_out", [{"recall", "play"}, {"figures", "calculator", "play"}])
def test_our_scripts_with_their_words_stay_small_on_any_page(scripts, left_out):
    """A Recall page has neither figures nor a calculator, and no other page loads `recall`.

    The code of figures that readers operate counts towards each figure (tests/site/test_play.py).
    """
    loaded = {name: one for name, one in scripts.items() if name[:-3] not in left_out}
    sizes = {name: len(gzip.compress(text, 9)) for name, text in loaded.items()}
    assert interface_words()["script"]["right"].encode() in scripts["proofbook.js"]
    assert sum(sizes.values()) < MOST_BYTES, sizes
