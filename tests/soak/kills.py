"""What is killed in a soak, when, and what came of it: 200 kills over all experiments.

make soak                                  all of it
make soak ARGS='-k killed --kills 20'      a short sample, another each day
PROOFBOOK_SOAK=20000 make soak …           that day's sample again
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import cycle, islice
from pathlib import Path

from runners.measuring import measure
from runners.measuring.launch import Launcher
from runners.plans.experiment import Experiment, RunPlan, find, names
from runners.traces.files import read

NUM_KILLS = 200
# Of each twenty kills: ranks and what they started, forkservers, whole launchers.
SHARES = {"rank_kill": 14, "server_kill": 2, "launcher_kill": 4}
NAMED_WITHIN_SECONDS = 5
NUM_CHEAP = 3  # the shortest runs of an experiment, of which one is chosen
SEED = int(os.environ.get("PROOFBOOK_SOAK", time.time() // 86400))
ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Seen:
    """What came of one kill."""

    victim: str
    is_named: bool  # else harmless
    seconds: float  # from the kill to its name, or to the end of the last process


seen: list[Seen] = []


def sample(victim: str, num_kills: int) -> list[tuple[int, str]]:
    """Attempts of killing this, each with its experiment; each experiment as often as any other."""
    count = -(-num_kills * SHARES[victim] // sum(SHARES.values()))
    order = names()
    random.Random(f"{SEED} {victim}").shuffle(order)
    return list(enumerate(islice(cycle(order), count)))


def usual_seconds(experiment: str, run: str) -> float:
    """How long a run took on the reference machine."""
    for path in sorted((ROOT / "content" / "traces").glob(f"reference-*/{experiment}.json")):
        return max(0.3, read(path).runs[run].timing.wall_seconds)
    return 2.0


def a_cheap_run(
    name: str, chance: random.Random, can_run: Callable[[RunPlan], bool]
) -> tuple[Experiment, str] | None:
    """One of the shortest runs of an experiment that this machine can do; None without any."""
    experiment = find(name)
    able = [run for run, plan in experiment.runs.items() if can_run(plan)]
    able.sort(key=lambda run: usual_seconds(name, run))
    return (experiment, chance.choice(able[:NUM_CHEAP])) if able else None


def can_run(launcher: Launcher, plan: RunPlan) -> bool:
    """Whether this machine can do a run by itself, and soon."""
    if plan.full or plan.follows is not None:
        return False
    device, backend = launcher.device_of(plan), launcher.backend_of(plan)
    return measure.cannot_run(plan, device=device, backend=backend) is None
