"""Ranks start once for a test session: each run is measured when first asked for, and kept."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from functools import cache
from importlib import metadata
from pathlib import Path

import pytest

from runners.commands import run as running
from runners.measuring import measure
from runners.measuring.launch import Launcher
from runners.plans.experiment import MORE, find, names
from runners.simulate import processes
from runners.traces import machine
from runners.traces.records import Run

OWN_EXPERIMENTS = Path(__file__).parent / "experiments"


@pytest.fixture
def book(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the book's experiments; `launcher` lets the session see the tests' own too."""
    monkeypatch.delenv(MORE, raising=False)
    return names()


@pytest.fixture(autouse=True, scope="session")
def _no_forks_with_cuda() -> None:
    """A build of torch for CUDA refuses backward in a fork of what has run one, as tests do."""
    if not metadata.version("torch").endswith("+cpu"):
        processes.FORKS = False


@pytest.fixture(scope="session")
def launcher() -> Iterator[Launcher]:
    """One launcher, so one pair of forkservers, for the whole session."""
    before = os.environ.get(MORE)
    os.environ[MORE] = str(OWN_EXPERIMENTS)
    with Launcher("cpu", quiet_seconds=3.0) as started:
        yield started
    if before is None:
        del os.environ[MORE]
    else:
        os.environ[MORE] = before


@pytest.fixture(scope="session")
def run(launcher: Launcher) -> Callable[[str, str], Run]:
    """Measure a run of an experiment; the second asking for it gets the first's."""

    @cache
    def measured(experiment: str, name: str) -> Run:
        if find(experiment).runs[name].budget_bytes is not None:
            reason = machine.can_limit_memory()
            if reason is not None:
                pytest.skip(reason)
        return measure.measure_run(launcher, find(experiment), name)

    return measured


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, launcher: Launcher) -> Path:
    """This machine's folder of traces, elsewhere; commands take the launcher of the session."""
    monkeypatch.setattr(machine, "TRACES", tmp_path)
    monkeypatch.setattr(machine, "THIS_MACHINE", tmp_path / "this-machine")
    monkeypatch.setattr(running, "Launcher", lambda _: launcher)
    monkeypatch.setattr(Launcher, "__exit__", lambda *_: None)
    machine.describe.cache_clear()
    return measure.folder()
