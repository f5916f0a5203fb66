"""Scripts without comments and idle space: the same program in fewer bytes."""

from __future__ import annotations

import gzip
import re

import pytest

from generator import publish
from generator.lean_script import lean, tokens
from generator.views.folio import interface_words

OURS = sorted(
    path for path in publish.ASSETS.glob("*.js") if not path.name.startswith(publish.VENDORED)
)
MOST_BYTES = 12_000


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("let a = 1; // one\nlet b;", "let a=1;let b;\n"),
        ('say("a  // b",  `c  ${ d }`);', 'say("a  // b",`c  ${ d }`);\n'),
        ("/* all\nof it */ return x;", "return x;\n"),
        ("const c = (100 * n) / m;", "const c=(100*n)/m;\n"),
        ('a.replace(/[\\s"/]/g, "");', 'a.replace(/[\\s"/]/g,"");\n'),
        ("x = a + +b - -c;", "x=a+ +b- -c;\n"),
        ("return !a && typeof b;", "return!a&&typeof b;\n"),
    ],
)
def test_what_only_people_read_is_left_out(script, expected):
    assert lean(script) == expected


@pytest.mark.parametrize("path", OURS, ids=lambda path: path.name)
def test_a_script_of_ours_says_the_same_in_fewer_bytes(path):
    script = path.read_text(encoding="utf-8")
    assert lean(lean(script)) == lean(script)
    assert tokens(lean(script)) == tokens(script)
    assert len(lean(script)) < len(script)
    said = [token for token in tokens(script) if re.match(r'["`]', token)]
    assert said
    assert all(text in lean(script) for text in said)


def test_all_our_scripts_with_their_words_stay_small(book, root):
    files = publish.site_files(book, root / "tests" / "book" / "content")
    sizes = {path.name: len(gzip.compress(files[f"assets/{path.name}"], 9)) for path in OURS}
    assert interface_words()["script"]["right"].encode() in files["assets/proofbook.js"]
    assert sum(sizes.values()) < MOST_BYTES, sizes
