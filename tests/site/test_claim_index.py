"""The index of claims: filters over claims that are loaded when they are needed, also from disk."""

from __future__ import annotations

import gzip
import json

import pytest
from playwright.sync_api import expect

from tests.conftest import BROWSER_SECONDS, slowness

pytestmark = pytest.mark.browser

SCRIPT = "assets/all-claims.js"
MOST_BYTES = 40_000  # gzipped: what the index loads of all claims of the real book


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


def test_no_claim_is_loaded_before_a_reader_chooses(page):
    loaded = "performance.getEntriesByType('resource').map(one => one.name).join()"
    assert "all-claims" not in page.evaluate(loaded)
    assert not page.locator(".pb-claims").is_visible()
    assert page.locator(".pb-sift").is_visible()


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


def test_two_choices_list_what_belongs_to_both(page, frozen_site):
    _, marks, _, claims = claims_of(frozen_site)
    chosen(page, "kind", "k-law")
    verdict = page.locator("#sift-verdict option").nth(1).get_attribute("value")
    chosen(page, "verdict", verdict)
    lists(page, sum({"k-law", verdict} <= {*marks[claim[1]].split()} for claim in claims))


def test_show_all_lists_every_claim_with_a_link_to_its_numbers(page, frozen_site):
    experiments, _, _, claims = claims_of(frozen_site)
    page.locator(".pb-sift [type=reset]").click()
    page.locator(".pb-claims tbody").first.wait_for()
    links = page.locator(".pb-claims a").evaluate_all(
        "all => all.map(one => one.getAttribute('href'))"
    )
    assert links == [f"{experiments[at][1]}#claim-{name}" for at, _, _, name, *_ in claims]
    for place, anchor in (link.split("#") for link in links):
        assert f'id="{anchor}"' in (frozen_site / place).read_text(encoding="utf-8")
    stops = "all => all.filter(one => one.tabIndex >= 0).length"
    assert page.locator(".pb-claims a").evaluate_all(stops) == 1


@pytest.mark.parametrize("way", ["opened", "followed"])
def test_a_former_place_of_a_claim_leads_to_its_numbers(way, frozen_site, open_page):
    _, _, _, claims = claims_of(frozen_site)
    anchor = f"claim-{claims[0][3]}"
    page = open_page(frozen_site / "evidence.html")
    if way == "opened":
        page = open_page(f"{(frozen_site / 'evidence.html').as_uri()}#{anchor}")
    else:
        page.evaluate("id => { location.hash = id }", anchor)
    page.wait_for_url(f"**/evidence/*.html#{anchor}")
    page.locator(f"[id='{anchor}']").wait_for(state="visible")


def test_without_a_script_the_page_says_where_the_claims_are(frozen_site, open_page):
    page = open_page(frozen_site / "evidence.html", java_script_enabled=False)
    assert not page.locator(".pb-sift").is_visible()
    assert page.locator("noscript p").inner_text()


def test_the_claims_of_the_real_book_are_light(built_site):
    assert len(gzip.compress((built_site / SCRIPT).read_bytes(), 9)) < MOST_BYTES


def test_choices_have_names_and_are_worked_with_the_keyboard(page):
    for select in page.locator(".pb-sift select").all():
        label = page.locator(f'label[for="{select.get_attribute("id")}"]')
        assert label.inner_text().strip()
    page.locator("#sift-kind").focus()
    page.keyboard.press("ArrowDown")
    assert page.locator("#sift-kind").input_value() == "k-law"
    page.locator(".pb-claims tbody").first.wait_for()
