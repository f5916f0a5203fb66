"""Which activations to keep: all, those between segments of layers, or those between all layers.

A stack of equal blocks, each of which keeps more inside than at its border. Kept whole; cut into
√n segments whose insides are computed again in backward; cut between every two layers; and cut
where border and inside together are least. Beside the peaks stands what was computed again, as
`FlopCounterMode` counts it, and the digest of the gradients. `recomputation` shows one such cut
under `checkpoint_sequential`; here the depth grows, and the cut with it.

    python -m runners run checkpointing
"""

from __future__ import annotations

import math
from dataclasses import replace

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint, set_checkpoint_early_stop
from torch.utils.flop_counter import FlopCounterMode

from runners.plans.experiment import RunPlan, whole_number
from runners.plans.work import Choice, Work
from runners.ranks.rank import Rank
from runners.ranks.recorder import parameter_digest
from runners.traces.records import Setting

QUESTION = "How does the peak grow with depth, and how much is computed again, by what is kept?"

BYTES_PER_VALUE = 4
LABEL_BYTES = 8
WIDENING = 4  # of a block's inside
SETTINGS: dict[str, Setting] = {
    "num_layers": 16,
    "width": 32,
    "batch_size": 512,
    "num_steps": 9,
    "learning_rate": 0.1,
}


def settle(plan: RunPlan) -> RunPlan:
    """The same run with what one block keeps and computes, and the number of segments.

    In bytes of the rows between two blocks: a border is one; a block keeps five, its own rows and
    the four of its widened ones; and while a block is differentiated nine are passing, the border's
    gradient, and the widened rows' before and after the bend.

    Raises:
        ValueError: the layers cannot be cut into segments of that length.
    """
    settings = dict(plan.settings)
    values = whole_number(settings, "batch_size") * whole_number(settings, "width")
    settings["border_bytes"] = BYTES_PER_VALUE * values
    settings["inside_bytes"] = BYTES_PER_VALUE * values * (1 + WIDENING)
    settings["passing_bytes"] = BYTES_PER_VALUE * values * (1 + 2 * WIDENING)
    settings["num_product_flops"] = 2 * values * WIDENING * whole_number(settings, "width")
    layers = whole_number(settings, "num_layers")
    if plan.strategy == "recomputed":
        length = whole_number(settings, "segment_length")
        if layers % length:
            raise ValueError(f"num_layers {layers} cannot be cut into segments of {length}")
        settings["num_segments"] = layers // length
    return replace(plan, settings=settings)


def _kept(num_layers: int, *, timed: bool = False) -> RunPlan:
    settings = {**SETTINGS, "num_layers": num_layers}
    passes = RunPlan.passes if timed else RunPlan.passes[1:]
    return settle(RunPlan("kept", 1, settings, passes=passes, has_timeline=False))


def _cut(length: int, num_layers: int, *, timed: bool = False, stops: bool = True) -> RunPlan:
    plan = _kept(num_layers, timed=timed)
    settings = {**plan.settings, "segment_length": length, "stops_early": stops}
    return settle(replace(plan, strategy="recomputed", settings=settings))


DEPTHS = (9, 16, 36)
RUNS = {
    **{f"kept_{n}": _kept(n, timed=n == 16) for n in DEPTHS},
    **{f"root_{n}": _cut(math.isqrt(n), n, timed=n == 16) for n in DEPTHS},
    **{f"each_{n}": _cut(1, n, timed=n == 16) for n in DEPTHS},
    "each_16_to_the_end": _cut(1, 16, stops=False),
    "least_36": _cut(3, 36),
}
CHOICES = (
    Choice(
        "fastest",
        "Which takes the shortest step: everything kept, or cut in one way or the other?",
        ("kept_16", "root_16", "each_16"),
    ),
    Choice(
        "smallest",
        "Which has the lowest peak in a deep stack?",
        ("kept_36", "root_36", "each_36", "least_36"),
        by="peak_bytes",
    ),
)
ON_CUDA = {"*": {"width": 1024, "batch_size": 4096}}


