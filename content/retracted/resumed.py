"""Resumed with and without Adam's moments: torchrun --nproc-per-node 1 resumed.py"""

import torch

torch.manual_seed(0)
samples, targets = torch.randn(64, 8), torch.randn(64, 1)


def trained(num_steps: int, *saved: dict) -> tuple[torch.nn.Linear, torch.optim.Adam]:
    torch.manual_seed(1)
    model = torch.nn.Linear(8, 1)
    update = torch.optim.Adam(model.parameters(), lr=0.05)
    _ = [part.load_state_dict(kept) for part, kept in zip((model, update), saved, strict=False)]
    for _ in range(num_steps):
        update.zero_grad()
        (model(samples) - targets).square().mean().backward()
        update.step()
    return model, update


whole, saved = trained(20)[0].weight, [part.state_dict() for part in trained(10)]
for name, kept in (("with moments", saved), ("parameters alone", saved[:1])):
    print(f"{name}: {(trained(10, *kept)[0].weight - whole).norm():.4f} apart")
