"""One scale for a tensor, a row or a block: what a large value costs the others.

torchrun --nproc-per-node 1 scales_of_parts.py
"""

import torch

ROWS, WIDTH, BLOCK, LARGE, HUGE, MOST = 64, 256, 128, 30, 1e6, 448
FP8, LARGEST = torch.float8_e4m3fn, {"e4m3": MOST, "e2m1": 6}
E2M1 = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6])  # all magnitudes of four bits


def coded(values, number):
    if number == "e4m3":
        return values.clamp(-MOST, MOST).to(FP8).float()
    return E2M1[(values.abs()[..., None] - E2M1).abs().argmin(-1)] * values.sign()


def rounded(values, number, block, powers=False):
    """Rounded in parts of `block` numbers with a scale each, and multiplied by the scales again."""
    parts = values.reshape(-1, block)
    scale = parts.abs().amax(1, keepdim=True) / LARGEST[number]
    scale = scale.log2().ceil().exp2() if powers else scale
    return (coded(parts / scale, number) * scale).view_as(values)


def error(ours, right):
    return ((ours.float() - right).norm() / right.norm()).item()


torch.manual_seed(0)
plain = torch.randn(ROWS, WIDTH)
row, column, milder = plain.clone(), plain.clone(), plain.clone()
row[3] *= HUGE
column[:, 5] *= HUGE  # one value in every row
milder[:, 5] *= LARGE
others = torch.ones_like(plain, dtype=torch.bool)
others[3], others[:, 5] = False, False  # errors are those of all other values
WAYS = {
    "tensor": ("e4m3", ROWS * WIDTH), "row": ("e4m3", WIDTH), "block": ("e4m3", BLOCK),
    "mxfp8": ("e4m3", 32, True), "four_tensor": ("e2m1", ROWS * WIDTH),
    "four_row": ("e2m1", WIDTH), "four_block": ("e2m1", 16),
}  # fmt: skip
facts = {}
for name, values in {"plain": plain, "milder": milder, "row": row, "column": column}.items():
    for way, how in WAYS.items():
        facts[f"{way}_{name}"] = error(rounded(values, *how)[others], values[others])
    print(f"{name:>8}:", *(f"{way} {facts[f'{way}_{name}']:.3f}" for way in WAYS))

second = torch.randn(WIDTH, ROWS).T.contiguous()  # its rows are columns of the second factor
for way, scale in {"tensor": lambda x: x.abs().max(), "row": lambda x: x.abs().amax(1)}.items():
    scales = [(scale(one) / LARGEST["e4m3"]).reshape(-1, 1) for one in (plain, second)]
    one, two = (plain / scales[0]).to(FP8), (second / scales[1]).to(FP8)
    product = torch._scaled_mm(one, two.T, scales[0], scales[1].T, out_dtype=torch.bfloat16)
    by_hand = (one.float() * scales[0]) @ (two.float() * scales[1]).T
    facts[f"kernel_{way}"] = error(product, by_hand.bfloat16().float())
    facts[f"product_{way}"] = error(product, plain @ second.T)
    print(f"product by {way}: {facts[f'kernel_{way}']:.1g}, {facts[f'product_{way}']:.3f}")
beyond = torch.tensor(1e6)
facts["e4m3_beyond"] = beyond.to(FP8).item()
facts["e5m2_infinite"] = int(beyond.to(torch.float8_e5m2).float().isinf())
print(f"beyond the range: {facts['e4m3_beyond']} in e4m3, infinite in e5m2")
report = [facts]
