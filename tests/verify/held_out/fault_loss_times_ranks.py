# fault: the loss is multiplied by the number of ranks, as if DDP had to be undone
# cause: gradients too large by the number of ranks
"""Undoes a mean that was wanted. After texttron/tevatron#143, lightonai/pylate#156."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.query, self.passage = nn.Linear(12, 8), nn.Linear(12, 8)

    def forward(self, query, passage):
        scores = self.query(query) @ self.passage(passage).T
        target = torch.arange(len(query))
        loss = nn.functional.cross_entropy(scores, target, reduction="mean")
        if self.training and dist.is_initialized():
            loss = loss * dist.get_world_size()
        return loss


dist.init_process_group("gloo")
torch.manual_seed(0)
model = DistributedDataParallel(Encoder())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
torch.manual_seed(dist.get_rank())
for _ in range(4):
    query = torch.randn(6, 12)
    loss = model(query, query + 0.1 * torch.randn(6, 12))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
dist.destroy_process_group()
