"""Markup in every text that people write or runs report, in the built pages and in the search."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from generator.content.book import load
from tests.conftest import ROOT, mkdocs
from tests.site.conftest import CONFIGURATION
from tests.site.html_reading import pages, read

EVIL = '<script>alert(document)</script><img src=q onerror=alert(document)> & "quo\'te"'
ENCODED = "`&lt;/title&gt;&lt;script&gt;alert(document)&lt;/script&gt;`"  # if it is decoded twice
HEAD_TITLE = ["head", "title"]
CITED = ("title", "where", "says")
# Words that the models, the figures or the lessons know; everything else is only ever shown.
KNOWN = {
    "experiment", "machine", "digest", "status", "expected_status", "backend", "device", "strategy",
    "dtype", "unit", "activity", "operation", "name", "kind", "parameter_digest", "phase",
    "peak_phase", "model", "recorded_at",
}  # fmt: skip


def _spoil_texts(content: Path) -> None:
    for document in load(content, "reference-frozen", is_stale=lambda _: False).documents:
        path = content.parent / document.source.file
        written = yaml.safe_load(path.read_text(encoding="utf-8").replace("e-5", "0e-5"))
        for one in document.fields:
            if one.mark in ("line", "prose") or (one.mark is None and one.name in CITED):
                place = written
                for part in one.path[:-1]:
                    place = place[part]
                place[one.path[-1]] = f"{EVIL} {ENCODED}. {one.text}"
        path.write_text(yaml.safe_dump(written, allow_unicode=True, sort_keys=False))


def _spoilt(thing: Any, key: str) -> Any:
    if isinstance(thing, dict):
        return {name: _spoilt(one, name) for name, one in thing.items()}
    if isinstance(thing, list):
        return [_spoilt(one, key) for one in thing]
    return f"{EVIL} {thing}" if isinstance(thing, str) and key not in KNOWN else thing


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("injection")
    shutil.copytree(ROOT / "tests" / "book" / "content", folder / "content")
    (folder / "pages").mkdir()
    text = CONFIGURATION.format(root=ROOT).replace(f"{ROOT}/tests/book/content", "content")
    (folder / "mkdocs.yml").write_text(text, encoding="utf-8")
    _spoil_texts(folder / "content")
    for path in (folder / "content" / "traces" / "reference-frozen").glob("*.json"):
        path.write_text(json.dumps(_spoilt(json.loads(path.read_text()), "")))
    done = mkdocs(folder, "build", "--quiet")
    assert done.returncode == 0, done.stdout + done.stderr
    return folder / "html"


def test_no_text_of_an_author_or_of_a_trace_becomes_markup(site: Path) -> None:
    num_shown = 0
    for page in pages(site):
        reading = read(page)
        for tag in reading.tags:
            assert not [name for name in tag.attributes if name.startswith("on")], (page, tag)
            assert tag.attributes.get("src") != "q", page
        for said, around in reading.texts:
            if around[-1].name == "script" and "alert(document)" in said:
                assert around[-1].attributes["type"] == "application/json", page
                assert "<" not in said, page
            num_shown += "<script>alert(document)" in said
    assert num_shown > 300


def test_the_title_of_a_page_is_shown_as_it_was_written(site: Path) -> None:
    reading = read(site / "topics" / "sharding" / "experiment.html")
    (title,) = (said for said, tags in reading.texts if [t.name for t in tags[-2:]] == HEAD_TITLE)
    assert title.count(EVIL) == 1
    assert ENCODED.strip("`") in title
    assert "</title><script>" not in (site / "topics/sharding/experiment.html").read_text()


def test_what_the_search_puts_into_a_page_is_escaped(site: Path) -> None:
    index = json.loads((site / "search" / "search_index.json").read_text(encoding="utf-8"))
    assert index["docs"]
    for entry in index["docs"]:
        for part in ("title", "text"):
            assert "<script" not in entry[part], entry["location"]
            assert "<img" not in entry[part], entry["location"]


@pytest.mark.browser
def test_nothing_runs_when_answers_are_explained(site, open_page):
    page = open_page(site / "topics" / "asking" / "challenge.html")
    dialogs = []
    page.on("dialog", lambda dialog: dialogs.append(dialog.message))
    scripts = page.locator("script").count()
    for box in page.locator(".pb-question").all():
        hint = box.locator(".pb-show-hint")
        if hint.count():
            hint.click()
        box.locator(".pb-give-up").click()
    page.reload()
    assert page.locator(".pb-question[data-done]").count() == page.locator(".pb-question").count()
    assert page.locator("main").inner_text().count("<script>alert(document)") > 100
    assert page.locator("img[src=q]").count() == 0
    assert page.locator("script").count() == scripts
    assert dialogs == []


@pytest.mark.browser
def test_nothing_runs_when_the_source_of_a_value_is_opened(site, open_page):
    page = open_page(site / "evidence" / "tiny_training.html")
    dialogs = []
    page.on("dialog", lambda dialog: dialogs.append(dialog.message))
    for details in page.locator("details").all():
        details.evaluate("one => { one.open = true; }")
    spoilt = 0
    for value in page.locator("a.pb-value").all()[:40]:
        value.click()
        spoilt += "alert(document)" in page.locator(":popover-open").inner_text()
        page.keyboard.press("Escape")
    assert spoilt
    assert page.locator("img[src=q]").count() == 0
    assert dialogs == []
