"""The experiments against independent oracles: closed forms, the unsplit model, equalities.

Each run is measured once for all tests. The heaviest (FSDP under a budget to the end, the model of
a hundred million parameters) are looked at in the committed traces, as invariants.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from runners.plans.experiment import find
from runners.traces.files import NOT_TRACES, is_stale, read
from runners.traces.records import Run, Trace

pytestmark = pytest.mark.ranks
Measure = Callable[[str, str], Run]
WIDE = [10000 * 5000 + 5000, 5000 * 1000 + 1000, 1000 * 10 + 10]
DEEP = [2000 * 2000 + 2000] * 14


def peaks(run: Run) -> list[int]:
    """Peak bytes of every rank, from the meter."""
    return [r.memory.peak_bytes or 0 for r in run.ranks if r.memory is not None]


@pytest.fixture(scope="session")
def committed(root: Path) -> dict[str, Trace]:
    """The reference machine's traces."""
    paths = sorted((root / "content" / "traces").glob("reference-*/*.json"))
    return {p.stem: read(p) for p in paths if p.stem not in NOT_TRACES}


def test_every_experiment_has_a_committed_trace_of_the_code_as_it_stands(
    committed: dict[str, Trace], book: list[str]
) -> None:
    assert sorted(committed) == book
    assert [name for name, trace in committed.items() if is_stale(trace)] == []


def test_every_committed_run_ended_as_declared(committed: dict[str, Trace]) -> None:
    for name, trace in committed.items():
        assert set(trace.runs) == set(find(name).runs)
        assert [n for n, run in trace.runs.items() if run.is_surprise] == []


# --- large_model


@pytest.mark.parametrize(("model", "counts"), [("wide", WIDE), ("deep", DEEP)])
def test_one_device_with_sgd_needs_parameters_and_gradients(
    run: Measure, model: str, counts: list[int]
) -> None:
    single = run("large_model", f"{model}_single")
    assert single.model is not None
    assert [layer.num_parameters for layer in single.model.layers] == counts
    assert peaks(single) == [pytest.approx(2 * 4 * sum(counts), rel=0.01)]


@pytest.mark.parametrize(("model", "counts", "cut"), [("wide", WIDE, 1), ("deep", DEEP, 7)])
def test_a_stage_needs_its_own_layers_only(
    run: Measure, model: str, counts: list[int], cut: int
) -> None:
    stages = run("large_model", f"{model}_stages")
    # Rank 1 of the wide model is small enough for its rows, and for the activation it was passed
    # and the gradient it passes back, to show: 2.4 MB beside 40.
    rows = 4 * 50 * 10000 + 2 * 4 * 10 * 5000 if model == "wide" else 0
    assert peaks(stages) == [
        pytest.approx(8 * sum(counts[:cut]), rel=0.01),
        pytest.approx(8 * sum(counts[cut:]) + rows, rel=0.01),
    ]


def test_ddp_adds_a_bucket_for_every_gradient(run: Measure) -> None:
    ddp = run("large_model", "deep_ddp")
    assert peaks(ddp) == [pytest.approx(3 * 4 * sum(DEEP), rel=0.01)] * 2
    (reduced,) = [c for c in ddp.ranks[0].collectives if c.operation == "all_reduce"]
    assert reduced.bytes == 4 * sum(DEEP)


def test_tensor_parallel_ranks_hold_half_of_what_is_split(run: Measure) -> None:
    split = run("large_model", "wide_tensor_parallel")
    # The first layer by columns, bias and all; the second by rows, bias whole; the third whole.
    held = WIDE[0] // 2 + 5000 * 1000 // 2 + 1000 + WIDE[2]
    assert [r.num_parameters for r in split.ranks] == [held, held]
    assert peaks(split) == [pytest.approx(2 * 4 * held + 4 * 50 * 10000, rel=0.01)] * 2


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("wide_single_budget", "out_of_memory"),
        ("wide_ddp_budget", "out_of_memory"),
        ("wide_stages_budget", "completed"),
        ("wide_tensor_parallel_budget", "completed"),
        ("wide_fsdp_budget", "out_of_memory"),
        ("deep_single_budget", "out_of_memory"),
        ("deep_ddp_budget", "out_of_memory"),
    ],
)
def test_under_the_budget_a_run_ends_as_the_closed_form_says(
    run: Measure, name: str, expected: str
) -> None:
    ended = run("large_model", name)
    assert ended.status == expected
    counts, cut = (WIDE, 1) if name.startswith("wide") else (DEEP, 7)
    assert ended.budget_bytes == (8 * sum(counts[:cut]) + 8 * sum(counts)) // 2
    if expected == "out_of_memory":
        assert ended.error is not None
        assert ended.error.requested_bytes is not None
        assert [r.status for r in ended.ranks] == ["out_of_memory"] * ended.world_size


def test_the_budget_of_every_run_is_one_rule(committed: dict[str, Trace]) -> None:
    for name, run in committed["large_model"].runs.items():
        if name.endswith("_budget"):
            copies = {"sgd": 2, "adam": 4}[str(run.settings["optimizer"])]
            counts, cut = (WIDE, 1) if name.startswith("wide") else (DEEP, 7)
            expected = copies * 4 * (sum(counts[:cut]) + sum(counts)) / 2
            assert run.budget_bytes == pytest.approx(expected, abs=1)


# --- ddp


def losses(run: Run) -> list[float]:
    return [e.loss for e in run.epochs if e.loss is not None]


@pytest.mark.parametrize(("suffix", "tolerance"), [("", 1e-5), ("_fp64", 1e-12)])
def test_ddp_learns_what_one_device_learns(run: Measure, suffix: str, tolerance: float) -> None:
    split, single = run("ddp", f"ddp{suffix}"), run("ddp", f"single{suffix}")
    assert len(losses(split)) == 5
    assert losses(split) == pytest.approx(losses(single), rel=tolerance)


