"""Phases that hooks tell: forward, backward and update of a plain training step."""

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from proofbook.runners.core.ranks.phases import BASE, Phase, StepPhases


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


def test_a_plain_step_is_forward_backward_and_optimizer(heard):
    rank, _, model, optimizer = heard
    for _ in range(2):
        _step(model, optimizer)
    assert rank.has_said("forward()backward()optimizer()" * 2)
    assert rank.phase_name == BASE


def test_validation_is_no_forward_phase(heard):
    rank, _, model, _ = heard
    with torch.no_grad():
        model(torch.ones(1, 2))
    assert rank.said == []


def test_what_is_computed_again_in_backward_stays_there(heard):
    rank, _, model, _ = heard
    checkpoint(model, torch.ones(1, 2, requires_grad=True), use_reentrant=False).sum().backward()
    assert rank.has_said("forward()backward()")


def test_inside_a_phase_that_is_marked_hooks_tell_nothing(heard):
    rank, _, model, optimizer = heard
    with rank.phase("stage"):
        _step(model, optimizer)
    assert rank.has_said("stage()")


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
