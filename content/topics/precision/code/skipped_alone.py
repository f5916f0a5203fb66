"""Loss scaling on two ranks with a shard of the masters each. One shard alone overflows.

torchrun --nproc-per-node 2 skipped_alone.py
"""

import math
import time

import torch
import torch.distributed as dist
from torch.amp import GradScaler
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Shard

WIDTH, SAMPLES, STEPS, SCALE = 16, 32, 8, 16384.0

mesh = init_device_mesh("cpu", (2,))
rank, size = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
first = torch.randn(WIDTH, WIDTH) / 4
inputs, targets = torch.randn(SAMPLES, WIDTH).half(), torch.randn(SAMPLES, WIDTH)
targets[:, WIDTH // 2 :] *= 200  # so that gradients of the last rows of the weight are large
CUTS = {
    "replicas": lambda whole: whole,
    "alone": lambda whole: whole.chunk(size)[rank],
    "asked": lambda whole: whole.chunk(size)[rank],
    "dtensor": lambda whole: DTensor.from_local(whole.chunk(size)[rank], mesh, [Shard(0)]),
}


def gathered(master):
    """The whole weight, of the shards of all ranks."""
    local = (master.to_local() if isinstance(master, DTensor) else master).detach()
    dist.all_gather(parts := [torch.empty_like(local) for _ in range(size)], local)
    return parts[0] if len(local) == WIDTH else torch.cat(parts)


facts = {}
for way, cut in CUTS.items():
    master = cut(first).clone().requires_grad_()
    optimizer = torch.optim.Adam([master], lr=0.1)
    updates, powers = [], []  # after each step; the scale is a power of two
    scaler = GradScaler("cpu", init_scale=SCALE)
    for _ in range(STEPS):
        weight = gathered(master).half().requires_grad_()
        outputs = (inputs.chunk(size)[rank] @ weight.T).float()
        scaler.scale((outputs - targets.chunk(size)[rank]).square().mean()).backward()
        dist.all_reduce(gradient := weight.grad.float())
        master.grad = cut(gradient)
        scaler.unscale_(optimizer)
        if way == "asked":  # all ranks skip if any found a value that is not finite
            for found in scaler._found_inf_per_device(optimizer).values():
                dist.all_reduce(found, dist.ReduceOp.MAX)
        scaler.step(optimizer)
        scaler.update()
        updates.append(int(optimizer.state[master].get("step", 0)))
        powers.append(round(math.log2(scaler.get_scale())))
    if way == "replicas":
        true = gathered(master)
    apart = ((gathered(master) - true).norm() / (true - first).norm()).item()
    facts |= {f"{way}_apart": apart, f"{way}_updates": updates, f"{way}_powers": powers}
    facts |= {f"{way}_num_updates": updates[-1], f"{way}_scale": scaler.get_scale()}
    print(f"rank {rank}, {way}: {updates[-1]} updates, scale {scaler.get_scale():g}")
dist.all_gather_object(report := [None] * size, facts)
time.sleep(0.1)  # let gloo's threads finish; ending at once can hang
dist.destroy_process_group()
