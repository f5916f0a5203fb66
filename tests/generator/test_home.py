"""The home page: it asks first, and shows the runs of a machine that can answer."""

import re

import pytest

from generator.pages import rendering
from tests.popovers import popovers_of

HOME = "index.md"


@pytest.fixture
def desk(copy):
    """The frozen book on a second machine, which measured the runs of the home page itself."""
    copy.add_machine("desk", "tiny_memory", "tiny_training")
    return copy


def home(copy):
    return rendering.render(copy.load())[HOME]


def asked_and_shown(page):
    """The question with the figure below it, without what follows, and the sources it opens."""
    part = page[: page.index('class="pb-start"')]
    opened = set(re.findall(r'data-(?:v|opens)="(\d+)"', part))
    sources = popovers_of(page)
    return part, [sources[int(number)] for number in opened]


@pytest.mark.parametrize(
    "changes",
    [
        {"status": "skipped", "reason": "no budgets here"},
        {"status": "completed", "error": None},
    ],
)
def test_where_a_budgeted_run_is_skipped_or_surprises_the_reference_machine_decides(desk, changes):
    desk.change_run("tiny_memory.whole_budget", machine="desk", **changes)
    page = home(desk)
    part, opened = asked_and_shown(page)
    assert "the reference machine" in page.split('class="pb-measured"')[1].split("</p>")[0]
    assert "not measured here" not in part
    assert "data-open" not in re.search(r"<form[^>]*>", part)[0]
    assert opened
    if changes["status"] != "skipped":
        assert all("desk" not in (one.on or "") for one in opened)


def test_an_item_or_a_topic_that_is_not_there_is_refused_with_the_nearest(copy):
    copy.edit("site.yml", "commit: who-fits", "commit: who-fit")
    assert any(
        error.startswith("content/site.yml:4:")
        and "no item in sharding/quiz.yml is 'who-fit'; did you mean 'who-fits'?" in error
        for error in copy.errors()
    ), copy.errors()
    copy.edit("site.yml", "topic: sharding", "topic: shardin")
    assert any("content/site.yml:3:" in error and "no topic" in error for error in copy.errors())
