"""Thirty popovers' commands, each pasted alone in a fresh clone: a start of Python for each."""

from __future__ import annotations

import pytest

from tests.test_reproduce import (  # the fixtures are found by their names
    clone,
    faults_of,
    pasted,
    sample,
    shown,
    wanted,
)

__all__ = ["clone", "shown", "wanted"]


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_each_of_thirty_popovers_pasted_alone_prints_the_pages_value(shown, wanted, clone):
    faults = []
    for one in sample(shown, wanted, 30):
        faults += [
            f"{one.page}: {fault}" for fault in faults_of(one, wanted, pasted(one.command, clone))
        ]
    assert not faults, "\n\n".join(faults)
