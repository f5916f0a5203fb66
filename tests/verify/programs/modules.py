"""Several modules, modules divided by hand, and parameters of no module.

torchrun --nproc-per-node 2 modules.py WAY
"""

import copy
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed._functional_collectives import all_to_all_single_autograd
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

WAY = sys.argv[1]
WIDTH = 16
dist.init_process_group("gloo")
rank, ranks = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)


def mlp(outputs=WIDTH):
    return nn.Sequential(nn.Linear(WIDTH, 32), nn.GELU(), nn.LayerNorm(32), nn.Linear(32, outputs))


def drawn(step, *shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(10 * step + rank))


def adversarial():
    """The two steps of a GAN; the discriminator's gradients of the second are thrown away."""
    judge, maker = DistributedDataParallel(mlp(1)), DistributedDataParallel(mlp())
    judges = torch.optim.Adam(judge.parameters(), lr=1e-3)
    makers = torch.optim.Adam(maker.parameters(), lr=1e-3)
    for step in range(3):
        real, noise = drawn(step, 8, WIDTH), drawn(100 + step, 8, WIDTH)
        judges.zero_grad()
        functional.binary_cross_entropy_with_logits(judge(real), torch.ones(8, 1)).backward()
        made = maker(noise)
        fooled = functional.binary_cross_entropy_with_logits(
            judge(made.detach()), torch.zeros(8, 1)
        )
        fooled.backward()
        judges.step()
        makers.zero_grad()
        functional.binary_cross_entropy_with_logits(judge(made), torch.ones(8, 1)).backward()
        makers.step()


def distilled():
    """A student learns from a frozen teacher."""
    teacher, student = mlp().eval(), DistributedDataParallel(mlp())
    optimizer = torch.optim.AdamW(student.parameters())
    for step in range(3):
        x = drawn(step, 8, WIDTH)
        with torch.no_grad():
            goal = teacher(x)
        optimizer.zero_grad()
        (0.5 * functional.mse_loss(student(x), goal)).backward()
        optimizer.step()


def two_parts():
    """An encoder and a head, called one after the other, with an optimizer each."""
    parts = [DistributedDataParallel(mlp()), DistributedDataParallel(nn.Linear(WIDTH, 5))]
    optimizers = [torch.optim.AdamW(one.parameters()) for one in parts]
    for step in range(3):
        y = torch.randint(0, 5, (8,), generator=torch.Generator().manual_seed(step + 7 * rank))
        for one in optimizers:
            one.zero_grad()
        functional.cross_entropy(parts[1](parts[0](drawn(step, 8, WIDTH))), y).backward()
        for one in optimizers:
            one.step()


