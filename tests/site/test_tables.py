"""No table is wider than its place: none on a wide page, and none whose cells a phone stacks."""

from __future__ import annotations

import pytest

from tests.site.html_reading import pages

pytestmark = pytest.mark.browser

PADDING = 3  # pixels of a code span at the end of a line, which has no ink there
# With every fold and every part that waits open: tables by the columns of their heads.
WIDER = """padding => {
    document.querySelectorAll('details').forEach(one => { one.open = true });
    document.querySelectorAll('[data-after], .pb-stage').forEach(one => { one.hidden = false });
    const tables = [...document.querySelectorAll('article .pb-table')];
    const seen = tables.filter(one => one.getClientRects().length);
    const wide = seen.filter(one => [one, one.closest('.pb-scroll') || one].some(
        place => place.scrollWidth > place.clientWidth + padding));
    const stacked = one => getComputedStyle(one).display === 'block';
    return [seen.length, wide.map(one => [stacked(one), one.textContent.trim().slice(0, 40)])];
}"""


@pytest.mark.parametrize("width", [1280, 390])
def test_no_table_is_cut_on_a_wide_page_and_none_that_is_stacked_on_a_phone(
    built_site, open_page, width
):
    page = open_page("about:blank", viewport={"width": width, "height": 900})
    cut, num_tables = {}, 0
    for path in pages(built_site):
        if path.parent.name == "plan":
            continue  # test_plan.py
        page.goto(path.as_uri())
        seen, wide = page.evaluate(WIDER, PADDING)
        num_tables += seen
        found = [text for is_stacked, text in wide if width == 1280 or is_stacked]
        if found:
            cut[path.relative_to(built_site).as_posix()] = found
    assert num_tables > 200
    assert cut == {}
