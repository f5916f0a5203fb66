"""What every page of the frozen book says, and what it leads to, is what it was."""

from __future__ import annotations

import html
import json
import os
import re
from pathlib import Path

import pytest

from generator.pages import rendering

GOLDEN = Path(__file__).parents[1] / "book" / "golden" / "visible_text.json"
_NOT_SEEN = re.compile(r"<(script|style|svg)\b.*?</\1>", re.DOTALL)
_LEADS = re.compile(r'<[^>]*?\b(href|id|data-after)="([^"]*)"[^>]*>')
_TAG = re.compile(r"<[^>]+>")


def visible(page: str) -> list[str]:
    """The lines of a page as people read them; links, ids and what waits stand in brackets."""
    marked = _LEADS.sub(lambda one: f"\n[{one[1]} {one[2]}]", _NOT_SEEN.sub("", page))
    lines = html.unescape(_TAG.sub("", marked)).splitlines()
    return [said for line in lines if (said := " ".join(line.split()))]


@pytest.fixture(scope="module")
def pages(book):
    return {path: visible(text) for path, text in rendering.render(book).items()}


def test_the_pages_of_the_frozen_book_say_what_they_said(pages):
    if os.environ.get("PROOFBOOK_WRITE_GOLDENS"):
        text = json.dumps(pages, ensure_ascii=False, indent=1, sort_keys=True)
        GOLDEN.write_text(f"{text}\n", encoding="utf-8")
    known = json.loads(GOLDEN.read_text(encoding="utf-8"))
    assert pages.keys() == known.keys()
    changed = {path: (known[path], text) for path, text in pages.items() if text != known[path]}
    for path, (before, after) in changed.items():
        assert after == before, (
            f"{path}; if the change is meant: "
            "PROOFBOOK_WRITE_GOLDENS=1 python -m pytest tests/generator/test_visible_text.py"
        )
