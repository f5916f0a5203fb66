"""Accumulated gradients that a wrapper of the optimizer deletes in the last microbatch.

torchrun --nproc-per-node 2 zeroed_between.py
"""

import time

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

NUM_MICROBATCHES = 4

dist.init_process_group("gloo")
torch.manual_seed(0)
model = DistributedDataParallel(nn.Linear(20, 1))
batch = torch.randn(NUM_MICROBATCHES, 10, 20, generator=torch.Generator().manual_seed(1))


def gradient(zeroed_before: int) -> Tensor:
    """The gradient of an update in which `zero_grad` acts before one of the microbatches."""
    for number, samples in enumerate(batch):
        if number == zeroed_before:
            model.zero_grad()
        (model(samples).square().mean() / NUM_MICROBATCHES).backward()
    return model.module.weight.grad.clone()


def difference(one: Tensor, other: Tensor) -> float:
    """The largest difference of two gradients."""
    return (one - other).abs().max().item()


once = gradient(zeroed_before=0)
zeroed_late = gradient(zeroed_before=NUM_MICROBATCHES - 1)  # where wrappers let the call through
model.zero_grad()
model(batch.flatten(0, 1)).square().mean().backward()
whole = model.module.weight.grad.clone()
model.zero_grad()
(model(batch[-1]).square().mean() / NUM_MICROBATCHES).backward()
last = model.module.weight.grad

report = [{}] * dist.get_world_size()
own = {"late_from_last": difference(zeroed_late, last), "once_from_whole": difference(once, whole)}
dist.all_gather_object(report, own | {"late_from_whole": difference(zeroed_late, whole)})
if dist.get_rank() == 0:
    print("largest difference from the gradient of the whole batch:")
    print(f"zeroed before the first microbatch {report[0]['once_from_whole']:.1e}")
    print(f"zeroed before the last microbatch {report[0]['late_from_whole']:.1e}")
    print(f"    and from the gradient of the last microbatch {report[0]['late_from_last']:.1e}")
dist.barrier()
time.sleep(0.1)  # let gloo's threads finish; ending at once can hang
dist.destroy_process_group()
