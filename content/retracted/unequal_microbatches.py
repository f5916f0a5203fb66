"""Two microbatches of unequal size: torchrun --nproc-per-node 1 unequal_microbatches.py"""

import torch

torch.manual_seed(0)
samples, targets, model = torch.randn(100, 8), torch.randn(100, 1), torch.nn.Linear(8, 1)


def gradient(*parts: tuple[slice, float]) -> torch.Tensor:
    model.zero_grad()
    for part, weight in parts:
        (weight * (model(samples[part]) - targets[part]).square().mean()).backward()
    return model.weight.grad.clone()


few, many, whole = slice(0, 20), slice(20, 100), gradient((slice(0, 100), 1.0))
for name, weights in (("equal weights", (0.5, 0.5)), ("weighted by samples", (0.2, 0.8))):
    found = gradient((few, weights[0]), (many, weights[1]))
    print(f"{name}: {(found - whole).norm() / whole.norm():.1%} off")
