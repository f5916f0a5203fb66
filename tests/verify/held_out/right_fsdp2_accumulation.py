# right: FSDP2 with accumulation, set_requires_gradient_sync, clip_grad_norm_ of DTensors
"""fully_shard of each block; the clipping uses the whole norm."""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm, self.up, self.down = (
            nn.RMSNorm(width),
            nn.Linear(width, 64),
            nn.Linear(64, width),
        )

    def forward(self, x):
        return x + self.down(nn.functional.silu(self.up(self.norm(x))))


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = nn.Sequential(nn.Embedding(30, 16), Block(16), Block(16), nn.Linear(16, 30))
    for block in model[1:3]:
        fully_shard(block)
    fully_shard(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    generator = torch.Generator().manual_seed(dist.get_rank())
    accumulation = 3
    for _ in range(3):
        for micro in range(accumulation):
            model.set_requires_gradient_sync(micro == accumulation - 1)
            tokens = torch.randint(0, 30, (4, 9), generator=generator)
            logits = model(tokens[:, :-1])
            loss = nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
            (loss / accumulation).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
        optimizer.zero_grad()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
