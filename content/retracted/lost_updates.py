"""Small updates on bf16 parameters: torchrun --nproc-per-node 1 lost_updates.py"""

import torch

for dtype in (torch.float32, torch.bfloat16):
    weight = torch.ones(1, dtype=dtype)
    for _ in range(1000):
        weight -= 0.001
    print(f"{dtype}: a thousand steps of a thousandth bring 1 to {weight.item():.3f}")
