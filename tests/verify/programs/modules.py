"""Several modules, modules divided by hand, and parameters of no module.

torchrun --nproc-per-node 2 modules.py WAY
"""

import copy
import sys
import types
from dataclasses import dataclass
from functools import partial

import torch
import torch.distributed as dist
import whole
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate
from torch.distributed.tensor.parallel import ColwiseParallel, parallelize_module
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

WAY = sys.argv[1]
WIDTH = 16
dist.init_process_group("gloo")
rank, ranks = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)


def mlp(outputs=WIDTH):
    return nn.Sequential(nn.Linear(WIDTH, 32), nn.GELU(), nn.LayerNorm(32), nn.Linear(32, outputs))


def drawn(step, *shape, of=rank):
    """Samples of one rank, or of all of them."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(10 * step + of))


def reduced(tensors):
    """Replace tensors by their means over ranks."""
    for one in tensors:
        dist.all_reduce(one)
        one.div_(ranks)


def reduce_gradients(module):
    reduced(one.grad for one in module.parameters())


def copied(model, x):
    """The loss of a model that is to return what it is given."""
    return functional.mse_loss(model(x), x)


def near_one(model, x):
    y = model(x)
    y = y.y if isinstance(y, Outputs) else y
    return functional.mse_loss(y, gathered(y) if WAY == "gathered" else torch.ones_like(y))


def towards(teacher, factor=1.0):
    """The loss of a model that is to say what another one says, and one more."""

    def loss_of(model, x):
        with torch.no_grad():
            goal = teacher(x)
        return factor * functional.mse_loss(model(x), goal + 1)

    return loss_of


def trained(
    module, loss_of=near_one, rule=torch.optim.SGD, wrap=DistributedDataParallel,
    batch_of=lambda step: drawn(step, 8, WIDTH), before_loss=None, after_backward=None,
    after_step=None, num_steps=4,
):  # fmt: skip
    """A loop of the usual kind, into which a way puts one thing of its own."""
    model = wrap(module)
    optimizer = rule(model.parameters(), lr=0.1 if rule is torch.optim.SGD else 1e-3)
    for step in range(num_steps):
        if before_loss:
            before_loss(step, module)
        x = batch_of(step)
        optimizer.zero_grad()
        loss_of(model, x).backward()
        if after_backward:
            after_backward(module)
        optimizer.step()
        if after_step:
            after_step(step, module)


def bare(module):
    """In the place of DDP: what a script reduces itself."""
    return module


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


def two_parts():
    """An encoder and a head, called one after the other, with an optimizer each."""
    parts = [DistributedDataParallel(mlp()), DistributedDataParallel(nn.Linear(WIDTH, 5))]
    optimizers = [torch.optim.AdamW(one.parameters()) for one in parts]
    for step in range(3):
        x = drawn(step, 8, WIDTH)
        for one in optimizers:
            one.zero_grad()
        functional.cross_entropy(parts[1](parts[0](x)), x[:, :5].argmax(1)).backward()
        for one in optimizers:
            one.step()


class Columns(whole.Columns):
    """The same, of which each of two ranks has a part."""

    def __init__(self, group=None):
        super().__init__()
        self.group = group
        for name, one in self.named_parameters():
            if name.startswith(("qkv", "up", "out", "down")):
                dim, blocks = int(name in ("out.weight", "down.weight")), 3 if "qkv" in name else 1
                parts = one.data.unflatten(dim, (blocks, -1)).chunk(2, dim + 1)
                one.data = parts[rank % 2].flatten(dim, dim + 1).clone()

    def enters(self, x):
        return x if WAY == "columns_wrong" else Reduced.apply(x, self.group, False)

    def leaves(self, y):
        return Reduced.apply(y, self.group, True)


class Reduced(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group, in_forward):
        ctx.group, ctx.in_forward = group, in_forward
        return added(x, group) if in_forward else x.clone()

    @staticmethod
    def backward(ctx, gradient):
        return gradient if ctx.in_forward else added(gradient, ctx.group), None, None


def added(x, group):
    x = x.clone()
    dist.all_reduce(x, group=group)
    return x


def columns():
    """Tensor parallelism by hand; on 4 ranks, with data parallelism by hand."""
    pairs = [dist.new_group([0, 1]), dist.new_group([2, 3])] if ranks == 4 else [None]
    same = [dist.new_group([0, 2]), dist.new_group([1, 3])] if ranks == 4 else []

    def average(module):
        for one in module.parameters() if same else ():
            dist.all_reduce(one.grad, group=same[rank % 2])
            one.grad /= 2

    def batch_of(step):
        return drawn(step, 4, 6, WIDTH, of=rank // 2)

    model = Columns(pairs[rank // 2])
    trained(model, copied, wrap=bare, batch_of=batch_of, after_backward=average)


def stages_by_hand():
    """Two stages that send activations and gradients themselves."""
    torch.manual_seed(rank)
    layer = mlp()
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
    for step in range(3):
        x = drawn(step, 8, WIDTH, of=0)
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

    def loss_of(model, x):
        return copied(model, x) + 1e-3 * sum(one.square().sum() for one in model.parameters())

    trained(mlp(), loss_of)


def local_updates(period, rule=torch.optim.SGD):
    """Parameters are averaged after some of the steps, instead of gradients."""

    def average(step, module):
        if (step + 1) % period == 0:
            reduced(one.data for one in module.parameters())

    trained(mlp(), copied, rule, wrap=bare, after_step=average)


def without_optimizer():
    """Updates by hand, and no optimizer."""
    model = DistributedDataParallel(mlp())
    for step in range(3):
        x = drawn(step, 8, WIDTH)
        copied(model, x).backward()
        with torch.no_grad():
            for one in model.parameters():
                one.sub_(0.1 * one.grad)
                one.grad = None


def weighted_by_hand():
    """Unequal parts of a batch, weighted before a sum over ranks."""
    counts = [3 + one for one in range(ranks)]

    def add(module):
        for one in module.parameters():
            one.grad *= counts[rank] / sum(counts)
            dist.all_reduce(one.grad)

    def batch_of(step):
        return drawn(step, counts[rank], WIDTH)

    trained(mlp(), copied, wrap=bare, batch_of=batch_of, after_backward=add)


def by_hand(per_rank):
    """A cross-entropy by hand over unequal numbers of tokens."""

    def loss_of(model, x):
        mask = (torch.arange(8) < 3 + 4 * rank).float()
        count = mask.sum()
        if not per_rank:
            dist.all_reduce(count)
            count /= ranks
        picked = model(x).log_softmax(-1)[torch.arange(8), x[:, :9].argmax(1)]
        return -(picked * mask).sum() / count

    trained(mlp(9), loss_of)


def spectral():
    """A module that keeps state of its own from pass to pass."""
    layer = nn.utils.parametrizations.spectral_norm(nn.Linear(WIDTH, WIDTH))
    trained(nn.Sequential(layer, nn.Tanh()), copied, num_steps=3)


def averaged_copy():
    """A copy that follows the model, and is asked for targets."""
    module = mlp()
    average = copy.deepcopy(module)

    def follow(_, module):
        for old, new in zip(average.parameters(), module.parameters(), strict=True):
            if WAY != "averaged_on_one" or rank == 0:
                old.data.lerp_(new.data, 0.1)

    trained(module, towards(average), torch.optim.AdamW, after_step=follow)


def skipped():
    """One rank leaves out a step."""
    model = DistributedDataParallel(mlp())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for step in range(5):
        x = drawn(step, 8, WIDTH)
        optimizer.zero_grad()
        copied(model, x).backward()
        if rank == 0 or step != 1:
            optimizer.step()


class Projected(nn.Module):
    """A layer behind a projection that is drawn, and not trained."""

    def __init__(self):
        super().__init__()
        self.register_buffer("projection", torch.randn(WIDTH, 8))
        self.layer = nn.Linear(8, 4)

    def forward(self, x):
        return self.layer(x @ self.projection)


def projected():
    """Each rank draws a projection of its own, and only gradients are reduced."""
    torch.manual_seed(rank)
    module = Projected()
    for one in module.parameters():
        dist.broadcast(one.data, 0)
    trained(module, wrap=bare, after_backward=reduce_gradients)


def columns_beside(is_seeded):
    """Tensor parallelism of two layers; what stays plain is drawn with each rank's own seed."""
    torch.manual_seed(rank if is_seeded else 0)
    model = mlp()
    whole_outputs = ColwiseParallel(output_layouts=Replicate())
    mesh = init_device_mesh("cpu", (ranks,))
    parallelize_module(model, mesh, {"0": whole_outputs, "3": whole_outputs})
    model.insert(0, nn.Linear(WIDTH, WIDTH))
    trained(model, copied, wrap=bare, batch_of=lambda step: drawn(step, 8, WIDTH, of=0))


