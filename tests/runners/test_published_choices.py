"""Published searches for a layout: whole, and by the law of time what their tables imply."""

from __future__ import annotations

import pytest

from runners.planning.published_choices import listed, step
from runners.planning.published_steps import law

FILE = listed()


@pytest.mark.parametrize("case", FILE["cases"], ids=lambda case: case["id"])
def test_the_law_counts_the_operations_of_the_published_mfu(case):
    """So the batch, the vocabulary and the widths, which no table states, are those that ran."""
    won = case["runs"][0]
    seconds = won[-1]
    assert seconds == min(run[-1] for run in case["runs"])
    whole = step(FILE, case, [1, 1, 1, seconds])
    # The published MFU counts the embedding like the logits; looking a token up is no product.
    embedding = 6 * case["batch"] * case["sequence"] * whole.hidden * whole.vocabulary
    looked_up = embedding / (case["devices"] * whole.flops)
    assert law(whole).computing + looked_up == pytest.approx(case["mfu"] * seconds, rel=0.005)
    assert law(step(FILE, case, won)).at_least < seconds
