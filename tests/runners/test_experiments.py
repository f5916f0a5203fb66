"""The committed traces of all experiments: fresh, whole, and as declared."""

import pytest

from runners.plans.experiment import find, names
from runners.traces.files import NOT_TRACES, is_stale, read

pytestmark = pytest.mark.ranks


@pytest.fixture(scope="session")
def committed(root):
    """The reference machine's traces."""
    paths = sorted((root / "content" / "traces").glob("reference-*/*.json"))
    return {p.stem: read(p) for p in paths if p.stem not in NOT_TRACES}


def test_every_experiment_has_a_committed_trace_of_the_code_as_it_stands(committed):
    assert sorted(committed) == names()
    assert [name for name, trace in committed.items() if is_stale(trace)] == []


def test_every_committed_run_ended_as_declared(committed):
    for name, trace in committed.items():
        assert set(trace.runs) == set(find(name).runs)
        assert [n for n, run in trace.runs.items() if run.is_surprise] == []


def test_validation_rows_are_never_trained_on():
    import torch

    from runners.training.teacher import teach

    lesson = teach(1, num_samples=500, num_validation_samples=100, num_features=10, num_classes=4)
    both = torch.cat([lesson.training.features, lesson.validation.features])
    assert len(torch.unique(both, dim=0)) == 600
