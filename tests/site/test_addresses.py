"""Addresses that readers may have kept: the pages and anchors of the site on 28 November 2026.

`addresses.json` names the headings, runs, claims, items, terms, figures and references of each
page. It leaves out the anchors that follow the words of a row, and the parts of a drawing.
"""

from __future__ import annotations

import json

from tests.conftest import ROOT
from tests.site.html_reading import leads_to, read

ADDRESSES = json.loads((ROOT / "tests" / "site" / "addresses.json").read_text(encoding="utf-8"))


def test_every_page_and_anchor_that_the_site_had_still_resolves(built_site):
    others = [one.name for one in (ROOT / "content" / "traces").iterdir()]  # not in the test's book
    others = [one for one in others if not (built_site / "machines" / f"{one}.html").is_file()]
    gone = []
    for name, all_anchors in ADDRESSES.items():
        if any(one in name for one in others):
            continue
        anchors = [a for a in all_anchors.split() if not any(one in a for one in others)]
        page = built_site / name
        if not page.is_file():
            gone.append(name)
            continue
        reading = read(page)
        gone += [f"{name}#{one}" for one in anchors if one not in reading.ids]
        if target := leads_to(reading):
            assert target in [tag.attributes.get("href") for tag in reading.tags if tag.name == "a"]
            path, _, anchor = target.partition("#")
            assert anchor in read(page.parent / path).ids, f"{name} leads to {target}"
    assert gone == []
