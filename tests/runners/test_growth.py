"""A batch that does not fit, and how cost grows, against closed forms written out here."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from runners.traces.files import read
from runners.traces.measured import Memory, MemoryClasses
from runners.traces.records import Run, Trace

pytestmark = pytest.mark.ranks
Measure = Callable[[str, str], Run]


def memory(run: Run, rank: int = 0) -> Memory:
    """What a rank needed, by the meter."""
    found = run.ranks[rank].memory
    assert found is not None
    return found


def largest(run: Run, rank: int = 0) -> MemoryClasses:
    """The most that each class held on a rank."""
    found = memory(run, rank).largest
    assert found is not None
    return found


def passed(run: Run, rank: int = 0) -> dict[str, int]:
    """Bytes that a rank handed to each operation in one step."""
    return {c.operation: c.bytes for c in run.ranks[rank].collectives}


def losses(run: Run) -> list[float]:
    return [epoch.loss for epoch in run.epochs if epoch.loss is not None]


# --- large_batch: 80,000 rows of 16 features through 16 → 64, five residual layers, 64 → 10

BATCH = 80000
# Six outputs of width 64 that layers were given, five that ReLUs put out, one gradient on its way,
# and the gradient of the ten logits.
ACTIVATION_BYTES_PER_ROW = 4 * ((6 + 5 + 1) * 64 + 10)
SAMPLE_BYTES = 4 * 16 + 8
MODEL_BYTES = 4 * ((16 * 64 + 64) + 5 * (64 * 64 + 64) + (64 * 10 + 10))


@pytest.mark.parametrize(
    ("name", "num_samples_held", "num_samples_at_once"),
    [
        ("single", BATCH, BATCH),
        ("split", BATCH // 2, BATCH // 2),
        ("microbatches", BATCH, BATCH // 4),
    ],
)
def test_the_peak_of_a_large_batch_is_that_of_the_rows_in_work_at_once(
    run: Measure, name: str, num_samples_held: int, num_samples_at_once: int
) -> None:
    activations = num_samples_at_once * ACTIVATION_BYTES_PER_ROW
    expected = activations + num_samples_held * SAMPLE_BYTES + 2 * MODEL_BYTES
    measured = run("large_batch", name)
    assert largest(measured).activations_bytes == pytest.approx(activations, rel=0.001)
    assert memory(measured).peak_bytes == pytest.approx(expected, rel=0.01)


@pytest.mark.parametrize("name", ["split", "microbatches"])
def test_parts_of_a_large_batch_teach_what_the_whole_does(run: Measure, name: str) -> None:
    whole = losses(run("large_batch", "single"))
    assert whole[-1] < 0.8 * whole[0]
    assert losses(run("large_batch", name)) == pytest.approx(whole, rel=1e-5)


def test_splitting_a_batch_costs_one_gradient_a_step_and_keeps_replicas_equal(
    run: Measure,
) -> None:
    split = run("large_batch", "split")
    assert [passed(split, rank) for rank in (0, 1)] == [{"all_reduce": MODEL_BYTES}] * 2
    assert len({r.parameter_digest for r in split.ranks}) == 1


def test_the_whole_batch_is_refused_in_forward_and_parts_of_it_are_not(run: Measure) -> None:
    refused = run("large_batch", "single_budget")
    assert refused.status == "out_of_memory"
    assert refused.error is not None
    assert refused.error.phase == "forward"
    assert refused.error.requested_bytes == BATCH * 64 * 4  # what one layer of width 64 puts out
    for name in ("split_budget", "microbatches_budget"):
        assert run("large_batch", name).status == "completed"


def test_the_budget_of_a_large_batch_lies_well_between_half_and_whole(run: Measure) -> None:
    budget = run("large_batch", "single_budget").budget_bytes
    assert budget is not None
    need = [
        n * (ACTIVATION_BYTES_PER_ROW + SAMPLE_BYTES) + 2 * MODEL_BYTES for n in (BATCH // 2, BATCH)
    ]
    assert budget == pytest.approx(sum(need) / 2, abs=1)
    assert need[0] * 1.1 < budget < need[1] / 1.1


# --- growth: four layers of equal width


def layer_bytes(run: Run) -> int:
    """Bytes of the whole model: four layers, weights and biases."""
    width = run.settings["width"]
    assert isinstance(width, int)
    return 4 * 4 * (width * width + width)


def activation_bytes(run: Run) -> int:
    """Bytes of what one layer puts out for the whole batch."""
    width, batch_size = run.settings["width"], run.settings["batch_size"]
    assert isinstance(width, int)
    assert isinstance(batch_size, int)
    return 4 * width * batch_size


@pytest.fixture(scope="session")
def committed(root: Path) -> dict[str, Run]:
    """The reference machine's sweep: invariants of runs too many to measure in a test."""
    traces: list[Trace] = [
        read(p) for p in sorted((root / "content" / "traces").glob("reference-*/growth.json"))
    ]
    return dict(traces[0].runs)


