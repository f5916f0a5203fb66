"""The same evaluation, fixed: it keeps one number of each batch.

torchrun --nproc-per-node 1 kept_graph_right.py
"""

# model_bytes: 4 * DEPTH * (WIDTH * WIDTH + WIDTH)
# batch_bytes: 4 * NUM_SAMPLES * WIDTH * (DEPTH + 1)
# budget_bytes: model_bytes + 4 * batch_bytes
import torch
from torch import nn

WIDTH, DEPTH, NUM_SAMPLES, BATCHES = 512, 8, 1024, 12

torch.manual_seed(0)
layers = [nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU()) for _ in range(DEPTH)]
model = nn.Sequential(*layers)
model.eval()
total = torch.zeros(())
for batch in range(BATCHES):
    samples = torch.randn(NUM_SAMPLES, WIDTH)
    loss = nn.functional.mse_loss(model(samples), samples)
    total += loss.item()
    print(f"batch {batch}: loss {loss.item():.4f}")
print(f"mean loss {total.item() / BATCHES:.4f}")
