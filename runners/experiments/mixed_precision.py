"""Mixed precision: which bytes get smaller, which do not, and what becomes of small gradients.

A stack of layers under Adam: in fp32; under autocast to bf16; under autocast to fp16 with and
without a scaled loss, and with a scale so large that it overflows; with few rows, where copies of
the weights outweigh what activations spare; and with parameters that are bf16 themselves, with a
master copy in fp32 and without.

    python -m runners run mixed_precision
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace

import torch
from torch import Tensor, nn

from runners.experiments._mixed_precision_adam import LowAdam
from runners.plans.experiment import RunPlan, whole_number
from runners.plans.work import Choice, Work, perceptron_parameters, stack_work
from runners.ranks.rank import Rank
from runners.traces.records import Setting
from runners.training.networks import description, flat, perceptron

QUESTION = "What does a narrower number spare, and what does it lose?"

FULL_BYTES, NARROW_BYTES, LABEL_BYTES = 4, 2, 8
SMALLEST_HALF = 2.0**-24  # of fp16; what lies at its middle or below becomes zero
SMALLEST_NORMAL = 2.0**-14  # of fp16; what lies below has fewer digits
DTYPES = ("bfloat16", "float16")
SETTINGS: dict[str, Setting] = {
    "width": 128,
    "num_layers": 8,
    "batch_size": 256,
    "num_steps": 9,
    "learning_rate": 0.003,
}


def settle(plan: RunPlan) -> RunPlan:
    """The same run with its parameters, and the bytes of a layer's rows and of narrow weights.

    Raises:
        ValueError: a word is none of its choices, or a scale is below one.
    """
    settings = dict(plan.settings)
    if settings.get("dtype", "bfloat16") not in DTYPES:
        raise ValueError(f"dtype must be {' or '.join(DTYPES)}, not {settings['dtype']!r}")
    scale = settings.get("initial_scale", 1.0)
    if not isinstance(scale, int | float) or scale < 1:
        raise ValueError(f"initial_scale must be at least 1, not {scale!r}")
    width = whole_number(settings, "width")
    settings["activation_bytes"] = FULL_BYTES * width * whole_number(settings, "batch_size")
    layers = whole_number(settings, "num_layers")
    if plan.strategy in ("autocast", "scaled"):  # backward needs all weights but the first layer's
        settings["copies_bytes"] = NARROW_BYTES * width * width * (layers - 1)
    widths = (width,) * (layers + 1)
    settings["num_parameters"] = perceptron_parameters(widths)
    return replace(plan, settings=settings)


def _plan(strategy: str, *passes: str, **changed: Setting) -> RunPlan:
    plan = RunPlan(strategy, 1, {**SETTINGS, **changed}, has_timeline=False, needs_group=False)
    chosen = tuple(name for name in plan.passes if name in passes)
    return settle(replace(plan, passes=chosen or plan.passes))


RUNS = {
    "fp32": _plan("plain"),
    "bf16": _plan("autocast", dtype="bfloat16"),
    "fp16": _plan("scaled", dtype="float16", initial_scale=65536.0),
    "fp16_unscaled": _plan("autocast", "timed", dtype="float16", num_steps=4),
    "fp16_overflow": _plan("scaled", "timed", dtype="float16", initial_scale=2.0**26, num_steps=8),
    "fp32_few_rows": _plan("plain", "metered", batch_size=8),
    "bf16_few_rows": _plan("autocast", "metered", batch_size=8, dtype="bfloat16"),
    "master": _plan("narrow", keeps_master=True, learning_rate=0.0001),
    "pure": _plan("narrow", keeps_master=False, learning_rate=0.0001),
}
CHOICES = (
    Choice(
        "smallest",
        "Which has the lowest peak: fp32, autocast to bf16, or bf16 all the way?",
        ("fp32", "bf16", "master", "pure"),
        by="peak_bytes",
    ),
)
ON_CUDA = {
    "*": {"width": 4096, "batch_size": 8192},
    "fp32_few_rows": {"batch_size": 32},
    "bf16_few_rows": {"batch_size": 32},
}


def forecast(plan: RunPlan) -> Work:
    """One step: the state of all parameters, and the worst of backward and of the update."""
    settings = {k: v for k, v in plan.settings.items() if isinstance(v, int)}
    rows = settings["batch_size"]
    peak = rows * LABEL_BYTES + _foretell_peak(plan, settings)
    if plan.strategy != "plain":
        return Work(peak_bytes=peak)  # no primitive knows the rate of narrow products
    layers = settings["num_layers"]
    return replace(
        stack_work((settings["width"],) * (layers + 1), rows),
        peak_bytes=peak,
        num_operations=34 * layers + 5,
        optimizer="adam",
    )


def _foretell_peak(plan: RunPlan, settings: dict[str, int]) -> int:
    one, half = settings["activation_bytes"], settings["activation_bytes"] // 2
    layers, weights = settings["num_layers"], settings["width"] ** 2
    count = settings["num_parameters"]
    is_narrow = plan.strategy == "narrow"
    gradients = count * (NARROW_BYTES if is_narrow else FULL_BYTES)
    updated = gradients + 2 * FULL_BYTES * weights  # Adam's own two intermediate results
    if is_narrow:
        updated -= 0 if plan.settings["keeps_master"] else FULL_BYTES * weights
        state = count * (14 if plan.settings["keeps_master"] else 6)
        return half + state + max((layers - 1) * half + 3 * one, updated)
    if plan.strategy == "plain":
        return one + 12 * count + max((layers + 2) * one, updated)
    narrow = layers * half + 3 * one + settings["copies_bytes"]
    return one + 12 * count + max(narrow, updated)


def _lesson(rank: Rank) -> tuple[Tensor, Tensor]:
    """Rows, and labels that a fixed random layer gives them."""
    settings = rank.settings
    source = torch.Generator().manual_seed(rank.seed)
    features = torch.randn(settings.batch_size, settings.width, generator=source)
    teacher = torch.randn(settings.width, settings.width, generator=source)
    labels = (features @ teacher).argmax(1)
    return features.to(rank.device), labels.to(rank.device)


def _scaler(rank: Rank) -> torch.amp.GradScaler:
    is_scaled = rank.plan.strategy == "scaled"
    scale = rank.settings.initial_scale if is_scaled else 1.0
    return torch.amp.GradScaler(rank.device.type, init_scale=scale, enabled=is_scaled)


def _precision(rank: Rank) -> Callable[[], AbstractContextManager[object]]:
    """A context for forward passes: autocast where the run asks for it."""
    if rank.plan.strategy not in ("autocast", "scaled"):
        return nullcontext
    dtype = getattr(torch, rank.settings.dtype)
    return lambda: torch.autocast(rank.device.type, dtype=dtype)


def train(rank: Rank) -> None:
    """Look at one backward pass, then train on one batch to the end."""
    settings = rank.settings
    widths = (settings.width,) * (settings.num_layers + 1)
    is_narrow = rank.plan.strategy == "narrow"
    dtype = torch.bfloat16 if is_narrow else torch.float32
    rank.describe(description(widths, [[0]] * settings.num_layers, dtype))
    with rank.phase("build"):
        torch.manual_seed(rank.seed)
        model = perceptron(widths, device=rank.device).to(dtype)
    with rank.phase("rows"):
        features, labels = _lesson(rank)
        features = features.to(dtype)
        rank.rows(features, labels)
    optimizer = _optimizer(rank, model)
    scaler = _scaler(rank)
    rank.watch(model, optimizer)
    if not rank.is_metered and not is_narrow:
        _look(rank, model, scaler, features, labels)
    before = None if rank.is_metered else flat(model).float()
    losses: list[float] = []
    for _ in rank.steps(settings.num_steps):
        with rank.phase("forward"):
            loss = _loss(rank, model, features, labels)
        with rank.phase("backward"):
            scaler.scale(loss).backward()
        with rank.phase("optimizer"):
            scaler.step(optimizer)
            scaler.update()
        if before is not None:
            _measure_unchanged(rank, model, optimizer, before)
            before = None
        optimizer.zero_grad()
        losses.append(loss.item())
    rank.epoch(1, loss=losses[-1], num_samples=settings.batch_size)
    if rank.plan.strategy == "scaled" and not rank.is_metered:
        steps = [int(state["step"]) for state in optimizer.state.values()]
        rank.measure("num_updates", max(steps, default=0))
        halvings = torch.log2(torch.tensor(settings.initial_scale / scaler.get_scale()))
        rank.measure("num_halvings", round(halvings.item()))


def _measure_unchanged(
    rank: Rank, model: nn.Module, optimizer: torch.optim.Optimizer, before: Tensor
) -> None:
    """The share of values with a gradient that the first update left as they were."""
    kept = [optimizer.state[p].get("master", p) for p in model.parameters()]
    after = _joined([value.detach().float() for value in kept])
    moves = _joined([p.grad for p in model.parameters() if p.grad is not None]) != 0
    unchanged = (after == before) & moves
    rank.measure("unchanged_share", (unchanged.sum() / moves.sum()).item())


def _optimizer(rank: Rank, model: nn.Module) -> torch.optim.Optimizer:
    settings = rank.settings
    if rank.plan.strategy == "narrow":
        return LowAdam(model.parameters(), settings.learning_rate, settings.keeps_master)
    return torch.optim.Adam(model.parameters(), lr=settings.learning_rate)


def _loss(rank: Rank, model: nn.Module, features: Tensor, labels: Tensor) -> Tensor:
    """The loss in fp32, of logits in whatever the layers compute in."""
    with _precision(rank)():
        logits = model(features)
    return nn.functional.cross_entropy(logits.float(), labels)


def _look(
    rank: Rank, model: nn.Module, scaler: torch.amp.GradScaler, features: Tensor, labels: Tensor
) -> None:
    """The gradient in this precision beside that in fp32, of the same parameters."""
    parameters = list(model.parameters())
    loss = nn.functional.cross_entropy(model(features), labels)
    wanted = _joined(torch.autograd.grad(loss, parameters))
    own = scaler.scale(_loss(rank, model, features, labels))
    found = _joined(torch.autograd.grad(own, parameters)) / (own / loss.detach()).detach()
    is_there = wanted != 0
    vanished = is_there & (found == 0)
    finite = torch.where(torch.isfinite(found), found, torch.zeros_like(found))
    rank.measure("gradient_difference", ((finite - wanted).norm() / wanted.norm()).item())
    rank.measure("num_not_finite", int((~torch.isfinite(found)).sum()))
    rank.measure("vanished_share", (vanished.sum() / is_there.sum()).item())
    below = is_there & (wanted.abs() <= SMALLEST_HALF / 2)
    small = is_there & (wanted.abs() < SMALLEST_NORMAL)
    rank.measure("subnormal_share", (small.sum() / is_there.sum()).item())
    rank.measure("num_below_half", int(below.sum()))
    rank.measure("num_cast_to_zero", int((is_there & (wanted.half() == 0)).sum()))
    rank.measure("num_cast_to_zero_bf16", int((is_there & (wanted.bfloat16() == 0)).sum()))


def _joined(tensors: Iterable[Tensor]) -> Tensor:
    return torch.cat([tensor.reshape(-1) for tensor in tensors])


STRATEGIES = {"plain": train, "autocast": train, "scaled": train, "narrow": train}
