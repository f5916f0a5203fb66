"""Four ranks, two of which communicate in a group of their own: the tests' own experiment."""

import torch
import torch.distributed as dist

from runners.declared.experiment import Declaration
from runners.meters.memory import MemoryMeter

QUESTION = "Which global ranks does an operation of a subgroup connect?"
MEMBERS = (1, 3)
NUM_VALUES = 250  # 1000 bytes


def grouped(rank):
    """Ranks 1 and 3 use every operation that has a root or a peer; rank 3 is the root."""
    group = dist.new_group(list(MEMBERS))
    with MemoryMeter() as meter:
        meter.counting = True
        if rank.rank in MEMBERS:
            _communicate(rank.rank, group)
        dist.all_reduce(torch.ones(NUM_VALUES))
    rank.outcome.collectives = meter.collective_list()


def _communicate(rank, group):
    tensor = torch.ones(NUM_VALUES)
    pair = [torch.ones(NUM_VALUES), torch.ones(NUM_VALUES)] if rank == 3 else None
    dist.broadcast(tensor, 3, group=group)
    dist.scatter(tensor, pair, 3, group=group)
    dist.gather(tensor, pair, 3, group=group)
    dist.reduce(tensor, 3, group=group)
    if rank == 1:
        dist.send(tensor, 3, group=group)
        dist.send(tensor, group=group, group_dst=1)
        dist.send(tensor, 3)
        dist.send(tensor, 3)
    else:
        dist.recv(tensor, 1, group=group)
        dist.recv(tensor, group=group, group_src=0)
        dist.recv(tensor, 1)
        dist.recv(tensor)  # from any rank


RUNS = {"grouped": Declaration("grouped", 4, passes=("timed",))}