def target_wrong():
    """A target that is copied before DDP sends the parameters of rank 0."""
    torch.manual_seed(rank)
    module = mlp()
    trained(module, towards(copy.deepcopy(module)))


def contrasted_wrong():
    """Two views of a sample are told from others' samples, to which no gradient goes."""

    def loss_of(model, x):
        first, second = model(torch.cat([x, x + 0.1])).chunk(2)
        labels = rank * 8 + torch.arange(8)
        return functional.cross_entropy(first @ torch.cat(without_gradient(second)).T, labels)

    trained(mlp(), loss_of)


def without_gradient(own):
    parts = [torch.empty_like(own) for _ in range(ranks)]
    dist.all_gather(parts, own.contiguous())
    return parts


@dataclass
class Outputs:
    """Outputs as a dataclass; an error in reading it is not the script's."""

    y: torch.Tensor
    y_half: torch.Tensor

    def __getattribute__(self, name):
        if WAY == "hidden" and "companions/verify" in sys._getframe(1).f_code.co_filename:
            raise RuntimeError("hidden")
        return object.__getattribute__(self, name)


class Halves(nn.Module):
    """Its outputs are views of one tensor, and computed from each other."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(WIDTH, 2 * WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        half, other = self.first(x).chunk(2, -1)
        return Outputs(self.second(half.tanh()) + other * dist.get_world_size(), half)


def gathered(y):
    """Outputs of all ranks without their graph, which the loss uses."""
    parts = [torch.empty_like(y) for _ in range(ranks)]
    dist.all_gather(parts, y.detach())
    return torch.stack(parts).mean(0) + 1


def scaled_by(choose):
    """Scale all gradients after the reduction."""

    def scale(module):
        for one in module.parameters():
            one.grad *= choose(module)

    return scale


def clip_twice_counted(module):
    """Clip by a norm that counts each rank's equal gradient."""
    total = sum(one.grad.square().sum() for one in module.parameters())
    dist.all_reduce(total)
    for one in module.parameters():
        one.grad *= 0.1 / total.sqrt()


