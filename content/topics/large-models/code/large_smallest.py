"""What training stores, counted: for the whole model and for two parts of it.

torchrun --nproc-per-node 1 large_smallest.py
"""

import torch
from torch import nn

WIDTH = 512
# model_bytes: 4 * (12 * WIDTH * WIDTH + 6 * WIDTH)
first = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.ReLU())
second = nn.Linear(4 * WIDTH, 2 * WIDTH)
model = nn.Sequential(first, second)
optimizer = torch.optim.Adam(model.parameters())
model(torch.randn(16, WIDTH)).square().mean().backward()
optimizer.step()

print(f"parameters: {sum(p.nbytes for p in model.parameters()) / 2**20:.1f} MiB")
parts = {"whole": model, "first part": first, "second part": second}
for name, part in parts.items():
    held = 0
    for p in part.parameters():
        kept = (p, p.grad, *optimizer.state[p].values())
        held += sum(tensor.nbytes for tensor in kept)
    print(f"{name}, with gradients and moments: {held / 2**20:.1f} MiB")
