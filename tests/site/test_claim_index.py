"""The index of claims: filters over claims that are loaded when they are needed, also from disk."""

from __future__ import annotations

import json

import pytest
from playwright.sync_api import expect

from tests.conftest import BROWSER_SECONDS, slowness

pytestmark = pytest.mark.browser

SCRIPT = "assets/all-claims.js"


def claims_of(site):
    """What the index loads: places of experiments, marks, verdicts; and the claims."""
    text = (site / SCRIPT).read_text(encoding="utf-8")
    return json.loads(text[len("proofbook.claims(") : -3])


@pytest.fixture
def page(frozen_site, open_page):
    return open_page(frozen_site / "evidence.html")


def chosen(page, name, value):
    page.select_option(f"#sift-{name}", value)
    page.locator("[role=status]", has_text=" of ").wait_for()


def lists(page, wanted):
    """The list follows the choice when the claims are there and the rows are made."""
    rows = page.locator(".pb-claims .pb-on").locator("xpath=ancestor::tr")
    expect(rows).to_have_count(wanted, timeout=1000 * BROWSER_SECONDS * slowness())


def test_every_choice_lists_what_belongs_to_it_and_nothing_else(page, frozen_site):
    _, marks, _, claims = claims_of(frozen_site)
    for select in page.locator(".pb-sift select").all():
        name = select.get_attribute("name")
        values = [option.get_attribute("value") for option in select.locator("option").all()]
        assert values[0] == ""
        for value in filter(None, values):
            chosen(page, name, value)
            wanted = sum(value in marks[claim[1]].split() for claim in claims)
            lists(page, wanted)
            assert page.locator("[role=status]").inner_text().startswith(f"{wanted} of ")
        chosen(page, name, "")
    lists(page, len(claims))


def test_without_a_script_the_page_says_where_the_claims_are(frozen_site, open_page):
    page = open_page(frozen_site / "evidence.html", java_script_enabled=False)
    assert not page.locator(".pb-sift").is_visible()
    assert page.locator("noscript p").inner_text()
