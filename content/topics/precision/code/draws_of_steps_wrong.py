"""Two replicas in bf16 round equal updates stochastically, and both alike.

torchrun --nproc-per-node 2 draws_of_steps_wrong.py
"""

import time

import torch
import torch.distributed as dist

UPDATES, SHARE, SEED = 32, 0.25, 5  # an update is this share of the distance between numbers
SPACING = 2**-7  # of bf16, from 1 to 2

dist.init_process_group("gloo")
weights = [torch.ones(4096).bfloat16()]
for step in range(UPDATES):
    generator = torch.Generator().manual_seed(SEED)
    exact = weights[step].float() + SHARE * SPACING
    noise = torch.randint(2**16, exact.shape, generator=generator, dtype=torch.int32)
    bits = (exact.view(torch.int32) + noise) & -(2**16)
    weights.append(bits.view(torch.float32).bfloat16())

start, end = weights[0], weights[-1]
first = end.clone()
dist.broadcast(first, 0)
num_apart = (end != first).sum()
dist.all_reduce(num_apart)
still = (end == start).float().mean().item()
mean = (end.float() - start.float()).mean().item() / SPACING
if dist.get_rank() == 0:
    print(f"moved on average: {mean:.3g} numbers; never moved: {still:.2g} of the weights")
report = [{"still": still, "mean": mean, "num_apart": num_apart.item()}]
dist.barrier()
time.sleep(0.1)  # let gloo's threads finish; ending at once can hang
dist.destroy_process_group()
