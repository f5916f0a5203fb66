"""The update of Muon for matrices in shards: each shard alone, gathered on all, on one owner each.

torchrun --nproc-per-node 4 muon_of_shards.py
"""

import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor, Shard, init_device_mesh
from torch.distributed.tensor.debug import CommDebugMode

MATRICES, ROWS, COLUMNS, STEPS = 4, 64, 32, 5


def orthogonal(matrix):
    """Newton and Schulz: the singular values of a matrix are driven towards one."""
    flat = matrix.T / matrix.norm()
    for _ in range(STEPS):
        gram = flat @ flat.T
        flat = 3.4445 * flat + (-4.7750 * gram + 2.0315 * gram @ gram) @ flat
    return flat.T


def alone(shards):
    return torch.stack([orthogonal(one) for one in shards])


def gathered(shards):
    whole = torch.empty(size, *shards.shape)
    dist.all_gather_single(whole.flatten(0, 1), shards)
    return alone(whole.transpose(0, 1).flatten(1, 2)).chunk(size, 1)[rank]


def exchanged(parts):
    """One part for each rank goes out, and one of each rank arrives."""
    arrived = torch.empty_like(parts)
    dist.all_to_all_single(arrived, parts)
    return arrived


def owned(shards):
    """Rank 0 owns the first matrix, rank 1 the second, and so on."""
    mine = orthogonal(exchanged(shards).flatten(0, 1))
    return exchanged(mine.unflatten(0, (size, -1)).contiguous())


def of_torch(shards):
    """PyTorch's own, from zeros and at a rate of one, so that the new weights are the update."""
    gradients = [DTensor.from_local(one, mesh, [Shard(0)]) for one in shards]
    weights = [torch.nn.Parameter(torch.zeros_like(one)) for one in gradients]
    for weight, one in zip(weights, gradients, strict=True):
        weight.grad = one
    torch.optim.Muon(weights, lr=1, weight_decay=0, momentum=0, adjust_lr_fn="original").step()
    return -torch.stack([one.to_local() for one in weights]) / (ROWS / COLUMNS) ** 0.5


dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
mesh = init_device_mesh("cpu", (size,))
torch.set_default_dtype(torch.float64)
torch.manual_seed(0)
momenta = torch.randn(MATRICES, ROWS, COLUMNS)
right = alone(momenta).chunk(size, 1)[rank]
shards = momenta.chunk(size, 1)[rank].contiguous()  # some rows of each matrix
facts = {"matrix_bytes": momenta[0].nbytes, "gathered_sent_bytes": shards.nbytes * (size - 1)}
facts["owned_sent_bytes"] = 2 * shards.nbytes * (size - 1) // size
for way in (alone, gathered, owned, of_torch):
    with CommDebugMode() as counted:
        update = way(shards)
    facts[f"{way.__name__}_apart"] = ((update - right).norm() / right.norm()).item()
    facts[f"{way.__name__}_calls"] = counted.get_total_counts()
report = [None] * size
dist.all_gather_object(report, facts)
if rank == 0:
    print(*(f"{name}: {round(fact, 6)}" for name, fact in facts.items()), sep="\n")
dist.destroy_process_group()
