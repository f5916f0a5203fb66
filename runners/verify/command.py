"""Watch a training script under torchrun: is its update that of one process?

    torchrun --nproc-per-node 4 -m runners.verify train.py --its arguments
    python -m runners verify --ranks 4 train.py --its arguments

Exit codes: 0 forward, weights of the loss, gradients and update all agree; 1 findings; 2 a wrong
call; 3 something was not compared. `torchrun` makes 1 of each: there the last line has the word.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from runners.system.errors import FixableError
from runners.system.patience import say
from runners.verify import cpu, report, rerun
from runners.verify.against import Against
from runners.verify.board import environment, free_port, sweep
from runners.verify.rank import POLL_SECONDS, Rank

MOST_RANKS = 64
KILLED_SECONDS = 20.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    add = parser.add_argument
    add("--ranks", type=int, default=0, help="start so many ranks (not under torchrun)")
    add("--steps", type=int, default=3, help="updates that are watched (3)")
    add("--seconds", type=float, default=10.0,
        help="how long the script goes on after these updates (10)")  # fmt: skip
    add("--patience", type=float, default=10.0,
        help="seconds without work after which ranks hang (10)")  # fmt: skip
    add("--against", metavar="MODULE:FUNCTION",
        help="returns the module that ranks divide by hand")  # fmt: skip
    add("--split", metavar="NAME=DIM[/BLOCKS]", action="append", default=[],
        help="how ranks split a parameter of it, or its inputs")  # fmt: skip
    add("--one", action="store_true",
        help="run the script again as one process that has all batches")  # fmt: skip
    add("--cpu", action="store_true",
        help="run a script for GPUs on CPUs and gloo")  # fmt: skip
    add("--as-one", help=argparse.SUPPRESS)
    add("--json", action="store_true", help="print all of the report as JSON")
    add("script", help="a training script")
    add("arguments", nargs=argparse.REMAINDER, help="of the script")


def main(arguments: argparse.Namespace) -> int:
    """Start ranks, or be one."""
    script = Path(arguments.script)
    if not script.is_file():
        raise FixableError(f"there is no script {script}")
    if arguments.steps < 1:
        raise FixableError(f"--steps must be at least 1, not {arguments.steps}")
    if arguments.split and not arguments.against:
        raise FixableError("--split needs --against")
    against = arguments.against and Against(arguments.against, arguments.split, script)
    if arguments.cpu:
        cpu.install()
    if arguments.as_one:
        rerun.be(Path(arguments.as_one), arguments.script, arguments.arguments)
    words = [*_options(arguments), arguments.script, *arguments.arguments]
    if "RANK" in os.environ and not arguments.ranks:
        Rank(arguments, words, against).run()
    if not 2 <= arguments.ranks <= MOST_RANKS:
        raise FixableError(
            f"--ranks must be from 2 to {MOST_RANKS}, and stands before the script; without it, "
            "start this under torchrun"
        )
    return _launched([*["--json"] * arguments.json, *words], arguments.ranks)


def _options(arguments: argparse.Namespace) -> list[str]:
    """The options that each rank is given, but for those at their defaults."""
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    given = {name: getattr(arguments, name) for name in ("steps", "seconds", "patience", "against")}
    options = [f"--{name}={one}" for name, one in given.items() if one != parser.get_default(name)]
    options += [f"--split={one}" for one in arguments.split]
    return [*options, *["--one"] * arguments.one, *["--cpu"] * arguments.cpu]


def _launched(words: Sequence[str], world_size: int) -> int:
    """Start the ranks on this host, and return rank 0's exit code."""
    port, common = free_port(), {"OMP_NUM_THREADS": "1", **os.environ}
    root = str(Path(__file__).parents[2])
    common["PYTHONPATH"] = os.pathsep.join(filter(None, (root, os.environ.get("PYTHONPATH", ""))))
    command, started = [sys.executable, "-m", "runners.verify", *words], []
    try:
        for rank in range(world_size):
            own = common | environment(rank, world_size, port)
            started.append(subprocess.Popen(command, env=own))
        code = _followed(started)
    finally:
        for one in started:
            one.kill()
        for one in started:
            one.wait()
        sweep()
    return code if code in (*report.WORDS, FixableError.exit_code) else 1


def _followed(started: Sequence[subprocess.Popen[bytes]]) -> int:
    """Rank 0's code; where a rank was killed, the others get a moment to notice and report it."""
    end: float | None = None
    while any(one.poll() is None for one in started):
        time.sleep(POLL_SECONDS)
        killed = [rank for rank, one in enumerate(started) if (one.poll() or 0) < 0]
        end = end or (time.monotonic() + KILLED_SECONDS if killed else None)
        if end is not None and time.monotonic() > end:
            say(f"verify: differs (rank {killed[0]} was killed; all others are ended)")
            return 1
    return started[0].wait()
