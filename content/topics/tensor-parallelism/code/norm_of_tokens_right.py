"""Two ranks divide the tokens of a normalization, and sum its gradients.

torchrun --nproc-per-node 2 norm_of_tokens_right.py
"""

import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.functional import mse_loss

TOKENS, WIDTH, STEPS = 32, 16, 20

dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
norm = nn.LayerNorm(WIDTH)  # the same on every rank
tokens, targets = torch.randn(2, TOKENS, WIDTH)
own, own_targets = tokens.chunk(size)[rank], targets.chunk(size)[rank]
optimizer = torch.optim.SGD(norm.parameters(), lr=0.5)
for _ in range(STEPS):
    loss = mse_loss(norm(own), own_targets, reduction="sum") / targets.numel()
    optimizer.zero_grad()
    loss.backward()
    for parameter in norm.parameters():
        dist.all_reduce(parameter.grad)
    optimizer.step()

weights = [torch.empty(WIDTH) for _ in range(size)]
dist.all_gather(weights, norm.weight.detach())
apart = (weights[0] - weights[1]).abs().max().item()
if rank == 0:
    print(f"largest difference between the weights of the ranks: {apart:.2g}")
dist.barrier()
time.sleep(0.1)  # let gloo's threads finish; ending at once can hang
dist.destroy_process_group()
report = [{"apart": apart}]
