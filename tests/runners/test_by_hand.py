"""The mechanisms by hand, against torch's own implementations and closed forms of their payload."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from runners.experiments.listings import PROGRAMS
from runners.trace import Run

pytestmark = pytest.mark.ranks
Measure = Callable[[str, str], Run]
BY_HAND = sorted(name for name in PROGRAMS if name.endswith("_by_hand"))
TOLERANCE = 1e-6
FLOAT64 = 8


def measured(run: Measure, name: str, rank: int = 0) -> dict[str, float]:
    """What the two implementations did in one rank; the run must have completed."""
    shown = run("by_hand", name)
    assert shown.status == "completed", shown.error
    return {k: v for k, v in shown.ranks[rank].measures.items() if isinstance(v, int | float)}


def payload(shown: dict[str, float], whose: str) -> dict[str, float]:
    """Bytes of each collective."""
    suffix = "_bytes"
    return {
        name.removeprefix(f"{whose}_").removesuffix(suffix): value
        for name, value in shown.items()
        if name.startswith(f"{whose}_") and name.endswith(suffix)
    }


@pytest.mark.parametrize("name", BY_HAND)
def test_a_program_by_hand_is_short_and_runs_as_it_stands(run: Measure, name: str) -> None:
    lines = PROGRAMS[name].path.read_text().splitlines()
    assert sum(bool(line.strip()) for line in lines) <= 80
    assert max(map(len, lines)) <= 88
    shown = run("listings", name)
    assert shown.status == "completed"
    differences = re.findall(r"largest difference from .*: (\S+)", "\n".join(shown.printed))
    assert differences
    assert all(float(found) < 1e-5 for found in differences)  # in float32


@pytest.mark.parametrize("name", [name.removesuffix("_by_hand") for name in BY_HAND])
def test_a_mechanism_by_hand_computes_what_torch_s_own_does(run: Measure, name: str) -> None:
    for rank in run("by_hand", name).ranks:
        assert measured(run, name, rank.rank)["difference"] < TOLERANCE


def test_a_rank_of_the_ring_sends_every_chunk_twice_but_two(run: Measure) -> None:
    # tensor_split needs no padding: 1003 values in chunks of 251, 251, 251 and 250.
    chunks = [251, 251, 251, 250]
    for rank in range(4):
        shown = measured(run, "ring_all_reduce", rank)
        kept = chunks[(rank + 1) % 4] + chunks[(rank + 2) % 4]
        expected = FLOAT64 * (2 * 1003 - kept)
        assert shown["sent_bytes"] == expected
        assert payload(shown, "hand") == {"send": expected}
        # Torch's call names the tensor; gloo chooses the messages below the dispatcher.
        assert payload(shown, "torch") == {"all_reduce": FLOAT64 * 1003}


def test_the_buckets_by_hand_pass_each_gradient_once_as_ddp_s_do(run: Measure) -> None:
    shown = measured(run, "ddp")
    num_parameters = (20 * 200 + 200) + (200 * 200 + 200) + (200 + 1)
    per_step = {"all_reduce": FLOAT64 * num_parameters}
    assert payload(shown, "hand") == {"all_reduce": 5 * per_step["all_reduce"]}
    # Its first step tells all ranks how DDP has rebuilt its buckets: a few bytes are broadcast.
    broadcast = {"broadcast": shown["torch_broadcast_bytes"]}
    assert broadcast["broadcast"] < 100
    assert payload(shown, "torch") == payload(shown, "hand") | broadcast


def test_accumulated_gradients_pass_once_in_an_update(run: Measure) -> None:
    shown = measured(run, "accumulation")
    num_parameters = (20 * 200 + 200) + (200 + 1)
    assert payload(shown, "hand") == {"all_reduce": FLOAT64 * num_parameters}
    assert payload(shown, "torch") == payload(shown, "hand")
    # By hand, one all-reduce for each parameter; DDP puts them into one bucket.
    assert (shown["hand_all_reduce_calls"], shown["torch_all_reduce_calls"]) == (4, 1)
