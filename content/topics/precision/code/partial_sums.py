"""A block whose last product tensor ranks divide: partial sums in bf16, added in three ways.

torchrun --nproc-per-node 1 partial_sums.py
"""

import torch

TOKENS, WIDTH, HIDDEN, PARTS = 128, 512, 2048, [1, 4, 16]


def ring(partial):
    """Each rank adds its own part to what arrives, and rounds."""
    total = partial[0]
    for part in partial[1:]:
        total = total + part
    return total


WAYS = {
    "ring_bf16": ring,
    "bf16_in_fp32": lambda partial: ring(partial.float()).bfloat16(),  # what ranks send is bf16
}

torch.manual_seed(0)
inputs = torch.randn(TOKENS, WIDTH).bfloat16()
up = (torch.randn(WIDTH, HIDDEN) / WIDTH**0.5).bfloat16()
down = (torch.randn(HIDDEN, WIDTH) / HIDDEN**0.5).bfloat16()
hidden = torch.relu(inputs @ up)
true = hidden.double() @ down.double()
facts = {}
for num in PARTS:
    parts = list(zip(hidden.chunk(num, 1), down.chunk(num, 0), strict=True))
    in_bf16 = torch.stack([one @ other for one, other in parts])  # each rounded to bf16
    in_fp32 = torch.stack([one.float() @ other.float() for one, other in parts])
    outputs = {name: way(in_bf16) for name, way in WAYS.items()}
    outputs["fp32"] = ring(in_fp32).bfloat16()  # parts are never rounded
    for name, output in outputs.items():
        facts[f"{name}_{num}"] = ((output.double() - true).norm() / true.norm()).item()
    print(f"{num:>2} parts:", *(f"{name} {facts[f'{name}_{num}']:.2g}" for name in outputs))
report = [facts]
