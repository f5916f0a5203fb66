"""Gradients that fp16 cannot hold: torchrun --nproc-per-node 1 vanished.py"""

import torch

torch.manual_seed(0)
model = torch.nn.Sequential(*[torch.nn.Linear(64, 64) for _ in range(3)])
for scale in (1.0, 65536.0):
    model.zero_grad()
    with torch.autocast("cpu", torch.float16):
        loss = model(torch.randn(4096, 64) / 100).float().square().mean() / 100
    (loss * scale).backward()
    gradients = torch.cat([p.grad.flatten() for p in model.parameters()])
    print(f"loss times {scale:.0f}: {(gradients == 0).float().mean():.0%} of gradients are zero")
