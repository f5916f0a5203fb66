"""A model of the user's own: each shape of it is planned rightly, or refused in one line."""

import inspect
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
FILE = "tests/runners/own_models.py"
MICROBATCH, SEQUENCE = 4, 8
PLANNED = [
    ("Language", "keywords"),
    ("Convolutions", "images"),
    ("Recurrent", "samples"),
    ("Buffered", "floats"),
    ("Checkpointed", "floats"),
    ("CheckpointedReentrantly", "floats"),
    ("OwnFunction", "floats"),
    ("ExpertsChoose", "floats"),
]
ONES = torch.ones(2, requires_grad=True)


@dataclass
class DataOutput:
    values: torch.Tensor
    count: int


REFUSED = [
    ("Raises", "floats", "Raises.forward", "ValueError: (4, 16) is too small"),
    ("ReturnsNothing", "floats", "ReturnsNothing.forward", "returns NoneType, of which nothing"),
    ("LooksAtMemory", "floats", "LooksAtMemory.forward", "looks at the memory of a tensor"),
    ("Packs", "samples", "Packs.forward", "follows from values"),
    ("SamplesChoose", "floats", "SamplesChoose.forward", "follows from values"),
    ("builds_a_number", "floats", "builds_a_number", "builds no nn.Module; it returns int"),
]


def asked(name, batch, strategy="single", module=HERE, **how):
    training = {"sequence": SEQUENCE, "microbatch": MICROBATCH, "precision": "fp32", **how}
    return Question(
        model=PlannedModel(name=name, module=f"{module}:{name}", batch=f"{module}:{batch}"),
        training=TrainingSettings(**{"global_batch": 2 * MICROBATCH, **training}),
        strategy=strategy_of(strategy, 2),
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
    question = asked(name, batch, global_batch=MICROBATCH)
    assert simulate_rank(question, 0).peak_bytes == tracked(name, batch)


def test_buffers_are_told_apart_from_activations_and_stand_beside_the_batch():
    peak = simulate_rank(asked("Buffered", "floats"), 0).at_peak
    assert peak.buffers_bytes == 4 * (16 * 16 + 1 + MICROBATCH * 16)


@pytest.fixture
def said(capsys):
    """What the command prints, and its exit code."""

    def say(module, batch, *words):
        size = ["--devices", "2", "--microbatch", str(MICROBATCH), "--sequence", str(SEQUENCE)]
        asked = [module, "--batch", batch, "--precision", "fp32", *size, *words]
        code = main(["plan", "for", *asked, "--strategies", "single"])
        printed = capsys.readouterr()
        return code, printed.out, printed.err

    return say


def refusal(answer):
    """The one line of a command that refuses."""
    code, out, err = answer
    assert (code, out) == (2, "")
    return err.splitlines()[-1].removeprefix("python -m runners: ").strip()


@pytest.mark.parametrize(("name", "batch", "where", "why"), REFUSED)
def test_what_cannot_be_planned_is_one_line_with_the_users_line(name, batch, where, why, said):
    line = refusal(said(f"{HERE}:{name}", f"{HERE}:{batch}"))
    file, number, rest = line.split(":", 2)
    function = own_models
    for part in where.split("."):
        function = getattr(function, part)
    lines, start = inspect.getsourcelines(function)
    assert file == FILE
    assert start <= int(number) < start + len(lines)
    assert why in rest


def test_of_a_backward_pass_that_fails_the_model_is_named(said):
    line = refusal(said(f"{HERE}:ChangesWhatIsNeeded", f"{HERE}:floats"))
    assert line.startswith(f"{HERE}:ChangesWhatIsNeeded: RuntimeError: one of the variables needed")


@pytest.mark.parametrize(
    ("source", "why"),
    [
        (None, "own:build: No module named 'own'"),
        ("def build(:\n", "own.py:1: SyntaxError: invalid syntax"),
        ("import sys\nsys.exit('usage: own')\n", "own.py:2: SystemExit: usage: own"),
        ("build = 3\n", "own:build: the module own has no function build"),
    ],
)
def test_a_module_that_cannot_be_loaded_is_one_line(source, why, said, own):
    if source is not None:
        own("own.py", source)
    assert refusal(said("own:build", f"{HERE}:floats")) == why


@pytest.fixture
def own(tmp_path, monkeypatch):
    """Writes a file of the user's, in the folder where the command is given."""
    folder = tmp_path / "work"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(folder)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)  # edits within a second are edits

    def write(name, source):
        path = folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(source, encoding="utf-8")

    return write


READING = """from torch import nn
import torch

class Reads(nn.Module):
    def __init__(self):
        super().__init__()
        self.wide, self.narrow = nn.Linear(16, 64), nn.Linear(64, 16)

    def forward(self, x):
        {read}
        return self.narrow(self.wide(x))

def batch(microbatch, sequence):
    return {batch}
"""
RANDOM = "torch.ones(microbatch, 16)"
READS = {
    "a comparison": "x = x.repeat(8, 1) if x.norm() > 1 else x",
    "an item": "x = x / x.max().item()",
    "an array": "x = x + float(x.numpy().sum())",
    "equality": "x = x if torch.equal(x, x + 0) else -x",
    "a mask": "x = x[x.sum(-1) > 0]",
    "a read that is caught": "exec('try:\\n bool(x.any())\\nexcept Exception: pass')",
}


@pytest.mark.parametrize("read", READS.values(), ids=READS)
def test_a_value_that_is_read_is_refused_with_the_line(read, said, own):
    own("own.py", READING.format(read=read, batch=RANDOM))
    line = refusal(said("own:Reads", "own:batch"))
    assert line.startswith("own.py:10: ")
    assert re.search("reads values of a tensor|follows from values", line)
