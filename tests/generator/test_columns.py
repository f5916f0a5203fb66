"""A unit that all numbers of a column have stands in its head, and nowhere else."""

from __future__ import annotations

import pytest
from markupsafe import Markup

from generator.pages.views.columns import with_units

NBSP = "\u00a0"


def table(*cells: str) -> Markup:
    """A column of these numbers."""
    rows = "".join(f'<tr><td class="pb-number"><a>{one}</a></td></tr>' for one in cells)
    return Markup(f"<table><thead><tr><th>Peak</th></tr></thead>{rows}</table>")


@pytest.mark.parametrize(
    ("cells", "head"),
    [
        ((f"4.00{NBSP}MiB", f"214{NBSP}MiB"), "Peak, MiB"),
        ((f"4.00{NBSP}MiB", "–"), "Peak, MiB"),
        (("4.76%", f"<{NBSP}0.001%"), "Peak, %"),
        ((f"4.00{NBSP}MiB", f"1.04{NBSP}GiB"), "Peak"),
        ((f"4.00{NBSP}MiB", "214"), "Peak"),
        ((f"4.00{NBSP}MiB paced",), "Peak"),
        ((f"16{NBSP}microbatches",), "Peak"),
    ],
)
def test_the_head_says_a_unit_that_all_numbers_have(cells, head):
    shown = with_units(table(*cells))
    assert f"<th>{head}</th>" in shown
    assert ("MiB</a>" in shown or "%</a>" in shown) == (
        head == "Peak" and "MiB</a>" in table(*cells)
    )


def test_a_table_with_a_cell_over_several_columns_stays_as_it_is():
    spanned = table(f"4{NBSP}B").replace("<td ", '<td colspan="2" ')
    assert with_units(spanned) == spanned
