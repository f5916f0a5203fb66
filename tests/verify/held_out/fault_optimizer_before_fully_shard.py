# fault: the optimizer holds the parameters from before fully_shard, and updates none of the model's
# cause: optimizer built before fully_shard
"""FSDP2 in the order of DDP programs. After huggingface/accelerate#3394, mosaicml/composer#3822."""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard


def build():
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 4)
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for layer in model:
        if isinstance(layer, nn.Linear):
            fully_shard(layer)
    fully_shard(model)
    return model, optimizer


def main():
    dist.init_process_group("gloo")
    model, optimizer = build()
    generator = torch.Generator().manual_seed(dist.get_rank())
    for _ in range(4):
        x = torch.randn(8, 16, generator=generator)
        y = x[:, :4].argmax(1)
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
