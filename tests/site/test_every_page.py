"""Pages of every kind, opened once for both schemes: quiet, in their window, accessible.

The gate opens a page of each kind, and `make soak` the whole book.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.conftest import listen
from tests.site.visits import SCHEMES, Visit, Visitor

if TYPE_CHECKING:
    from playwright.sync_api import Browser

pytestmark = pytest.mark.browser
TOPIC = "topics/large-models"
KINDS = (
    "*.html",
    f"{TOPIC}/*.html",
    "evidence/large_model.html",
    "machines/*.html",
    "plan/p*.html",
)


@pytest.fixture(scope="module")
def visited(built_site: Path) -> list[Path]:
    """The pages that are opened: those at the root, a topic's, and one of each other kind."""
    return sorted({path for kind in KINDS for path in built_site.glob(kind)})


@pytest.fixture(scope="module")
def by_scheme(
    built_site: Path, visited: list[Path], browser: Browser
) -> Iterator[dict[str, list[Visit]]]:
    """Each page, looked at once, by scheme."""
    context = browser.new_context(color_scheme="light")
    page = context.new_page()
    complaints: list[str] = []
    listen(page, complaints)
    visitor = Visitor(page, complaints)
    found = [visitor.visit(path, path.relative_to(built_site).as_posix()) for path in visited]
    yield {scheme: [visits[scheme] for visits in found] for scheme in SCHEMES}
    context.close()


@pytest.fixture(params=list(SCHEMES))
def visits(request: pytest.FixtureRequest, by_scheme: dict[str, list[Visit]]) -> list[Visit]:
    """What was seen of each page in one scheme."""
    return by_scheme[request.param]


def test_a_page_of_every_kind_is_visited(visits: list[Visit]) -> None:
    names = {visit.name for visit in visits}
    assert {"index.html", "evidence.html", "guide.html", "plan.html", "glossary.html"} <= names
    assert sum(name.startswith(f"{TOPIC}/") for name in names) > 9


def test_no_page_complains_breaks_its_policy_or_asks_another_host(visits: list[Visit]) -> None:
    assert {v.name: v.complaints for v in visits if v.complaints} == {}


def test_no_page_scrolls_sideways_on_a_phone_or_at_twice_its_size(visits: list[Visit]) -> None:
    assert {v.name: v.too_wide for v in visits if v.too_wide} == {}


def test_no_page_breaks_a_rule_of_accessibility(visits: list[Visit]) -> None:
    assert {v.name: v.violations for v in visits if v.violations} == {}


def test_on_paper_the_numbers_of_figures_and_the_stages_are_open(visits: list[Visit]) -> None:
    assert {v.name: v.unseen_on_paper[:2] for v in visits if v.unseen_on_paper} == {}


def test_words_in_drawings_lie_on_nothing_and_stay_inside(visits: list[Visit]) -> None:
    assert {v.name: v.unreadable for v in visits if v.unreadable} == {}
    assert sum(v.num_words for v in visits) > 1000


def test_words_in_drawings_are_large_enough_to_read(visits: list[Visit]) -> None:
    assert {v.name: v.smallest_words for v in visits if v.smallest_words < 12} == {}
    assert any(v.smallest_words < float("inf") for v in visits)


def test_what_scrolls_is_within_reach_of_the_keyboard(visits: list[Visit]) -> None:
    assert {v.name: v.out_of_reach for v in visits if v.out_of_reach} == {}
