"""Programs divided by hand, for `verify`; the first argument says how.

`experts` under the same names on each rank, `experts_global` under the numbers of all; `context`,
`context_ring`, `context_heads`: each rank has a part of each sequence, and keys and values are
gathered, sent around, or exchanged for heads; `stages`, `stages_interleaved`: a pipeline whose
stages are nested deeply, or as deeply as a number says. A second argument, `wrong`: gradients of
experts, or losses of microbatches, are not divided; each part takes the mean over its own labels;
`averaged`: gradients of experts as if all ranks held the same; `cut`: gathered without a gradient.
"""

import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed._functional_collectives import all_gather_tensor_autograd
from torch.distributed._functional_collectives import all_to_all_single_autograd as all_to_all
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleInterleaved1F1B
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


class Shift(torch.autograd.Function):
    """To the next rank; the gradient goes back."""

    @staticmethod
    def forward(_, x, by=1):
        rank, ranks, x = dist.get_rank(), dist.get_world_size(), x.contiguous()
        received = torch.empty_like(x)
        sends = dist.P2POp(dist.isend, x, (rank + by) % ranks)
        receives = dist.P2POp(dist.irecv, received, (rank - by) % ranks)
        for work in dist.batch_isend_irecv([sends, receives]):
            work.wait()
        return received

    @staticmethod
    def backward(ctx, gradient):
        return Shift.forward(ctx, gradient, -1)


class Attention(nn.Module):
    """Attention of a part of each sequence to all of it, by two heads."""

    def __init__(self, ranks=1):
        super().__init__()
        self.ranks, self.qkv = ranks, nn.Linear(WIDTH, 3 * WIDTH)
        self.out = nn.Linear(WIDTH, CLASSES)

    def forward(self, x):
        qkv = self.qkv(x).unflatten(-1, (3, 2, -1)).permute(2, 3, 0, 1, 4)  # of q, k, v; heads
        if self.ranks > 1 and WAY == "context_heads":
            qkv = self.exchange(qkv.transpose(0, 1)).movedim(0, -3).flatten(-3, -2)
            mixed = functional.scaled_dot_product_attention(*qkv)
            mixed = self.exchange(mixed.unflatten(1, (self.ranks, -1)).movedim(1, 0))
        else:
            q, keys = qkv[0], self.of_all_ranks(qkv[1:]) if self.ranks > 1 else qkv[1:]
            mixed = functional.scaled_dot_product_attention(q, *keys)
        return self.out(mixed.permute(1, 2, 0, 3).flatten(-2))

    def exchange(self, parts):
        """Part i of this rank goes to rank i."""
        return all_to_all(parts.contiguous(), None, None, dist.group.WORLD)

    def of_all_ranks(self, keys):
        """Keys and values of the whole sequence, in some order."""
        if WAY == "context_ring":
            held = [keys]
            for _ in range(self.ranks - 1):
                held.append(Shift.apply(held[-1]))
            return torch.cat(held, -2)
        first = keys.movedim(-2, 0).contiguous()
        if "cut" in MORE:
            held = [torch.empty_like(first) for _ in range(self.ranks)]
            dist.all_gather(held, first)
            return torch.cat(held).movedim(0, -2)
        return all_gather_tensor_autograd(first, 0, dist.group.WORLD).movedim(0, -2)


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
            if "experts" not in name or "averaged" in MORE:
                dist.all_reduce(parameter.grad)
            if "experts" not in name or not is_wrong:
                parameter.grad /= ranks
        optimizer.step()


def train_stages(rank, ranks):
    """Five updates of a pipeline, whose stages are blocks in blocks."""
    depth = next((int(word) for word in MORE if word.isdigit()), 8)
    each = 2 if "interleaved" in WAY else 1
    head = nn.Linear(WIDTH, CLASSES)
    parts = [
        nn.Sequential(Block(depth), *[head] * (number + 1 == each * ranks))
        for number in range(rank, each * ranks, ranks)
    ]
    stages = [
        PipelineStage(part, rank + number * ranks, each * ranks, torch.device("cpu"))
        for number, part in enumerate(parts)
    ]
    kind, held = (Schedule1F1B, stages[0]) if each == 1 else (ScheduleInterleaved1F1B, stages)
    schedule = kind(held, 4, functional.cross_entropy, scale_grads="wrong" not in MORE)
    optimizer = torch.optim.AdamW([own for part in parts for own in part.parameters()], lr=1e-2)
    drawn = torch.Generator().manual_seed(0)
    for _ in range(5):
        x, y = torch.randn(8, WIDTH, generator=drawn), torch.randint(CLASSES, (8,), generator=drawn)
        optimizer.zero_grad()
        schedule.step(*[x] * (rank == 0), **{"target": y} if rank + 1 == ranks else {})
        optimizer.step()


if __name__ == "__main__":
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    (train_stages if "stages" in WAY else train)(dist.get_rank(), dist.get_world_size())
    dist.destroy_process_group()
