"""Small updates on bf16 parameters: torchrun --nproc-per-node 1 lost_updates.py"""

import torch

for dtype in (torch.float32, torch.bfloat16):
    weight = torch.ones(1, dtype=dtype)
    for _ in range(1000):
        weight -= 0.001
    print(f"{dtype}: 1 minus 1,000 updates of 0.001 is {weight.item():.3f}")
