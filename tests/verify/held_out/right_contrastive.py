# right: a contrastive loss over the embeddings of all ranks, gathered with their gradients
"""CLIP's loss over all ranks; every rank computes the whole loss."""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.nn.functional import all_gather
from torch.nn.parallel import DistributedDataParallel


class Towers(nn.Module):
    def __init__(self):
        super().__init__()
        self.image, self.text = nn.Linear(20, 8), nn.Linear(10, 8)

    def forward(self, image, text):
        normalize = nn.functional.normalize
        return normalize(self.image(image)), normalize(self.text(text))


dist.init_process_group("gloo")
torch.manual_seed(0)
model = DistributedDataParallel(Towers())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
torch.manual_seed(1 + dist.get_rank())
for _ in range(4):
    image, text = model(torch.randn(6, 20), torch.randn(6, 10))
    image, text = torch.cat(all_gather(image)), torch.cat(all_gather(text))
    logits = 5 * image @ text.T
    target = torch.arange(len(logits))
    cross_entropy = nn.functional.cross_entropy
    loss = (cross_entropy(logits, target) + cross_entropy(logits.T, target)) / 2
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
dist.destroy_process_group()
