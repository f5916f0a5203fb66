"""Numbers of narrow formats: how many lie between 1 and 2, and what rounding to them loses.

torchrun --nproc-per-node 1 numbers_on_a_line.py
"""

import torch

NUMBERS, MX_BLOCK, NV_BLOCK = 8192, 32, 16
FORMATS = {"bf16": torch.bfloat16, "fp16": torch.float16}
FORMATS |= {"e4m3": torch.float8_e4m3fn, "e5m2": torch.float8_e5m2}
E2M1 = torch.tensor([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0])  # what four bits can be, and minus it


def to_e2m1(values):
    """The nearest of the few; of two that are equally near, the even one."""
    middles = (E2M1[1:] + E2M1[:-1]) / 2
    down = torch.bucketize(values.abs(), middles)  # a middle goes down ...
    up = torch.bucketize(values.abs(), middles, right=True)  # ... or up
    return E2M1[torch.where(down % 2 == 0, down, up)] * values.sign()


def to_mxfp8(values):
    """Blocks of 32 with a scale that is a power of two: e4m3 from 256 to 448 holds the largest."""
    blocks = values.unflatten(0, (-1, MX_BLOCK))
    scales = torch.exp2(blocks.abs().amax(1, keepdim=True).log2().floor() - 8)
    held = (blocks / scales).clamp(-448, 448).to(torch.float8_e4m3fn)  # above 448: the largest
    return (held.float() * scales).flatten()


def to_nvfp4(values):
    """Blocks of 16 with a scale in e4m3, and one scale of the whole tensor in fp32."""
    blocks = values.unflatten(0, (-1, NV_BLOCK))
    whole = values.abs().max() / (448 * 6)
    scales = (blocks.abs().amax(1, keepdim=True) / 6 / whole).to(torch.float8_e4m3fn).float()
    return (to_e2m1(blocks / (scales * whole)) * scales * whole).flatten()


grid = torch.arange(0, 4, 2**-12)  # finer than all of these formats above 1
facts = {"shown_e2m1": E2M1.tolist()}
for name, dtype in FORMATS.items():
    limits, seen = torch.finfo(dtype), grid.to(dtype).float().unique()
    facts[f"{name}_largest"] = limits.max
    facts[f"{name}_least"] = limits.smallest_normal * limits.eps  # of those above zero
    facts[f"{name}_between"] = len(seen[(seen >= 1) & (seen < 2)])
    facts[f"{name}_spacing"] = (seen[seen > 1][0] - 1).item()
    facts[f"shown_{name}"] = seen[seen <= 3].tolist() if len(seen) < 100 else [0.0]
    print(f"{name}: up to {limits.max:g}, {facts[f'{name}_between']} numbers from 1 below 2")

torch.manual_seed(0)
drawn = torch.randn(NUMBERS)
for kind, values in {"near_one": drawn, "small": drawn * 2**-20}.items():
    rounded = {name: values.to(dtype).float() for name, dtype in FORMATS.items()}
    rounded |= {"mxfp8": to_mxfp8(values), "nvfp4": to_nvfp4(values)}
    for name, ours in rounded.items():
        facts[f"{kind}_{name}"] = ((ours - values).norm() / values.norm()).item()
        print(f"{kind:>8}, {name:>5}: relative error {facts[f'{kind}_{name}']:.2g}")
for name, dtype in FORMATS.items():  # ones added, as a ring or microbatches would add them
    total = 1.0
    while (after := torch.tensor(total + 1).to(dtype).item()) > total:
        total = after
    facts[f"{name}_stops"] = total
    print(f"{name}: a sum of ones stops at {total:g}")
report = [facts]
