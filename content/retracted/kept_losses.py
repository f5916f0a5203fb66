"""Losses kept with their graphs: torchrun --nproc-per-node 1 kept_losses.py"""

from resource import RUSAGE_SELF, getrusage

import torch

model = torch.nn.Sequential(*[torch.nn.Linear(512, 512) for _ in range(4)])
samples = torch.ones(2000, 512)
for keep in (lambda loss: loss.item(), lambda loss: loss):
    before = getrusage(RUSAGE_SELF).ru_maxrss
    kept = [keep(model(samples).square().mean()) for _ in range(20)]
    added = (getrusage(RUSAGE_SELF).ru_maxrss - before) // 1024
    print(f"{len(kept)} losses kept as {type(kept[0]).__name__}: peak grew by {added} MiB")
