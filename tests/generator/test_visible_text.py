"""What every page of the frozen book says, and what it leads to, is what it was; in scenes too."""

import hashlib
import html
import json
import os
import re
from difflib import unified_diff
from functools import partial
from pathlib import Path

import pytest
from markdown.extensions.toc import slugify

from proofbook.generator.checks import trace_checks
from proofbook.generator.values.evaluation import Evidence
from tests.conftest import ROOT
from tests.generator.conftest import render
from tests.generator.scenes import SCENES
from tests.popovers import popovers_of
from tests.processes import python
from tests.whole_pages import machines_behind

GOLDEN = ROOT / "tests" / "book" / "golden"
_NOT_SEEN = re.compile(r"<(script|style)\b.*?</\1>", re.DOTALL)
_LEADS = re.compile(r'<[^>]*?\b(href|id|data-after|data-say)="([^"]*)"[^>]*>')
_ENDS = re.compile(r"<br>|</(?:caption|dd|div|dt|h[1-6]|li|p|summary|t[dhr])>")  # a line
_TAG = re.compile(r"<[^>]+>")


def visible(page):
    """The lines of a page as people read them; what marks say and lead to stands in brackets.

    The last line names the machines that measured its numbers.
    """
    marked = _LEADS.sub(lambda one: f"\n[{one[1]} {one[2]}]", _NOT_SEEN.sub("", page))
    lines = html.unescape(_TAG.sub("", _ENDS.sub("\n", marked))).splitlines()
    machines = ", ".join(sorted(machines_behind(page, page)))
    return [*filter(None, (" ".join(line.split()) for line in lines)), f"[on {machines}]"]


def lost_links(pages):
    """Links from page to page that lead to no such page or to no such id on it."""
    lost = []
    for path, lines in pages.items():
        for link in re.findall(r"\[href ([^\]]*\.html[^\]]*|#[^\]]*)\]", "\n".join(lines)):
            file, _, anchor = link.partition("#")
            target = os.path.normpath(Path(path).parent / file.replace(".html", ".md"))
            known = pages.get(target, []) if file else lines
            if "://" not in link and not (known if not anchor else _has_id(known, anchor)):
                lost.append(f"{path}: {link}")
    return lost


def _has_id(lines, anchor):
    """Whether a page has an id, its own or one that MkDocs gives to a heading of a page by hand."""
    headings = (slugify(line.lstrip("# "), "-") for line in lines if line.startswith("#"))
    return anchor in headings or any(f"[id {anchor}]" in line for line in lines)


@pytest.fixture(scope="session")
def expect(pytestconfig):
    return partial(compare, is_written=pytestconfig.getoption("--write-goldens"))


def compare(name, found, *, is_written):
    """Compare lines by page with a golden, or write it."""
    golden = GOLDEN / f"{name}.json"
    if is_written:
        text = json.dumps(found, ensure_ascii=False, indent=1, sort_keys=True)
        golden.parent.mkdir(exist_ok=True)
        golden.write_text(f"{text}\n", encoding="utf-8")
    known = json.loads(golden.read_text(encoding="utf-8"))
    assert found.keys() == known.keys()
    for path, after in found.items():
        assert after == known[path], (
            f"{path}; if the change is meant: "
            "python -m pytest tests/generator/test_visible_text.py --write-goldens"
        )


@pytest.fixture(scope="module")
def pages(rendered):
    return {path: visible(text) for path, text in rendered.items()}


def test_the_pages_of_the_frozen_book_say_what_they_said(pages, expect):
    expect("visible_text", pages)


def test_the_values_of_the_frozen_book_open_to_what_they_opened_to(rendered, expect):
    found = {}
    for path, text in rendered.items():
        for one in popovers_of(text):
            parts = (one.shown, one.kind, one.formula, one.source, one.on, one.exactly, one.command)
            inputs = "".join(f"; {shown} {kind}" for shown, kind in one.inputs)
            found.setdefault(path, []).append(" | ".join(filter(None, parts)) + inputs)
    expect("sources", found)


@pytest.mark.parametrize("scene", SCENES, ids=lambda one: one.__name__)
def test_what_happens_to_the_book_changes_its_pages_as_it_did(copy, pages, expect, scene):
    """The golden of a scene holds the lines that went and came, and what a strict build refuses."""
    book = scene(copy) or copy.load()
    changed = {"": trace_checks.problems(book, Evidence(book).judged_claims)}
    now = {path: visible(text) for path, text in render(book).items()}
    for path, text in now.items():
        lines = [*unified_diff(pages.get(path, []), text, n=0)][2:]
        changed |= {path: said} if (said := [one for one in lines if one[0] != "@"]) else {}
    assert len(changed) > 1
    assert lost_links(now) == []
    expect(f"scenes/{scene.__name__}", changed)


@pytest.mark.builds
def test_the_same_book_gives_the_same_bytes_whatever_the_hash_seed(rendered):
    program = """
import hashlib, pathlib
from proofbook.generator.content import reading
from tests.generator.conftest import render
found = reading.load(pathlib.Path("tests/book/content"), "reference-frozen", lambda _: False)
print(hashlib.sha256(repr(sorted(render(found).items())).encode()).hexdigest())
"""
    done = python("-c", program, PYTHONHASHSEED="1")
    here = hashlib.sha256(repr(sorted(rendered.items())).encode()).hexdigest()
    assert done.stdout.split() == [here]
