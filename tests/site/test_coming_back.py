"""Back to a page: what a reader had chosen stands there again, and what follows from it too."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.browser

TEXT = """one => Array.from(
    one.querySelectorAll('output, td, th, desc, [role=status]'), (part) => part.textContent)"""
FIRST = "input[type=radio], input[type=number], select"


def chosen(page):
    """What every list, option and field of the page holds."""
    return page.eval_on_selector_all(
        FIRST, "all => all.map(one => one.type === 'radio' ? one.checked : one.value)"
    )


def left_and_back(page):
    """To the book's first page and back, without what browsers keep of pages in memory."""
    before = page.url
    page.goto(page.locator("a.md-logo").first.evaluate("one => one.href"))
    page.go_back()
    assert page.url == before
    return page


@pytest.mark.parametrize(
    ("path", "root", "choose"),
    [
        ("topics/ddp/deep.html", "#figure-ring", "fieldset label:nth-of-type(2)"),
        ("plan/llama_8b.html", "[data-play]", "[data-lines] label:last-child"),
    ],
)
def test_a_figure_shows_the_state_that_its_options_say(built_site, open_page, path, root, choose):
    page = open_page(built_site / path)
    reveal = "for (const one of document.querySelectorAll('[data-after]')) one.hidden = false"
    page.evaluate(reveal)
    figure = page.locator(root)
    fresh = figure.evaluate(TEXT)
    figure.locator(choose).first.click()
    page.wait_for_function(
        f"([root, fresh]) => String(({TEXT})(document.querySelector(root))) !== String(fresh)",
        arg=[root, fresh],
    )
    held, shown = chosen(page), figure.evaluate(TEXT)
    left_and_back(page)
    page.evaluate(reveal)
    assert chosen(page) == held
    page.wait_for_function(
        f"([root, shown]) => String(({TEXT})(document.querySelector(root))) === String(shown)",
        arg=[root, shown],
    )
