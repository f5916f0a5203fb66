# right: dropout with another seed on each rank, as it should be in data parallelism
"""Text classification with dropout and layer norm."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.EmbeddingBag(60, 24)
        self.body = nn.Sequential(
            nn.LayerNorm(24), nn.Dropout(0.2), nn.Linear(24, 24), nn.ReLU(), nn.Dropout(0.2)
        )
        self.head = nn.Linear(24, 3)

    def forward(self, tokens):
        return self.head(self.body(self.embedding(tokens)))


dist.init_process_group("gloo")
torch.manual_seed(0)
model = DistributedDataParallel(Classifier())
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
criterion = nn.CrossEntropyLoss()
torch.manual_seed(123 + dist.get_rank())
model.train()
for _ in range(5):
    tokens = torch.randint(0, 60, (8, 6))
    loss = criterion(model(tokens), tokens[:, 0] % 3)
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    nn.utils.clip_grad_value_(model.parameters(), 0.1)
    optimizer.step()
dist.destroy_process_group()
