"""The style sheet: a file for each component, small, with no unused class and no rule twice."""

from __future__ import annotations

import gzip
import re
from collections import Counter
from collections.abc import Iterator
from typing import get_args

from generator.content.claim import Verdict
from generator.evidence.value import KINDS
from generator.figures.drawing import NARROW, WIDE
from generator.pages.press import Press
from generator.website import publish

MOST_BYTES = 9_000
WRITES_CLASSES = (".py", ".j2", ".js", ".html", ".yml")
CLASS = re.compile(r"\.(pb-[a-z0-9-]+)")


def _source(name: str) -> str:
    return (publish.STYLES / f"{name}.css").read_text(encoding="utf-8")


def _rules(style: str) -> Iterator[tuple[str, ...]]:
    """The selector of each rule, after the conditions or rules around it."""
    around: list[str] = []
    for head, end in re.findall(r"([^{};]*)([{};])", style):
        if end == "{":
            around.append(" ".join(head.split()))
            if not around[-1].startswith("@"):
                yield tuple(around)
        elif end == "}":
            around.pop()


def test_the_style_sheet_is_every_component_once_and_no_comment():
    names = sorted(path.stem for path in publish.STYLES.iterdir())
    assert sorted(publish.COMPONENTS) == names
    style = publish.style().decode()
    assert "/*" not in style
    for name in names:
        assert _source(name).startswith("/* "), name
        assert _source(name).count("{") == _source(name).count("}"), name
    assert style.count("{") == sum(_source(name).count("{") for name in names)


def test_a_site_loads_the_components_as_one_file(book, root):
    files = publish.site_files(book, root / "tests" / "book" / "content", Press())
    assert files["assets/proofbook.css"] == publish.style()
    assert [name for name in files if name.endswith(".css")] == [
        "assets/calculator.css",
        "assets/glossary.css",
        "assets/guide.css",
        "assets/indexes.css",
        "assets/play.css",
        "assets/runs.css",
        "assets/sift.css",
        "assets/proofbook.css",
    ]


def test_the_style_sheet_stays_small():
    assert len(gzip.compress(publish.style(), 9)) < MOST_BYTES


def test_every_class_of_the_style_sheet_is_written_by_a_template_or_a_script(root):
    sources = [
        path.read_text(encoding="utf-8")
        for path in sorted((root / "generator").rglob("*"))
        if path.suffix in WRITES_CLASSES
    ]
    written = set(re.findall(r"pb-[a-z0-9-]+", "\n".join(sources)))
    styled = set(CLASS.findall(publish.style().decode()))
    assert len(styled) > 100
    names = (*KINDS, *get_args(Verdict), WIDE.name, NARROW.name)
    drawings = (root / "generator" / "figures").rglob("*.py")
    looks = re.findall(r"[a-z]+(?:-[a-z]+)*", "".join(path.read_text() for path in drawings))
    put_together = {f"pb-{name.replace('_', '-')}" for name in (*names, *looks)}
    assert sorted(styled - written - put_together) == []


def test_no_selector_has_two_rules():
    counts = Counter(_rules(publish.style().decode()))
    assert len(counts) > 250
    assert [" ".join(one) for one, count in counts.items() if count > 1] == []


def test_only_what_is_hidden_still_or_opened_on_paper_is_important():
    important = {
        name: _source(name).count("!important")
        for name in publish.COMPONENTS
        if "!important" in _source(name)
    }
    assert important == {"system": 4, "print": 1}
