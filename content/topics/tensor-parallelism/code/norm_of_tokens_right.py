"""Two ranks divide the tokens of a normalization, and sum its gradients.

torchrun --nproc-per-node 2 norm_of_tokens_right.py
"""

import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.functional import mse_loss

TOKENS, WIDTH, STEPS, RATE = 32, 16, 20, 0.5

dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
tokens, targets = torch.randn(2, TOKENS, WIDTH)
own, own_targets = tokens.chunk(size)[rank], targets.chunk(size)[rank]
norm, whole = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)  # of the ranks, and of one process
optimizer = torch.optim.SGD([*norm.parameters(), *whole.parameters()], lr=RATE)
for _ in range(STEPS):
    loss = mse_loss(norm(own), own_targets, reduction="sum") / targets.numel()
    optimizer.zero_grad()
    (loss + mse_loss(whole(tokens), targets)).backward()
    for parameter in norm.parameters():
        dist.all_reduce(parameter.grad)
    optimizer.step()

apart = (norm.weight - whole.weight).abs().max().item()
if rank == 0:
    print(f"largest difference from the weights of one process: {apart:.2g}")
dist.barrier()
time.sleep(0.1)  # let gloo's threads finish; ending at once can hang
dist.destroy_process_group()
report = [{"apart": apart}]
