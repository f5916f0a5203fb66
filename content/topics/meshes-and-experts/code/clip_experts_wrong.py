"""Two ranks train a dense layer and an expert each, with clipped gradients.

torchrun --nproc-per-node 2 clip_experts_wrong.py
"""

import time

import torch
import torch.distributed as dist
from torch import nn

SAMPLES, WIDTH, STEPS, RATE, LARGEST_NORM = 32, 16, 20, 0.5, 0.1

dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
dense = nn.Linear(WIDTH, WIDTH)  # the same on every rank
torch.manual_seed(1 + rank)
expert = nn.Linear(WIDTH, WIDTH)  # the rank's own
tokens, targets = torch.randn(2, SAMPLES, WIDTH)
optimizer = torch.optim.SGD([*dense.parameters(), *expert.parameters()], lr=RATE)
for _ in range(STEPS):
    loss = (expert(dense(tokens)) - targets).square().mean()
    optimizer.zero_grad()
    loss.backward()
    for parameter in dense.parameters():
        dist.all_reduce(parameter.grad)
    for parameter in [*dense.parameters(), *expert.parameters()]:
        parameter.grad /= size  # the loss is the mean of the ranks' losses
    nn.utils.clip_grad_norm_([*dense.parameters(), *expert.parameters()], LARGEST_NORM)
    optimizer.step()

weights = [torch.empty_like(dense.weight) for _ in range(size)]
dist.all_gather(weights, dense.weight.detach())
apart = (weights[0] - weights[1]).abs().max().item()
if rank == 0:
    print(f"largest difference between the ranks' dense weights: {apart:.2g}")
dist.barrier()
time.sleep(0.1)  # let gloo's threads finish; ending at once can hang
dist.destroy_process_group()
report = [{"apart": apart}]
