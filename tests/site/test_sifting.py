"""Filters over statements, which work where no script may run."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.browser


@pytest.fixture
def page(frozen_site, open_page):
    return open_page(frozen_site / "retracted.html", java_script_enabled=False)


def visible(page):
    return page.locator(".pb-one:visible").count()


def test_every_choice_leaves_what_belongs_to_it_and_nothing_else(page):
    whole = page.locator(".pb-one").count()
    assert visible(page) == whole
    for select in page.locator(".pb-sift select").all():
        values = [option.get_attribute("value") for option in select.locator("option").all()]
        assert values[0] == ""
        for value in filter(None, values):
            select.select_option(value)
            assert visible(page) == page.locator(f'.pb-one[data-is~="{value}"]').count(), value
        select.select_option("")
        assert visible(page) == whole


def test_show_all_shows_all_again(page):
    page.select_option("#sift-kind", "k-observation")
    page.locator(".pb-sift [type=reset]").click()
    assert visible(page) == page.locator(".pb-one").count()
    assert not page.locator(".pb-shown").is_visible()


def test_a_program_and_its_command_stand_outside_the_fold_and_no_option_is_divided(
    built_site, open_page
):
    page = open_page(built_site / "retracted.html", viewport={"width": 390, "height": 844})
    with_program = page.locator(".pb-retraction:has(.pb-repeat .pb-listing)")
    assert with_program.count() > 20
    assert not page.locator(".pb-repeat[open]").count()
    for one in with_program.all():
        link = one.locator("a[download]").filter(visible=True)
        href = str(link.get_attribute("href"))
        assert (built_site / href).is_file()
        command = one.locator("code", has_text="torchrun").filter(visible=True)
        assert command.inner_text().endswith(f" {href.partition('/')[2]}")
        option = command.locator("span").evaluate("one => one.getClientRects().length")
        assert option == 1
    assert page.evaluate("document.documentElement.scrollWidth") == 390
