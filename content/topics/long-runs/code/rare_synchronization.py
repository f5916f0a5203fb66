"""DiLoCo: each rank trains alone for some steps, then an outer optimizer takes what all moved.

torchrun --nproc-per-node 2 rare_synchronization.py
"""

import time

import torch
import torch.distributed as dist
from torch.optim import SGD, AdamW

STEPS, OFTEN, RARELY, WIDTH, RATE = 32, 4, 16, 16, 0.01
PLAIN, NESTEROV = {"lr": 1.0}, {"lr": 0.7, "momentum": 0.9, "nesterov": True}

dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()


def mean(tensor):
    dist.all_reduce(tensor := tensor.clone())
    return tensor / size


def gradient(weights, step):
    source = torch.Generator().manual_seed(100 * step + rank)
    samples = torch.randn(8, WIDTH, generator=source)
    return samples.T @ (samples @ weights - samples.flip(1)) / len(samples)


def train(inner, every=1, outer=None):
    """Weights after all steps, and the bytes passed; without `outer`, as DDP does."""
    shared, num_bytes = torch.zeros(WIDTH, WIDTH), 0
    own = shared.clone()
    inner_optimizer = inner([own], lr=RATE)  # its moments stay on the rank
    outer_optimizer = outer and SGD([shared], **outer)
    for step in range(1, STEPS + 1):
        own.grad = gradient(own, step)
        if outer is None:
            own.grad, num_bytes = mean(own.grad), num_bytes + own.nbytes
        inner_optimizer.step()
        if outer and step % every == 0:
            shared.grad, num_bytes = mean(shared - own), num_bytes + own.nbytes
            outer_optimizer.step()
            own.copy_(shared)
    return own, num_bytes


report = {}
for name, inner in (("sgd", SGD), ("adamw", AdamW)):
    averaged_gradients, report["ddp_bytes"] = train(inner)
    averaged_weights, _ = train(inner, outer=PLAIN)
    report[f"{name}_apart"] = (averaged_weights - averaged_gradients).abs().max().item()
for name, every in (("often", OFTEN), ("rarely", RARELY)):
    _, report[f"{name}_bytes"] = train(AdamW, every, NESTEROV)
if rank == 0:
    for name, number in report.items():
        print(f"{name:>12} {number:.3g}")
report = [report]
dist.barrier()
time.sleep(0.1)  # let gloo's threads finish; ending at once can hang
dist.destroy_process_group()