def forecast(plan: RunPlan) -> Work:
    """One step: what is kept, passing and gathered as gradients at the worst moment."""
    settings = {k: v for k, v in plan.settings.items() if isinstance(v, int)}
    layers, width = settings["num_layers"], settings["width"]
    segments, is_cut = settings.get("num_segments", 1), plan.strategy == "recomputed"
    spared = segments if plan.settings.get("stops_early") else 0
    products = 6 * layers - 1 + (2 * layers - spared if is_cut else 0)
    parameters = layers * (2 * WIDENING * width * width + WIDENING * width + width)
    border = settings["border_bytes"]
    return Work(
        peak_bytes=_foretell_peak(settings, segments, BYTES_PER_VALUE * parameters // layers),
        flops=settings["num_product_flops"] * products,
        matrix_rows=settings["batch_size"],
        num_products=products,
        moved_bytes=border * (41 * layers + 10 + (15 * layers if is_cut else 0)),
        block_bytes=WIDENING * border,
        num_operations=34 * layers + 8 + (14 * layers - 4 - 2 * spared if is_cut else 0),
        optimizer_parameters=parameters,
    )


def _foretell_peak(settings: dict[str, int], segments: int, layer_bytes: int) -> int:
    """The highest of the moments at which backward begins with a segment, the last one first."""
    border, length = settings["border_bytes"], settings["num_layers"] // segments
    kept = length * settings["inside_bytes"] + settings["passing_bytes"] - border
    held = settings["num_layers"] * layer_bytes + border + LABEL_BYTES * settings["batch_size"]
    moments = (
        (before * border + (segments - 1 - before) * length * layer_bytes)
        for before in range(1 if length == 1 else 0, segments)  # rows need no gradient
    )
    return held + kept + max(moments) + layer_bytes // 2


class Block(nn.Module):
    """Widen, bend, narrow, added to what came in. In and out: (rows, width)."""

    def __init__(self, width: int, device: torch.device) -> None:
        super().__init__()
        self.up = nn.Linear(width, WIDENING * width, device=device)
        self.down = nn.Linear(WIDENING * width, width, device=device)

    def forward(self, rows: Tensor) -> Tensor:
        """Keep the rows for `up` and the bent ones for `down`; the sum keeps nothing."""
        result: Tensor = rows + self.down(torch.relu(self.up(rows)))
        return result


def train(rank: Rank) -> None:
    """Train on one batch, then count the operations of one more step and digest its gradients."""
    settings = rank.settings
    with rank.phase("build"):
        torch.manual_seed(rank.seed)
        blocks = (Block(settings.width, rank.device) for _ in range(settings.num_layers))
        stack = nn.Sequential(*blocks)
    optimizer = torch.optim.SGD(stack.parameters(), lr=settings.learning_rate)
    with rank.phase("rows"):
        source = torch.Generator().manual_seed(rank.seed)
        shape = (settings.batch_size, settings.width)
        features = torch.randn(shape, generator=source).to(rank.device)
        labels = torch.randint(0, settings.width, shape[:1], generator=source).to(rank.device)
        rank.rows(features, labels)
    rank.watch(stack, optimizer)
    for _ in rank.steps(settings.num_steps):
        _differentiate(rank, stack, features, labels)
        with rank.phase("optimizer"):
            optimizer.step()
            optimizer.zero_grad()
    _count(rank, stack, features, labels)


def _differentiate(rank: Rank, stack: nn.Sequential, features: Tensor, labels: Tensor) -> float:
    with rank.phase("forward"):
        loss = nn.functional.cross_entropy(_forward(rank, stack, features), labels)
    with rank.phase("backward"):
        loss.backward()
    return loss.item()


def _forward(rank: Rank, stack: nn.Sequential, rows: Tensor) -> Tensor:
    if rank.plan.strategy == "kept":
        result: Tensor = stack(rows)
        return result
    length = rank.settings.segment_length
    with set_checkpoint_early_stop(rank.settings.stops_early):
        for start in range(0, rank.settings.num_layers, length):
            rows = checkpoint(stack[start : start + length], rows, use_reentrant=False)
    return rows


def _count(rank: Rank, stack: nn.Sequential, features: Tensor, labels: Tensor) -> None:
    """Operations of one forward and backward pass, and what became of the gradients."""
    with FlopCounterMode(display=False) as counter:
        loss = _differentiate(rank, stack, features, labels)
    gradients = [p.grad for p in stack.parameters() if p.grad is not None]
    rank.measure("num_flops", counter.get_total_flops())
    rank.measure("gradient_digest", parameter_digest(gradients))
    rank.measure("num_gradients", len(gradients))
    rank.epoch(1, loss=loss, num_samples=len(labels))


STRATEGIES = {"kept": train, "recomputed": train}
