"""The page of an experiment lists what other pages print of its runs, so that links show it."""

import html
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
