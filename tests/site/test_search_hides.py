"""The search gives no answer away: nothing that waits for one is in the index or in a result.

What waits is read off the built pages by a parser of HTML, which shares nothing with the patterns
by which the index is made.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from html import unescape
from pathlib import Path

import pytest

from generator.website import search
from tests.site.html_reading import Tag, pages, read

BLOCKS = frozenset({"p", "li", "dd", "dt", "td", "th", "div", "label", "h3", "legend", "option"})
HIDING = frozenset({"pb-answer", "pb-hint", "pb-option", "pb-reveal", "pb-myth"})
VALUE = "\0"  # before the text of a value
LONG = 30  # letters: fewer, such as a number, stand on other pages for reasons of their own


@pytest.fixture(scope="module")
def entries(built_site: Path) -> list[dict[str, str]]:
    """The entries of the built index."""
    text = (built_site / "search" / "search_index.json").read_text(encoding="utf-8")
    found: list[dict[str, str]] = json.loads(text)["docs"]
    return found


@pytest.fixture(scope="module")
def kept_back(built_site: Path) -> dict[str, list[str]]:
    """What each page keeps back, as sentences."""
    return {
        path.relative_to(built_site).as_posix(): list(sentences_of(hidden_in(path)))
        for path in pages(built_site)
    }


def _hides(tag: Tag) -> bool:
    return "data-after" in tag.attributes or bool(tag.classes & HIDING)


def hidden_in(path: Path) -> Iterator[str]:
    """The blocks of text that a page shows only to readers who have answered, or asked for it.

    What programs printed is no answer by itself, and neither is a value: other lessons quote both.
    """
    blocks: dict[int, list[str]] = {}
    kept: list[Tag] = []  # so that no two blocks have one id
    for text, above in read(path).texts:
        if any(map(_hides, above)) and not any(tag.name in ("summary", "pre") for tag in above):
            block = [tag for tag in above if tag.name in BLOCKS or "pb-backed" in tag.classes][-1]
            kept.append(block)
            is_value = "pb-value" in above[-1].classes
            blocks.setdefault(id(block), []).append(f"{VALUE}{text}" if is_value else text)
    for parts in blocks.values():
        if not all(part.startswith(VALUE) for part in parts):
            yield " ".join("".join(parts).replace(VALUE, "").split())


def sentences_of(blocks: Iterable[str]) -> Iterator[str]:
    """The sentences of blocks; the name of a run, which is one word, answers nothing."""
    for block in blocks:
        for sentence in re.split(r"(?<=[.?!])\s+", block):
            if len(sentence) >= LONG and " " in sentence:
                yield sentence


def _words(entry: dict[str, str]) -> str:
    """All that an entry holds, fields that nobody sees included."""
    said = " ".join(str(value) for value in entry.values())
    return " ".join(unescape(re.sub(r"<[^>]+>", "", said)).split())


def test_no_hidden_answer_or_explanation_of_any_page_is_in_the_index(entries, kept_back):
    # A heading stands in the open: a myth's heading is the belief, not what is true instead.
    headings = {_words({"title": entry["title"]}).strip("“”") for entry in entries}

    def is_heading(sentence: str) -> bool:
        return bool({sentence, sentence.rstrip(".")} & headings)

    index = "\n".join(map(_words, entries))
    assert sum(map(len, kept_back.values())) > 2000
    shown = {
        page: found
        for page, sentences in kept_back.items()
        if (found := [one for one in sentences if one in index and not is_heading(one)])
    }
    assert shown == {}


def test_a_sentence_that_waits_on_one_page_is_taken_out_of_every_other():
    value = '<button class="pb-value">3</button>'
    part = search.part_of(
        "<nav>Topics</nav><h1>One</h1><p>It is asked.</p><div data-after='q'>"
        '<p>All ranks wait for the <a href="x">slowest</a> one. Neither.</p></div>'
        f'<details class="pb-answer"><p>It is the mean {value} of all ranks.</p></details>',
    )
    waiting = {"All ranks wait for the slowest one.", "It is the mean 3 of all ranks."}
    assert part == ("<h1>One</h1><p>It is asked.</p>", waiting)
    text = "<p>Neither. All ranks wait for the slowest one. So <code>x.</code> It is the mean 3"
    entries = [{"location": "two.html", "title": "Two", "text": f"{text} of all ranks.</p>"}]
    search.take_out(entries, part.waiting)
    assert entries[0]["text"] == "<p>Neither. … So <code>x.</code> …</p>"
