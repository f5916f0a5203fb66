"""Which global ranks an operation connects, as the meter saw it in a subgroup."""

import pytest
import torch
import torch.distributed as dist
from torch.distributed._functional_collectives import all_gather_tensor

from proofbook.runners.core.trace.measured import Transfer
from tests.judged import judged

MEMBERS = [1, 3]
BYTES = 1000  # of each tensor


def made():
    return torch.ones(BYTES // 4)


def grouped(rank):
    """Ranks 1 and 3 use every operation that has a root or a peer; rank 3 is the root."""
    group = dist.new_group(MEMBERS)
    rank.meter.counting = True
    if rank.rank in MEMBERS:
        pair = [made(), made()] if rank.rank == 3 else None
        dist.broadcast(made(), 3, group=group)
        dist.scatter(made(), pair, 3, group=group)
        dist.gather(made(), pair, 3, group=group)
        dist.reduce(made(), 3, group=group)
    if rank.rank == 1:
        dist.send(made(), 3, group=group)
        dist.send(made(), group=group, group_dst=1)
        dist.send(made(), 3)
        dist.send(made(), 3)
    elif rank.rank == 3:
        dist.recv(made(), 1, group=group)
        dist.recv(made(), group=group, group_src=0)
        dist.recv(made(), 1)
        dist.recv(made())  # from any rank
    dist.all_reduce(made())
    found = rank.meter.collective_list()
    by_operation = {one.operation: one.transfers for one in found}
    totals = {one.operation: (one.count, one.bytes) for one in found}
    return by_operation | {"totals": totals, "largest": rank.meter.largest_collective_bytes}


def transfer(source, destination, num_bytes, count=1):
    return Transfer(source=source, destination=destination, count=count, bytes=num_bytes)


@pytest.mark.ranks
def test_operations_in_a_subgroup_name_the_global_ranks_that_they_connect():
    """The source of what is received from any rank stays unknown."""
    ranks = [one.returned for one in judged(grouped, 4)]
    for rank, whole in ((1, BYTES), (3, 2 * BYTES)):
        assert ranks[rank]["broadcast"] == [transfer(3, None, BYTES)]
        assert ranks[rank]["scatter"] == [transfer(3, None, whole)]
        assert ranks[rank]["gather"] == [transfer(None, 3, whole)]
        assert ranks[rank]["reduce"] == [transfer(None, 3, BYTES)]
    assert ranks[1]["send"] == [transfer(1, 3, 4 * BYTES, count=4)]
    assert ranks[3]["recv"] == [transfer(None, 3, BYTES), transfer(1, 3, 3 * BYTES, count=3)]
    assert ranks[3]["totals"]["recv"] == (4, 4 * BYTES)
    assert ranks[0]["totals"] == {"all_reduce": (1, BYTES)}
    # The largest collective is the scatter of its root, and not the last.
    assert [one["largest"] for one in ranks] == [BYTES, BYTES, BYTES, 2 * BYTES]


def gathered(rank):
    """An all_gather and a reduce_scatter of one whole; a functional all_gather comes last."""
    rank.meter.counting = True
    parts = [made() for _ in range(rank.world_size)]
    whole = torch.cat(parts)
    dist.all_gather(parts, made())
    dist.all_gather_into_tensor(whole, made())
    dist.reduce_scatter_tensor(made(), whole)
    found = {one.operation: one.bytes for one in rank.meter.collective_list()}
    all_gather_tensor(made(), 0, dist.group.WORLD).wait()
    return found, rank.meter.collective_list()[0].bytes - found["all_gather"]


@pytest.mark.ranks
def test_bytes_are_the_larger_side_of_a_call_and_what_goes_into_a_functional_one():
    whole = 3 * BYTES
    expected = {"all_gather": 2 * whole, "reduce_scatter": whole}, BYTES
    assert [one.returned for one in judged(gathered, 3)] == [expected] * 3
