# fault: training_step divides the loss by the microbatches, and backward divides it again
# cause: loss divided twice
"""A trainer whose two layers both normalise. After huggingface/accelerate#3533,
huggingface/transformers#40709."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class Engine:
    def __init__(self, accumulation):
        self.accumulation = accumulation

    def backward(self, loss):
        (loss / self.accumulation).backward()


class Trainer:
    def __init__(self, model, accumulation):
        self.engine = Engine(accumulation)
        self.accumulation = accumulation
        self.model = DistributedDataParallel(model)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        self.generator = torch.Generator().manual_seed(dist.get_rank())

    def training_step(self, x, y):
        loss = nn.functional.cross_entropy(self.model(x), y)
        loss = loss / self.accumulation
        self.engine.backward(loss)
        return loss.detach()

    def train(self, steps):
        for _ in range(steps):
            for _ in range(self.accumulation):
                x = torch.randn(6, 12, generator=self.generator)
                self.training_step(x, x[:, :5].argmax(1))
            self.optimizer.step()
            self.optimizer.zero_grad()


if __name__ == "__main__":
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    Trainer(nn.Sequential(nn.Linear(12, 24), nn.ReLU(), nn.Linear(24, 5)), 2).train(4)
    dist.destroy_process_group()
