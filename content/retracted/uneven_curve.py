"""How far each epoch brings the loss down: torchrun --nproc-per-node 1 uneven_curve.py"""

import torch

torch.manual_seed(0)
samples = torch.randn(2000, 8)
targets = (samples[:, :1] * samples[:, 1:2]).sign() + torch.randn(2000, 1) / 2
model = torch.nn.Sequential(torch.nn.Linear(8, 32), torch.nn.Tanh(), torch.nn.Linear(32, 1))
update = torch.optim.SGD(model.parameters(), lr=0.2)
for epoch in range(1, 9):
    losses = []
    for batch in torch.randperm(2000).split(50):
        update.zero_grad()
        loss = (model(samples[batch]) - targets[batch]).square().mean()
        loss.backward()
        update.step()
        losses.append(loss.item())
    print(f"epoch {epoch}: loss {sum(losses) / len(losses):.4f}")
