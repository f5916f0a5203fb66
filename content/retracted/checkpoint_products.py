"""Products that a checkpoint adds: torchrun --nproc-per-node 1 checkpoint_products.py"""

import torch
from torch.utils.checkpoint import checkpoint
from torch.utils.flop_counter import FlopCounterMode

blocks = [
    torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 64))
    for _ in range(8)
]
counts = []
for is_cut in (False, True):
    with FlopCounterMode(display=False) as counter:
        samples = torch.randn(32, 64)
        for block in blocks:
            samples = checkpoint(block, samples, use_reentrant=False) if is_cut else block(samples)
        samples.sum().backward()
    counts.append(counter.get_total_flops())
print(f"a step computes {counts[1] / counts[0] - 1:.1%} more with a checkpoint for every block")
