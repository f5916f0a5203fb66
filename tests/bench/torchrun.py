"""What the runners cost, against the same runs as plain scripts started by torchrun.

Each experiment in `PLAIN` has a script in `tests/bench/plain/` that trains the same models on the
same samples for as long, and records nothing; it shares no code with the experiment. The runners do
more: they also take the metered passes. They run in a copy of the tree, so this machine's own
traces stay as they are.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from runners.plans.experiment import RunPlan, find
from tests.bench.plainly import plainly
from tests.bench.ratio import Ratio, seconds_of
from tests.conftest import copy_of_the_book

SCRIPTS = Path(__file__).resolve().parent / "plain"


def _ddp(plan: RunPlan) -> list[str]:
    settings = plan.settings
    return [
        f"--batch-size={settings['batch_size']}",
        f"--dtype={settings['dtype']}",
        *(["--no-sync"] if plan.strategy == "no_sync" else []),
        *(["--per-shard"] if settings["scaling"] == "per_shard" else []),
        *(["--sorted"] if settings["order"] == "sorted" else []),
    ]


def _batch_split(plan: RunPlan) -> list[str]:
    return []


# experiment → what its plain script is told of a run
PLAIN: dict[str, Callable[[RunPlan], list[str]]] = {"ddp": _ddp, "batch_split": _batch_split}


def _torchrun(name: str) -> None:
    """Every run of an experiment as a plain script, one after another."""
    for plan in find(name).runs.values():
        plainly(plan.world_size, [str(SCRIPTS / f"{name}.py"), *PLAIN[name](plan)])


def _quietly(command: list[str], folder: Path) -> None:
    """Run a command; what it printed is shown only where it fails.

    Raises:
        RuntimeError: it failed.
    """
    environment = {**os.environ, "PYTHONPATH": str(folder), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        command,
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout}")


def ratios() -> list[Ratio]:
    """The runners against torchrun, experiment by experiment; one sample each, they are long."""
    found = []
    with tempfile.TemporaryDirectory() as folder:
        copy = copy_of_the_book(Path(folder) / "copy")
        for name in PLAIN:
            run = [sys.executable, "-m", "runners", "run", name]
            runners = seconds_of(lambda run=run: _quietly(run, copy))
            torchrun = seconds_of(lambda name=name: _torchrun(name))
            found.append(Ratio(f"`run {name}`", "plain torchrun", [runners], [torchrun]))
    return found
