"""Half the samples each, and one device on all: torchrun --nproc-per-node 2 same_as_one.py"""

import copy

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
torch.manual_seed(0)
samples, targets, alone = torch.randn(64, 8), torch.randn(64, 1), torch.nn.Linear(8, 1)
replica, own = DistributedDataParallel(copy.deepcopy(alone)), slice(dist.get_rank(), None, 2)
for model, part in ((alone, slice(None)), (replica, own)):
    update = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(50):
        update.zero_grad()
        (model(samples[part]) - targets[part]).square().mean().backward()
        update.step()
apart = (replica.module.weight - alone.weight).norm().item()
dist.all_gather_object(gathered := [0, 0], (apart, replica.module.weight.tolist()))
if dist.get_rank() == 0:
    print(f"replicas equal: {gathered[0][1] == gathered[1][1]}, from one device {apart:.0e}")
dist.barrier()
