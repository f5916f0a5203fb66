"""FSDP: which ranks see an infinite number of the gradient, by themselves and together.

torchrun --nproc-per-node 2 skip_agreed.py
"""

import time

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard

dist.init_process_group("gloo")
model = nn.Linear(8, 8, bias=False)
fully_shard(model)  # each rank has rows of the weight
outputs = model(torch.full((4, 8), 1e30))
(1e30 * outputs[:, 0]).sum().backward()  # the gradient of the first row overflows

own = torch.tensor(float(not model.weight.grad.to_local().isfinite().all()))
agreed = own.clone()
dist.all_reduce(agreed, dist.ReduceOp.MAX)
report = [None] * dist.get_world_size()
dist.all_gather_object(report, {"own": int(own), "agreed": int(agreed)})
if dist.get_rank() == 0:
    print(f"ranks that would skip by themselves {[of['own'] for of in report]}")
    print(f"ranks that skip by the maximum      {[of['agreed'] for of in report]}")
dist.barrier()
time.sleep(0.1)  # let gloo's threads finish; ending at once can hang
dist.destroy_process_group()
