"""What really happens when ranks do not make the same calls, and what ends it.

Two ranks, and one mistake in each run: another order of collectives, a step that one rank skips, a
shape that differs, fewer batches on one rank, a tensor changed while it is on its way. Some wait
until a time-out of their group's own, some die, and some end well with wrong sums. Who waits for
whom is found in the flight recorder. Beside each stands its repair.

    python -m runners run hangs
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import nullcontext

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.algorithms.join import Join
from torch.nn.parallel import DistributedDataParallel

from runners.experiments._hangs_pair import diagnosed
from runners.plans.experiment import RunPlan, whole_number
from runners.ranks.rank import Rank
from runners.traces.records import Death, Setting, Status

QUESTION = "When ranks do not make the same calls, what happens, who waits, and what ends it?"

# A mistake is ended soon; a repaired run needs no end, and must not meet one on a busy machine.
SOON_SECONDS, LATE_SECONDS = 1, 20
COUNTS = ("timeout_seconds", "num_values", "num_steps", "width", "num_columns")
PAIRS = ("num_batches", "num_elements", "num_rows")
ORDERS = ("same", "swapped")
SECONDS = ("broadcast", "all_reduce")


def settle(plan: RunPlan) -> RunPlan:
    """The same run.

    Raises:
        ValueError: a setting is impossible.
    """
    settings = plan.settings
    for name in COUNTS:
        if name in settings:
            whole_number(settings, name)
    for name in PAIRS:
        if name in settings and not _is_pair(settings[name]):
            raise ValueError(f"{name} must hold a whole number above zero for each of two ranks")
    for name, allowed in (("order", ORDERS), ("second_operation", SECONDS)):
        if settings.get(name, allowed[0]) not in allowed:
            raise ValueError(f"{name} must be one of {', '.join(allowed)}")
    if plan.strategy == "shaped":
        _check_shapes(settings)
    return plan


def _check_shapes(settings: Mapping[str, Setting]) -> None:
    rows, columns = settings["num_rows"], whole_number(settings, "num_columns")
    assert isinstance(rows, list)
    if int(rows[0]) * columns % int(rows[1]):
        raise ValueError(f"{rows[0]} rows of num_columns {columns} do not go into {rows[1]} rows")


def _is_pair(value: Setting) -> bool:
    if not isinstance(value, list) or len(value) != 2:
        return False
    return all(isinstance(one, int) and one > 0 for one in value)


def _plan(
    strategy: str,
    settings: dict[str, Setting],
    expected: Status = "completed",
    expected_death: Death | None = None,
) -> RunPlan:
    ends_soon = expected == "deadlocked"
    return settle(
        RunPlan(
            strategy,
            2,
            {"timeout_seconds": SOON_SECONDS if ends_soon else LATE_SECONDS, **settings},
            expected=expected,
            expected_death=expected_death,
            passes=("timed",),
            needs_group=False,  # the flight recorder has to be on before the first group is made
            has_timeline=False,
            only_on_cpu=True,  # what follows a mistake is the backend's own affair
        )
    )


_SAME: dict[str, Setting] = {
    "num_values": 1000,
    "second_operation": "broadcast",
    "order": "same",
    "checks_calls": False,
}
_SWAPPED: dict[str, Setting] = {**_SAME, "order": "swapped"}
_ALIKE: dict[str, Setting] = {**_SWAPPED, "second_operation": "all_reduce"}
_SKIPPED: dict[str, Setting] = {
    "num_values": 1000,
    "num_steps": 8,
    "bad_step": 2,
    "asks_first": False,
}
_UNEVEN: dict[str, Setting] = {
    "num_batches": [6, 4],
    "width": 32,
    "learning_rate": 0.01,
    "joins": False,
}
_CHANGED: dict[str, Setting] = {"num_values": 100000, "waits_first": False}
# gloo aborts the process that receives more than it has memory for.
_ABORTS = Death(rank=0, phase="collective", signal="SIGABRT")

RUNS = {
    "order_swapped": _plan("ordered", _SWAPPED, "deadlocked"),
    "order_swapped_alike": _plan("ordered", _ALIKE),
    "order_swapped_checked": _plan("ordered", {**_SWAPPED, "checks_calls": True}, "failed"),
    "order_same": _plan("ordered", _SAME),
    "step_skipped": _plan("stepped", _SKIPPED, "deadlocked"),
    "step_agreed": _plan("stepped", {**_SKIPPED, "asks_first": True}),
    "lengths_differ": _plan("summed", {"num_elements": [1000, 1001]}, "died", _ABORTS),
    "lengths_same": _plan("summed", {"num_elements": [1000, 1000]}),
    "shapes_differ": _plan("shaped", {"num_rows": [2, 3], "num_columns": 6}),
    "shapes_same": _plan("shaped", {"num_rows": [2, 2], "num_columns": 6}),
    "batches_uneven": _plan("uneven", _UNEVEN, "deadlocked"),
    "batches_joined": _plan("uneven", {**_UNEVEN, "joins": True}),
    "changed_in_flight": _plan("in_flight", _CHANGED),
    "changed_after_wait": _plan("in_flight", {**_CHANGED, "waits_first": True}),
}


def _num_wrong(found: Tensor, right: float | Tensor) -> int:
    return int((found != right).sum())


def ordered(rank: Rank) -> None:
    """Two collectives, which the second rank calls in the order of the run."""
    settings = rank.settings
    summed = torch.full((settings.num_values,), 1.0 + rank.rank)
    second = torch.full((settings.num_values,), 10.0 + rank.rank)
    with diagnosed(rank) as group:
        calls: list[Callable[[], object]] = [
            lambda: dist.all_reduce(summed, group=group),
            (lambda: dist.broadcast(second, 0, group=group))
            if settings.second_operation == "broadcast"
            else (lambda: dist.all_reduce(second, group=group)),
        ]
        if settings.order == "swapped" and rank.rank == 1:
            calls.reverse()
        for call in calls:
            with rank.phase("collective"):
                call()
    right = 10.0 if settings.second_operation == "broadcast" else 21.0
    rank.measure("num_wrong", _num_wrong(summed, 3.0) + _num_wrong(second, right))


def stepped(rank: Rank) -> None:
    """A sum a step; in one step the second rank has nothing to give, and goes on to the next."""
    settings = rank.settings
    num_wrong_steps = num_steps = 0
    with diagnosed(rank) as group:
        for step in rank.steps(settings.num_steps):
            is_good = not (rank.rank == 1 and step == settings.bad_step)
            if settings.asks_first:
                votes = torch.tensor(int(is_good))
                dist.all_reduce(votes, dist.ReduceOp.MIN, group=group)
                is_good = bool(votes)
            if not is_good:
                continue
            values = torch.full((settings.num_values,), 10.0 * step + rank.rank)
            with rank.phase("collective"):
                dist.all_reduce(values, group=group)
            num_steps += 1
            num_wrong_steps += _num_wrong(values, 20.0 * step + 1) > 0
            rank.measure("num_steps", num_steps)
            rank.measure("num_wrong_steps", num_wrong_steps)


def summed(rank: Rank) -> None:
    """A sum of as many elements as the run says for each rank; no other."""
    with diagnosed(rank) as group:
        values = torch.full((rank.settings.num_elements[rank.rank],), 1.0 + rank.rank)
        with rank.phase("collective"):
            dist.all_reduce(values, group=group)
        rank.measure("num_wrong", _num_wrong(values, 3.0))


def shaped(rank: Rank) -> None:
    """A sum of tables with as many elements on each rank, in as many rows as the run says."""
    settings = rank.settings
    num_columns = settings.num_rows[0] * settings.num_columns // settings.num_rows[rank.rank]
    row, column = torch.meshgrid(
        torch.arange(settings.num_rows[rank.rank]), torch.arange(num_columns), indexing="ij"
    )
    table = (100.0 * row + column).contiguous()
    right = 2 * table
    with diagnosed(rank) as group, rank.phase("collective"):
        dist.all_reduce(table, group=group)
    rank.measure("num_elements", table.numel())
    rank.measure("num_wrong", _num_wrong(table, right))


def uneven(rank: Rank) -> None:
    """Replicas, of which the second has fewer batches."""
    settings = rank.settings
    with diagnosed(rank) as group:
        torch.manual_seed(rank.seed)
        replica = DistributedDataParallel(
            nn.Linear(settings.width, settings.width), process_group=group
        )
        optimizer = torch.optim.SGD(replica.parameters(), lr=settings.learning_rate)
        rank.watch(replica, optimizer)
        num_batches = settings.num_batches[rank.rank]
        with Join([replica]) if settings.joins else nullcontext():
            for index in rank.steps(num_batches):
                with rank.phase("step"):
                    replica(torch.ones(4, settings.width)).pow(2).mean().backward()
                    optimizer.step()
                    optimizer.zero_grad()
                rank.measure("num_steps", index + 1)


def in_flight(rank: Rank) -> None:
    """A sum that is started and not waited for, while the first rank goes on with its tensor."""
    values = torch.ones(rank.settings.num_values)
    with diagnosed(rank) as group:
        if rank.rank == 1:
            dist.barrier()  # late on purpose: the first rank has gone on by now
        with rank.phase("collective"):
            work = dist.all_reduce(values, group=group, async_op=True)
        assert work is not None
        if rank.rank == 0 and rank.settings.waits_first:
            dist.barrier()
            work.wait()
        sent = values.clone() if rank.rank == 0 and rank.settings.waits_first else values
        if rank.rank == 0:
            values.fill_(100.0)
            if not rank.settings.waits_first:
                dist.barrier()
        work.wait()
    rank.measure("num_elements", sent.numel())
    rank.measure("num_wrong", _num_wrong(sent, 2.0))


STRATEGIES = {
    "ordered": ordered,
    "stepped": stepped,
    "summed": summed,
    "shaped": shaped,
    "uneven": uneven,
    "in_flight": in_flight,
}
