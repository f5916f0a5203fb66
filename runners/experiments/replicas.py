"""What replicas need so that DDP's mean is the gradient of the global batch, one step at a time.

Four ranks wrap a small classifier in DDP and take one step on parts of one batch. Every rank also
computes, on a copy, the gradient of the whole batch: the oracle. Equal parts, unequal parts with
and without weights, layers that look across rows and one that does not. Beside it what else a
script must get right for each rank: its random numbers, and the rows that a sampler gives it.

    python -m runners run replicas
"""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import cast

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import Dataset, DistributedSampler

from runners.plans.experiment import RunPlan, whole_number
from runners.ranks.rank import Rank
from runners.ranks.recorder import parameter_digest
from runners.traces.records import Setting
from runners.training.networks import description, perceptron
from runners.training.steps import lesson_for
from runners.training.teacher import Rows, Scaling

QUESTION = "When is the mean of the ranks' gradients the gradient of the whole batch?"

NORMS = ("none", "batch", "layer")
SETTINGS: dict[str, Setting] = {
    "num_rows": 100,
    "num_validation_rows": 1,
    "num_features": 10,
    "num_hidden": 64,
    "num_classes": 4,
    "batch_size": 100,
    "skew": 0,
    "weighted": False,
    "norm": "none",
    "learning_rate": 0.1,
    "teacher_temperature": 0.15,
    "dtype": "float64",
}
SKEWED: dict[str, Setting] = {**SETTINGS, "skew": 10}
SAMPLED: dict[str, Setting] = {"num_rows": 10, "num_epochs": 3, "drops_last": False}
DRAWN: dict[str, Setting] = {"num_features": 64, "dropout": 0.5}


def _one_step(settings: dict[str, Setting]) -> RunPlan:
    return RunPlan("one_step", 4, settings, passes=("timed",))


def parts(num_rows: int, num_ranks: int, skew: int) -> list[int]:
    """Rows of each rank: every rank has `skew` more than the one before, together `num_rows`.

    Raises:
        ValueError: the first rank would have none.
    """
    base = (num_rows - skew * num_ranks * (num_ranks - 1) // 2) // num_ranks
    if base < 1:
        raise ValueError(f"a skew of {skew} leaves rank 0 without rows; take a smaller one")
    sizes = [base + skew * rank for rank in range(num_ranks)]
    sizes[-1] += num_rows - sum(sizes)
    return sizes


def settle(plan: RunPlan) -> RunPlan:
    """The same run, with the batch as large as its rows.

    Raises:
        ValueError: the parts leave a rank without rows, or a word is none of its choices.
    """
    settings = dict(plan.settings)
    if plan.strategy == "one_step":
        if settings["norm"] not in NORMS:
            raise ValueError(f"norm must be {' or '.join(NORMS)}, not {settings['norm']!r}")
        skew = settings["skew"]
        if not isinstance(skew, int) or skew < 0:
            raise ValueError(f"skew must be a whole number from 0, not {skew!r}")
        num_rows = whole_number(settings, "batch_size")
        parts(num_rows, plan.world_size, skew)
        settings["num_rows"] = num_rows
    return replace(plan, settings=settings)


DECLARED = {
    "equal": _one_step(SETTINGS),
    "unequal": _one_step(SKEWED),
    "unequal_weighted": _one_step({**SKEWED, "weighted": True}),
    "batch_norm": _one_step({**SETTINGS, "norm": "batch"}),
    "layer_norm": _one_step({**SETTINGS, "norm": "layer"}),
    "sampled_padded": RunPlan("sampled", 4, SAMPLED, passes=("timed",)),
    "sampled_dropped": RunPlan("sampled", 4, {**SAMPLED, "drops_last": True}, passes=("timed",)),
    "drawn_alike": RunPlan("drawn", 4, {**DRAWN, "seeds_by_rank": False}, passes=("timed",)),
    "drawn_apart": RunPlan("drawn", 4, {**DRAWN, "seeds_by_rank": True}, passes=("timed",)),
}
RUNS = {name: settle(plan) for name, plan in DECLARED.items()}


def _gathered(rank: Rank, value: Setting) -> list[Setting]:
    """The value of every rank, on every rank."""
    values: list[Setting] = [None] * rank.world_size
    dist.all_gather_object(values, value)
    return values


def _flat_gradient(model: nn.Module) -> Tensor:
    return torch.cat([p.grad.reshape(-1) for p in model.parameters() if p.grad is not None])


def _widths(rank: Rank) -> tuple[int, int, int]:
    settings = rank.settings
    return settings.num_features, settings.num_hidden, settings.num_classes


def _network(rank: Rank, dtype: torch.dtype) -> nn.Module:
    """The classifier, with a normalisation behind its first layer where one is asked for."""
    widths = _widths(rank)
    layers = list(perceptron(widths, dtype=dtype))
    norms: dict[str, list[nn.Module]] = {
        "none": [],
        "batch": [nn.BatchNorm1d(widths[1], dtype=dtype)],
        "layer": [nn.LayerNorm(widths[1], dtype=dtype)],
    }
    return nn.Sequential(layers[0], *norms[rank.settings.norm], *layers[1:])


def one_step(rank: Rank) -> None:
    """One backward pass under DDP, compared with one backward pass on the whole batch."""
    settings = rank.settings
    with rank.phase("build"):
        batch = lesson_for(rank).training.take(slice(0, settings.batch_size))
        scaled = Scaling.of(batch.features).apply(batch.features)
        batch = Rows(scaled.to(rank.device), batch.labels.to(rank.device))
        torch.manual_seed(rank.seed)
        dtype = getattr(torch, settings.dtype)
        model = _network(rank, dtype).to(rank.device)
        whole = copy.deepcopy(model)
        if settings.norm == "none":
            rank.describe(description(_widths(rank), [range(rank.world_size)] * 2, dtype))
    with rank.phase("wrap"):
        replica = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=settings.learning_rate)
    rank.watch(model, optimizer)
    sizes = parts(settings.batch_size, rank.world_size, settings.skew)
    start = sum(sizes[: rank.rank])
    own = batch.take(slice(start, start + sizes[rank.rank]))
    facts: dict[str, Setting] = {"num_rows": sizes}
    with rank.predict("step", "forward and backward under DDP", own.features, facts) as out:
        loss = nn.functional.cross_entropy(replica(own.features), own.labels)
        weight = sizes[rank.rank] * rank.world_size / settings.batch_size
        (loss * weight if settings.weighted else loss).backward()
        averaged = _flat_gradient(model)
        out(averaged)
        facts["losses"] = _gathered(rank, loss.item())  # type: ignore[assignment]
    _compare(rank, whole, batch, averaged)
    if settings.norm == "batch":
        _watch_buffers(rank, replica, own.features)


