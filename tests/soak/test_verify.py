"""Right programs, drawn from features: none may raise an alarm."""

import json

import pytest

from tests.verify.drawn import drawn
from tests.verify.ranks import verified

pytestmark = [pytest.mark.soak, pytest.mark.ranks]


@pytest.mark.parametrize("seed", range(300))
def test_no_drawn_right_program_raises_an_alarm(seed):
    ranks = 4 if seed % 3 == 0 else 2
    ways = drawn(seed, ranks)
    report, code, output = verified("language.py", ranks, *ways, options=("--seconds", "0"))
    assert code in (0, 3), f"{ways}\n{output}"
    compared = report["compared"]
    assert compared["parameters_compared"] >= 0.8 * compared["parameters"], json.dumps(report)
