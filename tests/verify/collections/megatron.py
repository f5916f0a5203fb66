"""Findings on Megatron Core of September 2026, each in a small program of ours.

Words: the finding (`README.md` numbers them), then `right` for the corrected program. Ranks divide
modules by hand, as Megatron does: `copied` and `summed` are its two conjugate functions.
"""

import os
import sys

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel

rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
FINDING, IS_RIGHT = sys.argv[1], "right" in sys.argv[2:]
WIDTH, HEADS, VOCABULARY, LENGTH, STEPS = 16, 4, 24, 12, 4


class Copied(torch.autograd.Function):
    @staticmethod
    def forward(_, x):
        return x.view_as(x)

    @staticmethod
    def backward(_, gradient):
        gradient = gradient.clone()
        dist.all_reduce(gradient)
        return gradient


class Summed(torch.autograd.Function):
    @staticmethod
    def forward(_, x):
        x = x.clone()
        dist.all_reduce(x)
        return x

    @staticmethod
    def backward(_, gradient):
        return gradient


class VocabularyLoss(torch.autograd.Function):
    """The cross-entropy of logits of which each rank has a part of the vocabulary."""

    @staticmethod
    def forward(context, logits, labels, smoothing):
        part = logits.size(-1)
        size = part * ranks if IS_RIGHT else part  # finding 1 takes the part for the whole
        top = logits.max(-1).values
        dist.all_reduce(top, dist.ReduceOp.MAX)
        shifted = logits - top[..., None]
        total = shifted.exp().sum(-1)
        dist.all_reduce(total)
        local = labels - rank * part
        is_own = (local >= 0) & (local < part)
        local = local.clamp(0, part - 1)
        target = shifted.gather(-1, local[..., None])[..., 0] * is_own
        dist.all_reduce(target)
        logs = shifted - total.log()[..., None]
        mean = logs.sum(-1)
        if IS_RIGHT:
            dist.all_reduce(mean)
        context.save_for_backward(logs.exp(), local, is_own)
        context.smoothing, context.size = smoothing, size
        return (1 - smoothing) * (total.log() - target) - smoothing * mean / size

    @staticmethod
    def backward(context, gradient):
        probabilities, local, is_own = context.saved_tensors
        own = F.one_hot(local, probabilities.size(-1)) * is_own[..., None]
        s = context.smoothing
        return gradient[..., None] * (probabilities - (1 - s) * own - s / context.size), None, None


def split(whole, axis=0):
    return nn.Parameter(whole.chunk(ranks, axis)[rank].clone())


