# right: gradient hooks that scale, an all-reduce in hooks after accumulation, and momentum
"""All-reduce as each gradient is ready, by hooks; an embedding learns at a tenth of the rate."""

import torch
import torch.distributed as dist
from torch import nn

dist.init_process_group("gloo")
torch.manual_seed(0)
model = nn.Sequential(
    nn.Embedding(20, 8), nn.Flatten(), nn.Linear(24, 16), nn.ReLU(), nn.Linear(16, 2)
)
model[0].weight.register_hook(lambda gradient: gradient * 0.1)
works = []


def reduce(parameter):
    parameter.grad /= dist.get_world_size()
    works.append(dist.all_reduce(parameter.grad, async_op=True))


for parameter in model.parameters():
    parameter.register_post_accumulate_grad_hook(reduce)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
generator = torch.Generator().manual_seed(dist.get_rank())
for _ in range(5):
    tokens = torch.randint(0, 20, (8, 3), generator=generator)
    loss = nn.functional.cross_entropy(model(tokens), (tokens.sum(1) > 28).long())
    optimizer.zero_grad()
    loss.backward()
    while works:
        works.pop().wait()
    optimizer.step()
dist.destroy_process_group()
