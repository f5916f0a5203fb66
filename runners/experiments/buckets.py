"""How DDP packs gradients into buckets, and when it sends them: during backward, or after it.

Two ranks train a stack of equal layers under DDP. A communication hook looks at every bucket as it
leaves: its bytes, whose gradients it holds, and how many gradients backward had finished by then.
The bucket's cap is changed from run to run; in `after_backward` nothing leaves before backward has
ended, and then everything at once.

    python -m runners run buckets
"""

# No `from __future__ import annotations`: DDP reads the annotations of its communication hook.
from dataclasses import dataclass, field, replace

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch._C._distributed_c10d import GradBucket
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
from torch.nn.parallel import DistributedDataParallel

from runners.plans.experiment import RunPlan, whole_number
from runners.plans.work import Choice, Exchange, Work, stack_work
from runners.ranks.rank import Rank
from runners.traces.records import Setting
from runners.training.networks import description, perceptron

QUESTION = "Does a gradient wait for the end of backward before it is sent?"
FULL = True

BYTES_PER_VALUE = 4
SETTINGS: dict[str, Setting] = {
    "num_layers": 12,
    "width": 512,
    "batch_size": 64,
    "num_steps": 30,
    "bucket_cap_mib": 0,  # zero: as DDP comes
    "learning_rate": 0.1,
    "overlaps": True,
}


def settle(plan: RunPlan) -> RunPlan:
    """The same run with what follows from its settings worked out anew.

    Raises:
        ValueError: a size is no whole number above zero.
    """
    settings = dict(plan.settings)
    width, num_layers = whole_number(settings, "width"), whole_number(settings, "num_layers")
    settings |= {
        "num_gradients": 2 * num_layers,  # a weight and a bias each
        "bytes_per_value": BYTES_PER_VALUE,
        "layer_bytes": BYTES_PER_VALUE * (width * width + width),
    }
    return replace(plan, settings=settings)


def _plan(**changed: Setting) -> RunPlan:
    return settle(RunPlan("train", 2, {**SETTINGS, **changed}))


RUNS = {
    "as_it_comes": _plan(),
    "small": _plan(bucket_cap_mib=1),
    "middling": _plan(bucket_cap_mib=4),
    "one_bucket": _plan(bucket_cap_mib=1000),
    "after_backward": _plan(overlaps=False),
}


