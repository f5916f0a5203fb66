"""Two ranks that do not make the same calls: one mistake a strategy, and its repair."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.algorithms.join import Join
from torch.nn.parallel import DistributedDataParallel

from runners.experiments.hangs import InFlight, Ordered, Shaped, Stepped, Summed, Uneven
from runners.experiments.hangs.pair import diagnosed
from runners.ranks.rank import Rank


def ordered(rank: Rank[Ordered]) -> None:
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


def stepped(rank: Rank[Stepped]) -> None:
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


def summed(rank: Rank[Summed]) -> None:
    """A sum of as many elements as the run says for each rank; no other."""
    with diagnosed(rank) as group:
        values = torch.full((rank.settings.num_elements[rank.rank],), 1.0 + rank.rank)
        with rank.phase("collective"):
            dist.all_reduce(values, group=group)
        rank.measure("num_wrong", _num_wrong(values, 3.0))


def shaped(rank: Rank[Shaped]) -> None:
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


def uneven(rank: Rank[Uneven]) -> None:
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


def in_flight(rank: Rank[InFlight]) -> None:
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


def _num_wrong(found: Tensor, right: float | Tensor) -> int:
    return int((found != right).sum())


STRATEGIES = {
    "ordered": ordered,
    "stepped": stepped,
    "summed": summed,
    "shaped": shaped,
    "uneven": uneven,
    "in_flight": in_flight,
}