def test_ddp_starts_every_replica_from_rank_zero(run: Measure) -> None:
    ranks = run("ddp", "ddp").ranks
    assert len({r.first_parameter_digest for r in ranks}) == 4
    assert {r.start_parameter_digest for r in ranks} == {ranks[0].first_parameter_digest}


def test_ddp_keeps_replicas_equal_and_no_sync_lets_them_drift(run: Measure) -> None:
    for epoch in run("ddp", "ddp").epochs:
        assert len({r.parameter_digest for r in epoch.ranks}) == 1
    for epoch in run("ddp", "no_sync").epochs:
        assert len({r.parameter_digest for r in epoch.ranks}) == 4
        assert len({r.loss for r in epoch.ranks}) == 4


def test_the_mean_of_the_ranks_gradients_is_what_all_reduce_leaves(run: Measure) -> None:
    facts = next(s for s in run("ddp", "ddp").prediction if s.name == "all_reduce").facts
    before = [facts[f"rank_{r}_before"] for r in range(4)]
    mean = [sum(column) / 4 for column in zip(*before, strict=True)]  # type: ignore[arg-type]
    for rank in range(4):
        assert facts[f"rank_{rank}_after"] == pytest.approx(mean, rel=1e-4, abs=1e-8)


def test_every_rank_sees_its_share_of_the_rows(run: Measure) -> None:
    assert [r.num_samples for r in run("ddp", "ddp").ranks] == [5 * 2500] * 4


def test_validation_rows_are_never_trained_on() -> None:
    import torch

    from runners.training.teacher import teach

    lesson = teach(1, num_samples=500, num_validation_samples=100, num_features=10, num_classes=4)
    both = torch.cat([lesson.training.features, lesson.validation.features])
    assert len(torch.unique(both, dim=0)) == 600


# --- batch_split


def test_a_split_batch_teaches_what_a_whole_one_does(run: Measure) -> None:
    split, single = run("batch_split", "split"), run("batch_split", "single")
    assert losses(split) == pytest.approx(losses(single), rel=1e-5)
    assert len({r.parameter_digest for r in split.ranks}) == 1


def test_each_rank_gets_its_half_in_the_batch_s_order(run: Measure) -> None:
    split = run("batch_split", "split")
    steps = {s.name: s for s in split.prediction}
    assert steps["split"].shape_in == [100, 20]
    assert steps["split"].shape_out == [50, 20]
    assert steps["forward_rank_0"].shape_out == steps["forward_rank_1"].shape_out == [50, 10]
    assert steps["combine"].shape_out == [100, 10]
    assert steps["combine"].values == steps["forward_rank_0"].values


# --- model_parallel


def test_a_split_model_learns_what_the_unsplit_one_does(run: Measure) -> None:
    curve, single = run("model_parallel", "curve"), run("model_parallel", "single")
    assert losses(curve) == pytest.approx(losses(single), rel=1e-5)
    assert [e.validation_loss for e in curve.epochs] == pytest.approx(
        [e.validation_loss for e in single.epochs], rel=1e-5
    )


def test_the_full_model_is_a_hundred_million_in_four_near_equal_parts(
    committed: dict[str, Trace],
) -> None:
    full = committed["model_parallel"].runs["full"]
    assert full.model is not None
    assert full.model.num_parameters == pytest.approx(100e6, rel=0.01)
    assert [r.num_parameters for r in full.ranks] == [pytest.approx(25e6, rel=0.02)] * 4
    assert sum(r.num_parameters or 0 for r in full.ranks) == full.model.num_parameters
    assert full.timing.step is not None
    assert full.timing.step.num_samples >= 5  # below, times are not told apart
    assert full.step_losses == pytest.approx(
        committed["model_parallel"].runs["full_single"].step_losses, rel=1e-5
    )


def test_what_ranks_pass_is_the_activation_and_its_gradient(committed: dict[str, Trace]) -> None:
    full = committed["model_parallel"].runs["full"]
    activation = 4 * 32 * int(str(full.settings["width"]))
    passed = [{c.operation: c.bytes for c in r.collectives} for r in full.ranks]
    assert passed[0] == {"send": activation, "recv": activation}
    assert passed[1] == passed[2] == {"send": 2 * activation, "recv": 2 * activation}
    assert passed[3] == {"send": activation, "recv": activation}


def test_a_rank_of_the_full_model_needs_its_own_parameters_and_gradients(
    committed: dict[str, Trace],
) -> None:
    for rank in committed["model_parallel"].runs["full"].ranks:
        assert rank.memory is not None
        assert rank.memory.largest is not None
        assert rank.num_parameters is not None
        assert rank.memory.largest.parameters_bytes == 4 * rank.num_parameters
        assert rank.memory.largest.gradients_bytes == 4 * rank.num_parameters


def test_what_travels_in_a_stage_is_what_its_tensors_weigh(run: Measure) -> None:
    split = run("batch_split", "split")
    rows = int(str(split.settings["batch_size"])) * int(str(split.settings["num_features"])) * 4
    stages = {stage.name: stage for stage in split.stages}
    assert [(m.operation, m.source, m.destination, m.bytes) for m in stages["scatter"].moves] == [
        ("scatter", 0, None, rows)
    ]
    assert split.model is not None
    assert [(m.operation, m.bytes) for m in stages["combine"].moves] == [
        ("all_reduce", split.model.bytes)
    ]
    assert [one.shape_out for one in stages["forward"].ranks] == [
        [int(str(split.settings["num_samples_per_rank"])), 10]
    ] * split.world_size
    assert stages["forward"].moves == []
