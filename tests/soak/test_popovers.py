"""Thirty popovers' commands, each pasted alone in a fresh clone: a start of Python for each."""

from __future__ import annotations

import pytest

from tests.test_reproduce import (  # the fixtures are found by their names
    NUM_SAMPLED,
    asked,
    clone,
    faults_of,
    pasted,
    sample,
    shown,
)

__all__ = ["asked", "clone", "shown"]


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_each_of_thirty_popovers_pasted_alone_prints_the_pages_value(shown, asked, clone):
    faults = []
    for one in sample(shown, asked, NUM_SAMPLED):
        faults += [
            f"{one.page}: {fault}" for fault in faults_of(one, asked, pasted(one.command, clone))
        ]
    assert not faults, "\n\n".join(faults)