class Attention(nn.Module):
    """Heads divided among ranks, each with a sink, and one normalization for all heads."""

    def __init__(self):
        super().__init__()
        scale = WIDTH**-0.5
        self.embedding = nn.Embedding(VOCABULARY, WIDTH)
        self.qkv = split(scale * torch.randn(HEADS, WIDTH, 3 * WIDTH // HEADS))
        self.sink = split(torch.full((HEADS, 1, 1), 0.25))
        self.norm = nn.Parameter(torch.full((WIDTH // HEADS,), 4.0))
        self.out = split(scale * torch.randn(HEADS, WIDTH // HEADS, WIDTH))
        self.head = nn.Linear(WIDTH, VOCABULARY)

    def forward(self, tokens):
        x = self.embedding(tokens)
        copied = Copied.apply(x) if ranks > 1 else x
        q, k, v = torch.einsum("blw,hwd->bhld", copied, self.qkv).chunk(3, -1)
        scores = q @ k.transpose(-1, -2) + torch.full((LENGTH, LENGTH), -1e9).triu(1)
        sink = 8 * self.sink.expand(len(x), -1, LENGTH, 1)  # so its gradient is part of the norm
        weights = torch.cat([scores, sink], -1).softmax(-1)[..., :-1]
        is_summed = ranks > 1 and (FINDING != "finding_11" or IS_RIGHT)
        norm = Copied.apply(self.norm) if is_summed else self.norm
        heads = weights @ (F.rms_norm(v, self.norm.shape) * norm)
        found = torch.einsum("bhld,hdw->blw", heads, self.out)
        return self.head(x + (Summed.apply(found) if ranks > 1 else found))


def whole():
    """The unsharded module, for `--against megatron:whole`."""
    global ranks, rank
    ranks, rank = 1, 0  # of this import, beside the script that runs
    return Attention()


def tokens_of(step, of):
    generator = torch.Generator().manual_seed(100 * step + of)
    return torch.randint(VOCABULARY, (4, LENGTH + 1), generator=generator)


def trained(model, loss_of, clip=lambda _: None):
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for step in range(STEPS):
        loss = loss_of(model, step)
        optimizer.zero_grad()
        loss.backward()
        clip(model)
        optimizer.step()


def next_tokens(model, step):
    tokens = tokens_of(step, 0)
    return F.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())


def finding_8():
    """The gradient of the sinks enters the norm on the first rank only."""

    def clip(model):
        squares = torch.zeros(())
        for name, one in model.named_parameters():
            is_counted = name in ("qkv", "out") or (name == "sink" and IS_RIGHT)
            if is_counted or rank == 0:
                squares += one.grad.square().sum()
        dist.all_reduce(squares)
        factor = (0.05 / squares.sqrt()).clamp(max=1)
        for one in model.parameters():
            one.grad.mul_(factor)

    trained(Attention(), next_tokens, clip)


def finding_11():
    """The normalization of all heads has the gradient of a rank's own heads."""
    trained(Attention(), next_tokens)


class Divided(nn.Module):
    """An embedding that all ranks have, and a head that is divided by its vocabulary."""

    def __init__(self, is_gathered=False):
        super().__init__()
        self.embedding, self.is_gathered = nn.Embedding(VOCABULARY, WIDTH), is_gathered
        self.head = split(WIDTH**-0.5 * torch.randn(VOCABULARY, WIDTH))

    def forward(self, tokens):
        logits = Copied.apply(self.embedding(tokens)) @ self.head.T
        if not self.is_gathered:
            return logits
        parts = [torch.empty_like(logits) for _ in range(ranks)]
        dist.all_gather(parts, logits.detach().contiguous())
        parts[rank] = logits
        return torch.cat(parts, -1)


def divided(smoothing, is_gathered):
    def loss_of(model, step):
        tokens = tokens_of(step, 0)
        return VocabularyLoss.apply(model(tokens[:, :-1]), tokens[:, 1:], smoothing).mean()

    trained(Divided(is_gathered), loss_of)


def finding_1():
    """Label smoothing takes the vocabulary of a rank for the whole."""
    divided(0.1, is_gathered=False)


def finding_2():
    """Gathered logits go into a loss that expects those of a rank's vocabulary."""
    divided(0.0, is_gathered=not IS_RIGHT)


class TwoHeads(nn.Module):
    """Predicts the next token, and the one after it."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, WIDTH)
        self.next, self.after = nn.Linear(WIDTH, VOCABULARY), nn.Linear(WIDTH, VOCABULARY)

    def forward(self, tokens):
        x = self.embedding(tokens)
        return self.next(x), self.after(x)


def count_of(labels):
    """The mean number of tokens that count on a rank."""
    count = (labels != -100).sum().float()
    dist.all_reduce(count)
    return count / ranks


def finding_3():
    """The second loss is divided by the number of tokens of the rank, the first by that of all."""

    def loss_of(model, step):
        tokens = tokens_of(step, rank)
        labels = tokens.clone()
        labels[:, (LENGTH + 1) // (1 + rank) :] = -100  # rank 1 has fewer that count
        first, second = model(tokens[:, :-2])
        a, b = labels[:, 1:-1].flatten(), labels[:, 2:].flatten()
        loss = F.cross_entropy(first.flatten(0, 1), a, reduction="sum") / count_of(a)
        counted = count_of(b) if IS_RIGHT else (b != -100).sum()
        return loss + F.cross_entropy(second.flatten(0, 1), b, reduction="sum") / counted

    trained(DistributedDataParallel(TwoHeads()), loss_of)


def finding_9():
    """Ranks have parts of a sequence, and divide by the tokens that count in their own part."""

    def loss_of(model, step):
        tokens = tokens_of(step, 0)
        labels = tokens.clone()
        labels[:, LENGTH - 3 :] = -100
        inputs = tokens[:, :-1].chunk(ranks, 1)[rank]
        own = labels[:, 1:].chunk(ranks, 1)[rank].flatten()
        loss = F.cross_entropy(model(inputs).flatten(0, 1), own, reduction="sum")
        return loss / (count_of(own) if IS_RIGHT else (own != -100).sum())

    model = nn.Sequential(nn.Embedding(VOCABULARY, WIDTH), nn.Linear(WIDTH, VOCABULARY))
    trained(DistributedDataParallel(model), loss_of)


class Routed(nn.Module):
    """A router over four experts; its outputs are the result and the balance loss of the rank."""

    def __init__(self):
        super().__init__()
        self.embedding, self.router = nn.Embedding(VOCABULARY, WIDTH), nn.Linear(WIDTH, 4)
        self.experts = nn.Parameter(WIDTH**-0.5 * torch.randn(4, WIDTH, VOCABULARY))

    def forward(self, tokens):
        x = self.embedding(tokens)
        scores = self.router(x).softmax(-1)
        top = F.one_hot(scores.argmax(-1), 4)
        counts = top.flatten(0, -2).sum(0).float()
        local = counts.clone() if IS_RIGHT else counts
        dist.all_reduce(counts)  # in place: without the copy, the rank's own counts are lost
        share = counts / counts.sum()
        balance = 4 * (share * scores.flatten(0, -2).mean(0)).sum() * local.sum() / counts.sum()
        y = torch.einsum("blw,ewv,ble->blv", x, self.experts, scores * top)
        return y, ranks * balance


def finding_10():
    """An all-reduce in place overwrites the number of tokens of the rank."""

    def loss_of(model, step):
        tokens = tokens_of(step, rank)
        logits, balance = model(tokens[:, :-1])
        return F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten()) + 0.1 * balance

    trained(DistributedDataParallel(Routed()), loss_of)


if __name__ == "__main__":
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    globals()[FINDING]()
    dist.barrier()
    dist.destroy_process_group()