def late_change(step, module):
    """A repair on rank 0, after what is watched."""
    if rank == 0 and step == 3:
        module[0].weight.data *= 0.5


def hooked():
    """A hook that scales a gradient, a bias without a gradient, a part that is frozen at first."""
    module = nn.Sequential(nn.Linear(WIDTH, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 4))
    module[3].weight.register_hook(lambda gradient: gradient * 0.1)
    trained(
        module, wrap=partial(DistributedDataParallel, find_unused_parameters=True),
        before_loss=lambda step, one: one[0].requires_grad_(step > 0),
    )  # fmt: skip


class Adapted(nn.Module):
    """A layer with an adapter of low rank, which starts at zero."""

    def __init__(self):
        super().__init__()
        self.base, self.low, self.high = nn.Linear(WIDTH, 8), nn.Linear(WIDTH, 2), nn.Linear(2, 8)
        nn.init.zeros_(self.high.weight)

    def forward(self, x):
        return self.base(x) + self.high(self.low(x))


def zero_norm():
    """Only a factor is clipped whose gradient is zero in the first update."""
    trained(
        Adapted(), after_backward=lambda one: nn.utils.clip_grad_norm_(one.low.parameters(), 1.0)
    )


def retained():
    """Two losses of one forward pass, each with a backward pass of its own."""

    def second_loss(model, x):
        first, second = model(x).chunk(2, -1)
        functional.cross_entropy(first, x[:, :3].argmax(1)).backward(retain_graph=True)
        return functional.cross_entropy(second, x[:, :3].argmax(1))

    trained(mlp(6), second_loss, wrap=bare, after_backward=reduce_gradients)


