"""Hybrids against oracles: one device, a real model's parameters, what the memory meter counted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch

from runners.plans.experiment import find
from runners.traces.records import Run
from runners.training.transformer_model import Transformer, TransformerShape

pytestmark = pytest.mark.ranks
Measure = Callable[[str, str], Run]
HYBRIDS = ["ddp_pipeline", "fsdp_tensor", "hsdp"]
AXES = ("replicate", "pipeline", "shard", "tensor")


def model() -> Transformer:
    """The model of every run, without memory."""
    with torch.device("meta"):
        return Transformer(TransformerShape(64, 32, 64, 4, 2, 256))


def num_bytes(*modules: torch.nn.Module) -> int:
    """Bytes of all parameters."""
    return sum(p.numel() * 4 for module in modules for p in module.parameters())


def on_axes(run: Run, rank: int) -> Counter[str]:
    """Bytes by operation that one rank counted on all axes together."""
    found: Counter[str] = Counter()
    for name, value in run.ranks[rank].measures.items():
        axis, _, operation = name.removesuffix("_bytes").partition("_")
        if name.endswith("_bytes"):
            assert axis in AXES
            found[operation] += int(str(value))
    return found


@pytest.mark.parametrize("name", HYBRIDS)
def test_a_hybrid_learns_what_one_device_learns(run: Measure, name: str) -> None:
    one = run("hybrid", "single").ranks[0].measures["losses"]
    assert isinstance(one, list)
    assert one[-1] < 0.9 * one[0]  # type: ignore[operator]
    for rank in run("hybrid", name).ranks:
        assert rank.measures["losses"] == pytest.approx(one, rel=1e-5)


@pytest.mark.parametrize("name", HYBRIDS)
def test_what_the_axes_carry_is_all_that_the_memory_meter_counts(run: Measure, name: str) -> None:
    hybrids = run("hybrid", name)
    for rank in hybrids.ranks:
        counted = {c.operation: c.bytes for c in rank.collectives}
        assert counted
        assert on_axes(hybrids, rank.rank) == counted


def test_equal_stages_average_their_own_parameters_and_no_others(run: Measure) -> None:
    layers = list(model())
    stages = num_bytes(*layers[:2]), num_bytes(*layers[2:])
    averaged = [
        rank.measures["replicate_all_reduce_bytes"] for rank in run("hybrid", "ddp_pipeline").ranks
    ]
    assert averaged == [*stages, *stages]
    sent = [rank.measures["pipeline_send_bytes"] for rank in run("hybrid", "ddp_pipeline").ranks]
    assert sent == [8 * 32 * 64 * 4] * 4  # half the rows, forward and back


def test_hsdp_averages_shards_where_fsdp_averages_nothing(run: Measure) -> None:
    whole = model()
    measures = run("hybrid", "hsdp").ranks[0].measures
    ends = num_bytes(whole) - num_bytes(*whole.blocks)
    assert measures["replicate_all_reduce_bytes"] == num_bytes(whole) / 2
    assert measures["shard_all_gather_bytes"] == 2 * num_bytes(*whole.blocks) + ends


def test_tensor_parallelism_sums_twice_forward_and_twice_backward(run: Measure) -> None:
    for rank in run("hybrid", "fsdp_tensor").ranks:
        assert rank.measures["num_tensor_all_reduce"] == 4 * 2
        assert rank.measures["tensor_all_reduce_bytes"] == 4 * 2 * 8 * 32 * 64 * 4


@pytest.mark.parametrize(
    ("name", "changed", "said"),
    [
        ("hsdp", {"batch_size": 6}, "cannot be dealt out"),
        ("ddp_pipeline", {"num_microbatches": 3}, "cannot be dealt out"),
        ("fsdp_tensor", {"num_heads": 3}, "num_heads 3 cannot be split"),
        ("fsdp_tensor", {"num_heads": 6}, "not divisible by 6 heads"),
    ],
)
def test_what_the_square_cannot_share_out_is_refused(
    name: str, changed: dict[str, int], said: str
) -> None:
    plan = find("hybrid").runs[name]
    with pytest.raises(ValueError, match=said):
        replace(plan, settings=plan.settings.changed(changed))


def test_ranks_stay_a_square() -> None:
    with pytest.raises(ValueError, match="square"):
        replace(find("hybrid").runs["hsdp"], world_size=3)
