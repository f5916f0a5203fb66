"""What a reader does while a script that is loaded late is on its way, or where it never comes."""

from __future__ import annotations

from typing import Any

import pytest

from tests.site.asking import (
    CHALLENGE,
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
