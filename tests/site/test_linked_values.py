"""A number of a lesson leads to a row that shows it, or what it is computed from."""

from __future__ import annotations

import html
import json
import re
from collections import Counter
from functools import cache
from typing import TYPE_CHECKING

from tests.popovers import BLOCK

if TYPE_CHECKING:
    from pathlib import Path

LINK = re.compile(
    r'href="(?:\.\./)*(evidence/\w+\.html)#(?!claim-)([^"]+)" data-v="(\d+)">(.*?)</a>', re.DOTALL
)
ROW = re.compile(r'<tr class="pb-has-note">(.*?)</tr>\s*<tr class="pb-note">(.*?)</tr>', re.DOTALL)
ID = re.compile(r' id="([^"]+)"')
SHARE = 0.97  # the others are computed by long formulas over several runs


def _text(markup: str) -> str:
    plain = html.unescape(re.sub(r"<wbr>|<[^>]+>", " ", markup))
    return re.sub(r"\s+", " ", plain)


@cache
def _rows(page: Path) -> dict[str, str]:
    """The text of each row and its fold, by every id in it."""
    found = ROW.findall(page.read_text(encoding="utf-8"))
    return {name: _text(row + fold) for row, fold in found for name in ID.findall(fold)}


def _shows(row: str, printed: str) -> bool:
    return re.search(rf"(?<![\d.,]){re.escape(_text(printed).strip())}(?!\d)", row) is not None


def test_a_number_leads_to_a_row_that_shows_it_or_what_it_is_computed_from(built_site):
    found: Counter[bool] = Counter()
    for path in sorted((built_site / "topics").rglob("*.html")):
        page = path.read_text(encoding="utf-8")
        block = BLOCK.search(page)
        values = json.loads(block[1])["values"] if block else []
        for place, run, number, printed in LINK.findall(page):
            row = _rows(built_site / place).get(run, "")
            of = (values[int(number)] + [0] * 4)[3]
            inputs = [values[at][0] for at in of] if isinstance(of, list) else []
            is_there = _shows(row, printed.partition("<small")[0])
            found[is_there or (bool(inputs) and all(_shows(row, one) for one in inputs))] += 1
    assert sum(found.values()) > 4_000
    assert found[True] / sum(found.values()) >= SHARE
