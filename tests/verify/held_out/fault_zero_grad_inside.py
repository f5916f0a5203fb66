# fault: zero_grad is called for each microbatch, so an update sees only the last one
# cause: gradients of microbatches discarded
"""zero_grad inside the inner loop. After bytetriper/RAE#67, tatsu-lab/alpaca_farm#57."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
torch.manual_seed(0)
model = DistributedDataParallel(nn.Sequential(nn.Linear(6, 12), nn.ReLU(), nn.Linear(12, 2)))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
generator = torch.Generator().manual_seed(dist.get_rank())
grad_accum = 3
for step in range(12):
    x = torch.randn(4, 6, generator=generator)
    optimizer.zero_grad(set_to_none=True)
    loss = nn.functional.cross_entropy(model(x), (x.sum(1) > 0).long()) / grad_accum
    loss.backward()
    if (step + 1) % grad_accum == 0:
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
dist.destroy_process_group()
