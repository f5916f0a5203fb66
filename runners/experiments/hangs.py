"""What really happens when ranks do not make the same calls, and what ends it.

Two ranks, and one mistake in each run. Some wait until a time-out of their group's own, some die,
and some end well with wrong sums. Who waits for whom is found in the flight recorder. Beside each
stands its repair.

    python -m runners run hangs
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from datetime import timedelta
from functools import partial
from itertools import zip_longest
from typing import Literal

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch._C import _distributed_c10d
from torch._C._distributed_c10d import DebugLevel, ProcessGroup, set_debug_level
from torch.distributed.algorithms.join import Join
from torch.nn.parallel import DistributedDataParallel

from proofbook.runners.api import Count, CountOrZero, Death, Declaration, Factor, RunSettings
from proofbook.runners.training.rank import Rank
from proofbook.runners.training.steps import of_all_ranks
from proofbook.runners.training.transfers import join_group


def ordered(rank: Rank[Ordered]) -> None:
    """Call two collectives, on rank 1 swapped if set so; record how many values are wrong."""
    settings = rank.settings
    operation = getattr(dist, settings.second_operation)
    root = (0,) if settings.second_operation == "broadcast" else ()
    first, second = (torch.full((settings.num_values,), x + rank.rank) for x in (1.0, 10.0))
    calls = [partial(dist.all_reduce, first), partial(operation, second, *root)]
    if settings.order == "swapped" and rank.rank == 1:
        calls.reverse()
    with diagnosed(rank) as group:
        for call in calls:
            with rank.phase("collective"):
                call(group=group)
    rank.measure("num_wrong_values", wrong(first, 3.0) + wrong(second, 10.0 if root else 21.0))


def stepped(rank: Rank[Stepped]) -> None:
    """Sum in each step; rank 1 skips the bad, or all if they vote; record how many were wrong."""
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
            num_wrong_steps += wrong(values, 20.0 * step + 1) > 0
            rank.measure("num_steps", num_steps)
            rank.measure("num_wrong_steps", num_wrong_steps)


def summed(rank: Rank[Summed]) -> None:
    """A sum of as many elements as the run says for each rank; no other."""
    values = torch.full((rank.settings.num_elements[rank.rank],), 1.0 + rank.rank)
    with diagnosed(rank) as group, rank.phase("collective"):
        dist.all_reduce(values, group=group)
    rank.measure("num_wrong_values", wrong(values, 3.0))


def shaped(rank: Rank[Shaped]) -> None:
    """Sum tables by all_reduce, with rows by rank as set; record how many values are wrong."""
    num_rows = rank.settings.num_rows[rank.rank]
    num_columns = rank.settings.num_rows[0] * rank.settings.num_columns // num_rows
    table = 100.0 * torch.arange(num_rows).view(-1, 1) + torch.arange(num_columns)
    right = 2 * table
    with diagnosed(rank) as group, rank.phase("collective"):
        dist.all_reduce(table, group=group)
    rank.measure("num_wrong_values", wrong(table, right))


def uneven(rank: Rank[Uneven]) -> None:
    """Build and train DDP replicas, rank 1's on fewer batches, `Join` if set; record steps."""
    width = rank.settings.width
    with diagnosed(rank) as group:
        torch.manual_seed(rank.seed)
        replica = DistributedDataParallel(nn.Linear(width, width), process_group=group)
        optimizer = torch.optim.SGD(replica.parameters(), lr=rank.settings.learning_rate)
        rank.watch(replica, optimizer)
        with Join([replica]) if rank.settings.joins else nullcontext():
            for index in rank.steps(rank.settings.num_batches[rank.rank]):
                with rank.phase("step"):
                    replica(torch.ones(4, width)).pow(2).mean().backward()
                    optimizer.step()
                    optimizer.zero_grad()
                rank.measure("num_steps", index + 1)


def in_flight(rank: Rank[InFlight]) -> None:
    """Sum async a tensor that rank 0 changes before or after its wait; record wrong values."""
    values = torch.ones(rank.settings.num_values)
    with diagnosed(rank) as group:
        if rank.rank == 1:
            dist.barrier()  # late on purpose: the first rank has gone on by now
        with rank.phase("collective"):
            work = dist.all_reduce(values, group=group, async_op=True)
        assert work is not None
        result = values
        if rank.rank == 0 and rank.settings.waits_first:
            dist.barrier()
            work.wait()
            result = values.clone()
            values.fill_(100.0)
        elif rank.rank == 0:
            values.fill_(100.0)
            dist.barrier()
        work.wait()
    rank.measure("num_wrong_values", wrong(result, 2.0))


def wrong(found: Tensor, right: float | Tensor) -> int:
    """How many values are not the right ones."""
    return int((found != right).sum())


# --- two groups over the same ranks: one that gives up after a while, and one to report in


@contextmanager
def diagnosed(rank: Rank[Settings]) -> Iterator[ProcessGroup]:
    """Yield a `ProcessGroup` with a time-out; then record where ranks' calls differ; re-raise."""
    os.environ["TORCH_FR_BUFFER_SIZE"] = "2000"  # calls that the flight recorder keeps
    if getattr(rank.settings, "checks_calls", False):
        set_debug_level(DebugLevel.DETAIL)
    join_group(rank.scratch / "talk", rank.rank, rank.world_size)
    group: ProcessGroup = dist.new_group(timeout=timedelta(seconds=rank.settings.timeout_seconds))
    dist.barrier()
    failure: RuntimeError | None = None
    try:
        yield group
    except RuntimeError as error:
        failure = error
    of_ranks = of_all_ranks(rank, (calls_in(group.group_name), failure is not None))
    made, failed = zip(*of_ranks, strict=True)
    first_apart, waiting, in_words = compare(made)
    rank.measure("num_calls", [len(calls) for calls in made])
    rank.measure("num_ranks_in_error", sum(failed))
    rank.measure("first_call_apart", first_apart)
    rank.measure("waiting_ranks", waiting if any(failed) else [])
    rank.measure("finding", in_words)
    rank.has_lost_peers = any(failed)
    if failure is not None:
        raise failure


