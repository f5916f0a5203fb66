"""Rows of tables: those that say something can be linked to, and are entries of the search."""

import re

from generator.website.page_html import with_anchors
from generator.website.search import searchable_part

HEAD = (
    "<thead><tr><th>What the program prints</th><th>What it means, and what to do</th></tr></thead>"
)
SAYS = "<td>The network or another rank has failed.</td>"
NUMBER = '<td class="pb-number"><span>The share of a step that ranks idle: 3.5 %</span></td>'


def table(*rows: str) -> str:
    return f'<h1 id="it">It</h1><table>{HEAD}{"".join(f"<tr>{one}</tr>" for one in rows)}</table>'


def test_a_row_that_says_something_has_an_anchor_of_its_first_cell():
    message = f"<td><code>ncclRemoteError</code><br>A call failed</td>{SAYS}"
    html = with_anchors(
        table(message, message, f"<td>four ranks</td>{NUMBER}", "<td>A B C D E</td>")
    )
    assert re.findall(r'<tr id="([^"]+)">', html) == [
        "row-ncclremoteerror-a-call-failed",
        "row-ncclremoteerror-a-call-failed_1",
    ]


def test_an_anchor_that_a_row_has_stays():
    row = f'<tr id="cause-lost"><th>A gradient that is lost</th>{SAYS}</tr>'
    assert with_anchors(row) == row


def test_a_row_with_an_anchor_is_an_entry_and_no_number_of_a_cell_is_in_it():
    html = with_anchors(table(f"<th>A rank has failed</th>{SAYS}{NUMBER}"))
    found = searchable_part(html, ())
    assert '<h3 id="row-a-rank-has-failed">A rank has failed</h3>' in found
    assert "another rank has failed" in found
    assert "What the program prints" in found
    assert "idle" not in found


def test_a_row_that_waits_for_an_answer_is_none():
    html = f'<h1 id="it">It</h1><div data-after="asked">{table(f"<td>A rank</td>{SAYS}")}</div>'
    assert "rank" not in searchable_part(with_anchors(html), ())
