# fault: the gradients are summed over the ranks and never divided
# cause: sum instead of mean over ranks
"""One flat all-reduce. After tensorflow/benchmarks#466, horovod/horovod#843."""

import torch
import torch.distributed as dist
from torch import nn
from torch._utils import _flatten_dense_tensors, _unflatten_dense_tensors


def all_reduce_gradients(model):
    gradients = [p.grad for p in model.parameters()]
    flat = _flatten_dense_tensors(gradients)
    dist.all_reduce(flat)
    for old, new in zip(gradients, _unflatten_dense_tensors(flat, gradients), strict=True):
        old.copy_(new)


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(10, 10), nn.ReLU(), nn.Linear(10, 4))
    for p in model.parameters():
        dist.broadcast(p.data, src=0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    torch.manual_seed(dist.get_rank())
    for _ in range(4):
        x = torch.randn(8, 10)
        loss = nn.functional.cross_entropy(model(x), x[:, :4].argmax(1))
        model.zero_grad()
        loss.backward()
        all_reduce_gradients(model)
        optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
