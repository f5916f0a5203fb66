# right: two models under DDP, two optimizers, several forward passes in an update
"""A GAN: the discriminator's update, then the generator's."""

import itertools

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.functional import binary_cross_entropy_with_logits as bce
from torch.nn.parallel import DistributedDataParallel


def mlp(*sizes):
    layers = []
    for a, b in itertools.pairwise(sizes):
        layers += [nn.Linear(a, b), nn.LeakyReLU(0.2)]
    return nn.Sequential(*layers[:-1])


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    generator, discriminator = (
        DistributedDataParallel(mlp(4, 16, 2)),
        DistributedDataParallel(mlp(2, 16, 1), broadcast_buffers=False),
    )
    g_optimizer = torch.optim.Adam(generator.parameters(), lr=2e-4, betas=(0.5, 0.999))
    d_optimizer = torch.optim.Adam(discriminator.parameters(), lr=2e-4, betas=(0.5, 0.999))
    torch.manual_seed(dist.get_rank())
    ones, zeros = torch.ones(8, 1), torch.zeros(8, 1)
    for _ in range(4):
        real = torch.randn(8, 2) * 0.3 + 1
        fake = generator(torch.randn(8, 4))
        d_optimizer.zero_grad()
        both = discriminator(torch.cat([real, fake.detach()]))
        d_loss = (bce(both[:8], ones) + bce(both[8:], zeros)) / 2
        d_loss.backward()
        d_optimizer.step()
        g_optimizer.zero_grad()
        discriminator.requires_grad_(False)
        g_loss = bce(discriminator.module(fake), ones)
        g_loss.backward()
        discriminator.requires_grad_(True)
        g_optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
