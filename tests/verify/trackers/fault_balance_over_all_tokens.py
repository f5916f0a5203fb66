"""A mixture of experts with DDP; the balance loss uses the expert counts of all ranks.

Report: NVIDIA/Megatron-LM#3672
What is wrong: `probabilities.sum(0) / total` divides the probabilities of this rank by the tokens
of all ranks, and DDP divides by the number of ranks once more.
Expected cause: the balance loss gives the router 1/ranks of its gradient; the experts agree.
Launch: torchrun --nproc-per-node 2 fault_balance_over_all_tokens.py
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

EXPERTS = 4


class MixtureOfExperts(nn.Module):
    def __init__(self):
        super().__init__()
        self.router = nn.Linear(8, EXPERTS)
        self.experts = nn.ModuleList(
            nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 8)) for _ in range(EXPERTS)
        )

    def forward(self, x):
        probabilities = self.router(x).softmax(-1)
        gate, chosen = probabilities.max(-1)
        everything = torch.stack([expert(x) for expert in self.experts], dim=1)
        output = gate[:, None] * everything[torch.arange(len(x)), chosen]
        counts = torch.bincount(chosen, minlength=EXPERTS).float()
        dist.all_reduce(counts)
        total = counts.sum()
        balance = EXPERTS * (counts / total * probabilities.sum(0) / total).sum()
        return output, balance


def batch(step):
    g = torch.Generator().manual_seed(step)
    inputs = torch.randn(32, 8, generator=g)
    return inputs, inputs.roll(1, dims=1)


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    model = DistributedDataParallel(MixtureOfExperts())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(4):
        inputs, targets = (t.chunk(world)[rank] for t in batch(step))
        output, balance = model(inputs)
        loss = nn.functional.mse_loss(output, targets) + 0.1 * balance
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if rank == 0:
            print(f"step {step} loss {loss.item():.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
