"""Two ranks train one weight, stop, and go on from what they saved: with all of it, and without.

torchrun --nproc-per-node 2 resumed_smallest.py
"""

import time

import torch
import torch.distributed as dist

STEPS, SAVED_AT = 6, 3
LEFT = STEPS - SAVED_AT

dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()


def train(state, num_steps):
    """Go on for some steps; the weight after each step."""
    weights = []
    for _ in range(num_steps):
        sample = torch.tensor(2 * state["step"] + rank)  # of this step and rank
        dist.all_reduce(sample)  # stands for the gradient
        state["momentum"] = sample.item() + state["momentum"] // 2
        state["weight"] += state["momentum"]
        state["step"] += 1
        weights.append(state["weight"])
    return weights


def begin():
    return {"weight": 0, "momentum": 0, "step": 0}


def resumed(left_out):
    """What another process does that begins with the saved state, but for one part of it."""
    return train(begin() | {part: saved[part] for part in saved if part != left_out}, LEFT)


state = begin()
until = train(state, SAVED_AT)
saved = dict(state)  # a program writes it to a file
whole = until + train(state, LEFT)

results = {
    "samples": [2 * step + rank for step in range(STEPS)], "whole": whole,
    "saved": list(saved.values()), "with_all": resumed(None),
    "without_momentum": resumed("momentum"), "without_step": resumed("step"),
}  # fmt: skip
if rank == 0:
    for name in ("whole", "with_all", "without_momentum", "without_step"):
        print(f"{name:17} {results[name]}")
apart = {f"{name}_apart": of[-1] - whole[-1] for name, of in results.items()}
report = [None] * size
dist.all_gather_object(report, results | apart)
dist.barrier()
time.sleep(0.1)  # let gloo's threads finish; ending at once can hang
dist.destroy_process_group()
