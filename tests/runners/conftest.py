"""Ranks start once for a test session: each run is measured when first asked for, and kept."""

from collections.abc import Callable, Iterator
from importlib import metadata
from pathlib import Path

import pytest
import torch

from proofbook.runners.commands import run as running
from proofbook.runners.core.declared.experiment import find
from proofbook.runners.core.measuring import measure
from proofbook.runners.core.measuring.launch import Launcher
from proofbook.runners.core.trace import machine
from proofbook.runners.core.trace.records import Run
from proofbook.runners.simulate import processes
from proofbook.runners.system.book import MORE
from tests.processes import OWN_EXPERIMENTS

torch.set_num_threads(1)  # as in ranks; a simulation would else leave its process with one thread


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Whatever asks for a launcher starts ranks."""
    for item in items:
        if isinstance(item, pytest.Function) and "_launcher" in item.fixturenames:
            item.add_marker("ranks")


@pytest.fixture(autouse=True, scope="session")
def _no_forks_with_cuda() -> None:
    """A build of torch for CUDA refuses backward in a fork of what has run one, as tests do."""
    if not metadata.version("torch").endswith("+cpu"):
        processes.FORKS = False


@pytest.fixture(scope="session")
def _launcher() -> Iterator[Launcher]:
    """One launcher, so one pair of forkservers, for the whole session."""
    with Launcher("cpu", quiet_seconds=3.0) as started:
        yield started


@pytest.fixture
def launcher(_launcher: Launcher, monkeypatch: pytest.MonkeyPatch) -> Launcher:
    """The launcher of the session, beside which a test finds the tests' own experiments too."""
    monkeypatch.setenv(MORE, OWN_EXPERIMENTS[MORE])
    return _launcher


@pytest.fixture(scope="session")
def _runs() -> dict[tuple[str, str], Run]:
    return {}


@pytest.fixture
def run(launcher: Launcher, _runs: dict[tuple[str, str], Run]) -> Callable[[str, str], Run]:
    """Measure a run of an experiment; the second test that wants it gets the first's."""

    def measured(experiment: str, name: str) -> Run:
        if find(experiment).runs[name].budget_bytes is not None:
            reason = machine.can_limit_memory()
            if reason is not None:
                pytest.skip(reason)
        if (experiment, name) not in _runs:
            _runs[experiment, name] = measure.measure_run(launcher, find(experiment), name)
        return _runs[experiment, name]

    return measured


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, launcher: Launcher) -> Path:
    """This machine's folder of traces, elsewhere; commands take the launcher of the session.

    Where they measure several experiments, they make one of their own, with lanes.
    """
    leave = Launcher.__exit__
    monkeypatch.setattr(machine, "TRACES", tmp_path)
    monkeypatch.setattr(machine, "THIS_MACHINE", tmp_path / "this-machine")
    monkeypatch.setattr(running, "Launcher", lambda _: launcher)
    monkeypatch.setattr(
        Launcher, "__exit__", lambda own, *error: None if own is launcher else leave(own, *error)
    )
    monkeypatch.setattr(launcher, "is_short", False)  # which a command may set, for this test alone
    return measure.folder()
