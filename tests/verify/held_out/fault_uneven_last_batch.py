# fault: the last batch has fewer samples on the later ranks, and the ranks' means count alike
# cause: mean of means over batches of unequal size
"""Samples that ranks cannot divide. After pytorch/pytorch#22584, huggingface/transformers#24725."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Subset, TensorDataset

dist.init_process_group("gloo")
rank, ranks = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
x = torch.randn(20 * (ranks - 1) + 17, 5)
dataset = TensorDataset(x, x.prod(1, keepdim=True))
per_rank = 20
mine = Subset(dataset, range(rank * per_rank, min((rank + 1) * per_rank, len(dataset))))
loader = DataLoader(mine, batch_size=8, shuffle=False)
model = DistributedDataParallel(nn.Sequential(nn.Linear(5, 15), nn.ReLU(), nn.Linear(15, 1)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(2):
    for xb, yb in loader:
        loss = nn.functional.mse_loss(model(xb), yb)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
dist.destroy_process_group()
