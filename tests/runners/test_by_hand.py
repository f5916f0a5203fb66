"""The mechanisms by hand, against torch's own implementations and closed forms of their payload."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from runners.traces.programs import ROOT, found
from runners.traces.records import Run

pytestmark = pytest.mark.ranks
Measure = Callable[[str, str], Run]
PROGRAMS = found(ROOT, "content/topics/*/code/*_by_hand.py")
BY_HAND = sorted(PROGRAMS)
TOLERANCE = 1e-6
FLOAT64 = 8


def measured(run: Measure, name: str, rank: int = 0) -> dict[str, float]:
    """What the two implementations did in one rank; the run must have completed."""
    shown = run("by_hand", name)
    assert shown.status == "completed", shown.error
    return {k: v for k, v in shown.ranks[rank].measures.items() if isinstance(v, int | float)}


@pytest.mark.parametrize("name", BY_HAND)
def test_a_program_by_hand_is_short_and_runs_as_it_stands(run: Measure, name: str) -> None:
    lines = PROGRAMS[name].path.read_text().splitlines()
    assert sum(bool(line.strip()) for line in lines) <= 88
    assert max(map(len, lines)) <= 88
    shown = run("by_hand", name)
    assert shown.status == "completed", shown.error
    differences = re.findall(r"largest difference .*: (\S+)", "\n".join(shown.printed))
    assert differences
    assert all(float(found) < TOLERANCE for found in differences)


@pytest.mark.parametrize("name", [name.removesuffix("_by_hand") for name in BY_HAND])
def test_a_mechanism_by_hand_computes_what_torch_s_own_does(run: Measure, name: str) -> None:
    for rank in run("by_hand", name).ranks:
        assert measured(run, name, rank.rank)["difference"] < TOLERANCE


def test_a_rank_of_the_ring_sends_all_chunks_but_one_in_each_phase(run: Measure) -> None:
    # tensor_split needs no padding: 1003 values in chunks of 251, 251, 251 and 250.
    chunks = [251, 251, 251, 250]
    for rank in range(4):
        kept = chunks[(rank + 1) % 4] + chunks[(rank + 2) % 4]
        sent = measured(run, "ring_all_reduce", rank)["sent_bytes"]
        assert sent == FLOAT64 * (2 * 1003 - kept)
