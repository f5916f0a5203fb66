# fault: the scheduler steps once a microbatch and not once an update
# cause: scheduler stepped once a microbatch
"""A warm-up that is over too soon. After huggingface/accelerate#963, starVLA/starVLA#210."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

ACCUMULATION, UPDATES = 4, 5
dist.init_process_group("gloo")
torch.manual_seed(0)
model = DistributedDataParallel(nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1)))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
scheduler = torch.optim.lr_scheduler.LambdaLR(
    optimizer, lambda step: min(1.0, (step + 1) / UPDATES)
)
generator = torch.Generator().manual_seed(dist.get_rank())
for micro in range(ACCUMULATION * UPDATES):
    last = (micro + 1) % ACCUMULATION == 0
    model.require_backward_grad_sync = last
    x = torch.randn(4, 8, generator=generator)
    loss = nn.functional.mse_loss(model(x), x.mean(1, keepdim=True)) / ACCUMULATION
    loss.backward()
    if last:
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
    scheduler.step()
dist.destroy_process_group()
