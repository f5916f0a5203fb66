# right: GradScaler that unscales before the clipping, with accumulation
"""fp16-style loss scaling; on the CPU the arithmetic is that of fp32."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
torch.manual_seed(0)
model = DistributedDataParallel(nn.Sequential(nn.Linear(10, 20), nn.ReLU(), nn.Linear(20, 4)))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
generator = torch.Generator().manual_seed(dist.get_rank())
for _ in range(4):
    for micro in range(2):
        model.require_backward_grad_sync = micro == 1
        x = torch.randn(6, 10, generator=generator)
        loss = nn.functional.cross_entropy(model(x), x[:, :4].argmax(1)) / 2
        scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad(set_to_none=True)
dist.destroy_process_group()
