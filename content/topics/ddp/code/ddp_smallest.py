"""torchrun --nproc-per-node 2 ddp_smallest.py"""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
rank, report = dist.get_rank(), [None] * dist.get_world_size()
torch.manual_seed(rank)
layer = torch.nn.Linear(1, 1, bias=False)
weight = layer.weight
shown = {"built": weight.item()}
model = DistributedDataParallel(layer)
shown["wrapped"] = weight.item()
sample = torch.tensor([[1.0 + rank]])
loss = (model(sample) - 3 * sample).square().mean()
shown["alone"] = torch.autograd.grad(loss, weight, retain_graph=True)[0].item()
loss.backward()
shown["averaged"] = weight.grad.item()
torch.optim.SGD(model.parameters(), lr=0.1).step()
dist.all_gather_object(report, {**shown, "updated": weight.item()})
if rank == 0:
    for name in report[0]:
        print(f"{name:>8}: " + ", ".join(f"{one[name]:8.4f}" for one in report))
dist.barrier()
