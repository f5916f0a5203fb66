"""The mechanisms by hand, against torch's own implementations and closed forms of their payload."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from runners.system import links
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


def test_fsdp_by_hand_gathers_each_unit_twice_and_scatters_it_once(run: Measure) -> None:
    shown = measured(run, "fsdp")
    whole, steps = FLOAT64 * ((4 * 6 + 6) + (6 * 4 + 4)), 5
    assert payload(shown, "hand") == {
        "all_gather": steps * 2 * whole,
        "reduce_scatter": steps * whole,
    }
    assert payload(shown, "torch") == payload(shown, "hand")
    assert shown["shard_bytes"] == whole / 2
    assert (shown["held_between_steps"], shown["held_after_training"]) == (0, 0)


def test_a_batch_split_by_hand_saves_a_shard_and_sums_the_gradients_once(run: Measure) -> None:
    num_parameters, widths = (16 * 64 + 64) + (64 * 4 + 4), 16 + 64 + 4
    for rank, num_samples in enumerate([1000, 1001]):
        shown = measured(run, "batch_split", rank)
        assert payload(shown, "hand") == {"all_reduce": FLOAT64 * num_parameters}
        assert shown["counted_bytes"] == FLOAT64 * num_parameters
        # Backward needs the samples, the hidden layer and the log-probabilities, and a total.
        assert 0 <= shown["saved_bytes"] - FLOAT64 * num_samples * widths <= FLOAT64


def test_zero_1_by_hand_scatters_gradients_where_torch_reduces_them_for_all(run: Measure) -> None:
    shown = measured(run, "zero1")
    num_parameters = (20 * 255 + 255) + (255 + 1)
    padded, steps = FLOAT64 * (num_parameters + 1), 5
    assert payload(shown, "hand") == {
        "reduce_scatter": steps * padded,
        "all_gather": steps * padded,
    }
    assert shown["state_bytes"] == 2 * padded / 2
    # Torch uses another algorithm: DDP's all-reduce, and a broadcast of each rank's parameters.
    torch_s = payload(shown, "torch")
    assert torch_s["all_reduce"] == steps * FLOAT64 * num_parameters
    assert 0 <= torch_s["broadcast"] - steps * FLOAT64 * num_parameters < 100
    assert set(torch_s) == {"all_reduce", "broadcast"}


def test_tensor_parallelism_by_hand_reduces_the_activations_once_each_way(run: Measure) -> None:
    shown = measured(run, "tensor_parallel")
    assert payload(shown, "hand") == {"all_reduce": 2 * FLOAT64 * 32 * 64}
    assert payload(shown, "torch") == payload(shown, "hand")
    assert shown["hand_all_reduce_calls"] == shown["torch_all_reduce_calls"] == 2
    assert shown["num_parameters"] == (64 * 256 + 256 + 256 * 64) // 2 + 64


@pytest.mark.parametrize(
    ("name", "most_waiting"),
    [("gpipe", [8, 8, 8, 8]), ("one_forward_one_backward", [4, 3, 2, 1])],
)
def test_a_pipeline_by_hand_sends_each_border_s_activations_and_gradients_once(
    run: Measure, name: str, most_waiting: list[int]
) -> None:
    batch = FLOAT64 * 32 * 64
    for rank, num_directions in enumerate([1, 2, 2, 1]):
        shown = measured(run, name, rank)
        assert payload(shown, "hand") == {"send": num_directions * batch}
        assert payload(shown, "torch") == payload(shown, "hand")
        assert shown["hand_send_calls"] == shown["torch_send_calls"] == num_directions * 8
        assert shown["most_waiting"] == most_waiting[rank]


def test_1f1b_by_hand_does_not_wait_for_a_neighbour_that_is_sending_too(run: Measure) -> None:
    shown = measured(run, "one_forward_one_backward_of_large_messages")
    assert shown["gradient"] == 0  # positive inputs: PReLU's slope has no effect


def test_checkpointing_by_hand_saves_the_blocks_inputs_alone(run: Measure) -> None:
    shown = measured(run, "checkpointing")
    inputs = FLOAT64 * 64 * 128
    # The last block's output is saved by the loss.
    assert shown["hand_saved_bytes"] == shown["torch_saved_bytes"] == (8 + 1) * inputs
    assert shown["kept_saved_bytes"] > 8 * (1 + 4 + 4) * inputs  # two wide tensors in each block
    assert shown["difference_from_kept"] < TOLERANCE


def test_local_sgd_by_hand_reduces_the_parameters_once_in_a_period(run: Measure) -> None:
    shown = measured(run, "local_sgd")
    num_parameters = (20 * 64 + 64) + (64 + 1)
    assert shown["counted_bytes"] == 24 // 4 * FLOAT64 * num_parameters
    assert payload(shown, "hand") == {"all_reduce": shown["counted_bytes"]}
    assert payload(shown, "torch") == payload(shown, "hand")


@pytest.mark.skipif(links.cannot_link() is not None, reason=str(links.cannot_link()))
def test_the_ring_by_hand_sends_over_its_link_what_gloo_s_own_ring_sends(run: Measure) -> None:
    expected = 2 * 3 / 4 * 4 * 1_000_000
    for rank in range(4):
        shown = measured(run, "ring_all_reduce_on_links", rank)
        for whose in ("hand", "torch"):
            assert shown[f"{whose}_sent_bytes"] == pytest.approx(expected, rel=0.01)
