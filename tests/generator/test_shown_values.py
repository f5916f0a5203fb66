"""The page of an experiment lists what other pages print of its runs, so that links show it."""

import html
import json
import re

import pytest

from generator.pages import rendering
from tests.popovers import popovers_of

LINK = re.compile(r'href="(?:\.\./)*evidence/(\w+)\.html#(?!claim-)([^"]+)" data-v="(\d+)">')
FOLD = re.compile(r'<summary>([^\n]*?)</summary><div [^>]*id="run-([^"]+)">(.*?)</details>')


@pytest.fixture(scope="module")
def rendered(book):
    return rendering.render(book)


def text_of(markup):
    return html.unescape(re.sub(r"<[^>]+>", " ", markup)).replace("\N{NO-BREAK SPACE}", " ")


def folds(page):
    """By the run: what the fold says before it opens, and what it holds."""
    return {run: (text_of(says), text_of(held)) for says, run, held in FOLD.findall(page)}


def test_each_value_of_a_lesson_stands_in_the_fold_of_the_run_that_it_leads_to(rendered):
    found = 0
    for path, page in rendered.items():
        if path.startswith(("evidence", "machines/")):
            continue
        values = popovers_of(page)
        for experiment, run, number in LINK.findall(page):
            value = text_of(values[int(number)].shown)
            held = folds(rendered[f"evidence/{experiment}.md"])[f"{experiment}-{run}"][1]
            assert value in held, (path, value)
            found += 1
    assert found > 50


def test_the_row_of_a_run_has_its_payload_and_the_fold_each_collective(copy):
    trace = json.loads(copy.trace("tiny_training").read_text())
    of_ranks = [rank["collectives"] for rank in trace["runs"]["averaged"]["ranks"]]
    assert [[one["bytes"] for one in rank] for rank in of_ranks] == [[144], [144]]
    page = rendering.render(copy.load())["evidence/tiny_training.md"]
    row = text_of(page.partition("<code>averaged</code>")[2].partition("</tr>")[0])
    assert "144 B" in row
    held = folds(page)["tiny_training-averaged"][1]
    assert re.search(r"Counted\s+payload of all_reduce in one step, ranks 0–1: 144 B", held)
