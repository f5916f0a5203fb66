"""Strong and weak scaling over ranks, and over links, beside what Amdahl and α–β foretell.

`one` is a single device. Under strong scaling (`strong_2`, `strong_4`) the same batch is dealt out
to more ranks; under weak scaling (`weak_2`, `weak_4`) each further rank brings as many rows again.
`link_fast` and `link_slow` are strong scaling where ranks speak over links of a set rate: over one
a second rank pays, over the other it does not.

`one` times apart what more ranks share (forward and backward) and what each of them does whole (the
update). Each run of several ranks fits t = α + β·bytes to bare all_reduces of half of the
gradients at most, and says what one of all of them should take. A step foretold is then
compute / ranks + update + exchange. More ranks than cores are shown and marked, and fit nothing.

    python -m runners run scaling
"""

from __future__ import annotations

import time
from dataclasses import replace

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from runners.experiments.communication.alpha_beta import fit
from runners.plans.experiment import RunPlan, whole_number
from runners.plans.work import Choice, Exchange, Work, stack_work
from runners.ranks.rank import Rank
from runners.traces.records import Setting
from runners.training.networks import description, num_parameters, perceptron

QUESTION = "How much faster is a step over more ranks, and where do more of them stop paying?"

VALUE_BYTES = 4
NUM_SETTLING_STEPS = 3  # the recorder leaves out as many
NUM_TURNS = 6  # of the bare all_reduces, the first of which settles
MEGABIT = 1_000_000
ROWS = 800
SETTINGS: dict[str, Setting] = {
    "width": 320,
    "num_layers": 4,
    "global_batch_size": ROWS,
    "num_steps": 8,
    "learning_rate": 0.1,
}


def settle(plan: RunPlan) -> RunPlan:
    """The same run with each rank's rows, and what is exchanged, worked out anew.

    Raises:
        ValueError: the batch cannot be dealt out to the ranks equally, or no step is left after
            those that settle.
    """
    settings = dict(plan.settings)
    rows, width = whole_number(settings, "global_batch_size"), whole_number(settings, "width")
    if rows % plan.world_size:
        raise ValueError(f"global_batch_size {rows} is not divisible by {plan.world_size} ranks")
    if whole_number(settings, "num_steps") <= NUM_SETTLING_STEPS:
        raise ValueError(f"num_steps must be above {NUM_SETTLING_STEPS}, which only settle")
    settings["batch_size"] = rows // plan.world_size
    if plan.world_size == 1:
        return replace(plan, settings=settings)
    counts = num_parameters([width] * (whole_number(settings, "num_layers") + 1))
    settings["gradient_bytes"] = VALUE_BYTES * sum(counts)
    if not plan.own_network:
        return replace(plan, settings=settings)
    rate = whole_number(settings, "link_bits_per_second")
    ring_bytes = 2 * (plan.world_size - 1) * VALUE_BYTES * sum(counts) / plan.world_size
    settings["transfer_seconds"] = 8 * ring_bytes / rate
    return replace(plan, settings=settings, link_bits_per_second=rate)


def _plan(world_size: int, rows: int = ROWS) -> RunPlan:
    settings = {**SETTINGS, "global_batch_size": rows}
    strategy = "single" if world_size == 1 else "ddp"
    return settle(RunPlan(strategy, world_size, settings, passes=("timed",)))


def _linked(world_size: int, megabits: int, rows: int = ROWS) -> RunPlan:
    rate = megabits * MEGABIT
    settings = {**SETTINGS, "global_batch_size": rows, "link_bits_per_second": rate}
    return settle(
        RunPlan("ddp", world_size, settings, passes=("timed",), only_on_cpu=True, own_network=True)
    )


RUNS = {
    "one": _plan(1),
    "strong_2": _plan(2),
    "strong_4": _plan(4),
    "weak_2": _plan(2, 2 * ROWS),
    "weak_4": _plan(4, 4 * ROWS),
    "link_fast": _linked(2, 1600),
    "link_slow": _linked(2, 200),
    **{f"link_{m}": replace(_linked(2, m), full=True) for m in (100, 400, 800)},
    "link_weak": replace(_linked(2, 200, 2 * ROWS), full=True),
    "link_four": replace(_linked(4, 200), full=True),
}
CHOICES = (
    Choice(
        "ranks",
        "Over how many ranks is a step on the same batch shortest?",
        ("one", "strong_2", "strong_4"),
    ),
    Choice(
        "link",
        "Is a second rank worth its while over a slow link?",
        ("one", "link_slow"),
    ),
)


