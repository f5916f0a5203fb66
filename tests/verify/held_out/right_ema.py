# right: a moving average of the weights on all ranks, evaluated on rank 0 between updates
"""Denoising with AveragedModel; validation uses no collective."""

import logging

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

log = logging.getLogger(__name__)
dist.init_process_group("gloo")
torch.manual_seed(0)
net = nn.Sequential(nn.Linear(5, 20), nn.SiLU(), nn.Linear(20, 5))
ema = AveragedModel(net, multi_avg_fn=get_ema_multi_avg_fn(0.9))
model = DistributedDataParallel(net)
optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
validation = torch.randn(20, 5)
torch.manual_seed(50 + dist.get_rank())
for step in range(6):
    x = torch.randn(16, 5)
    noise = torch.randn_like(x)
    loss = nn.functional.mse_loss(model(x + noise), noise)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    ema.update_parameters(net)
    if step % 2 == 1 and dist.get_rank() == 0:
        ema.eval()
        with torch.no_grad():
            log.info("validation %.4f", nn.functional.mse_loss(ema(validation), validation))
    dist.barrier()
dist.destroy_process_group()
