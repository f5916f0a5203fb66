# right: broadcast of the weights, one flat all-reduce of the gradients, division, then clipping
"""Data parallelism without DDP, with the loss logged as a mean over ranks."""

import logging

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.utils import clip_grad_norm_, parameters_to_vector

log = logging.getLogger(__name__)


def sync_gradients(parameters):
    with_gradient = [p for p in parameters if p.grad is not None]
    flat = parameters_to_vector([p.grad for p in with_gradient])
    dist.all_reduce(flat)
    flat /= dist.get_world_size()
    start = 0
    for p in with_gradient:
        p.grad.copy_(flat[start : start + p.numel()].view_as(p))
        start += p.numel()


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(dist.get_rank())
    model = nn.Sequential(nn.Linear(6, 24), nn.Tanh(), nn.Linear(24, 1))
    for tensor in model.state_dict().values():
        dist.broadcast(tensor, src=0)
    optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-2)
    for step in range(5):
        x = torch.randn(10, 6)
        y = torch.sin(x).sum(1, keepdim=True)
        loss = nn.functional.smooth_l1_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        sync_gradients(list(model.parameters()))
        clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        logged = loss.detach().clone()
        dist.all_reduce(logged)
        log.info("step %d loss %.4f", step, logged.item() / dist.get_world_size())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
