"""Ranks and forkservers of any experiment killed at random: each kill is named, or harmless.

A kill must end its run within seconds, as not measured and with a cause that names the kill, or in
a record that a trace can hold; and no process may be left. Where the elastic launcher watches over
the process that was killed, training must go on instead, to the very parameters of a training that
nobody disturbed.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import pytest

from runners.measuring import measure
from runners.measuring.launch import Launcher
from runners.plans.experiment import Experiment, find
from runners.system.errors import LaunchError
from runners.traces.files import read, write
from runners.traces.records import Run, Trace
from runners.traces.summary import how_it_ended
from tests.soak import kills
from tests.soak.processes import below, none_left

NUM_ELASTIC_KILLS = 4
LOAD_SECONDS = 3.0  # what a forkserver loads for, about
KNOWN = "batch_split", "single"  # a run whose time says how slow this machine is now
pytestmark = [
    pytest.mark.soak,
    pytest.mark.ranks,
    pytest.mark.timeout(300),
    pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc"),
]
Choose = Callable[[list[set[int]]], list[int]]


@dataclass
class Kill:
    """Who was killed and when, and who was alive then; None until it has happened."""

    pid: int | None = None
    at: float = 0.0
    generation: int = 0
    family: set[int] | None = None


def ranks_and_below(generations: list[set[int]]) -> list[int]:
    """All but forkservers: ranks are their children, and what ranks start lies below."""
    return sorted(set().union(*generations[1:]))


def workers(generations: list[set[int]]) -> list[int]:
    """What a rank started: the elastic launcher's ranks, children of ours."""
    return sorted(set().union(*generations[2:]))


def _kill(kill: Kill, choose: Choose, delay: float, chance: random.Random, over: threading.Event):
    """Wait for ranks, then for the moment, then kill one of those that are alive."""
    while not over.is_set() and not choose(below(os.getpid())):
        time.sleep(0.01)
    over.wait(delay)
    while not over.is_set():
        generations = below(os.getpid())
        alive = choose(generations)
        if not alive:
            time.sleep(0.01)
            continue
        pid = chance.choice(alive)
        kill.family = set(ranks_and_below(generations))
        kill.at = time.monotonic()
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
        kill.pid, kill.generation = pid, next(i for i, g in enumerate(generations) if pid in g)
        return


def killed(
    launcher: Launcher,
    experiment: Experiment,
    run: str,
    choose: Choose,
    chance: random.Random,
    slowness: float,
) -> tuple[Run | RuntimeError, Kill, float]:
    """Measure a run and kill one of its processes meanwhile; when it ended, in monotonic time.

    Instead of the run there may be the error that says why it could not be measured. A kill that
    came too late is tried again, sooner.
    """
    longest = slowness * kills.usual_seconds(experiment.name, run)
    while True:
        kill, over = Kill(), threading.Event()
        delay = chance.uniform(0, longest)
        killer = threading.Thread(target=_kill, args=(kill, choose, delay, chance, over))
        killer.start()
        ended: Run | RuntimeError
        try:
            ended = measure.measure_run(launcher, experiment, run)
        except RuntimeError as error:
            ended = error
        finally:
            end = time.monotonic()
            over.set()
            killer.join()
        if kill.pid is not None or getattr(ended, "status", None) == "skipped":
            return ended, kill, end
        longest /= 2


def _keeps(folder: Path, experiment: Experiment, run: str, ended: Run) -> Trace:
    """The run as a trace on disk, read back."""
    trace = measure.trace_of(
        experiment,
        measure.code_of(experiment.name),
        measure.machine.describe(),
        {run: ended},
        "2000-01-01T00:00:00Z",
    )
    path = folder / f"{experiment.name}.json"
    write(path, trace)
    assert [file.name for file in folder.iterdir()] == [path.name]
    return read(path)


def _one_pass_of(
    name: str, launcher: Launcher, chance: random.Random
) -> tuple[Experiment, str] | None:
    """A short run of an experiment with one of its passes; None where this machine can do none."""
    found = kills.a_cheap_run(name, chance, partial(kills.can_run, launcher))
    if found is None:
        return None
    experiment, run = found
    plan = experiment.runs[run]
    one = replace(plan, passes=(chance.choice(plan.passes),))
    return replace(experiment, runs={run: one}), run


@pytest.fixture(scope="module")
def soaked() -> Iterator[Launcher]:
    """One launcher for all: what one kill leaves behind would disturb the next."""
    with Launcher("cpu") as launcher:
        yield launcher
    assert not launcher._scratch.path.exists()