def forecast(plan: RunPlan) -> Work:
    """A stack of equal layers, its gradients in buckets, or in one message after backward."""
    settings = plan.settings
    width, num_layers, rows = (
        whole_number(settings, name) for name in ("width", "num_layers", "batch_size")
    )
    model = num_layers * whole_number(settings, "layer_bytes")
    activation = BYTES_PER_VALUE * rows * width
    cap = settings["bucket_cap_mib"]
    assert isinstance(cap, int)
    whole_buckets = -(-model // (cap << 20)) if cap else 2
    overlaps = bool(settings["overlaps"])
    alone = stack_work([width] * (num_layers + 1), rows)
    peak = 3 * model + activation if overlaps else 4 * model
    return replace(
        alone,
        peak_bytes=peak + activation + 8 * rows,
        moved_bytes=alone.moved_bytes + (6 if overlaps else 8) * model,
        num_operations=alone.num_operations + 6 * num_layers,
        exchanges=(
            Exchange("all_reduce", model, whole_buckets if overlaps else 1, plan.world_size),
        ),
        num_busy_ranks=plan.world_size,
    )


CHOICES = (
    Choice(
        "overlap",
        "Is a step faster whose gradients leave during backward, or after it?",
        ("as_it_comes", "after_backward"),
    ),
    Choice(
        "bucket",
        "Is a step faster with buckets as DDP has them, or with small ones?",
        ("as_it_comes", "small"),
    ),
)


@dataclass
class _Seen:
    """What left in one backward pass: buckets in order, and gradients finished before each."""

    num_finished: int = 0
    bytes: list[int] = field(default_factory=list)
    num_gradients: list[int] = field(default_factory=list)
    finished_before: list[int] = field(default_factory=list)
    layers: list[str] = field(default_factory=list)


def train(rank: Rank) -> None:
    """Train on one batch; after the last step show which buckets it sent."""
    settings = rank.settings
    widths = (settings.width,) * (settings.num_layers + 1)
    ranks = [range(rank.world_size)] * settings.num_layers
    rank.describe(description(widths, ranks))
    with rank.phase("build"):
        torch.manual_seed(rank.seed)
        stack = perceptron(widths, device=rank.device)
    with rank.phase("wrap"):
        replica = DistributedDataParallel(stack, bucket_cap_mb=settings.bucket_cap_mib or None)
    optimizer = torch.optim.SGD(stack.parameters(), lr=settings.learning_rate)
    with rank.phase("rows"):
        source = torch.Generator().manual_seed(rank.seed + rank.rank)
        shape = (settings.batch_size, settings.width)
        features = torch.randn(shape, generator=source).to(rank.device)
        labels = torch.randint(0, settings.width, shape[:1], generator=source).to(rank.device)
        rank.rows(features, labels)
    rank.watch(stack, optimizer)
    seen = _Seen()
    if settings.overlaps:
        _listen(replica, seen)
    loss = 0.0
    for _ in rank.steps(settings.num_steps):
        _begin_again(seen)
        loss = _step(rank, replica, optimizer, features, labels)
    rank.epoch(1, loss=loss, num_samples=settings.batch_size, parameters=stack.parameters())
    if settings.overlaps:
        with rank.predict("buckets", "send buckets while backward runs", features) as out:
            out(features)
        _keep(rank, seen)


def _step(
    rank: Rank,
    replica: DistributedDataParallel,
    optimizer: torch.optim.Optimizer,
    features: Tensor,
    labels: Tensor,
) -> float:
    if rank.settings.overlaps:
        with rank.phase("forward"):
            loss = nn.functional.cross_entropy(replica(features), labels)
        with rank.phase("backward"):
            loss.backward()
    else:
        with replica.no_sync():
            with rank.phase("forward"):
                loss = nn.functional.cross_entropy(replica(features), labels)
            with rank.phase("backward"):
                loss.backward()
        with rank.phase("exchange", computes=False):
            _exchange(replica)
    with rank.phase("optimizer"):
        optimizer.step()
        optimizer.zero_grad()
    return loss.item()


def _exchange(model: nn.Module) -> None:
    """What DDP does, without the overlap: all gradients in one message, once backward is over."""
    gradients = [p.grad for p in model.parameters() if p.grad is not None]
    whole = torch.cat([g.reshape(-1) for g in gradients])
    dist.all_reduce(whole)
    whole /= dist.get_world_size()
    pieces = whole.split([g.numel() for g in gradients])
    for gradient, piece in zip(gradients, pieces, strict=True):
        gradient.copy_(piece.view_as(gradient))


def _listen(replica: DistributedDataParallel, seen: _Seen) -> None:
    """Count gradients as backward finishes them, and look at each bucket that leaves."""
    names = {id(p): name for name, p in replica.module.named_parameters()}

    def finished(_: Tensor) -> None:
        seen.num_finished += 1

    for parameter in replica.module.parameters():
        parameter.register_hook(finished)

    def leave(group: dist.ProcessGroup, bucket: GradBucket) -> torch.futures.Future[Tensor]:
        seen.bytes.append(bucket.buffer().nbytes)
        seen.num_gradients.append(len(bucket.parameters()))
        seen.finished_before.append(seen.num_finished)
        seen.layers.append(names[id(bucket.parameters()[0])])
        return allreduce_hook(group, bucket)

    replica.register_comm_hook(None, leave)


def _begin_again(seen: _Seen) -> None:
    seen.num_finished = 0
    for column in (seen.bytes, seen.num_gradients, seen.finished_before, seen.layers):
        column.clear()


def _keep(rank: Rank, seen: _Seen) -> None:
    """Keep what the last step sent, with the prediction step that is already there."""
    facts: dict[str, Setting] = {
        "bytes": seen.bytes,
        "num_gradients": seen.num_gradients,
        "num_finished_before": seen.finished_before,
        "first_parameters": seen.layers,
    }
    rank.outcome.prediction = [
        step.model_copy(update={"facts": facts}) for step in rank.outcome.prediction
    ]


STRATEGIES = {"train": train}
