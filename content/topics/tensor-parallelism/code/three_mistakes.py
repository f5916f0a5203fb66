"""Three mistakes of ranks that divide an MLP or tokens, each before and after its fix.

Each function returns what the rank computes, and what it should be.

torchrun --nproc-per-node 2 three_mistakes.py
"""

import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.functional import dropout, gelu, linear, mse_loss

WIDTH, HIDDEN = 16, 32

dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
tokens, targets = torch.randn(2, 32, WIDTH)  # the same on every rank
first, second = torch.randn(HIDDEN, WIDTH) / 4, torch.randn(WIDTH, HIDDEN) / 8
first_bias, second_bias = torch.randn(HIDDEN), torch.randn(WIDTH)


def mlp_before():
    columns, own_bias = first.chunk(size)[rank], first_bias.chunk(size)[rank]
    rows = second.chunk(size, 1)[rank]
    hidden = gelu(linear(tokens, columns, own_bias))
    outputs = linear(hidden, rows, second_bias)
    dist.all_reduce(outputs)
    return outputs, linear(gelu(linear(tokens, first, first_bias)), second, second_bias)


def mlp_after():
    columns, own_bias = first.chunk(size)[rank], first_bias.chunk(size)[rank]
    rows = second.chunk(size, 1)[rank]
    hidden = gelu(linear(tokens, columns, own_bias))
    outputs = linear(hidden, rows)
    dist.all_reduce(outputs)
    outputs += second_bias
    return outputs, linear(gelu(linear(tokens, first, first_bias)), second, second_bias)


def dropout_before():
    torch.manual_seed(rank)
    columns, rows = first.chunk(size)[rank], second.chunk(size, 1)[rank]
    outputs = linear(gelu(linear(tokens, columns)), rows)
    dist.all_reduce(outputs)
    residual = tokens + dropout(outputs, 0.5)
    mean = residual.clone()
    dist.all_reduce(mean)
    return residual, mean / size


def dropout_after():
    torch.manual_seed(0)
    columns, rows = first.chunk(size)[rank], second.chunk(size, 1)[rank]
    outputs = linear(gelu(linear(tokens, columns)), rows)
    dist.all_reduce(outputs)
    residual = tokens + dropout(outputs, 0.5)
    mean = residual.clone()
    dist.all_reduce(mean)
    return residual, mean / size


def norm_before():
    own, own_targets = tokens.chunk(size)[rank], targets.chunk(size)[rank]
    norm, whole = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)  # of the ranks, and of one process
    optimizer = torch.optim.SGD([*norm.parameters(), *whole.parameters()], lr=0.5)
    for _ in range(20):
        loss = mse_loss(norm(own), own_targets, reduction="sum") / targets.numel()
        optimizer.zero_grad()
        (loss + mse_loss(whole(tokens), targets)).backward()
        for parameter in norm.parameters():
            dist.broadcast(parameter.grad, 0)
        optimizer.step()
    return norm.weight, whole.weight


def norm_after():
    own, own_targets = tokens.chunk(size)[rank], targets.chunk(size)[rank]
    norm, whole = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)  # of the ranks, and of one process
    optimizer = torch.optim.SGD([*norm.parameters(), *whole.parameters()], lr=0.5)
    for _ in range(20):
        loss = mse_loss(norm(own), own_targets, reduction="sum") / targets.numel()
        optimizer.zero_grad()
        (loss + mse_loss(whole(tokens), targets)).backward()
        for parameter in norm.parameters():
            dist.all_reduce(parameter.grad)
        optimizer.step()
    return norm.weight, whole.weight


facts = {}
for function in (mlp_before, mlp_after, dropout_before, dropout_after, norm_before, norm_after):
    ours, expected = function()
    facts[function.__name__] = (ours - expected).abs().max().item()
    if rank == 0:
        print(f"{function.__name__:>13}: off by {facts[function.__name__]:.2g} at most")
facts["smallest_before"] = min(facts[name] for name in facts if name.endswith("before"))
facts["largest_after"] = max(facts[name] for name in facts if name.endswith("after"))
dist.barrier()
time.sleep(0.1)  # let gloo's threads finish; ending at once can hang
dist.destroy_process_group()
report = [facts]
