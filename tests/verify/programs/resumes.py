"""Goes on from a checkpoint: resumes.py file [lost] [left] [on_one].

What is lost is its place in the data; left is the state of the optimizer, or loaded on one rank.
"""

import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

file, is_lost = Path(sys.argv[1]), "lost" in sys.argv
dist.init_process_group("gloo")
torch.manual_seed(0)
samples = TensorDataset(torch.randn(64, 8))
model = DistributedDataParallel(nn.Linear(8, 8))
optimizer = torch.optim.Adam(model.parameters())
begun = 0
if file.exists():
    begun, weights, state = torch.load(file)
    model.module.load_state_dict(weights)
    if "left" not in sys.argv and ("on_one" not in sys.argv or dist.get_rank() == 0):
        optimizer.load_state_dict(state)
for step, (x,) in enumerate(DataLoader(samples, 4, sampler=DistributedSampler(samples))):
    if step < begun and not is_lost:
        continue
    optimizer.zero_grad()
    nn.functional.mse_loss(model(x), x).backward()
    optimizer.step()
    if step == 2 and not begun and dist.get_rank() == 0:
        torch.save((step + 1, model.module.state_dict(), optimizer.state_dict()), file)
dist.destroy_process_group()
