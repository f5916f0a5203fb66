"""Right: a batch in microbatches. torchrun --nproc-per-node 1 leftover_right.py"""

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Linear(10, 1)
batch, targets = torch.randn(100, 10), torch.randn(100, 1)
microbatches = list(zip(batch.split(30), targets.split(30), strict=True))

for samples, goals in microbatches:
    loss = nn.functional.mse_loss(model(samples), goals)
    loss = loss * len(samples) / len(batch)
    loss.backward()
accumulated = model.weight.grad.clone()

whole = torch.autograd.grad(nn.functional.mse_loss(model(batch), targets), model.weight)[0]
length = accumulated.norm() / whole.norm()
cosine = nn.functional.cosine_similarity(accumulated, whole).item()
print(f"samples of the microbatches: {[len(samples) for samples, _ in microbatches]}")
print(f"accumulated gradient against that of the batch: {length:.4f} as long, cosine {cosine:.4f}")
