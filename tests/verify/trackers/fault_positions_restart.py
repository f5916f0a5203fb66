"""A small language model whose sequences are split over the ranks.

Report: vllm-project/speculators#871 (review thread)
What is wrong: `position_ids = torch.arange(tokens.shape[1])` counts from 0 on every rank.
Expected cause: the output of `positions` differs on every rank but 0 (offset of the chunk).
Launch: torchrun --nproc-per-node 2 fault_positions_restart.py
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

VOCABULARY, LENGTH = 20, 16


class TokenModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, 16)
        self.positions = nn.Embedding(LENGTH, 16)
        self.mlp = nn.Sequential(nn.LayerNorm(16), nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 16))
        self.head = nn.Linear(16, VOCABULARY)

    def forward(self, tokens, position_ids=None):
        if position_ids is None:
            position_ids = torch.arange(tokens.shape[1])
        hidden = self.tokens(tokens) + self.positions(position_ids)
        return self.head(hidden + self.mlp(hidden))


def batch(step):
    g = torch.Generator().manual_seed(step)
    tokens = torch.randint(VOCABULARY, (4, LENGTH + 1), generator=g)
    return tokens[:, :-1], tokens[:, 1:]


dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
model = DistributedDataParallel(TokenModel())
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
for step in range(4):
    tokens, labels = (t.chunk(world, dim=1)[rank] for t in batch(step))
    logits = model(tokens)
    loss = nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if rank == 0:
        print(f"step {step} loss {loss.item():.4f}")
dist.destroy_process_group()
