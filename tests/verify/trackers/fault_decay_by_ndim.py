"""Fine-tuning with FullyShardedDataParallel; weight decay is meant for matrices only.

Report: mlfoundations/open_clip#358
What is wrong: `p.dim() >= 2` is false for every parameter once FSDP has flattened them, so the
optimizer decays nothing.
Expected cause: gradients agree, the update lacks weight decay (groups from sharded shapes).
Launch: torchrun --nproc-per-node 2 fault_decay_by_ndim.py
"""

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


def configure_optimizer(model):
    params = [p for p in model.parameters() if p.requires_grad]
    decay = [p for p in params if p.dim() >= 2]
    no_decay = [p for p in params if p.dim() < 2]
    groups = [{"params": decay, "weight_decay": 0.5}, {"params": no_decay, "weight_decay": 0.0}]
    return torch.optim.AdamW([group for group in groups if group["params"]], lr=0.02)


dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
model = FullyShardedDataParallel(build(), use_orig_params=True, device_id=torch.device("cpu"))
optimizer = configure_optimizer(model)
for step in range(5):
    inputs, labels = (t.chunk(world)[rank] for t in batch(step))
    loss = nn.functional.cross_entropy(model(inputs), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if rank == 0:
        print(f"step {step} loss {loss.item():.4f}")
dist.destroy_process_group()
