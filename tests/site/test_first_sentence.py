"""On a phone the first sentence of every lesson stands on the screen as the page opens."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

PHONE = {"width": 390, "height": 844}
# The lower edge of the first sentence of the page's text, in pixels from the top of the screen.
ENDS_AT = """() => {
  const text = document.querySelector(".pb-lede")
  const walker = document.createTreeWalker(text, NodeFilter.SHOW_TEXT)
  const range = document.createRange()
  range.setStart(text, 0)
  let read = ""
  while (walker.nextNode()) {
    const words = walker.currentNode.data
    const end = (read + words).search(/[.!?]["”)]?(\\s|$)/)
    const isNumber = walker.currentNode.parentElement.closest(".pb-value")
    if (end >= 0 && !isNumber) {
      range.setEnd(walker.currentNode, Math.max(end - read.length + 1, 0))
      break
    }
    read += words
    range.setEndAfter(walker.currentNode)
  }
  return range.getBoundingClientRect().bottom
}"""


def lessons(site: Path) -> Iterator[Path]:
    return (path for path in sorted(site.glob("topics/*/*.html")) if path.stem != "index")


def below(page) -> float:
    """How far the first sentence of an open page ends below the screen, in pixels."""
    return float(page.evaluate(ENDS_AT)) - PHONE["height"]


@pytest.mark.browser
@pytest.mark.parametrize("site", ["built_site", "newcomers_site"])
def test_the_first_sentence_of_every_lesson_is_on_the_screen(site, request, open_page):
    pages = list(lessons(request.getfixturevalue(site)))
    assert len(pages) > 20
    page = open_page(pages[0], viewport=PHONE)
    hidden = {}
    for path in pages:
        page.goto(path.as_uri())
        if (pixels := below(page)) > 0:
            hidden[path.as_posix()] = pixels
    assert hidden == {}


@pytest.mark.browser
def test_a_sentence_that_something_pushes_down_is_found_to_be_off_the_screen(
    frozen_site, open_page
):
    page = open_page(next(lessons(frozen_site)), viewport=PHONE)
    assert below(page) < 0
    page.evaluate("() => { document.querySelector('h1').style.marginBottom = '800px' }")
    assert below(page) > 0
