"""Two ranks train, save, and begin anew from what they saved: with all of it, then without a part.

torchrun --nproc-per-node 2 resumed_smallest.py
"""

import time

import torch
import torch.distributed as dist

STEPS, SAVED_AT = 8, 4

dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()


def begin():
    """A model and its optimizer, as a program has them when it starts."""
    torch.manual_seed(0)
    model = torch.nn.Linear(8, 1)
    return model, torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)


def train(model, optimizer, first, last):
    for step in range(first, last):
        torch.manual_seed(1000 * step + rank)  # the samples of this step and rank
        loss = model(torch.randn(16, 8)).sub(1).square().mean()
        optimizer.zero_grad()
        loss.backward()
        for weight in model.parameters():
            dist.all_reduce(weight.grad)
            weight.grad /= size
        optimizer.step()
    return model.weight.detach().clone()


def resumed(left_out):
    """The weights of a run that ends after a save, and of which another process goes on."""
    model, optimizer = begin()
    train(model, optimizer, 0, SAVED_AT)
    saved = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": SAVED_AT}
    model, optimizer = begin()
    model.load_state_dict(saved["model"])
    if left_out != "optimizer":
        optimizer.load_state_dict(saved["optimizer"])
    return train(model, optimizer, 0 if left_out == "step" else saved["step"], STEPS)


whole = train(*begin(), 0, STEPS)
apart = {out: (resumed(out) - whole).abs().max().item() for out in ("nothing", "optimizer", "step")}
if rank == 0:
    for left_out, distance in apart.items():
        print(f"left out: {left_out:9}  apart at the end: {distance:.4f}")
report = [None] * size
dist.all_gather_object(report, {f"apart_without_{out}": number for out, number in apart.items()})
dist.barrier()
time.sleep(0.1)  # let gloo's threads finish; ending at once can hang
dist.destroy_process_group()
