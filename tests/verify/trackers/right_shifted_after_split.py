"""fault_shifted_after_split.py, corrected: labels are shifted before the split."""

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
        self.mlp = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 16))
        self.head = nn.Linear(16, VOCABULARY)

    def forward(self, input_ids, position_ids):
        hidden = self.tokens(input_ids) + self.positions(position_ids)
        return self.head(hidden + self.mlp(hidden))


def batch(step):
    g = torch.Generator().manual_seed(step)
    return torch.randint(VOCABULARY, (4, LENGTH), generator=g)


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    model = DistributedDataParallel(TokenModel())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    for step in range(4):
        tokens = batch(step)
        input_ids = tokens.chunk(world, dim=1)[rank]
        position_ids = torch.arange(LENGTH).chunk(world)[rank]
        labels = nn.functional.pad(tokens[:, 1:], (0, 1), value=-100)
        count = (labels != -100).sum()
        labels = labels.chunk(world, dim=1)[rank]
        logits = model(input_ids, position_ids)
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction="sum")
        loss = loss * world / count
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if rank == 0:
            print(f"step {step} loss {loss.item():.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
