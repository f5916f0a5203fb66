"""Two ranks that reduce until they are ended: tests end a rank, a launcher, a node, or a link.

`brief` comes first, so that a run has ended by then.
"""

import torch
import torch.distributed as dist

from proofbook.runners.core.declared.experiment import Declaration

QUESTION = "What do the other nodes say when one is lost?"


def brief(rank):
    """One all_reduce."""
    tensor = torch.ones(4)
    dist.all_reduce(tensor)
    rank.epoch(1, loss=tensor[0].item(), num_samples=1)


def endless(rank):
    """Reduces until it is ended."""
    while True:
        rank.step_index += 1
        with rank.phase("all_reduce"):
            dist.all_reduce(torch.ones(1))


RUNS = {
    "brief": Declaration("brief", 2, passes=("timed",)),
    "endless": Declaration("endless", 2, passes=("timed",)),
}
