"""Small trainings that ranks share in different ways, each a program of a rank.

They run on gloo ranks and, with fake tensors, as one simulated rank of many.
"""

import warnings
from contextlib import nullcontext
from types import SimpleNamespace

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint

from proofbook.runners.core.meters.collectives import tensors_in
from proofbook.runners.simulate.fake_mode import ValuelessMode
from proofbook.runners.simulate.meter import Meter
from proofbook.runners.simulate.processes import results
from proofbook.runners.simulate.stand_ins import simulating_rank

BATCH, NUM_STEPS, RING_VALUES = 16, 3, 4096
EVEN = [64, 96, 160, 32]
UNEVEN = [61, 97, 33, 7]  # no rank's share is another's


def layers(widths):
    return nn.Sequential(*map(nn.Linear, widths, widths[1:]))


def train(model, width, accumulates=nullcontext):
    """Two microbatches a step; `accumulates` is around the first."""
    optimizer = torch.optim.Adam(model.parameters())
    for _ in range(NUM_STEPS):
        for context in (accumulates, nullcontext):
            with context():
                model(torch.ones(BATCH, width)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()


def ddp(_):
    """Several buckets, which are built anew after the first step."""
    train(DistributedDataParallel(layers(EVEN), bucket_cap_mb=0.03), EVEN[0])


def accumulated(_):
    """As views of buckets, reduced with the last microbatch alone."""
    model = DistributedDataParallel(layers(EVEN), gradient_as_bucket_view=True)
    train(model, EVEN[0], model.no_sync)


def recomputed(_):
    class Recomputed(nn.Sequential):
        def forward(self, x):
            for layer in self:
                x = checkpoint(layer, x, use_reentrant=False)
            return x

    train(DistributedDataParallel(Recomputed(*layers(EVEN))), EVEN[0])


def fsdp(_, widths, **how):
    model = layers(widths)
    for layer in model:
        fully_shard(layer, **how)
    train(fully_shard(model, **how), widths[0])


def uneven(rank):
    fsdp(rank, UNEVEN)


def hsdp(rank):
    fsdp(rank, EVEN, mesh=init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicate", "shard")))


def ring(rank):
    """An all-reduce of n − 1 steps that sum and n − 1 that pass on."""
    parts = list(torch.ones(RING_VALUES).chunk(rank.world_size))
    for step in range(2 * (rank.world_size - 1)):
        given, taken = (parts[(rank.rank - step - one) % rank.world_size] for one in (0, 1))
        received = torch.empty_like(taken)
        sending = dist.isend(given, (rank.rank + 1) % rank.world_size)
        dist.recv(received, (rank.rank - 1) % rank.world_size)
        sending.wait()
        taken.add_(received) if step < rank.world_size - 1 else taken.copy_(received)


def seen_by_operations(rank, program):
    """Run a program under a meter that, as a simulation, counts what operations show."""
    rank.meter._look_around = lambda: None
    program(rank)


class GlooMeter(Meter):
    """Sees what gloo copies for a reduce-scatter, which it makes of an all-reduce of the whole."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name, copies = func.__name__.partition(".")[0], []
        if name in ("_reduce_scatter_base_", "reduce_scatter_tensor_coalesced_"):
            copies = [tensor.clone() for tensor in tensors_in(args[1])]
        for copy in copies:
            self._track(copy)
        return super().__torch_dispatch__(func, types, args, kwargs)


def simulated(program, world_size):
    given = [(program, world_size, rank) for rank in range(world_size)]
    return results(_log, given, lambda _, reason: reason, 2, "ranks simulated")


def _log(given):
    program, world_size, rank = given
    warnings.simplefilter("ignore")
    meshes = []
    with simulating_rank(rank, world_size, meshes), ValuelessMode(), GlooMeter(meshes) as meter:
        meter.counting = True
        dist.init_process_group()
        program(SimpleNamespace(rank=rank, world_size=world_size))
        return SimpleNamespace(
            peak_bytes=meter.memory(None).peak_bytes, calls=meter.calls(), flops=meter.flops
        )
