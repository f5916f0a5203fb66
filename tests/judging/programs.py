"""Programs of a rank that the tests of the judge run."""

import os
import signal
import time

import numpy as np
import torch
import torch.distributed as dist
from torch.distributed._functional_collectives import all_gather_tensor

SIZE = 4096


def whole_gradient(rank, world_size, dtype=torch.float32):
    """The gradient of a rank's shard, of numbers that no sum represents exactly."""
    generator = torch.Generator().manual_seed(rank)
    return torch.randn(SIZE, generator=generator, dtype=torch.float64).to(dtype)


def mean(world_size):
    def one(dtype):
        parts = [whole_gradient(rank, world_size, dtype) for rank in range(world_size)]
        return {"gradient": torch.stack(parts).mean(0)}

    return one


def averaged(rank, factor=1.0):
    gradient = whole_gradient(rank.rank, rank.world_size)
    dist.all_reduce(gradient)
    return {"gradient": factor * gradient / rank.world_size}


def scattered(rank):
    gradient = whole_gradient(rank.rank, rank.world_size)
    own = torch.empty(SIZE // rank.world_size)
    with rank.metered():
        dist.reduce_scatter_tensor(own, gradient)
        gathered = torch.empty(SIZE)
        own /= rank.world_size
        dist.all_gather_into_tensor(gathered, own)
    return {"gradient": own}


def gathered_by_return(rank):
    """An operation that returns the whole, as DTensor calls it."""
    own = whole_gradient(rank.rank, rank.world_size).chunk(rank.world_size)[rank.rank]
    whole = all_gather_tensor(own.contiguous(), 0, dist.group.WORLD)
    return {"length": torch.tensor([len(whole)])}


def forgetful(rank):
    return {"other": averaged(rank)["gradient"]}


def raises_on_the_last(rank):
    if rank.rank == rank.world_size - 1:
        raise ValueError("no samples left")
    dist.barrier()


def one_never_comes(rank):
    if rank.rank == 0:
        dist.all_reduce(torch.ones(4))
    else:
        time.sleep(600)


def dies(rank):
    if rank.rank == 1:
        os.kill(os.getpid(), signal.SIGSEGV)
    dist.barrier()


def dies_after_seconds(rank):
    if rank.rank == 1:
        time.sleep(2)  # less than a hang takes, and longer than ranks settle
        os.kill(os.getpid(), signal.SIGSEGV)
    dist.all_reduce(torch.ones(4))


def holds(rank, num_elements):
    kept = torch.ones(num_elements)
    with rank.metered():
        twice = kept * 2
        del twice
        return {"sum": (kept * 3).sum()}


def read_too_early(rank):
    rank.come_late([0.2, 0.2])
    total, read = torch.ones(SIZE), []
    for _ in range(2):
        started = dist.all_reduce(total, async_op=True)
        read.append(total[0].clone())
        started.wait()
    return {"awaited": total, "read": torch.stack(read)}


def leaves_things_behind(rank, is_careful):
    inputs = torch.ones(SIZE)
    model = torch.nn.Linear(2, 2)
    with rank.metered({"inputs": inputs}, trained={"model": model}):
        if not is_careful:
            KEPT.append(inputs * 2)
            inputs.add_(1).requires_grad_()
            model.eval()
            dist.barrier()
            dist.new_group()
            dist.all_gather_object([None] * rank.world_size, "of mine")
        with torch.no_grad():
            model.weight.zero_()


def keeps_what_no_operation_shows(rank, kind):
    make = {
        "array": lambda: np.ones(SIZE),
        "shared": lambda: torch.from_numpy(np.ones(SIZE)),
        "list": lambda: [0.0] * SIZE,
        "state": torch.get_rng_state,
        "parameter": lambda: torch.nn.Parameter(torch.from_numpy(np.ones(SIZE))),
    }[kind]
    with rank.metered():
        KEPT.append(make())
        before = [np.ones(SIZE), torch.ones(SIZE)]
        before[1].add_(1)
        del before


def prints_without_end(rank):
    for line in range(100_000):
        print(f"line {line}")  # noqa: T201


KEPT = []
