"""Failures that people report: the guide leads to each of them in two clicks."""

import re

from tests.processes import ROOT
from tests.site.html_reading import read


def test_the_guide_leads_to_each_reported_failure_in_two_clicks(built_site):
    """The first opens a symptom, the second its cause; each cause is shown, and says its fix."""
    symptoms = {link for link in read(built_site / "guide.html").links if link.startswith("guide/")}
    seconds = {
        link.removeprefix("../")
        for one in symptoms
        for link in read(built_site / one.partition("#")[0]).links
    }
    page = read(built_site / "reports.html")
    failures = [tag.attributes["id"] for tag in page.tags if tag.name == "h3" and tag.attributes]
    assert len(failures) > 15
    assert [one for one in failures if f"reports.html#{one}" not in seconds] == []


def test_each_reported_failure_says_its_cause_its_fix_and_where_it_was_reported():
    text = (ROOT / "content/pages/reports.md").read_text(encoding="utf-8")
    for section in text.split("\n### ")[1:]:
        title, said = section.split("\n", 1)
        assert "**Cause.**" in said, title
        assert "**Fix.**" in said, title
        assert re.search(r"\]\(https://|dmesg", said), title