@pytest.fixture(scope="module")
def slowness(soaked: Launcher) -> float:
    """How many times longer than on the reference machine, left in peace, runs take here now."""
    soaked.run_pass(find(KNOWN[0]), KNOWN[1], "timed")  # loads torch
    start = time.monotonic()
    measure.measure_run(soaked, find(KNOWN[0]), KNOWN[1])
    return max(1.0, (time.monotonic() - start) / kills.usual_seconds(*KNOWN))


def test_a_killed_rank_of_any_experiment_has_a_named_end(soaked, slowness, tmp_path, rank_kill):
    attempt, name = rank_kill
    chance = random.Random(f"{kills.SEED} {attempt}")
    found = _one_pass_of(name, soaked, chance)
    if found is None:
        pytest.skip(f"{name}: this machine can do nothing of it")
    experiment, run = found
    plan = experiment.runs[run]
    ended, kill, end = killed(soaked, experiment, run, ranks_and_below, chance, slowness)
    told = how_it_ended(ended) if isinstance(ended, Run) else str(ended)
    print(f"{name}.{run} {plan.passes}: {told}")
    assert kill.family is not None
    assert none_left(kill.family)
    assert not list(soaked._scratch.path.glob("*/rank*"))
    is_named = not isinstance(ended, Run) or ended.error is not None
    kills.seen.append(kills.Seen("rank_kill", is_named, end - kill.at))
    if is_named:
        assert end - kill.at < kills.NAMED_WITHIN_SECONDS
    if not isinstance(ended, Run):
        assert "SIGKILL" in told
        return
    assert _keeps(tmp_path, experiment, run, ended).runs[run] == ended
    if ended.status == "completed" and kill.generation > 1:
        return  # a process that a rank had started: the rank knows how to go on without it
    if ended.error is None:
        # It had written its record, and was killed on its way out.
        assert ended.status == plan.expected
        assert all(rank.failure is None for rank in ended.ranks)
        return
    assert "SIGKILL" in ended.error.message or ended.status == plan.expected


def test_a_killed_forkserver_of_any_experiment_is_named_or_came_too_late(slowness, server_kill):
    """While it loads torch, or while it has ranks, which end with it."""
    attempt, name = server_kill
    chance = random.Random(f"{kills.SEED} server {attempt}")
    with Launcher("cpu") as launcher:
        found = _one_pass_of(name, launcher, chance)
        if found is None:
            pytest.skip(f"{name}: this machine can do nothing of it")
        experiment, run = found
        pass_name = experiment.runs[run].passes[0]
        server = launcher._server(pass_name)
        longest = slowness * LOAD_SECONDS
        if attempt % 2:
            server.start([])  # waits until torch is loaded
            longest = slowness * kills.usual_seconds(name, run)
        kill = Kill()

        def kill_server() -> None:
            kill.family = set().union(*below(server._process.pid))
            kill.at = time.monotonic()
            server._process.kill()

        killer = threading.Timer(chance.uniform(0, longest), kill_server)
        killer.start()
        said = ""
        try:
            launcher.run_pass(experiment, run, pass_name)
        except LaunchError as error:
            said = str(error)
        end = time.monotonic()
        killer.join()
    print(f"{name}.{run}: {said or 'it had ended'}")
    assert kill.family is not None
    assert none_left(kill.family)
    kills.seen.append(kills.Seen("server_kill", bool(said), end - kill.at))
    assert not launcher._scratch.path.exists()
    if said:
        assert "forkserver" in said
        assert end - kill.at < kills.NAMED_WITHIN_SECONDS


@pytest.mark.parametrize("attempt", range(NUM_ELASTIC_KILLS))
def test_a_killed_worker_of_the_elastic_launcher_changes_nothing(
    soaked, slowness, tmp_path, attempt
):
    chance = random.Random(f"{kills.SEED} elastic {attempt}")
    experiment = find("faults")
    undisturbed = measure.measure_run(soaked, experiment, "undisturbed")
    ended, kill, _ = killed(soaked, experiment, "killed", workers, chance, slowness)
    assert isinstance(ended, Run), ended
    assert ended.status == "completed", ended.error
    assert kill.generation > 1  # it was no rank of ours
    assert kill.family is not None
    assert none_left(kill.family)
    _keeps(tmp_path, experiment, "killed", ended)
    digests = [rank.parameter_digest for rank in undisturbed.ranks]
    assert ended.ranks[0].measures["parameter_digests"] == digests
