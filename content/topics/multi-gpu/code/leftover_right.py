"""Right: a batch in microbatches. torchrun --nproc-per-node 1 leftover_right.py"""

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Linear(10, 1)
batch, targets = torch.randn(100, 10), torch.randn(100, 1)
microbatches = list(zip(batch.split(30), targets.split(30), strict=True))

for rows, goals in microbatches:
    loss = nn.functional.mse_loss(model(rows), goals)
    loss = loss * len(rows) / len(batch)
    loss.backward()
accumulated = model.weight.grad.clone()

whole = torch.autograd.grad(nn.functional.mse_loss(model(batch), targets), model.weight)[0]
length = accumulated.norm() / whole.norm()
cosine = nn.functional.cosine_similarity(accumulated, whole).item()
print(f"rows of the microbatches: {[len(rows) for rows, _ in microbatches]}")
print(f"accumulated gradient against that of the batch: {length:.4f} as long, cosine {cosine:.4f}")
