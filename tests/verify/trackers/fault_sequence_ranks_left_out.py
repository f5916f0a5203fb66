"""Data parallelism times sequence parallelism on four ranks.

Report: ByteDance-Seed/VeOmni#1059
What is wrong: DDP reduces over `process_group=mesh.get_group("dp")`, but the two ranks of a
sequence group hold gradients of different chunks.
Expected cause: gradients are not reduced over the sequence ranks (0 and 1 differ, 0 and 2 agree).
Launch: torchrun --nproc-per-node 4 fault_sequence_ranks_left_out.py
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.nn.parallel import DistributedDataParallel

VOCABULARY, LENGTH = 20, 16


class TokenModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, 16)
        self.positions = nn.Embedding(LENGTH, 16)
        self.mlp = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 16))
        self.head = nn.Linear(16, VOCABULARY)

    def forward(self, tokens, position_ids):
        hidden = self.tokens(tokens) + self.positions(position_ids)
        return self.head(hidden + self.mlp(hidden))


def batch(step):
    g = torch.Generator().manual_seed(step)
    tokens = torch.randint(VOCABULARY, (8, LENGTH + 1), generator=g)
    return tokens[:, :-1], tokens[:, 1:]


dist.init_process_group("gloo")
mesh = init_device_mesh("cpu", (dist.get_world_size() // 2, 2), mesh_dim_names=("dp", "sp"))
dp, sp = mesh["dp"], mesh["sp"]
torch.manual_seed(0)
model = DistributedDataParallel(TokenModel(), process_group=mesh.get_group("dp"))
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
for step in range(4):
    tokens, labels = (t.chunk(dp.size())[dp.get_local_rank()] for t in batch(step))
    tokens, labels = (t.chunk(sp.size(), dim=1)[sp.get_local_rank()] for t in (tokens, labels))
    position_ids = torch.arange(LENGTH).chunk(sp.size())[sp.get_local_rank()]
    logits = model(tokens, position_ids)
    loss = nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if dist.get_rank() == 0:
        print(f"step {step} loss {loss.item():.4f}")
dist.destroy_process_group()
