"""Small updates of weights that two ranks replicate: to nearest, with a master, stochastically.

torchrun --nproc-per-node 2 update_on_line.py
"""

from functools import partial

import torch
import torch.distributed as dist

STEPS, WEIGHTS, SHARE = 16, 4096, 0.21  # an update is this share of bf16's spacing from 1 to 2
SPACING, SEED = 2**-7, 3


def stochastic(values, source):
    """fp32 to bf16: up as often as the bits that bf16 drops are large, out of their 16."""
    noise = torch.randint(2**16, values.shape, generator=source, dtype=torch.int32)
    return ((values.view(torch.int32) + noise) & -(2**16)).view(torch.float32).bfloat16()


def way(name):
    """How a way rounds, and whether it keeps fp32 beside what it rounded."""
    if name in ("nearest", "master"):
        return torch.Tensor.bfloat16, name == "master"
    seed = SEED + rank if name == "own_seed" else SEED
    return partial(stochastic, source=torch.Generator().manual_seed(seed)), False


def trained(start, rounding, keeps_master):
    """Weights after each step, and in fp32 after the last; all updates are the same."""
    held, master, seen = start.bfloat16(), start, [start]
    for _ in range(STEPS):
        master = (master if keeps_master else held.float()) + SHARE * SPACING
        held = rounding(master)
        seen.append(held.float())
    return seen, master


dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(0)
starts = (1 + torch.rand(WEIGHTS) / 2).bfloat16().float()
exact = STEPS * SHARE * SPACING
facts = {"wanted": [1 + step * SHARE * SPACING for step in range(STEPS + 1)]}
facts["numbers"] = [1 + n * SPACING for n in range(5)]
for name in ("nearest", "master", "one_seed", "own_seed"):
    (seen, _), (of_many, masters) = (trained(one, *way(name)) for one in (torch.ones(1), starts))
    facts[f"held_{name}"] = held = [one.item() for one in seen]
    off = [abs(one - wanted) for one, wanted in zip(held, facts["wanted"], strict=True)]
    facts |= {f"{name}_farthest": max(off) / SPACING, f"{name}_jumps": len({*held}) - 1}
    ends = masters if name == "master" else of_many[-1]
    both = [torch.empty_like(ends) for _ in range(2)]
    dist.all_gather(both, ends)
    apart = ((both[0] - both[1]).norm() / (WEIGHTS**0.5 * exact)).item()
    facts |= {f"{name}_moved": (ends - starts).mean().item() / exact, f"{name}_apart": apart}
    if rank == 0:
        print(f"{name:>8}: moved {facts[f'{name}_moved']:.3f} of the updates, apart by {apart:.2g}")
smaller = starts / 16  # whose spacing is as much smaller
facts["smaller_moved"] = (trained(smaller, *way("nearest"))[0][-1] - smaller).mean().item() / exact
report = [None] * 2
dist.all_gather_object(report, facts)
dist.destroy_process_group()