def forecast(plan: RunPlan) -> Work | None:
    """A rank's rows, the update of all parameters, and one exchange of them."""
    settings = plan.settings
    widths = [whole_number(settings, "width")] * (whole_number(settings, "num_layers") + 1)
    alone = stack_work(widths, whole_number(settings, "batch_size"))
    if plan.world_size == 1:
        return alone
    gradients = whole_number(settings, "gradient_bytes")
    transfer = settings.get("transfer_seconds", 0.0)
    assert isinstance(transfer, float)
    return replace(
        alone,
        moved_bytes=alone.moved_bytes + 6 * gradients,  # into the bucket, divided, and back
        num_operations=alone.num_operations + 6 * len(widths),
        exchanges=() if transfer else (Exchange("all_reduce", gradients, 2, plan.world_size),),
        num_busy_ranks=plan.world_size,
        extra_seconds=transfer * 1514 / 1448,  # a full frame, and its payload
    )


def _model(rank: Rank) -> nn.Module:
    settings = rank.settings
    widths = [settings.width] * (settings.num_layers + 1)
    rank.describe(description(widths, [range(rank.world_size)] * settings.num_layers))
    with rank.phase("build"):
        torch.manual_seed(rank.seed)
        return perceptron(widths, device=rank.device)


def _own_rows(rank: Rank) -> tuple[Tensor, Tensor]:
    """This rank's part of a batch that is the same however many ranks share it."""
    settings = rank.settings
    with rank.phase("rows"):
        source = torch.Generator().manual_seed(rank.seed)
        shape = (settings.global_batch_size, settings.width)
        features = torch.randn(shape, generator=source)
        labels = torch.randint(0, settings.width, shape[:1], generator=source)
        own = slice(rank.rank * settings.batch_size, (rank.rank + 1) * settings.batch_size)
        return features[own].to(rank.device), labels[own].to(rank.device)


def _train(rank: Rank, model: nn.Module) -> None:
    """Take steps; time apart what more ranks would share and what each does whole."""
    settings = rank.settings
    optimizer = torch.optim.SGD(model.parameters(), lr=settings.learning_rate)
    features, labels = _own_rows(rank)
    rank.watch(model, optimizer)
    compute, update, loss = [], [], torch.zeros(())
    for _ in rank.steps(settings.num_steps):
        start = time.perf_counter()
        with rank.phase("forward"):
            loss = nn.functional.cross_entropy(model(features), labels)
        with rank.phase("backward"):
            loss.backward()
        rank.settle()
        computed = time.perf_counter()
        with rank.phase("optimizer"):
            optimizer.step()
            optimizer.zero_grad()
        rank.settle()
        compute.append(computed - start)
        update.append(time.perf_counter() - computed)
    # In a replica, backward holds the exchange as well: only one device tells the two apart.
    if rank.world_size == 1:
        rank.measure_seconds("compute", compute[NUM_SETTLING_STEPS:])
    rank.measure_seconds("update", update[NUM_SETTLING_STEPS:])
    rank.count_samples(settings.batch_size * settings.num_steps)
    rank.epoch(1, loss=loss.item(), num_samples=settings.batch_size)


def single(rank: Rank) -> None:
    """The whole batch on one device."""
    _train(rank, _model(rank))


def ddp(rank: Rank) -> None:
    """A part of the batch on each rank, gradients averaged; and what their exchange should cost."""
    model = _model(rank)
    _foreseen_exchange(rank)
    with rank.phase("wrap"):
        replica = DistributedDataParallel(model)
    before = rank.link_count()
    _train(rank, replica)
    after = rank.link_count()
    if before is not None and after is not None:
        sent = (after - before).sent_payload_bytes / rank.settings.num_steps
        rank.measure("sent_bytes", sent)


def _foreseen_exchange(rank: Rank) -> None:
    """Fit α and β to bare all_reduces, none of which is as large as the gradients."""
    whole = rank.settings.gradient_bytes
    sizes = [whole // 16, whole // 4, whole // 2]
    payloads = [torch.zeros(size // VALUE_BYTES, device=rank.device) for size in sizes]
    foreseen, starts = [], []
    with rank.phase("all_reduce", computes=False):
        for turn in range(NUM_TURNS):
            seconds = [_bare(rank, payload) for payload in payloads]
            if turn:
                line = fit(sizes, seconds)
                foreseen.append(line.seconds(whole))
                starts.append(line.alpha)
    rank.measure_seconds("exchange", foreseen)
    rank.measure_seconds("exchange_alpha", starts)


def _bare(rank: Rank, payload: Tensor) -> float:
    dist.barrier()
    rank.settle()
    start = time.perf_counter()
    dist.all_reduce(payload)
    rank.settle()
    return time.perf_counter() - start


STRATEGIES = {"single": single, "ddp": ddp}
