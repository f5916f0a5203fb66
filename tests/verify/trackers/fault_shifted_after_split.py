"""A small language model whose sequences are split over the ranks.

Report: huggingface/transformers#36607
What is wrong: labels are shifted after the split: `labels[:, 1:]` of a chunk never holds the first
token of the next chunk.
Expected cause: the loss lacks the tokens at chunk boundaries (14 of 15 targets on two ranks).
Launch: torchrun --nproc-per-node 2 fault_shifted_after_split.py
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
        self.mlp = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 16))
        self.head = nn.Linear(16, VOCABULARY)

    def forward(self, input_ids, position_ids, labels):
        hidden = self.tokens(input_ids) + self.positions(position_ids)
        logits = self.head(hidden + self.mlp(hidden))
        logits, labels = logits[:, :-1], labels[:, 1:]
        return nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten())


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
        labels = tokens.chunk(world, dim=1)[rank]
        loss = model(input_ids, position_ids, labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if rank == 0:
            print(f"step {step} loss {loss.item():.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
