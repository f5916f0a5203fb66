"""The page for wrong addresses, opened from disk; test_published.py asks it of a server."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.browser


def test_the_404_page_works_from_disk(frozen_site, open_page):
    at = open_page(frozen_site / "404.html", viewport={"width": 1280, "height": 900})
    styles = at.locator("link[rel=stylesheet]")
    assert styles.count() > 1
    assert styles.evaluate_all("links => links.map(link => link.sheet !== null)") == (
        [True] * styles.count()
    )
    at.locator(".md-search__input").click()
    at.keyboard.type("memory", delay=20)
    found = at.locator(".md-search-result__link").first
    found.wait_for()
    assert found.evaluate("link => link.href").startswith(frozen_site.as_uri())
    at.goto((frozen_site / "404.html").as_uri())
    at.locator(".pb-sections a", has_text="Evidence").click()
    at.wait_for_url((frozen_site / "evidence.html").as_uri())
    assert at.locator("h1").inner_text() == "Evidence"