class Queued(nn.Module):
    """Outputs are compared with those of the update before, which a buffer keeps.

    DDP sends the queue of rank 0 over those of others, whose samples no rank sees then.
    """

    def __init__(self):
        super().__init__()
        self.layer = mlp()
        self.register_buffer("queue", torch.zeros(8, WIDTH))

    def forward(self, x):
        y = self.layer(x)
        told = y @ self.queue.clone().T
        self.queue.copy_(y.detach())
        return told


class Patched(nn.Module):
    """Its `forward` was replaced, as trainers do, by a function that calls the original one."""

    def __init__(self):
        super().__init__()
        self.layer = mlp()
        original = self.forward

        def forward(self, x):
            return self.layer(x) + original(x)

        self.forward = types.MethodType(forward, self)

    def forward(self, x):
        return self.layer(x)


def alike():
    """The samples of each rank are told from each other, outside of the module."""

    def loss_of(model, x):
        y = functional.normalize(model(x), dim=-1)
        return functional.cross_entropy(y @ y.T / 0.1, torch.arange(8))

    trained(mlp(), loss_of)


def not_finite():
    """All parameters of all ranks are NaN."""
    module = mlp()
    for one in module.parameters():
        nn.init.constant_(one, float("nan"))
    trained(module)


def compiled(factor=1):
    """Modules, a loss and a step of an optimizer that are compiled, in each of the usual ways."""
    module = torch.compile(mlp(), dynamic=False)
    module._orig_mod[0].compile()
    model = torch.compile(model=DistributedDataParallel(module))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    stepped = torch.compile(optimizer.step, fullgraph=False)

    @torch.compile(mode="reduce-overhead")
    def loss_of(y):
        return factor * functional.mse_loss(y, torch.ones_like(y))

    for step in range(4):
        optimizer.zero_grad()
        loss_of(model(drawn(step, 8, WIDTH))).backward()
        stepped()


WAYS = {
    "local_steps": lambda: local_updates(period=1),
    "local_adam": lambda: local_updates(period=1, rule=torch.optim.Adam),
    "local_updates_wrong": lambda: local_updates(period=2),
    "tokens": lambda: by_hand(per_rank=False),
    "means_wrong": lambda: by_hand(per_rank=True),
    "gathered": lambda: trained(mlp()),
    "halved": lambda: trained(mlp(), after_backward=scaled_by(lambda _: 1 / ranks)),
    "tenth": lambda: trained(mlp(), after_backward=scaled_by(lambda _: 0.1)),
    "twice_counted": lambda: trained(mlp(), after_backward=clip_twice_counted),
    "columns_wrong": columns,
    "seeded_beside": lambda: columns_beside(is_seeded=True),
    "beside": lambda: columns_beside(is_seeded=False),
    "averaged_on_one": averaged_copy,
    "compiled_wrong": lambda: compiled(factor=ranks),
    "distilled": lambda: trained(mlp(), towards(mlp().eval(), 0.5), torch.optim.AdamW),
    "mean_by_hand": lambda: trained(mlp(), lambda model, x: (model(x) - 1).square().mean()),
    "twice": lambda: trained(mlp(), copied, batch_of=lambda step: drawn(step // 2, 8, WIDTH)),
    "rooted": lambda: trained(mlp(), lambda model, x: copied(model, x).sqrt()),
    "hidden": lambda: trained(Halves()),  # outputs that raise where anybody else reads them
    "halves": lambda: trained(Halves()),
    "queued": lambda: trained(Queued()),
    "patched": lambda: trained(Patched()),
    "late": lambda: trained(mlp(), before_loss=late_change),
}
WAYS.get(WAY, globals().get(WAY))()
dist.barrier()
dist.destroy_process_group()
