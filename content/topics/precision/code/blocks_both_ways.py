"""A weight is rounded to fp8 in blocks along its rows, and along its columns for its transpose.

torchrun --nproc-per-node 1 blocks_both_ways.py
"""

import torch

ROWS, COLUMNS, BLOCK, LARGEST = 256, 512, 32, 448


def in_blocks(values, high, wide, powers):
    """Codes, scales, and the values that both give; a block has `high` rows, `wide` columns."""
    parts = values.unflatten(1, (-1, wide)).unflatten(0, (-1, high))
    scale = parts.abs().amax((1, 3), keepdim=True) / LARGEST
    scale = scale.log2().ceil().exp2().to(torch.float8_e8m0fnu) if powers else scale
    codes = (parts / scale.float()).to(torch.float8_e4m3fn)
    return *((x.flatten(2).flatten(0, 1)) for x in (codes, codes.float() * scale.float())), scale


torch.manual_seed(0)
weight = torch.randn(ROWS, COLUMNS)
wide = weight * (8 * torch.randn(ROWS, COLUMNS)).exp2()  # neighbours of very unequal size
facts = {"bf16_bytes": weight.bfloat16().nbytes}
WAYS = {"mxfp8": (1, BLOCK, True), "free_scales": (1, 128, False), "square": (128, 128, False)}
for way, (high, width, powers) in WAYS.items():
    for name, values in {"": weight, "_wide": wide}.items():
        codes, ours, scale = in_blocks(values, high, width, powers)
        codes_back, ours_back, scale_back = in_blocks(values.T, high, width, powers)
        facts[f"{way}{name}_codes_differ"] = (
            (codes.float() != codes_back.T.float()).float().mean().item()
        )
        facts[f"{way}{name}_values_differ"] = (ours != ours_back.T).float().mean().item()
        recoded = in_blocks(ours.T, high, width, powers)[1]
        for by, one in {"source": ours_back, "recoded": recoded}.items():
            facts[f"{way}{name}_from_{by}"] = ((one.T - values).norm() / values.norm()).item()
    facts[f"{way}_bytes"] = codes.nbytes + scale.nbytes
    facts[f"{way}_both_bytes"] = facts[f"{way}_bytes"] * (1 if way == "square" else 2)
for name, fact in facts.items():
    print(f"{name}: {round(fact, 6)}")
report = [facts]
