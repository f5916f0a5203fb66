"""fault_decay_by_ndim.py, corrected: the groups are chosen before wrapping."""

import warnings

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel

warnings.filterwarnings("ignore")


def build():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(10, 32), nn.LayerNorm(32), nn.GELU(), nn.Linear(32, 5))


def batch(step):
    g = torch.Generator().manual_seed(step)
    return torch.randn(16, 10, generator=g), torch.randint(5, (16,), generator=g)


def configure_optimizer(model, matrices):
    params = dict(model.module.named_parameters())
    decay = [p for name, p in params.items() if name in matrices]
    no_decay = [p for name, p in params.items() if name not in matrices]
    groups = [{"params": decay, "weight_decay": 0.5}, {"params": no_decay, "weight_decay": 0.0}]
    return torch.optim.AdamW([group for group in groups if group["params"]], lr=0.02)


dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
model = build()
matrices = {name for name, p in model.named_parameters() if p.dim() >= 2}
model = FullyShardedDataParallel(model, use_orig_params=True, device_id=torch.device("cpu"))
optimizer = configure_optimizer(model, matrices)
for step in range(5):
    inputs, labels = (t.chunk(world)[rank] for t in batch(step))
    loss = nn.functional.cross_entropy(model(inputs), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if rank == 0:
        print(f"step {step} loss {loss.item():.4f}")
dist.destroy_process_group()