def calls_in(group: str) -> list[str]:
    """Texts of this rank's calls in the named group, in order: operation and sizes, as recorded.

    On gloo the recorder knows what was called, and not whether it ended.
    """
    dump = json.loads(_distributed_c10d._dump_fr_trace_json())  # type: ignore[attr-defined]
    calls = []
    for call in sorted(dump["entries"], key=lambda call: call["collective_seq_id"]):
        operation = call["profiling_name"].partition(":")[2]
        sizes = ", ".join("×".join(map(str, size)) for size in call["input_sizes"])
        if call["process_group"][0] == group:
            calls.append(f"{operation} of {sizes}" if sizes else operation)
    return calls


def compare(by_rank: Sequence[Sequence[str]]) -> tuple[int, list[int], str]:
    """The first of the calls by rank that differs: (its number or 0, ranks that made it, words).

    A call that a rank never made differs too. The number is from 1, or 0 where none differs.
    """
    if not any(by_rank):
        return 0, [], "no call was let through"
    for number, here in enumerate(zip_longest(*by_rank), start=1):
        if here[0] == here[1]:
            continue
        there = [rank for rank, call in enumerate(here) if call is not None]
        if len(there) == 2:
            words = f"as call {number} rank 0 called {here[0]}; rank 1 called {here[1]}"
        else:
            words = (
                f"rank {there[0]} called {here[there[0]]} as call {number}; "
                f"rank {1 - there[0]} made {number - 1} calls and never this one"
            )
        return number, there, words
    return 0, [], "all ranks made the same calls in the same order"


QUESTION = (
    "When ranks do not make the same calls, what happens, which ranks wait, and what ends the wait?"
)
SOON = 1  # seconds: a mistake is ended soon
Pair = tuple[Count, Count]  # of each rank


class Settings(RunSettings):
    """Every group gives up after a while."""

    timeout_seconds: Count = 20  # a repaired run must not meet its end on a busy machine

    def check(self) -> None:
        """The mistakes and the right sums are those of two ranks."""
        if self.world_size != 2:
            raise ValueError(f"every run has two ranks, not {self.world_size}")


class Ordered(Settings):
    """Two collectives; the second rank calls them in this order."""

    num_values: Count = 1000
    second_operation: Literal["broadcast", "all_reduce"] = "broadcast"
    order: Literal["same", "swapped"] = "same"
    checks_calls: bool = False


class Stepped(Settings):
    """A sum a step; the second rank has nothing to give in the bad one."""

    num_values: Count = 1000
    num_steps: Count = 8
    bad_step: CountOrZero = 2
    asks_first: bool = False


class Summed(Settings):
    """A sum of as many elements on each rank."""

    num_elements: Pair


class Shaped(Settings):
    """A sum of tables; `num_columns` is of the first rank's."""

    num_rows: Pair
    num_columns: Count = 6


class Uneven(Settings):
    """Replicas with as many batches each."""

    num_batches: Pair = (6, 4)
    width: Count = 32
    learning_rate: Factor = 0.01
    joins: bool = False


class InFlight(Settings):
    """A sum whose tensor the first rank changes."""

    num_values: Count = 100000
    waits_first: bool = False


# The flight recorder has to be on before the first group is made, and what follows a mistake is
# the backend's own affair.
timed = partial(Declaration, passes=("timed",), needs_group=False, only_on_cpu=True)
# gloo aborts the process that receives more than it has memory for.
ABORTS = Death(rank=0, phase="collective", signal="SIGABRT")
SWAPPED = Ordered(order="swapped", timeout_seconds=SOON)
ALIKE = Ordered(order="swapped", second_operation="all_reduce")
CHECKED = Ordered(order="swapped", checks_calls=True)
LENGTHS = Summed(num_elements=(1000, 1001))
RUNS = {
    "order_swapped": timed("ordered", 2, SWAPPED, expected="deadlocked"),
    "order_swapped_alike": timed("ordered", 2, ALIKE),
    "order_swapped_checked": timed("ordered", 2, CHECKED, expected="failed"),
    "order_same": timed("ordered", 2, Ordered()),
    "step_skipped": timed("stepped", 2, Stepped(timeout_seconds=SOON), expected="deadlocked"),
    "step_agreed": timed("stepped", 2, Stepped(asks_first=True)),
    "lengths_differ": timed("summed", 2, LENGTHS, expected="died", expected_death=ABORTS),
    "lengths_same": timed("summed", 2, Summed(num_elements=(1000, 1000))),
    "shapes_differ": timed("shaped", 2, Shaped(num_rows=(2, 3))),
    "shapes_same": timed("shaped", 2, Shaped(num_rows=(2, 2))),
    "batches_uneven": timed("uneven", 2, Uneven(timeout_seconds=SOON), expected="deadlocked"),
    "batches_joined": timed("uneven", 2, Uneven(joins=True)),
    "changed_in_flight": timed("in_flight", 2, InFlight()),
    "changed_after_wait": timed("in_flight", 2, InFlight(waits_first=True)),
}