def _compare(rank: Rank, whole: nn.Module, batch: Rows, averaged: Tensor) -> None:
    """What one device would have computed for the whole batch, and how far off DDP's mean is."""
    facts: dict[str, Setting] = {}
    with rank.predict("compare", "the gradient of the whole batch", batch.features, facts) as out:
        loss = nn.functional.cross_entropy(whole(batch.features), batch.labels)
        loss.backward()
        oracle = _flat_gradient(whole)
        out(oracle)
        apart = (torch.linalg.norm(averaged - oracle) / torch.linalg.norm(oracle)).item()
        facts["loss"] = loss.item()
        facts["relative_differences"] = _gathered(rank, apart)  # type: ignore[assignment]
        if rank.rank == 0:
            print(f"DDP's gradient is {apart:.1%} away from that of the whole batch")


def _watch_buffers(rank: Rank, replica: nn.Module, rows: Tensor) -> None:
    """Running statistics after the step, and when the next forward pass begins."""
    norm = next(m for m in replica.modules() if isinstance(m, nn.BatchNorm1d))
    buffers = list(norm.buffers())
    after = parameter_digest(buffers)
    met: list[str] = []
    hook = norm.register_forward_pre_hook(lambda *_: met.append(parameter_digest(buffers)))
    facts: dict[str, Setting] = {}
    with rank.predict("buffers", "begin the next forward pass", rows, facts) as out:
        out(replica(rows))
        facts["digests_after"] = _gathered(rank, after)  # type: ignore[assignment]
        facts["digests_met"] = _gathered(rank, met[0])  # type: ignore[assignment]
        facts["num_distinct_after"] = _num_distinct(facts["digests_after"])
        facts["num_distinct_met"] = _num_distinct(facts["digests_met"])
    hook.remove()


def _num_distinct(values: Setting) -> int:
    assert isinstance(values, list)
    return len(set(values))


def sampled(rank: Rank) -> None:
    """The rows that `DistributedSampler` gives each rank, and their order in each epoch."""
    settings = rank.settings
    rows = torch.arange(settings.num_rows)
    numbered = cast("Dataset[int]", range(settings.num_rows))  # it asks for their number only
    sampler: DistributedSampler[int] = DistributedSampler(
        numbered, seed=rank.seed, drop_last=settings.drops_last
    )
    own = list(sampler)
    facts: dict[str, Setting] = {"own": own}
    with rank.predict("rows", "ask the sampler for an epoch's rows", rows, facts) as out:
        out(torch.tensor(own))
        given = _all_rows(rank, own)
        facts["num_given"] = len(given)
        facts["num_distinct"] = len(set(given))
    told: list[tuple[int, ...]] = []
    facts = {}
    with rank.predict("epochs", "ask again in each epoch", rows, facts) as out:
        left = [tuple(sampler) for _ in range(settings.num_epochs)]
        for epoch in range(settings.num_epochs):
            sampler.set_epoch(epoch)
            told.append(tuple(sampler))
        out(torch.tensor(told[-1]))
        facts["num_orders_untold"] = len(set(left))
        facts["num_orders_told"] = len(set(told))


def _all_rows(rank: Rank, own: list[int]) -> list[int]:
    values: list[list[int]] = [[]] * rank.world_size
    dist.all_gather_object(values, own)
    return [row for rows in values for row in rows]


def drawn(rank: Rank) -> None:
    """One draw of dropout on every rank: the same mask, or one of its own?"""
    settings = rank.settings
    torch.manual_seed(rank.seed + (rank.rank if settings.seeds_by_rank else 0))
    rows = torch.ones(1, settings.num_features)
    facts: dict[str, Setting] = {}
    with rank.predict("dropout", "drop features at random", rows, facts) as out:
        kept = nn.functional.dropout(rows, settings.dropout)
        out(kept)
        facts["num_distinct"] = _num_distinct(_gathered(rank, parameter_digest([kept])))  # type: ignore[arg-type]


STRATEGIES = {"one_step": one_step, "sampled": sampled, "drawn": drawn}
