"""Initial values of a divided MLP: drawn by shape of the shard, from one seed, and as one process.

torchrun --nproc-per-node 4 initial_values.py
"""

import time

import torch
import torch.distributed as dist
from torch import nn

WIDTH, HIDDEN, SAMPLES = 128, 512, 256


def values(seed, hidden):
    """The weights of a linear layer before GELU, and of the one after it."""
    torch.manual_seed(seed)
    return nn.Linear(WIDTH, hidden, bias=False).weight, nn.Linear(hidden, WIDTH, bias=False).weight


def draw(way):
    """The rank's columns of the first weight, and its rows of the second."""
    rank, size = dist.get_rank(), dist.get_world_size()
    if way == "as_one_process":  # draw the whole weights (stored transposed), and take a part
        first, second = values(0, HIDDEN)
        return first.chunk(size, 0)[rank], second.chunk(size, 1)[rank]
    return values(rank if way == "by_shard" else 0, HIDDEN // size)


def main():
    dist.init_process_group("gloo")
    inputs = torch.randn(SAMPLES, WIDTH, generator=torch.Generator().manual_seed(1))
    report = {}
    for way in ("as_one_process", "by_shard", "one_seed"):
        first, second = (weight.detach().contiguous() for weight in draw(way))
        outputs = nn.functional.gelu(inputs @ first.T) @ second.T
        dist.all_reduce(outputs)
        firsts = [torch.empty_like(first) for _ in range(dist.get_world_size())]
        dist.all_gather(firsts, first)
        num_different = len(torch.unique(torch.cat(firsts), dim=0))
        facts = second.var().item(), outputs.var().item(), num_different
        names = "second_variance", "output_variance", "num_different_features"
        report |= {f"{way}_{name}": fact for name, fact in zip(names, facts, strict=True)}
        if dist.get_rank() == 0:
            print(f"{way}: variance of the second weight {facts[0]:.5f}, of the outputs "
                  f"{facts[1]:.3f}; {num_different} different hidden features")  # fmt: skip
    dist.barrier()
    time.sleep(0.1)  # let gloo's threads finish; ending at once can hang
    dist.destroy_process_group()
    return [report]


if __name__ == "__main__":
    report = main()
