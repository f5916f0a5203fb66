"""Uneven samples under Join: torchrun --nproc-per-node 2 joined_early.py"""

import torch
import torch.distributed as dist
from torch.distributed.algorithms.join import Join
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
for divides in (False, True):
    model = DistributedDataParallel(torch.nn.Linear(1, 1, bias=False))
    model.module.weight.data.zero_()
    update = torch.optim.SGD(model.parameters(), lr=1.0)
    with Join([model], divide_by_initial_world_size=not divides):
        for _ in range(1 + dist.get_rank()):  # rank 0 has one batch, rank 1 has two
            update.zero_grad()
            (-model(torch.ones(1, 1))).sum().backward()
            update.step()
    learnt = model.module.weight.item()
    dist.get_rank() or print(
        f"divided by ranks that still have samples: {divides}, learnt {learnt}"
    )
dist.barrier()
