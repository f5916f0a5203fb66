# right: three losses written by hand and added: MSE, KL divergence, weighted BCE with logits
"""A variational autoencoder with a classifier on its code."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class VAE(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder, self.decoder = nn.Linear(12, 8), nn.Linear(4, 12)
        self.classifier = nn.Linear(4, 1)

    def forward(self, x):
        mean, log_variance = self.encoder(x).chunk(2, -1)
        code = mean + torch.randn_like(mean) * (log_variance / 2).exp()
        return self.decoder(code), mean, log_variance, self.classifier(mean).squeeze(-1)


def vae_loss(x, y, output):
    reconstruction, mean, log_variance, logit = output
    mse = (reconstruction - x).pow(2).sum(-1).mean()
    kl = -0.5 * (1 + log_variance - mean.pow(2) - log_variance.exp()).sum(-1).mean()
    bce = torch.maximum(logit, torch.zeros_like(logit)) - logit * y
    bce = bce + torch.log1p(torch.exp(-logit.abs()))
    return mse + 0.1 * kl + ((1 + y) * bce).mean()


dist.init_process_group("gloo")
torch.manual_seed(0)
model = DistributedDataParallel(VAE())
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
torch.manual_seed(1 + dist.get_rank())
for _ in range(4):
    x = torch.randn(8, 12)
    loss = vae_loss(x, (x[:, 0] > 0).float(), model(x))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
dist.destroy_process_group()
