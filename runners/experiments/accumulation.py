"""Gradient accumulation: several microbatches, one exchange, one update.

Two ranks under DDP take the same rows of an update whole, in microbatches with `no_sync` until the
last, and in microbatches that are exchanged each. What travels, what is held, how long it takes;
and the same under FSDP, which gathers parameters for every microbatch anyhow.

Then one update in double precision, on parts of unequal size: rows of a classifier, and tokens of
a small language model, whose loss is a mean over tokens. Is the gradient that of the whole batch?

    python -m runners run accumulation
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace

import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.nn.parallel import DistributedDataParallel

from runners.experiments._accumulation_gradients import gradients
from runners.plans.experiment import RunPlan, whole_number
from runners.plans.work import Choice, Exchange, Work, perceptron_parameters, stack_work
from runners.ranks.rank import Rank
from runners.traces.records import Setting
from runners.training.networks import description, perceptron

QUESTION = "Is a batch taken in small parts the same batch, and what does it spare?"

BYTES_PER_VALUE = 4
LABEL_BYTES = 8
SETTINGS: dict[str, Setting] = {
    "width": 256,
    "num_layers": 4,
    "num_rows": 512,
    "num_microbatches": 4,
    "exchanges_each": False,
    "num_updates": 9,
    "learning_rate": 0.1,
}
UNEQUAL = [8, 24, 40, 56, 4, 12, 20, 28]
GRADIENTS: dict[str, Setting] = {
    "task": "rows",
    "parts": UNEQUAL,
    "norm": "none",
    "width": 16,
    "num_classes": 8,
}


def settle(plan: RunPlan) -> RunPlan:
    """The same run with the rows of a microbatch and the bytes of what follows from the settings.

    Raises:
        ValueError: the rows or the parts cannot be dealt out equally, or a word is none of its
            choices.
    """
    settings = dict(plan.settings)
    if plan.strategy == "gradients":
        _check_parts(settings, plan.world_size)
        return plan
    rows, parts = whole_number(settings, "num_rows"), whole_number(settings, "num_microbatches")
    if rows % parts:
        raise ValueError(f"num_rows {rows} cannot be taken in {parts} microbatches")
    width = whole_number(settings, "width")
    settings["microbatch_size"] = rows // parts
    settings["activation_bytes"] = BYTES_PER_VALUE * width * (rows // parts)
    widths = (width,) * (whole_number(settings, "num_layers") + 1)
    settings["row_bytes"] = rows * (BYTES_PER_VALUE * width + LABEL_BYTES)
    settings["layer_bytes"] = BYTES_PER_VALUE * (width * width + width)
    settings["model_bytes"] = BYTES_PER_VALUE * perceptron_parameters(widths)
    return replace(plan, settings=settings)


def _check_parts(settings: dict[str, Setting], num_ranks: int) -> None:
    if settings["task"] not in ("rows", "tokens"):
        raise ValueError(f"task must be rows or tokens, not {settings['task']!r}")
    if settings["norm"] not in ("none", "batch"):
        raise ValueError(f"norm must be none or batch, not {settings['norm']!r}")
    if settings["task"] == "tokens" and settings["norm"] != "none":
        raise ValueError("norm must be none where the task is tokens")
    parts = settings["parts"]
    if not isinstance(parts, list) or len(parts) % num_ranks or not parts:
        raise ValueError(f"parts must be as many for each of {num_ranks} ranks")
    least = 2 if settings["norm"] == "batch" else 1
    if not all(isinstance(part, int) and part >= least for part in parts):
        raise ValueError(f"each of the parts must be a whole number of at least {least}")


def _train(num_microbatches: int, *, exchanges_each: bool = False, timed: bool = True) -> RunPlan:
    settings = {**SETTINGS, "num_microbatches": num_microbatches, "exchanges_each": exchanges_each}
    passes = RunPlan.passes if timed else RunPlan.passes[1:]
    return settle(RunPlan("train", 2, settings, passes=passes, has_timeline=False))


def _sharded_plan(*, exchanges_each: bool) -> RunPlan:
    plan = _train(4, exchanges_each=exchanges_each, timed=False)
    return replace(plan, strategy="sharded", can_share_device=False)


def _gradients(**changed: Setting) -> RunPlan:
    settings = {**GRADIENTS, **changed}
    return settle(RunPlan("gradients", 2, settings, passes=("timed",), has_timeline=False))


RUNS = {
    "whole": _train(1),
    "accumulated": _train(4),
    "exchanged": _train(4, exchanges_each=True),
    "accumulated_8": _train(8, timed=False),
    "exchanged_8": _train(8, exchanges_each=True, timed=False),
    "sharded": _sharded_plan(exchanges_each=False),
    "sharded_exchanged": _sharded_plan(exchanges_each=True),
    "rows": _gradients(),
    "rows_equal": _gradients(parts=[24] * 8),
    "tokens": _gradients(task="tokens", parts=[3, 16, 8, 12, 5, 16, 2, 10]),
    "batch_norm": _gradients(norm="batch", parts=[24] * 8),
}
CHOICES = (
    Choice(
        "fastest",
        "Which takes the shortest update of as many rows: whole, accumulated, or exchanged each?",
        ("whole", "accumulated", "exchanged"),
    ),
    Choice(
        "smallest",
        "Which has the lowest peak?",
        ("whole", "accumulated"),
        by="peak_bytes",
    ),
)
ON_CUDA = {
    name: {"width": 4096, "num_rows": 8192}
    for name, plan in RUNS.items()
    if plan.strategy == "train"
}


def forecast(plan: RunPlan) -> Work | None:
    """One update of a rank: its rows' products, and an exchange or one for each microbatch."""
    if plan.strategy != "train":
        return None
    settings = {k: v for k, v in plan.settings.items() if isinstance(v, int)}
    parts, layers = settings["num_microbatches"], settings["num_layers"]
    one = stack_work((settings["width"],) * (layers + 1), settings["microbatch_size"])
    model = settings["model_bytes"]
    exchanges = parts if settings["exchanges_each"] else 1
    # Every microbatch but the first adds its gradients to those that are there.
    added, copied = 3 * (parts - 1) * model, 4 * exchanges * model
    return replace(
        one,
        peak_bytes=settings["row_bytes"] + model + _foretell_rest(settings),
        flops=parts * one.flops,
        num_products=parts * one.num_products,
        moved_bytes=parts * one.moved_bytes + added + copied,
        num_operations=parts * one.num_operations + 2 * layers * exchanges,
        exchanges=(Exchange("all_reduce", exchanges * model, exchanges, plan.world_size),),
        num_busy_ranks=plan.world_size,
    )


