# fault: every rank seeds by its number before it builds the model, and nobody broadcasts weights
# cause: parameters differ from the start
"""Data parallelism by hand without a broadcast. After pytorch/torchtitan#166,
facebookresearch/detr#544."""

import torch
import torch.distributed as dist
from torch import nn


def average_gradients(model):
    size = float(dist.get_world_size())
    for param in model.parameters():
        dist.all_reduce(param.grad.data, op=dist.ReduceOp.SUM)
        param.grad.data /= size


def main():
    dist.init_process_group("gloo")
    seed = 1234 + dist.get_rank()
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(9, 30), nn.ReLU(), nn.Linear(30, 3))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.5)
    for _ in range(5):
        data = torch.randn(8, 9)
        target = data[:, :3].argmax(1)
        optimizer.zero_grad()
        loss = nn.functional.nll_loss(nn.functional.log_softmax(model(data), 1), target)
        loss.backward()
        average_gradients(model)
        optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
