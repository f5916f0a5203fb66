"""A language model in two pipeline stages; the first and the last layer share a weight.

Report: uw-syfi/piper#13
What is wrong: each stage steps with the gradient of its own use of the tied weight; nothing adds
the two between `schedule.step` and `optimizer.step()`.
Expected cause: the tied weight has part of its gradient on each stage, and its copies differ.
Launch: torchrun --nproc-per-node 2 fault_tied_across_stages.py
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.pipelining import PipelineStage, ScheduleGPipe

VOCABULARY, WIDTH = 20, 16


class Stage(nn.Module):
    def __init__(self, rank):
        super().__init__()
        self.rank = rank
        torch.manual_seed(0)
        self.weight = nn.Parameter(torch.randn(VOCABULARY, WIDTH) / 4)
        torch.manual_seed(1 + rank)
        self.block = nn.Sequential(nn.Linear(WIDTH, 32), nn.GELU(), nn.Linear(32, WIDTH))

    def forward(self, x):
        hidden = nn.functional.embedding(x, self.weight) if self.rank == 0 else x
        hidden = hidden + self.block(hidden)
        return hidden if self.rank == 0 else nn.functional.linear(hidden, self.weight)


def batch(step):
    g = torch.Generator().manual_seed(step)
    tokens = torch.randint(VOCABULARY, (8, 9), generator=g)
    return tokens[:, :-1], tokens[:, 1:]


def loss_fn(logits, labels):
    return nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten())


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    model = Stage(rank)
    stage = PipelineStage(model, rank, 2, torch.device("cpu"))
    schedule = ScheduleGPipe(stage, 2, loss_fn=loss_fn)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    for step in range(4):
        tokens, labels = batch(step)
        losses = []
        optimizer.zero_grad()
        if rank == 0:
            schedule.step(tokens)
        else:
            schedule.step(target=labels, losses=losses)
            print(f"step {step} loss {torch.stack(losses).mean().item():.4f}")
        optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
