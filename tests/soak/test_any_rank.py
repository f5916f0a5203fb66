"""Fifty ranks killed at random, over a sample of all experiments that rotates from day to day.

Each kill must end its run within seconds, with a cause that names the kill, with no process left,
and in a record that a trace can hold. Where the elastic launcher watches over the process that was
killed, training must go on instead, to the very parameters of a training that nobody disturbed.

    make soak ARGS='-k any_rank'            the sample of today
    PROOFBOOK_SOAK=20000 make soak …        another one
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
from itertools import cycle, islice
from pathlib import Path

import pytest

from runners import measure
from runners.experiment import Experiment, RunPlan, find, names
from runners.launch import Launcher
from runners.trace import Run, Trace, read, write
from tests.soak.processes import below, none_left

NUM_KILLS = 50
NUM_ELASTIC_KILLS = 4
NAMED_WITHIN_SECONDS = 5
SEED = int(os.environ.get("PROOFBOOK_SOAK", time.time() // 86400))
ROOT = Path(__file__).resolve().parents[2]
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


def _sample() -> list[str]:
    """Experiments, each as often as any other, in an order of the day."""
    order = names()
    random.Random(SEED).shuffle(order)
    return list(islice(cycle(order), NUM_KILLS))


def _usual_seconds(experiment: str, run: str) -> float:
    """How long a run took on the reference machine."""
    for path in sorted((ROOT / "content" / "traces").glob(f"reference-*/{experiment}.json")):
        return max(0.3, read(path).runs[run].timing.wall_seconds)
    return 2.0


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
    launcher: Launcher, experiment: Experiment, run: str, choose: Choose, chance: random.Random
) -> tuple[Run, Kill, float]:
    """Measure a run and kill one of its processes meanwhile; when it ended, in monotonic time.

    A kill that came too late is tried again, sooner.
    """
    longest = _usual_seconds(experiment.name, run)
    while True:
        kill, over = Kill(), threading.Event()
        delay = chance.uniform(0, longest)
        killer = threading.Thread(target=_kill, args=(kill, choose, delay, chance, over))
        killer.start()
        try:
            ended = measure.measure_run(launcher, experiment, run)
        finally:
            end = time.monotonic()
            over.set()
            killer.join()
        if kill.pid is not None or ended.status == "skipped":
            return ended, kill, end
        longest /= 2


def _can_run(launcher: Launcher, plan: RunPlan) -> bool:
    if plan.full or plan.follows is not None:
        return False
    device, backend = launcher.device_of(plan), launcher.backend_of(plan)
    return measure.cannot_run(plan, device=device, backend=backend) is None


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


@pytest.fixture(scope="module")
def soaked() -> Iterator[Launcher]:
    """One launcher for all: what one kill leaves behind would disturb the next."""
    print(f"PROOFBOOK_SOAK={SEED}")
    with Launcher("cpu") as launcher:
        yield launcher


@pytest.mark.parametrize(("attempt", "name"), list(enumerate(_sample())))
def test_a_killed_rank_of_any_experiment_has_a_named_end(soaked, tmp_path, attempt, name):
    chance = random.Random(f"{SEED} {attempt}")
    experiment = find(name)
    able = [run for run, plan in experiment.runs.items() if _can_run(soaked, plan)]
    if not able:
        pytest.skip(f"{name}: this machine can do nothing of it")
    run = chance.choice(able)
    plan = experiment.runs[run]
    one_pass = replace(plan, passes=(chance.choice(plan.passes),))
    experiment = replace(experiment, runs={run: one_pass})
    ended, kill, end = killed(soaked, experiment, run, ranks_and_below, chance)
    print(f"{name}.{run} {one_pass.passes}: {ended.status}", ended.error and ended.error.message)
    assert kill.family is not None
    assert none_left(kill.family)
    assert _keeps(tmp_path, experiment, run, ended).runs[run] == ended
    if ended.status == "completed" and kill.generation > 1:
        return  # a process that a rank had started: the rank knows how to go on without it
    if ended.error is None:
        # It had written its record, and was killed on its way out.
        assert ended.status == plan.expected
        assert all(rank.failure is None for rank in ended.ranks)
        return
    assert end - kill.at < NAMED_WITHIN_SECONDS
    assert "SIGKILL" in ended.error.message or ended.status == plan.expected


@pytest.mark.parametrize("attempt", range(NUM_ELASTIC_KILLS))
def test_a_killed_worker_of_the_elastic_launcher_changes_nothing(soaked, tmp_path, attempt):
    chance = random.Random(f"{SEED} elastic {attempt}")
    experiment = find("faults")
    undisturbed = measure.measure_run(soaked, experiment, "undisturbed")
    ended, kill, _ = killed(soaked, experiment, "killed", workers, chance)
    assert ended.status == "completed", ended.error
    assert kill.family is not None
    assert none_left(kill.family)
    _keeps(tmp_path, experiment, "killed", ended)
    digests = [rank.parameter_digest for rank in undisturbed.ranks]
    assert ended.ranks[0].measures["parameter_digests"] == digests
    assert ended.ranks[0].measures["num_attempts"] >= 2
