"""What a rank records: phases that hooks tell, and what a strategy shows."""

import math
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from proofbook.runners.core.declared.experiment import Declaration, Experiment
from proofbook.runners.core.measuring import measure
from proofbook.runners.core.measuring.launch import Launcher, PassResult
from proofbook.runners.core.ranks.phases import BASE, Phase, StepPhases
from proofbook.runners.core.ranks.recorder import MAX_NON_FINITE, Recorder
from proofbook.runners.core.trace import machine
from proofbook.runners.core.trace.fields import quantity
from proofbook.runners.core.trace.outcome import RankOutcome
from proofbook.runners.session.pending import pending


@pytest.fixture
def recorder():
    return Recorder(0, Declaration("any", keeps_steps=True), "timed")


def test_a_value_that_is_not_finite_is_listed_and_never_only_shown_as_0(recorder):
    spoilt = torch.tensor([1.0, math.nan, -math.inf])
    with recorder.stage("forward", "multiply") as out:
        out(spoilt)
    with recorder.predict("softmax", "normalise", spoilt) as out:
        out(spoilt)
    recorder.epoch(1, loss=1.0, validation=(10, math.inf, 0.5))
    assert [(n.field, n.kind) for n in recorder.outcome.non_finite] == [
        ("stages.forward.values", "nan"),
        ("stages.forward.values", "-inf"),
        ("prediction.softmax.values", "nan"),
        ("prediction.softmax.values", "-inf"),
        ("validation_loss", "inf"),
    ]


def test_a_measure_is_kept_with_its_unit_and_how_closely_it_repeats(recorder):
    recorder.measure("num_flops", 12, unit="operations")
    recorder.measure("idle_share", 0.25, unit="share", repeats="clock")
    kept = recorder.outcome.quantities
    assert quantity(["ranks", 0, "measures", "num_flops"], kept).unit == "operations"
    assert quantity(["ranks", 0, "measures", "idle_share"], kept) == kept["idle_share"]
    assert kept["idle_share"].repeats == "clock"
    assert quantity(["ranks", 0, "measures", "peak_bytes"]).unit == "bytes"  # a plan's, by its name


def test_a_run_that_diverges_for_many_steps_still_fits_into_a_trace(recorder):
    for _ in range(5000):
        recorder.step_loss(math.nan)
    assert len(recorder.outcome.non_finite) == MAX_NON_FINITE
    assert recorder.outcome.step_losses == [None] * 5000


def test_code_edited_while_it_runs_leaves_a_stale_trace(monkeypatch, tmp_path):
    """The digest is that of the code that was started, not of what stands there in the end."""
    order = []
    monkeypatch.setattr(measure, "code_of", lambda _: order.append("digest"))
    monkeypatch.setattr(measure, "measure_run", lambda *_: order.append("run"))

    class Silent:
        def begin(self, _): ...
        def ended(self, *_):
            raise KeyboardInterrupt

    monkeypatch.setattr(machine, "TRACES", tmp_path)
    launcher = SimpleNamespace(fitted=lambda one: one)
    with pytest.raises(KeyboardInterrupt):
        measure.measure(pending("ddp", tmp_path), launcher, Silent())
    assert order == ["digest", "run"]


def test_a_run_that_another_follows_is_fitted_to_the_machine_as_any_other(monkeypatch):
    """`try` and `reproduce` measure the follower alone, and the other one for its times."""
    runs = {
        "first": Declaration("any", settings={"width": 2}, passes=("timed",)),
        "second": Declaration("any", passes=("timed",), follows="first"),
    }
    declared = Experiment("one", "?", runs, Path("one.py"), on_cuda={"first": {"width": 4}})
    widths = {}

    def run_pass(experiment, run, *_):
        widths[run] = experiment.runs[run].settings.declared().get("width")
        return PassResult([RankOutcome(rank=0)], None, [], 1.0)

    monkeypatch.setattr(measure, "find", lambda _: declared)
    with Launcher("cuda") as launcher:
        monkeypatch.setattr(launcher, "run_pass", run_pass)
        measure.measure_run(launcher, launcher.fitted(declared), "second")
    assert widths == {"first": 4, "second": None}


class Heard:
    """A rank that keeps what its phases say; without meters it does not hear where they end."""

    def __init__(self, is_metered):
        self.phase_name = BASE
        self.is_metered = is_metered
        self.said = []

    def beat(self):
        self.said.append(f"{self.phase_name}(")

    def has_said(self, expected):
        """Whether phases began, and under meters ended, in this order."""
        said = "".join(self.said)
        return said == expected if self.is_metered else said == expected.replace(")", "")

    def begin(self, phase):
        self.said.append(f"{phase.name}(")

    def end(self, phase):
        if self.is_metered:
            self.said.append(")")

    def phase(self, name):
        return Phase(self, name, computes=True)


@pytest.fixture(params=[True, False], ids=["metered", "timed"])
def heard(request):
    """A rank, the phases of its step, a model and an optimizer that they hear of."""
    rank, model = Heard(request.param), nn.Sequential(nn.Linear(2, 2), nn.ReLU())
    phases, optimizer = StepPhases(rank), torch.optim.SGD(model.parameters(), lr=0.1)
    phases.attach(model, optimizer)
    yield rank, phases, model, optimizer
    phases.detach()
    StepPhases.current = None


def _step(model, optimizer):
    loss = model(torch.ones(1, 2)).sum()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()


def test_a_step_is_forward_backward_and_optimizer_unless_a_marked_phase_is_around_it(heard):
    rank, _, model, optimizer = heard
    with torch.no_grad():
        model(torch.ones(1, 2))  # validation is no forward phase
    for _ in range(2):
        _step(model, optimizer)
    with rank.phase("stage"):
        _step(model, optimizer)
    assert rank.has_said("forward()backward()optimizer()" * 2 + "stage()")
    assert rank.phase_name == BASE


def test_what_is_computed_again_in_backward_stays_there(heard):
    rank, _, model, _ = heard
    checkpoint(model, torch.ones(1, 2, requires_grad=True), use_reentrant=False).sum().backward()
    assert rank.has_said("forward()backward()")


@pytest.mark.parametrize("failing", ["forward", "backward"])
def test_after_a_failure_the_phase_that_it_happened_in_stands(heard, failing):
    rank, _, model, _ = heard

    def fail(*_):
        raise MemoryError

    if failing == "forward":
        model[0].register_forward_pre_hook(fail)
    else:
        model[0].weight.register_hook(fail)
    with pytest.raises(MemoryError):
        model(torch.ones(1, 2)).sum().backward()
    assert rank.phase_name == failing


@pytest.mark.parametrize("file", ["runners/a.py", "companions/b.py", "content/topics/c.py"])
def test_code_of_every_measured_root_makes_a_trace_dirty(file, tmp_path, monkeypatch):
    git = ["git", "-C", str(tmp_path)]
    subprocess.run([*git, "init", "--quiet"], check=True)
    monkeypatch.setattr(measure, "ROOT", tmp_path)
    monkeypatch.setattr(measure, "source_digest", lambda _: "0")
    monkeypatch.setattr(measure, "program_digests", lambda _: {})
    (tmp_path / "notes.md").write_text("no code")
    assert not measure.code_of("ddp").dirty
    (tmp_path / file).parent.mkdir(parents=True)
    (tmp_path / file).write_text("")
    assert measure.code_of("ddp").dirty
