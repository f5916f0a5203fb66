"""Broken and hostile traces: one clear line that names file and field; their text is only text."""

import json

import pytest

from generator.pages.press import Press

TRACE = "traces/reference-frozen/tiny_memory.json"
QUESTION = "Which split of a tiny model fits a tiny budget?"
RUNS = "evidence/tiny_memory.md"
EVIL = '<script>alert(x)</script><img src=q onerror=alert(x)> & "quo\'te" *a* [b](javascript:c) `d`'
ASKING = "{{ nosuch }} {{ tiny_memory.whole }} {% if %} }} {#"


@pytest.fixture
def spoil(copy):
    """Replace a part of the text of a trace."""

    def spoilt(old, new):
        path = copy.content / TRACE
        text = path.read_text()
        assert old in text
        path.write_text(text.replace(old, new, 1))

    return spoilt


def asks(spoil, question):
    spoil(json.dumps(QUESTION), json.dumps(question))


@pytest.mark.parametrize("question", [EVIL, ASKING])
def test_what_a_trace_says_is_printed_and_never_evaluated(copy, spoil, question):
    asks(spoil, question)
    assert copy.errors() == []
    pages = {name: page.decode() for name, page in Press().printed(copy.load()).items()}
    for name, page in pages.items():
        assert "<script>alert" not in page, name
        assert "<img src=q" not in page, name
        assert 'href="javascript' not in page, name
        assert "<em>a</em>" not in page, name
    if question == ASKING:
        assert "{{ nosuch }} {{ tiny_memory.whole }} {% if %}" in pages[RUNS]