class Columns(nn.Module):
    """Two layers of which each rank has a part, added up by hand."""

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(WIDTH, WIDTH)
        self.up, self.down = (
            nn.Linear(WIDTH, 32 // ranks),
            nn.Linear(32 // ranks, WIDTH, bias=False),
        )

    def forward(self, x):
        y = self.down(functional.gelu(self.up(self.first(x))))
        dist.all_reduce(y.data)  # and nothing adds up the gradient of `first`
        return y


def columns_wrong():
    """Tensor parallelism by hand that lacks its reduction in backward."""
    model = Columns()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(3):
        x = torch.randn(8, WIDTH, generator=torch.Generator().manual_seed(step))
        optimizer.zero_grad()
        functional.mse_loss(model(x), x).backward()
        optimizer.step()


def experts_wrong():
    """Experts that receive the tokens of all ranks; nobody divides their gradients."""
    dense, experts = nn.Linear(WIDTH, WIDTH), [nn.Linear(WIDTH, WIDTH) for _ in range(ranks)]
    own = experts[rank]
    optimizer = torch.optim.SGD([*dense.parameters(), *own.parameters()], lr=0.1)
    for step in range(3):
        optimizer.zero_grad()
        x = dense(drawn(step, 8, WIDTH)).reshape(-1, ranks, WIDTH).transpose(0, 1).contiguous()
        got = all_to_all_single_autograd(x, None, None, dist.group.WORLD)
        back = all_to_all_single_autograd(own(got), None, None, dist.group.WORLD)
        back.square().mean().backward()
        for one in dense.parameters():
            dist.all_reduce(one.grad)
            one.grad /= ranks
        optimizer.step()


def stages_by_hand():
    """Two stages that send activations and gradients themselves."""
    torch.manual_seed(rank)
    layer = mlp()
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
    for step in range(3):
        x = torch.randn(8, WIDTH, generator=torch.Generator().manual_seed(step))
        optimizer.zero_grad()
        if rank == 0:
            y = layer(x)
            dist.send(y.detach(), 1)
            gradient = torch.empty_like(y)
            dist.recv(gradient, 1)
            y.backward(gradient)
        elif rank == 1:
            h = torch.empty(8, WIDTH)
            dist.recv(h, 0)
            h.requires_grad_()
            functional.mse_loss(layer(h), x).backward()
            dist.send(h.grad, 0)
        optimizer.step()


def penalty():
    """A weight penalty that uses parameters outside of the module."""
    model = DistributedDataParallel(mlp())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(3):
        x = drawn(step, 8, WIDTH)
        optimizer.zero_grad()
        loss = functional.mse_loss(model(x), x)
        (loss + 1e-3 * sum(one.square().sum() for one in model.parameters())).backward()
        optimizer.step()


def local_updates_wrong():
    """Parameters are averaged now and then, instead of gradients."""
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(4):
        x = drawn(step, 8, WIDTH)
        optimizer.zero_grad()
        functional.mse_loss(model(x), x).backward()
        optimizer.step()
        if step % 2:
            for one in model.parameters():
                dist.all_reduce(one.data)
                one.data /= ranks


def without_optimizer():
    """Updates by hand, and no optimizer."""
    model = DistributedDataParallel(mlp())
    for step in range(3):
        x = drawn(step, 8, WIDTH)
        functional.mse_loss(model(x), x).backward()
        with torch.no_grad():
            for one in model.parameters():
                one.sub_(0.1 * one.grad)
                one.grad = None


def batch_norm():
    """Each rank normalizes over its own samples."""
    model = DistributedDataParallel(
        nn.Sequential(nn.Linear(WIDTH, 8), nn.BatchNorm1d(8), nn.ReLU())
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, weight_decay=0.1)
    for step in range(3):
        optimizer.zero_grad()
        functional.mse_loss(model(drawn(step, 8, WIDTH)), torch.ones(8, 8)).backward()
        optimizer.step()


def weighted_by_hand():
    """Unequal parts of a batch, weighted before a sum over ranks."""
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    counts = [3 + one for one in range(ranks)]
    for step in range(3):
        x = drawn(step, counts[rank], WIDTH)
        optimizer.zero_grad()
        functional.mse_loss(model(x), x).backward()
        for one in model.parameters():
            one.grad *= counts[rank] / sum(counts)
            dist.all_reduce(one.grad)
        optimizer.step()


def spectral():
    """A module that keeps state of its own from pass to pass."""
    layer = nn.utils.parametrizations.spectral_norm(nn.Linear(WIDTH, WIDTH))
    model = DistributedDataParallel(nn.Sequential(layer, nn.Tanh()))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(3):
        x = drawn(step, 8, WIDTH)
        optimizer.zero_grad()
        functional.mse_loss(model(x), x).backward()
        optimizer.step()


def averaged_copy():
    """A copy that follows the model, and is asked for targets."""
    model = DistributedDataParallel(mlp())
    copied = copy.deepcopy(model.module)
    optimizer = torch.optim.AdamW(model.parameters())
    for step in range(3):
        x = drawn(step, 8, WIDTH)
        optimizer.zero_grad()
        with torch.no_grad():
            goal = copied(x)
        functional.smooth_l1_loss(model(x), goal + 1).backward()
        optimizer.step()
        for old, new in zip(copied.parameters(), model.parameters(), strict=True):
            old.data.lerp_(new.data, 0.1)


globals()[WAY]()
dist.barrier()
dist.destroy_process_group()
