"""A model of the user's own: each shape of it is planned rightly, or refused in one line."""

import re
import sys
from collections import OrderedDict
from dataclasses import dataclass
from types import SimpleNamespace
from unittest.mock import patch

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from proofbook.companions.planner.answers.question import (
    PlannedModel,
    Question,
    TrainingSettings,
    strategy_of,
)
from proofbook.companions.planner.simulated.one_rank import simulate_rank
from proofbook.companions.planner.simulated.own_model import loss_of
from proofbook.runners.__main__ import main
from tests.runners.questions import tracked_peak

VOCABULARY = 100


def floats(microbatch, _):
    return torch.randn(microbatch, 16)


def tokens(microbatch, sequence):
    return torch.randint(VOCABULARY, (microbatch, sequence))


def images(microbatch, _):
    return torch.randn(microbatch, 3, 16, 16)


def keywords(microbatch, sequence):
    ids = tokens(microbatch, sequence)
    mask = torch.ones(microbatch, sequence, dtype=torch.bool)
    return {"input_ids": ids, "labels": ids.clone(), "mask": mask}


class Plain(nn.Module):
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


HERE = __name__
MICROBATCH, SEQUENCE = 4, 8
PLANNED = [
    ("Language", "keywords"),
    ("Convolutions", "images"),
    ("Buffered", "floats"),
    ("Checkpointed", "floats"),
    ("OwnFunction", "floats"),
    ("ExpertsChoose", "floats"),
]
ONES = torch.ones(2, requires_grad=True)


@dataclass
class DataOutput:
    values: torch.Tensor
    count: int


def asked(name, batch):
    training = {"sequence": SEQUENCE, "microbatch": MICROBATCH, "precision": "fp32"}
    return Question(
        model=PlannedModel(name=name, module=f"{HERE}:{name}", batch=f"{HERE}:{batch}"),
        training=TrainingSettings(**training, global_batch=MICROBATCH),
        strategy=strategy_of("single", 1),
    )


def tracked(name, batch):

    def loss(model, given):
        return loss_of(model(**(given if isinstance(given, dict) else {"x": given})), "")

    def dropped(x, p, training, inplace):
        return torch.native_dropout(x, p, training)[0]  # as a device computes it

    def build():
        model = globals()[name]()
        for one in (one for one in model.modules() if isinstance(one, nn.MultiheadAttention)):
            one.dropout = 0.0  # of which a device's kernel keeps a seed
        return model

    with patch.object(nn.functional, "dropout", dropped):
        return tracked_peak(build, lambda: globals()[batch](MICROBATCH, SEQUENCE), loss)


@pytest.mark.parametrize(
    ("output", "loss"),
    [
        ({"out": {"logits": ONES, "more": [2 * ONES, "text", None]}}, 3.0),
        ((ONES, 2 * ONES), 3.0),
        ((5 * ONES.mean(), ONES), 5.0),
        (SimpleNamespace(loss=5 * ONES, logits=ONES), 5.0),
        (ModelOutput(5 * ONES, ONES), 5.0),
        (DataOutput(ONES, 3), 1.0),
    ],
)
def test_the_loss_of_an_output_is_its_own_or_the_sum_of_its_means(output, loss):
    assert loss_of(output, "").item() == loss


@pytest.mark.parametrize(("name", "batch"), PLANNED)
def test_a_model_of_ones_own_has_the_peak_that_torchs_tracker_finds(name, batch):
    assert simulate_rank(asked(name, batch), 0).peak_bytes == tracked(name, batch)


def test_buffers_are_told_apart_from_activations_and_stand_beside_the_batch():
    peak = simulate_rank(asked("Buffered", "floats"), 0).at_peak
    assert peak.buffers_bytes == 4 * (16 * 16 + 1 + MICROBATCH * 16)


@pytest.fixture
def refusal(tmp_path, monkeypatch, capsys):
    """The one line of a command that refuses a model of a file in the folder where it is given."""
    folder = tmp_path / "work"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(folder)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)  # edits within a second are edits

    def said(source, function, batch):
        if source is not None:
            (folder / "own.py").write_text(source, encoding="utf-8")
        size = ["--devices", "2", "--microbatch", str(MICROBATCH), "--sequence", str(SEQUENCE)]
        words = [f"own:{function}", "--batch", batch, "--precision", "fp32", *size]
        assert main(["plan", "for", *words, "--strategies", "single"]) == 2
        printed = capsys.readouterr()
        assert printed.out == ""
        return printed.err.splitlines()[-1].removeprefix("python -m runners: ").strip()

    return said


@pytest.mark.parametrize(
    ("source", "why"),
    [
        (None, "own:build: No module named 'own'"),
        ("def build(:\n", "own.py:1: SyntaxError: invalid syntax"),
        ("import sys\nsys.exit('usage: own')\n", "own.py:2: SystemExit: usage: own"),
        ("build = 3\n", "own:build: the module own has no function build"),
        ("\ndef build(): return 3\n", "own.py:2: build builds no nn.Module; it returns int"),
    ],
)
def test_a_module_that_cannot_be_loaded_is_one_line(source, why, refusal):
    assert refusal(source, "build", f"{HERE}:floats") == why


OWN = """from torch import nn
import torch

class Own(nn.Module):
    def __init__(self):
        super().__init__()
        self.wide, self.narrow = nn.Linear(16, 64), nn.Linear(64, 16)

    def forward(self, x):
        {line}
        return self.narrow(self.wide(x))

def batch(microbatch, sequence):
    return torch.ones(microbatch, 16)
"""
READS, SIZE = "own.py:10: reads values of a tensor", "own.py:10: the size of what .* follows from"
PACKED = "nn.utils.rnn.pack_padded_sequence(x.unsqueeze(1), torch.ones(len(x)), batch_first=True)"


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("x = x.repeat(8, 1) if x.norm() > 1 else x", READS),
        ("x = x / x.max().item()", READS),
        ("x = x + float(x.numpy().sum())", READS),
        ("x = x if torch.equal(x, x + 0) else -x", READS),
        ("exec('try:\\n bool(x.any())\\nexcept Exception: pass')", READS),
        ("x = x[x.sum(-1) > 0]", SIZE),
        (f"x = {PACKED}.data", "own.py:10: .*follows from values"),
        ("x = x + sum(x.untyped_storage().tolist())", "own.py:10: looks at the memory of a tensor"),
        ("raise ValueError(f'{(*x.shape,)} is\\nsmall')", r"own.py:10: ValueError: \(4, 16\) is$"),
        ("return None", "own.py:9: Own.forward returns NoneType, of which nothing has a gradient"),
        ("return self.wide(x).relu_().mul_(2)", "own:Own: RuntimeError: one of the variables need"),
    ],
)
def test_what_cannot_be_planned_is_one_line_with_the_users_line(line, why, refusal):
    assert re.match(why, refusal(OWN.format(line=line), "Own", "own:batch"))
