"""Models as users write them, with the functions that build their batches."""

from collections import OrderedDict
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

VOCABULARY = 100


def floats(microbatch, _):
    return torch.randn(microbatch, 16)


def tokens(microbatch, sequence):
    return torch.randint(VOCABULARY, (microbatch, sequence))


def samples(microbatch, sequence):
    return torch.randn(microbatch, sequence, 16)


def images(microbatch, _):
    return torch.randn(microbatch, 3, 16, 16)


def keywords(microbatch, sequence):
    ids = tokens(microbatch, sequence)
    mask = torch.ones(microbatch, sequence, dtype=torch.bool)
    return {"input_ids": ids, "labels": ids.clone(), "mask": mask}


class Plain(nn.Module):
    """What most others are made of."""

    def __init__(self):
        super().__init__()
        self.wide, self.narrow = nn.Linear(16, 32), nn.Linear(32, 16)

    def hidden(self, x):
        return self.narrow(torch.relu(self.wide(x)))

    def forward(self, x):
        return self.hidden(x)


@dataclass
class ModelOutput(OrderedDict):
    """As Hugging Face's: a dictionary with attributes."""

    loss: torch.Tensor
    logits: torch.Tensor

    def __post_init__(self):
        super().__init__(loss=self.loss, logits=self.logits)


class Language(nn.Module):
    """Keyword arguments, a mask, dropout, tied weights, and an output with a loss."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, 32)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(32, 4, 64, 0.1, batch_first=True) for _ in range(2)
        )
        self.head = nn.Linear(32, VOCABULARY, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, input_ids, labels=None, mask=None):
        hidden = self.embed(input_ids)
        for layer in self.layers:
            hidden = layer(hidden, src_key_padding_mask=~mask)
        logits = self.head(hidden)
        loss = functional.cross_entropy(logits.flatten(0, 1), labels.flatten())
        return ModelOutput(loss, logits)


class Convolutions(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv2d(3, 8, 3, padding=1),
            nn.BatchNorm2d(8),
            nn.ReLU(inplace=True),
            nn.Conv2d(8, 16, 3),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Linear(16, 10),
        )

    def forward(self, x):
        return self.net(x)


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(16, 32, 2, batch_first=True, dropout=0.1)
        self.head = nn.Linear(32, 4)

    def forward(self, x):
        hidden, _ = self.lstm(x)
        return self.head(hidden)


class Buffered(Plain):
    def __init__(self):
        super().__init__()
        self.register_buffer("mask", torch.tril(torch.ones(16, 16)))
        self.register_buffer("count", torch.zeros(()))

    def forward(self, x):
        self.count += 1
        return self.hidden(x) @ self.mask


class Checkpointed(Plain):
    """By both implementations of torch."""

    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(16, 16), Plain()

    def forward(self, x):
        x = checkpoint(self.hidden, self.first(x), use_reentrant=True)
        return checkpoint(self.last, x, use_reentrant=False)


class SquareTimes(torch.autograd.Function):
    """A function that keeps its inputs and computes its own gradients."""

    @staticmethod
    def forward(context, x, weight):
        context.save_for_backward(x, weight)
        return (x * x) @ weight

    @staticmethod
    def backward(context, grad):
        x, weight = context.saved_tensors
        return 2 * x * (grad @ weight.t()), (x * x).t() @ grad


class OwnFunction(Plain):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(16, 16))

    def forward(self, x):
        return self.hidden(SquareTimes.apply(x, self.weight))


class ExpertsChoose(nn.Module):
    """A mixture of experts, each of which takes the same number of samples."""

    def __init__(self):
        super().__init__()
        self.router = nn.Linear(16, 2)
        self.experts = nn.ModuleList(Plain() for _ in range(2))

    def forward(self, x):
        weights = self.router(x).softmax(-1)
        total = torch.zeros_like(x)
        for index, expert in enumerate(self.experts):
            weight, rows = weights[:, index].topk(len(x) // 2)
            total = total.index_add(0, rows, expert(x[rows]) * weight.unsqueeze(-1))
        return total
