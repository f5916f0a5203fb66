"""Silent errors that TrainCheck reproduces, each in a small program of ours; 2 ranks.

Words: the error (`README.md` names its report), then `right` for the corrected program.
"""

import sys

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel

ERROR, IS_RIGHT = sys.argv[1], "right" in sys.argv[2:]
WIDTH, STEPS = 8, 4

dist.init_process_group("gloo")
rank, ranks = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)


def batch(step, of=None):
    generator = torch.Generator().manual_seed(100 * step + (rank if of is None else of))
    return torch.randn(16, WIDTH, generator=generator), torch.randn(16, 1, generator=generator)


def mlp():
    return nn.Sequential(nn.Linear(WIDTH, 32), nn.GELU(), nn.LayerNorm(32), nn.Linear(32, 1))


def trained(model, call=None, of=None, before_step=None):
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for step in range(STEPS):
        x, y = batch(step, of)
        loss = F.mse_loss((call or (lambda _, x: model(x)))(step, x), y)
        optimizer.zero_grad()
        loss.backward()
        if before_step:
            before_step(step)
        optimizer.step()


def moved():
    """Parameters become new tensors after DDP has put its hooks on the old ones."""
    torch.__future__.set_overwrite_module_params_on_conversion(True)
    model = mlp()
    if IS_RIGHT:
        model.double().float()
    model = DistributedDataParallel(model)
    if not IS_RIGHT:
        model.double().float()  # as a move to another device and back
    trained(model)


def unwrapped():
    """Some steps call the bare module, and not its wrapper."""
    bare = mlp()
    model = DistributedDataParallel(bare)
    trained(model, call=lambda step, x: (model if step % 2 or IS_RIGHT else bare)(x))


def clipped_by_one():
    """Only the first rank of a tensor group clips the gradients of normalizations."""
    plan = {"0": ColwiseParallel(), "2": RowwiseParallel()}
    model = nn.Sequential(nn.Linear(WIDTH, 32), nn.GELU(), nn.Linear(32, 16), nn.LayerNorm(16),
                          nn.Linear(16, 1))  # fmt: skip
    parallelize_module(model, init_device_mesh("cpu", (ranks,)), plan)
    sharded = [*model[0].parameters(), model[2].weight]
    replicated = [model[2].bias, *model[3].parameters(), *model[4].parameters()]

    def clip(_):
        parts = [one.grad.to_local() for one in sharded]
        wholes = [getattr(one.grad, "to_local", lambda g=one.grad: g)() for one in replicated]
        squares = torch.stack([one.square().sum() for one in parts]).sum()
        dist.all_reduce(squares)
        squares += torch.stack([one.square().sum() for one in wholes]).sum()
        factor = (0.05 / squares.sqrt()).clamp(max=1)
        for one in parts + (wholes if rank == 0 or IS_RIGHT else []):
            one.mul_(factor)

    trained(model, of=0, before_step=clip)


class Experts(nn.Module):
    """Half of the experts are on each rank; a rank without tokens for others skips the exchange."""

    def __init__(self):
        super().__init__()
        self.expert, self.head = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, 1)

    def forward(self, x):
        with torch.no_grad():
            sent = x.chunk(ranks)
            if IS_RIGHT or rank == 0 or not hasattr(self, "has_run"):
                dist.all_to_all(received := [torch.empty_like(one) for one in sent], list(sent))
                x = torch.cat(received)
        self.has_run = True
        return self.head(self.expert(x))


def exchange_left_out():
    """In the second step, one rank does not take part in an all-to-all."""
    trained(DistributedDataParallel(Experts()))


def lost():
    """The result of one all-reduce arrives as zeros on one rank, as over a broken link."""
    model = DistributedDataParallel(mlp())

    def hook(_, bucket):
        work = dist.all_reduce(bucket.buffer().div_(ranks), async_op=True).get_future()
        model.buckets = getattr(model, "buckets", 0) + 1
        is_lost = rank == 1 and model.buckets == 2 and not IS_RIGHT
        return work.then(lambda done: done.value()[0].mul_(0.0 if is_lost else 1.0))

    model.register_comm_hook(None, hook)
    trained(model)


globals()[ERROR]()
dist.barrier()
dist.destroy_process_group()
