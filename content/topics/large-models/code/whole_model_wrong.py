"""Wrong: one device stores the whole model, however large it is.

torchrun --nproc-per-node 1 whole_model_wrong.py
"""

import torch
from torch import nn

WIDTH, DEPTH, STEPS = 2048, 8, 4


def layer(index: int) -> nn.Module:
    torch.manual_seed(index)
    return nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.LayerNorm(WIDTH), nn.ReLU())


model = nn.Sequential(*(layer(index) for index in range(DEPTH)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
torch.manual_seed(DEPTH)
samples, targets = torch.randn(16, WIDTH), torch.rand(16, WIDTH)

num_parameters = sum(p.numel() for p in model.parameters())
print(f"rank 0 holds {num_parameters:,} parameters")
for step in range(STEPS):
    optimizer.zero_grad()
    errors = nn.functional.mse_loss(model(samples), targets, reduction="sum")
    loss = errors / len(samples)
    loss.backward()
    optimizer.step()
    print(f"step {step}: loss {loss.item():.2f}")

# copies_per_parameter: 2
# model_bytes: 4 * DEPTH * (WIDTH * WIDTH + 3 * WIDTH)
# largest_stage_bytes: 4 * ((DEPTH + 1) // 2) * (WIDTH * WIDTH + 3 * WIDTH)
# budget_bytes: copies_per_parameter * (largest_stage_bytes + model_bytes) // 2
# expected: out_of_memory
