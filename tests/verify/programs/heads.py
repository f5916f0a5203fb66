"""Two heads on one body, and the loss that a word chooses: heads.py half | counts | other | short.

`half` weighs the second head less; `counts` has fewer labels for it; `other` averages it by hand
over the rank's own elements; `short` accumulates, and divides a last update of one microbatch by
two.
"""

import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

way = sys.argv[1]
dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(0)


class Heads(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(10, 24), nn.Tanh())
        self.first, self.second = nn.Linear(24, 4), nn.Linear(24, 3)

    def forward(self, x):
        inner = self.body(x)
        return self.first(inner), self.second(inner)


model = DistributedDataParallel(Heads(), find_unused_parameters=way == "short")
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
draws = torch.Generator().manual_seed(1 + rank)


def loss_of(count):
    """The loss of new samples."""
    a, b = model(torch.randn(count, 10, generator=draws))
    labels = torch.randint(0, 3, (count,), generator=draws)
    if way == "other":
        mask = torch.rand(count, 1, generator=draws) < 0.3 + 0.4 * rank
        return functional.cross_entropy(a, labels) + 0.3 * (b.square() * mask).sum() / mask.sum()
    few = count // 2 if way == "counts" else count
    pairs = [(a, labels), (b[:few], labels[:few])]
    factors = (1, 0.5 if way == "half" else 1)
    return sum(f * functional.cross_entropy(*one) for f, one in zip(factors, pairs, strict=True))


for step in range(3):
    optimizer.zero_grad()
    if way == "short":
        for _ in range(1 if step == 2 else 2):
            a, _ = model(torch.randn(8, 10, generator=draws))
            labels = torch.randint(0, 3, (8,), generator=draws)
            (functional.cross_entropy(a, labels) / 2).backward()
    else:
        loss_of(8).backward()
    optimizer.step()
dist.destroy_process_group()
