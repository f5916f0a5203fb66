"""Numbers of narrow formats: how many lie between 1 and 2, and what rounding to them loses.

torchrun --nproc-per-node 1 numbers_on_a_line.py
"""

import torch

NUMBERS, MX_BLOCK, NV_BLOCK, FP8 = 8192, 32, 16, torch.float8_e4m3fn
FORMATS = {"bf16": torch.bfloat16, "fp16": torch.float16, "e4m3": FP8, "e5m2": torch.float8_e5m2}
E2M1 = torch.tensor([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0])  # what four bits can be, and minus it


def to_e2m1(values):
    """The nearest of the few; of two that are equally near, the even one."""
    middles = (E2M1[1:] + E2M1[:-1]) / 2
    down = torch.bucketize(values.abs(), middles)  # a middle goes down ...
    up = torch.bucketize(values.abs(), middles, right=True)  # ... or up
    return E2M1[torch.where(down % 2 == 0, down, up)] * values.sign()


def to_mxfp8(values):
    """Blocks of 32 in e4m3, with a scale that is a power of two: none exceeds 448 after it."""
    blocks = values.unflatten(0, (-1, MX_BLOCK))
    scales = torch.exp2((blocks.abs().amax(1, keepdim=True) / 448).log2().ceil())
    return ((blocks / scales).to(FP8).float() * scales).flatten()


def to_nvfp4(values):
    """Blocks of 16 with a scale in e4m3, and one scale of the whole tensor in fp32."""
    blocks = values.unflatten(0, (-1, NV_BLOCK))
    whole = values.abs().max() / (448 * 6)
    scales = (blocks.abs().amax(1, keepdim=True) / 6 / whole).to(FP8).float()
    return (to_e2m1(blocks / (scales * whole)) * scales * whole).flatten()


grid = torch.arange(1, 4, 2**-12)  # finer than all of these formats
points = torch.tensor([1.06, 1.3, 1.7, 2.3, 2.8, 3.3, 3.8])
facts = {"points": points.tolist(), "held_e2m1": to_e2m1(points).tolist()}
facts["shown_e2m1"] = E2M1[2:7].tolist()
for name, dtype in FORMATS.items():
    limits, seen = torch.finfo(dtype), grid.to(dtype).float().unique()
    facts[f"{name}_largest"] = limits.max
    facts[f"{name}_least"] = limits.smallest_normal * limits.eps
    facts[f"{name}_between"] = len(seen[seen < 2])
    facts |= {f"{name}_spacing": (seen[1] - 1).item(), f"shown_{name}": seen[:300].tolist()}
    facts[f"held_{name}"] = points.to(dtype).float().tolist()
    total = 1.0
    while (after := torch.tensor(total + 1).to(dtype).item()) > total:  # a sum of ones
        total = after
    facts[f"{name}_stops"] = total
    print(f"{name}: {facts[f'{name}_between']} numbers from 1 below 2, sums of 1 stop at {total:g}")

torch.manual_seed(0)
drawn = torch.randn(NUMBERS)
for kind, values in {"near_one": drawn, "small": drawn * 2**-20}.items():
    rounded = {name: values.to(dtype).float() for name, dtype in FORMATS.items()}
    rounded |= {"mxfp8": to_mxfp8(values), "nvfp4": to_nvfp4(values)}
    for name, ours in rounded.items():
        facts[f"{kind}_{name}"] = error = ((ours - values).norm() / values.norm()).item()
        print(f"{kind:>8}, {name:>5}: relative error {error:.2g}")
report = [facts]
