# fault: the program freezes the "emb" parameters by a substring, and freezes a projection with them
# cause: layer frozen by accident
"""Freezing by a substring of names; nothing says that "member_projection" matches. After the
class of reports such as JDAI-CV/fast-reid#178 (what is frozen is not what was meant)."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(20, 8)
        self.member_projection = nn.Linear(8, 8)
        self.head = nn.Linear(8, 2)

    def forward(self, tokens):
        return self.head(self.member_projection(self.emb(tokens).mean(1)).relu())


dist.init_process_group("gloo")
torch.manual_seed(0)
net = Net()
for name, p in net.named_parameters():
    if "emb" in name:
        p.requires_grad = False
model = DistributedDataParallel(net)
optimizer = torch.optim.SGD([p for p in net.parameters() if p.requires_grad], lr=0.1)
generator = torch.Generator().manual_seed(dist.get_rank())
for _ in range(4):
    tokens = torch.randint(0, 20, (8, 5), generator=generator)
    loss = nn.functional.cross_entropy(model(tokens), tokens[:, 0] % 2)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
dist.destroy_process_group()
