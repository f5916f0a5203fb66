"""The Plan pages on a phone, by hand in a browser."""

import pytest

CUT = """all => all
    .filter(one => one.checkVisibility() && one.scrollWidth > one.clientWidth)
    .map(one => one.textContent.slice(0, 40))"""


@pytest.mark.browser
def test_a_link_to_a_plan_opens_the_list_of_all(built_site, open_page):
    page = open_page(built_site / "plan" / "llama_8b.html", viewport={"width": 390, "height": 900})
    assert not page.evaluate("document.documentElement.scrollWidth > innerWidth")
    page.goto((built_site / "plan" / "llama_8b.html").as_uri() + "#fsdp_on_8")
    page.locator("#fsdp_on_8").filter(visible=True).wait_for()


@pytest.mark.browser
def test_on_a_phone_no_table_of_plans_is_cut_and_a_key_copies_code_as_written(
    built_site, open_page
):
    page = open_page(
        built_site / "plan.html", viewport={"width": 390, "height": 900},
        permissions=["clipboard-read", "clipboard-write"],
    )  # fmt: skip
    for name in ("plan", "plan/llama_8b", "plan/mixtral_8x7b"):
        page.goto((built_site / f"{name}.html").as_uri())
        assert page.locator(".pb-scroll").evaluate_all(CUT) == [], name
    page.goto((built_site / "topics/ddp/learn.html").as_uri())
    page.locator("pre > .pb-lines").first.scroll_into_view_if_needed()
    _copies(page, page.locator("pre:has(> .pb-lines) .md-code__button").first)  # no line numbers
    assert page.locator(".pb-printed .md-code__button").count() == 0  # nor what a run printed


def _copies(page, button):
    button.press("Enter")
    page.get_by_text("Copied to clipboard").wait_for()
    code = button.locator("xpath=ancestor::pre/code").text_content()
    assert page.evaluate("navigator.clipboard.readText()") == code.strip()
