"""What collectives cost: time by size and by ranks, and the bytes that each really sends.

`ranks_2`, `ranks_3` and `ranks_4` time each operation over payloads that grow by large steps, and
fit t = α + β·bytes to the raw samples of every turn; residuals are what the fit to the medians
leaves at each size. `wire_2` to `wire_4` run the same operations with each rank in a network of its
own, and read the kernel's counters of its link: headers are taken off by the frame
(`runners/meters/link.py`), so what is left is what the backend itself put on the wire.

The size of an operation is that of the whole: what `all_gather` ends with on each rank, what
`reduce_scatter` starts from, what the root of a `broadcast` has.

    python -m runners run communication
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import replace

import torch
import torch.distributed as dist
from torch import Tensor

from runners.experiments._alpha_beta import fit
from runners.plans.experiment import RunPlan, whole_number
from runners.plans.work import Choice, Exchange, Work
from runners.ranks.rank import Rank
from runners.traces.records import Setting

QUESTION = "What does each collective cost in time, and what does it really send?"

VALUE_BYTES = 4
WORLD_SIZES = (2, 3, 4)
# Divisible by two, three and four ranks' shares of four-byte values.
SIZES = [3 << 10, 48 << 10, 768 << 10, 3 << 20]
WIRE_SIZES = [768 << 10, 3 << 20]
SETTINGS: dict[str, Setting] = {"num_turns": 8, "num_steps": 12}
OPERATIONS = ("all_reduce", "reduce_scatter", "all_gather", "broadcast", "all_to_all")


def settle(plan: RunPlan) -> RunPlan:
    """The same run with its largest payload named.

    Raises:
        ValueError: there are no two sizes, or one cannot be dealt out to the ranks.
    """
    settings = dict(plan.settings)
    sizes = settings["sizes_bytes"]
    if not isinstance(sizes, list) or len({s for s in sizes if isinstance(s, int) and s > 0}) < 2:
        raise ValueError("sizes_bytes must list two or more sizes in bytes, such as 3072,3145728")
    share = plan.world_size * VALUE_BYTES
    for size in sizes:
        if not isinstance(size, int) or size % share:
            raise ValueError(
                f"a size of {size} bytes cannot be dealt out to {plan.world_size} ranks"
            )
    if plan.strategy == "timed":
        whole_number(settings, "num_turns")
        whole_number(settings, "num_steps")
    settings["largest_bytes"] = max(int(s) for s in sizes)
    return replace(plan, settings=settings)


def _plans() -> dict[str, RunPlan]:
    plans: dict[str, RunPlan] = {}
    for world_size in WORLD_SIZES:
        timed = {**SETTINGS, "sizes_bytes": SIZES}
        plans[f"ranks_{world_size}"] = RunPlan(
            "timed", world_size, timed, passes=("timed",), can_share_device=False
        )
    for world_size in WORLD_SIZES:
        plans[f"wire_{world_size}"] = RunPlan(
            "counted",
            world_size,
            {"sizes_bytes": WIRE_SIZES},
            passes=("timed",),
            only_on_cpu=True,
            own_network=True,
        )
    return {name: settle(plan) for name, plan in plans.items()}


RUNS = _plans()
CHOICES = (
    Choice(
        "ranks",
        "Over how many ranks is an all_reduce of the largest payload fastest?",
        ("ranks_2", "ranks_3", "ranks_4"),
    ),
)


def forecast(plan: RunPlan) -> Work | None:
    """One step is one all_reduce of the largest payload; where bytes are counted, there is none."""
    if plan.strategy != "timed":
        return None
    exchange = Exchange(
        "all_reduce", whole_number(plan.settings, "largest_bytes"), num_ranks=plan.world_size
    )
    # Besides it nothing is computed: zeros are added.
    return Work(num_operations=1, exchanges=(exchange,), num_busy_ranks=plan.world_size)


def _operations(whole: Tensor, world_size: int) -> dict[str, Callable[[], object]]:
    """Each operation over a payload, ready to be called."""
    share = torch.empty_like(whole[: whole.numel() // world_size])
    other = torch.empty_like(whole)
    return {
        "all_reduce": lambda: dist.all_reduce(whole),
        "reduce_scatter": lambda: dist.reduce_scatter_tensor(share, whole),
        "all_gather": lambda: dist.all_gather_into_tensor(other, share),
        "broadcast": lambda: dist.broadcast(whole, 0),
        "all_to_all": lambda: dist.all_to_all_single(other, whole),
    }


def _payload(rank: Rank, num_bytes: int) -> Tensor:
    """Zeros, so that sums stay finite however often they are taken."""
    return torch.zeros(num_bytes // VALUE_BYTES, device=rank.device)


def timed(rank: Rank) -> None:
    """Steps of one all_reduce; then every operation at every size, in turns; then the fits."""
    settings = rank.settings
    largest = _payload(rank, settings.largest_bytes)
    for _ in rank.steps(settings.num_steps):
        with rank.phase("all_reduce", computes=False):
            dist.all_reduce(largest)
    payloads = {size: _payload(rank, size) for size in settings.sizes_bytes}
    calls = {size: _operations(payload, rank.world_size) for size, payload in payloads.items()}
    for operation in OPERATIONS:
        with rank.phase(operation, computes=False):
            _timed_operation(rank, operation, {size: calls[size][operation] for size in calls})


def _timed_operation(rank: Rank, operation: str, calls: dict[int, Callable[[], object]]) -> None:
    """Raw samples of one operation at each size, and what fits them: one fit a turn."""
    taken: dict[int, list[float]] = {size: [] for size in calls}
    for turn in range(rank.settings.num_turns + 1):
        for size, call in calls.items():
            seconds = _seconds(rank, call)
            if turn:  # the first finds cold caches and connections that have not grown yet
                taken[size].append(seconds)
    for size, samples in taken.items():
        rank.measure_seconds(f"{operation}_{size}", samples)
    fits = [fit(list(calls), turn) for turn in zip(*taken.values(), strict=True)]
    rank.measure_seconds(f"{operation}_alpha", [f.alpha for f in fits])
    rank.measure_seconds(f"{operation}_beta_a_mebibyte", [f.beta * (1 << 20) for f in fits])
    medians = [statistics.median(samples) for samples in taken.values()]
    whole = fit(list(calls), medians)
    residuals = [m - whole.seconds(size) for size, m in zip(calls, medians, strict=True)]
    rank.measure_seconds(f"{operation}_residual", residuals)


def _seconds(rank: Rank, call: Callable[[], object]) -> float:
    """One call, from when all ranks are ready to when this rank has its result."""
    dist.barrier()
    rank.settle()
    start = time.perf_counter()
    call()
    rank.settle()
    return time.perf_counter() - start


def counted(rank: Rank) -> None:
    """Every operation at every size, once, between two readings of this rank's link."""
    for size in rank.settings.sizes_bytes:
        calls = _operations(_payload(rank, size), rank.world_size)
        for operation in OPERATIONS:
            with rank.phase(operation, computes=False):
                _count(rank, f"{operation}_{size}", calls[operation])


def _count(rank: Rank, name: str, call: Callable[[], object]) -> None:
    """Count what one call sends and receives, while no other call is on its way."""
    before = rank.link_count()
    call()
    after = rank.link_count()
    assert before is not None
    assert after is not None
    passed = after - before
    rank.measure(f"{name}_sent_bytes", passed.sent_payload_bytes)
    rank.measure(f"{name}_received_bytes", passed.received_payload_bytes)
    rank.measure(f"{name}_headers_bytes", passed.sent_bytes - passed.sent_payload_bytes)


STRATEGIES = {"timed": timed, "counted": counted}
