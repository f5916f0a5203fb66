# fault: the gradients of the experts are already sums over the ranks, and nobody divides them
# cause: expert gradients too large by the number of ranks
"""Expert parallelism: one expert a rank, dense layers averaged. After pytorch/pytorch#160285,
databricks/megablocks#86."""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed._functional_collectives import all_to_all_single_autograd

dist.init_process_group("gloo")
rank, ranks = dist.get_rank(), dist.get_world_size()


class Experts(nn.Module):
    def __init__(self, width):
        super().__init__()
        all_experts = [nn.Linear(width, width) for _ in range(ranks)]
        self.expert = all_experts[rank]

    def forward(self, x):
        sent = x.reshape(-1, ranks, x.shape[-1]).transpose(0, 1).contiguous()
        got = all_to_all_single_autograd(sent, None, None, dist.group.WORLD)
        back = all_to_all_single_autograd(self.expert(got), None, None, dist.group.WORLD)
        return back.transpose(0, 1).reshape(x.shape)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.experts, self.last = nn.Linear(8, 8), Experts(8), nn.Linear(8, 1)

    def forward(self, x):
        h = self.first(x).relu()
        return self.last(h + self.experts(h).relu())


torch.manual_seed(0)
model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
generator = torch.Generator().manual_seed(rank)
for _ in range(3):
    x = torch.randn(8, 8, generator=generator)
    loss = nn.functional.mse_loss(model(x), x.sum(1, keepdim=True))
    optimizer.zero_grad()
    loss.backward()
    for name, p in model.named_parameters():
        if "experts" not in name:
            dist.all_reduce(p.grad)
            p.grad /= ranks
    optimizer.step()
dist.destroy_process_group()