def _foretell_rest(settings: dict[str, int]) -> int:
    """Buckets, activations and gradients at the worst moment of backward.

    From the second microbatch on the gradients of the first are held all along; with a single one
    they come as activations go, and the worst is at the begin or at the end.
    """
    model, one, layer = (settings[f"{n}_bytes"] for n in ("model", "activation", "layer"))
    layers = settings["num_layers"]
    if settings["num_microbatches"] > 1:
        return 2 * model + (layers + 1) * one + max(one, layer)
    return model + max((layers + 2) * one, 3 * one + (layers - 1) * layer)


def train(rank: Rank) -> None:
    """Train to the end; a step is one update on all the rows of this rank."""
    settings, is_sharded = rank.settings, rank.plan.strategy == "sharded"
    widths = (settings.width,) * (settings.num_layers + 1)
    everywhere = [range(rank.world_size)] * settings.num_layers
    sharded = [is_sharded] * settings.num_layers
    rank.describe(description(widths, everywhere, sharded=sharded))
    with rank.phase("build"):
        torch.manual_seed(rank.seed)
        model = perceptron(widths, device=rank.device)
    with rank.phase("rows"):
        source = torch.Generator().manual_seed(rank.seed + rank.rank)
        shape = (settings.num_rows, settings.width)
        features = torch.randn(shape, generator=source).to(rank.device)
        labels = torch.randint(0, settings.width, shape[:1], generator=source).to(rank.device)
        rank.rows(features, labels)
    with rank.phase("wrap"):
        wrapped = _sharded(rank, model) if is_sharded else DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=settings.learning_rate)
    rank.watch(model, optimizer)
    losses = []
    for _ in rank.steps(settings.num_updates):
        loss = 0.0
        for index in range(settings.num_microbatches):
            part = slice(index * settings.microbatch_size, (index + 1) * settings.microbatch_size)
            is_last = index == settings.num_microbatches - 1
            exchanges = is_last or settings.exchanges_each
            with nullcontext() if exchanges else _silent(wrapped):
                with rank.phase("forward"):
                    own = nn.functional.cross_entropy(wrapped(features[part]), labels[part])
                    mean = own / settings.num_microbatches
                with rank.phase("backward"):
                    mean.backward()
            loss += mean.item()
        with rank.phase("optimizer"):
            optimizer.step()
            optimizer.zero_grad()
        losses.append(loss)
        rank.count_samples(settings.num_rows)
    rank.epoch(
        1, loss=losses[-1], num_samples=settings.num_rows, parameters=list(model.parameters())
    )


def _sharded(rank: Rank, model: nn.Module) -> nn.Module:
    """The model itself, each of its layers in shards."""
    mesh = init_device_mesh(rank.device.type, (rank.world_size,))
    for layer in model.children():
        if isinstance(layer, nn.Linear):
            fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return model


@contextmanager
def _silent(wrapped: nn.Module) -> Iterator[None]:
    """Add gradients up on this rank alone."""
    if isinstance(wrapped, DistributedDataParallel):
        with wrapped.no_sync():
            yield
        return
    assert isinstance(wrapped, FSDPModule)
    wrapped.set_requires_gradient_sync(False)
    yield
    wrapped.set_requires_gradient_sync(True)


STRATEGIES = {"train": train, "sharded": train, "gradients": gradients}
