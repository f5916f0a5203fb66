"""Two ranks train with a master in fp32, and go on from a checkpoint after every few steps.

torchrun --nproc-per-node 2 resumed_master_wrong.py
"""

import time

import torch
import torch.distributed as dist

PARTS, STEPS, RATE = 16, 3, 2**-10  # RATE is 1/8 of the distance between two numbers of bf16

dist.init_process_group("gloo")
rank = dist.get_rank()


def trained(master, steps):
    for _ in range(steps):
        weight = master.bfloat16()  # for forward and backward
        gradient = torch.ones_like(weight).float() * (rank + 0.5)
        dist.all_reduce(gradient)
        master = master - RATE * gradient / dist.get_world_size()
    return master


start = torch.linspace(1.25, 1.75, 100).bfloat16().float()
true = trained(start, PARTS * STEPS)
master = start
for _ in range(PARTS):
    master = trained(master, STEPS)
    saved = master.bfloat16()
    master = saved.float()  # in a new process

apart = ((master - true).norm() / (true - start).norm()).item()
if rank == 0:
    print(f"distance from training in one go, by the distance moved: {apart:.2g}")
report = [{"apart": apart}]
dist.barrier()
time.sleep(0.1)  # let gloo's threads finish; ending at once can hang
dist.destroy_process_group()