def test_ddp_s_collectives_grow_with_parameters_and_not_with_ranks(
    run: Measure, committed: dict[str, Run]
) -> None:
    small = run("growth", "ddp_width_250")
    assert passed(small) == {"all_reduce": layer_bytes(small)}
    swept = [committed[f"ddp_width_{width}"] for width in (250, 500, 1000, 2000)]
    for one in (*swept, committed["ddp_ranks_2"], committed["ddp_ranks_4"]):
        assert passed(one) == {"all_reduce": layer_bytes(one)}
        three_copies = 3 * layer_bytes(one)  # parameters, gradients, buckets
        rows = 2 * activation_bytes(one)
        # gloo's threads let a finished bucket go a moment late, now and then: a layer's worth more.
        late = one.settings["model_bytes"] / one.settings["num_layers"] + activation_bytes(one)
        least = 0.99 * (three_copies + rows)
        assert least <= memory(one).peak_bytes <= 1.01 * (three_copies + rows) + late


def test_fsdp_holds_a_share_and_gathers_the_whole_in_forward_and_in_backward(
    run: Measure, committed: dict[str, Run]
) -> None:
    for one in (run("growth", "fsdp_ranks_2"), committed["fsdp_ranks_4"]):
        whole = layer_bytes(one)
        assert passed(one) == {"all_gather": 2 * whole, "reduce_scatter": whole}
        assert [r.num_parameters for r in one.ranks] == [whole // 4 // one.world_size] * len(
            one.ranks
        )


def test_stages_hold_a_share_and_pass_one_activation_a_border(
    run: Measure, committed: dict[str, Run]
) -> None:
    for one in (run("growth", "stages_ranks_2"), committed["stages_ranks_4"]):
        border, last = activation_bytes(one), one.world_size - 1
        for rank in range(one.world_size):
            num_borders = 1 if rank in (0, last) else 2
            assert passed(one, rank) == {"send": num_borders * border, "recv": num_borders * border}
            assert one.ranks[rank].num_parameters == layer_bytes(one) // 4 // one.world_size


def test_a_split_batch_passes_rows_logits_and_gradients(
    run: Measure, committed: dict[str, Run]
) -> None:
    swept = [committed[f"split_batch_{size}"] for size in (250, 500, 1000, 2000)]
    for one in (run("growth", "split_batch_250"), *swept, committed["split_ranks_4"]):
        batch, share = activation_bytes(one), activation_bytes(one) // one.world_size
        summed = layer_bytes(one)
        # rank 0 hands out rows and, later, gradients of logits, and takes the logits in
        assert passed(one) == {"all_reduce": summed, "scatter": 2 * batch, "gather": batch}
        assert passed(one, 1) == {"all_reduce": summed, "scatter": 2 * share, "gather": share}


def test_a_split_batch_learns_what_the_whole_batch_does(committed: dict[str, Run]) -> None:
    for size in (250, 500, 1000, 2000):
        split, single = committed[f"split_batch_{size}"], committed[f"single_batch_{size}"]
        assert losses(split) == pytest.approx(losses(single), rel=1e-4)


def test_activations_grow_with_the_batch_and_parameters_do_not(
    run: Measure, committed: dict[str, Run]
) -> None:
    swept = [committed[f"single_batch_{size}"] for size in (250, 500, 1000, 2000)]
    for one in (run("growth", "single_batch_250"), *swept):
        # three ReLUs, the logits, their log-softmax, and the gradient that starts backward
        assert largest(one).activations_bytes == pytest.approx(6 * activation_bytes(one), rel=0.001)
        assert largest(one).parameters_bytes == layer_bytes(one)
