# fault: all_gather returns the other ranks' embeddings without a graph: half the gradient is lost
# cause: all_gather detaches
"""A loss over all ranks. After mlfoundations/open_clip#616, huggingface/accelerate#1154."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def gather(tensor):
    parts = [torch.empty_like(tensor) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, tensor.detach())
    parts[dist.get_rank()] = tensor
    return torch.cat(parts)


dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(0)


class Towers(nn.Module):
    def __init__(self):
        super().__init__()
        self.image, self.text = nn.Linear(20, 8), nn.Linear(10, 8)

    def forward(self, image, text):
        normalize = nn.functional.normalize
        return normalize(self.image(image)), normalize(self.text(text))


model = DistributedDataParallel(Towers())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
torch.manual_seed(1 + rank)
for _ in range(4):
    image, text = model(torch.randn(6, 20), torch.randn(6, 10))
    logits = 5 * image @ gather(text).T
    target = rank * 6 + torch.arange(6)
    loss = nn.functional.cross_entropy(logits, target)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
dist.destroy_process_group()
