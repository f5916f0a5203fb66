"""What the search can find: words of lessons; not rows of tables, and nothing twice."""

from __future__ import annotations

import json
import re
from html import unescape
from pathlib import Path

import pytest

from generator.website import search


@pytest.fixture(scope="module")
def entries(built_site: Path) -> list[dict[str, str]]:
    """The entries of the built index."""
    text = (built_site / "search" / "search_index.json").read_text(encoding="utf-8")
    found: list[dict[str, str]] = json.loads(text)["docs"]
    return found


def _words(entry: dict[str, str]) -> str:
    text = re.sub(r"<[^>]+>", " ", f"{entry['title']} {entry['text']}")
    return " ".join(unescape(text).split())


def _of(entries: list[dict[str, str]], page: str) -> str:
    return " ".join(_words(one) for one in entries if one["location"].startswith(f"{page}.html"))


def test_sentences_of_lessons_are_found(entries, built_site):
    for page in sorted((built_site / "topics").glob("*/*.html")):
        if page.stem in ("index", "recall", "summary"):
            continue
        name = page.relative_to(built_site).with_suffix("").as_posix()
        html = page.read_text(encoding="utf-8")
        body = html[html.index("<h1") :]
        lede = body[body.index('<div class="pb-lede">') : body.index("<h2")]
        (first, *_) = re.findall(r"<p>(.*?)</p>", search.part_of(f"<h1>{lede}").html, re.DOTALL)
        sentences = re.split(r"(?<=[.?!]) ", _words({"title": "", "text": first}))
        longest = max(sentences, key=len).replace(" ", "")  # tags stand where words are joined
        assert longest in _of(entries, name).replace(" ", ""), name


def test_questions_are_found_where_a_lesson_asks_them_and_not_again_on_recall(entries, built_site):
    recalled = 0
    for page in sorted(built_site.glob("topics/*/recall.html")):
        name = page.relative_to(built_site).with_suffix("").as_posix()
        for stem in re.findall(r'<span class="pb-stem">([^<]{30,})</span>', page.read_text()):
            assert " ".join(unescape(stem).split()) not in _of(entries, name)
            recalled += 1
    assert recalled > 20


def test_a_figure_that_readers_play_with_is_an_entry_also_where_it_waits(entries, built_site):
    places = {one["location"]: one for one in entries}
    found = 0
    for page in sorted(built_site.glob("topics/*/*.html")):
        for name, title in re.findall(
            r'<figure class="pb-figure pb-play[^"]*" id="(figure-[^"]+)"[^<>]*>\s*'
            r'<figcaption class="pb-figure-title">([^<]*)</figcaption>',
            page.read_text(encoding="utf-8"),
        ):
            entry = places[f"{page.relative_to(built_site).as_posix()}#{name}"]
            assert unescape(entry["title"]) == unescape(title)
            found += 1
    assert found > 10
    assert places["topics/pipeline-parallelism/learn.html#figure-schedule"]["text"] == ""
