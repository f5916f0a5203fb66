# fault: static_graph=True with an output that the loss does not use: DDP raises in update 2
# cause: unused parameters under static_graph
"""Two outputs, one of them unused. After pytorch/pytorch#97030 and #79171."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class TwoHeads(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(6, 12)
        self.main, self.auxiliary = nn.Linear(12, 2), nn.Linear(12, 2)

    def forward(self, x):
        h = self.body(x).relu()
        return self.main(h), self.auxiliary(h)


dist.init_process_group("gloo")
torch.manual_seed(0)
model = DistributedDataParallel(TwoHeads(), static_graph=True)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
torch.manual_seed(dist.get_rank())
for _ in range(4):
    x = torch.randn(8, 6)
    logits, _ = model(x)
    loss = nn.functional.cross_entropy(logits, (x[:, 0] > 0).long())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
dist.destroy_process_group()
