"""A model of the user's own: each shape of it is planned rightly, or refused in one line."""

import re
import sys
from dataclasses import dataclass
from types import SimpleNamespace
from unittest.mock import patch

import pytest
import torch
from torch import nn

from proofbook.runners.__main__ import main
from proofbook.runners.planner.answers.question import (
    PlannedModel,
    Question,
    TrainingSettings,
    strategy_of,
)
from proofbook.runners.planner.simulated.one_rank import simulate_rank
from proofbook.runners.planner.simulated.own_model import loss_of
from tests.runners import own_models
from tests.runners.tracked import tracked_peak

HERE = "tests.runners.own_models"
MICROBATCH, SEQUENCE = 4, 8
PLANNED = [
    ("Language", "keywords"),
    ("Convolutions", "images"),
    ("Recurrent", "samples"),
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
    """What torch's tracker says of a model and its batch."""

    def loss(model, given):
        return loss_of(model(**(given if isinstance(given, dict) else {"x": given})), "")

    def dropped(x, p, training, inplace):
        return torch.native_dropout(x, p, training)[0]  # as a device computes it

    def build():
        model = getattr(own_models, name)()
        for one in (one for one in model.modules() if isinstance(one, nn.MultiheadAttention)):
            one.dropout = 0.0  # of which a device's kernel keeps a seed
        return model

    with patch.object(nn.functional, "dropout", dropped):
        return tracked_peak(build, lambda: getattr(own_models, batch)(MICROBATCH, SEQUENCE), loss)


@pytest.mark.parametrize(
    ("output", "loss"),
    [
        ({"out": {"logits": ONES, "more": [2 * ONES, "text", None]}}, 3.0),
        ((ONES, 2 * ONES), 3.0),
        ((5 * ONES.mean(), ONES), 5.0),
        (SimpleNamespace(loss=5 * ONES, logits=ONES), 5.0),
        (own_models.ModelOutput(5 * ONES, ONES), 5.0),
        (DataOutput(ONES, 3), 1.0),
    ],
)
def test_the_loss_of_an_output_is_its_own_or_the_sum_of_its_means(output, loss):
    assert loss_of(output, "").item() == loss


@pytest.fixture
def step_by_step(monkeypatch):
    """LSTMs as on an accelerator, where oneDNN does not compute them."""
    torch._C._set_mkldnn_enabled(False)
    yield
    torch._C._set_mkldnn_enabled(True)


@pytest.mark.usefixtures("step_by_step")
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
