"""What a reader does while a script that is loaded late is on its way, or where it never comes."""

from __future__ import annotations

from typing import Any

import pytest

from tests.site.asking import (
    BY_ID,
    CHALLENGE,
    RECALL,
    RIGHT,
    WRONG,
    Asking,
    field_of,
    kept,
    numbers_are_read,
)

pytestmark = pytest.mark.browser


class Held:
    """A script that comes only when the test says so."""

    def __init__(self, page: Any, pattern: str) -> None:
        self.routes: list[Any] = []
        self.is_let = False
        page.route(pattern, self._hold)

    def _hold(self, route: Any) -> None:
        if self.is_let:
            route.continue_()
        else:
            self.routes.append(route)

    def come(self) -> None:
        """Let every request go on: those that wait, and those that come later."""
        self.is_let = True
        for route in self.routes:
            route.continue_()


@pytest.fixture
def slow(frozen_site, open_page):
    """The Challenge of the frozen book, and its script of typed numbers, held back."""
    page = open_page("about:blank")
    typing = Held(page, "**/typing.js")
    page.goto((frozen_site / CHALLENGE).as_uri())
    return page, typing


def _typed(item: Asking, text: str) -> Any:
    field = item.box.locator(".pb-number-field")
    field.fill(text)
    return field


def _has_come(page: Any, typing: Held) -> None:
    typing.come()
    numbers_are_read(page)


def test_an_answer_is_read_once_however_often_enter_was_pressed(slow):
    page, typing = slow
    item = Asking(page, "what-peak")
    field = _typed(item, "77.1")
    for _ in range(3):
        field.press("Enter")
    _has_come(page, typing)
    item.box.get_by_text("one more try").wait_for()
    assert len(kept(page)["what-peak"]["attempts"]) == 1


def test_what_was_changed_or_given_up_meanwhile_is_not_judged(slow):
    page, typing = slow
    changed, ended = Asking(page, "what-peak"), Asking(page, "how-many-parameters")
    _typed(changed, "160").press("Enter")
    _typed(changed, "16")
    _typed(ended, "20,000").press("Enter")
    ended.press("Show the answer")
    _has_come(page, typing)
    assert changed.said() == ""
    (attempt,) = kept(page)["how-many-parameters"]["attempts"]
    assert attempt["gave_up"]
    assert list(kept(page)) == ["how-many-parameters"]
    assert changed.check().startswith(WRONG)


def test_a_script_that_never_comes_is_said_and_asked_for_again(frozen_site, open_page):
    page = open_page("about:blank")
    page.route("**/typing.js", lambda route: route.fulfill(body="", content_type="text/javascript"))
    page.goto((frozen_site / CHALLENGE).as_uri())
    item = Asking(page, "how-slow")
    slider = item.box.get_by_role("slider")
    _typed(item, "2.2").press("Enter")
    item.box.get_by_text("could not be loaded").wait_for()
    assert kept(page) == {}
    page.unroute("**/typing.js")
    item.box.get_by_role("button", name="Check", exact=True).click()
    item.box.get_by_text("Exact.").wait_for()
    item.press("Answer again")
    field_of(item.box).fill("12")
    assert slider.input_value() == "100"


def test_a_slider_stands_where_the_answer_before_a_reload_was(frozen_site, open_page):
    page = open_page(frozen_site / CHALLENGE)
    Asking(page, "how-slow").give("12")
    page.reload()
    page.wait_for_function(
        "() => document.querySelector('#item-how-slow .pb-slider').dataset.set === ''"
    )
    slider = Asking(page, "how-slow").box.get_by_role("slider")
    assert slider.input_value() == "100"
    assert slider.get_attribute("aria-valuetext") == "12 ms"


def test_the_middle_of_a_slider_is_a_number_too(frozen_site, open_page):
    page = open_page(frozen_site / CHALLENGE)
    item = Asking(page, "how-slow")
    field = field_of(item.box)
    item.box.get_by_role("slider").click()
    assert field.input_value() == "1.2"


def test_a_sitting_begins_once(frozen_site, open_page):
    page = open_page("about:blank")
    variants = Held(page, "**/variants/*")
    page.goto((frozen_site / "topics" / "averaging" / "recall.html").as_uri())
    start = page.get_by_role("button", name="Answer new questions")
    start.click()
    start.click()
    said = page.locator("[data-recall-said]")
    assert "1 of" not in said.inner_text()
    variants.come()
    said.get_by_text("1 of").wait_for()
    page.locator("[data-recall] .pb-question:visible").get_by_role(
        "button", name="Show the answer"
    ).click()
    page.wait_for_timeout(300)  # for a second beginning, were there one
    assert page.get_by_role("button", name="Next question").is_visible()


def test_one_shape_in_two_spellings_is_one_answer(frozen_site, open_page):
    page = open_page(frozen_site / CHALLENGE)
    item = Asking(page, "what-comes-out")
    assert item.give("20x8").startswith(WRONG)
    for text in ("20 × 8", "[20, 8]", "20✕8"):
        assert "You gave this answer already" in item.give(text), text
    assert item.give("20✕4").startswith(RIGHT)


def test_another_tab_keeps_its_answers_and_its_wishes(frozen_site, open_page):
    page = open_page(frozen_site / RECALL)
    other = page.context.new_page()
    other.goto((frozen_site / RECALL).as_uri())
    first, second, third, fourth = list(BY_ID)[:4]

    def begin() -> None:
        for tab in (page, other):
            tab.reload()
            tab.get_by_role("button", name="Answer new questions").click()
            tab.locator(f"#item-{first}").wait_for()

    begin()
    for tab in (other, page):
        Asking(tab, first).give(1)
        tab.wait_for_timeout(5)
    for tab in (other, page):  # what the other one took back does not return
        tab.get_by_role("button", name="Undo this answer").click()
    assert kept(page) == {}
    begin()
    page.get_by_role("button", name="Not today").click()
    other.get_by_role("button", name="Never ask this again").click()
    page.get_by_role("button", name="Undo", exact=True).click()
    never = page.evaluate("window.proofbook.store.NEVER")
    assert page.evaluate("window.proofbook.store.later()") == {first: never}
    for name in (second, third):
        Asking(other, name).give(BY_ID[name].right)
        other.get_by_role("button", name="Next question").click()
    page.get_by_role("button", name="Not today").click()
    shown = page.locator("[data-recall] .pb-question:visible")
    assert shown.get_attribute("id") == f"item-{fourth}"
