"""Programs divided by hand, for `verify`; the first argument says how.

`experts` under the same names on each rank, `experts_global` under the numbers of all; `context`:
each rank has half of each sequence; `stages`: a pipeline whose stages are nested deeply. A second
argument, `wrong`: gradients of experts, or losses of microbatches, are not divided; each half takes
the mean over its own labels.
"""

import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed._functional_collectives import all_gather_tensor_autograd
from torch.distributed._functional_collectives import all_to_all_single_autograd as all_to_all
from torch.distributed.pipelining import PipelineStage, Schedule1F1B
from torch.nn import functional

WIDTH, EXPERTS, CLASSES, LENGTH = 16, 4, 5, 8
WAY, *MORE = sys.argv[1:] if __name__ == "__main__" else [""]


class Block(nn.Module):
    """An MLP in modules in modules."""

    def __init__(self, depth=0):
        super().__init__()
        inner = [nn.Linear(WIDTH, 2 * WIDTH), nn.GELU(), nn.Linear(2 * WIDTH, WIDTH)]
        self.inner = Block(depth - 1) if depth else nn.Sequential(*inner)

    def forward(self, x):
        return self.inner(x)


class Experts(nn.Module):
    """Each row goes to the expert that its router scores highest; ranks hold a share of them."""

    def __init__(self, rank=0, ranks=1, kind=nn.ModuleList):
        super().__init__()
        self.ranks, share = ranks, EXPERTS // ranks
        self.router, self.out = nn.Linear(WIDTH, EXPERTS), nn.Linear(WIDTH, CLASSES)
        every = [Block() for _ in range(EXPERTS)]
        own = range(rank * share, (rank + 1) * share)
        numbered = {str(number): every[number] for number in own}
        self.experts = nn.ModuleDict(numbered) if kind is dict else kind(numbered.values())

    def forward(self, x):
        odds, to = self.router(x).softmax(-1).max(-1)
        order = to.argsort(stable=True)
        counts = torch.bincount(to, minlength=EXPERTS)
        sent, theirs = x[order], counts
        if self.ranks > 1:
            theirs = torch.empty_like(counts)
            dist.all_to_all_single(theirs, counts)
            given, taken = (c.view(self.ranks, -1).sum(1).tolist() for c in (counts, theirs))
            sent = all_to_all(sent, taken, given, dist.group.WORLD)
        rows = [[*part.split(own)] for part, own in zip(
            sent.split(theirs.view(self.ranks, -1).sum(1).tolist()),
            theirs.view(self.ranks, -1).tolist(), strict=True,
        )]  # fmt: skip
        experts = self.experts.values() if isinstance(self.experts, nn.ModuleDict) else self.experts
        back = torch.cat([e(own) for part in rows for e, own in zip(experts, part, strict=True)])
        back = all_to_all(back, given, taken, dist.group.WORLD) if self.ranks > 1 else back
        return self.out(x + back[order.argsort()] * odds[:, None])


class Attention(nn.Module):
    """Attention of a half of each sequence to all of it, whose keys are gathered."""

    def __init__(self, ranks=1):
        super().__init__()
        self.ranks, self.qkv = ranks, nn.Linear(WIDTH, 3 * WIDTH)
        self.out = nn.Linear(WIDTH, CLASSES)

    def forward(self, x):
        q, k, v = self.qkv(x).chunk(3, -1)
        if self.ranks > 1:
            both = torch.stack([k, v]).transpose(0, 2).contiguous()
            k, v = all_gather_tensor_autograd(both, 0, dist.group.WORLD).transpose(0, 2)
        return self.out(functional.scaled_dot_product_attention(q, k, v))


def experts():
    """The unsharded module of `experts`."""
    return Experts()


def attention():
    """The unsharded module of `context`."""
    return Attention()


def train(rank, ranks):
    """Five updates of the module that WAY names."""
    is_wrong, is_expert = "wrong" in MORE, "experts" in WAY
    kind = dict if "global" in WAY else nn.ModuleList
    model = Experts(rank, ranks, kind) if is_expert else Attention(ranks)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    drawn = torch.Generator().manual_seed(rank * is_expert)
    for _ in range(5):
        x = torch.randn(12, *[LENGTH] * (not is_expert), WIDTH, generator=drawn)
        y = torch.randint(CLASSES, x.shape[:-1], generator=drawn)
        if not is_expert:
            y[:, LENGTH - 2 :] = -100  # padding
            x, y = x.chunk(ranks, 1)[rank], y.chunk(ranks, 1)[rank]
        optimizer.zero_grad()
        kept, labels = (y >= 0).sum(), y.flatten()
        value = functional.cross_entropy(model(x).flatten(0, -2), labels, reduction="sum")
        if not is_wrong and not is_expert:
            dist.all_reduce(kept)
            kept = kept / ranks
        (value / kept).backward()
        for name, parameter in model.named_parameters():
            if "experts" not in name:
                dist.all_reduce(parameter.grad)
            if "experts" not in name or not is_wrong:
                parameter.grad /= ranks
        optimizer.step()


def train_stages(rank, ranks):
    """Five updates of a pipeline, whose stage is a block in blocks."""
    module = nn.Sequential(Block(depth=8), *[nn.Linear(WIDTH, CLASSES)] * (rank + 1 == ranks))
    stage = PipelineStage(module, rank, ranks, torch.device("cpu"))
    schedule = Schedule1F1B(stage, 4, functional.cross_entropy, scale_grads="wrong" not in MORE)
    optimizer = torch.optim.AdamW(module.parameters(), lr=1e-2)
    drawn = torch.Generator().manual_seed(0)
    for _ in range(5):
        x, y = torch.randn(8, WIDTH, generator=drawn), torch.randint(CLASSES, (8,), generator=drawn)
        optimizer.zero_grad()
        schedule.step(*[x] * (rank == 0), **{"target": y} if rank + 1 == ranks else {})
        optimizer.step()


if __name__ == "__main__":
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    (train_stages if WAY == "stages" else train)(dist.get_rank(), dist.get_world_size())
    dist.destroy_process_group()
