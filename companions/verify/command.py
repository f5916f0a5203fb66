"""Watch a training script under torchrun: is its update that of one process?

    torchrun --nproc-per-node 4 -m proofbook.verify train.py --its arguments
    python -m runners verify --ranks 4 train.py --its arguments

Exit codes: 0 forward, weights of the loss, gradients and update all agree; 1 findings; 2 a wrong
call; 3 something was not compared. `torchrun` makes 1 of each: there the last line has the word.
"""

from __future__ import annotations

import argparse
import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from proofbook.companions.verify import report
from proofbook.companions.verify.launch import environment, free_port, sweep
from proofbook.runners.system.errors import FixableError

MOST_RANKS = 64
KILLED_SECONDS = 20.0
POLL_SECONDS = 0.02


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's options and arguments to its parser."""
    add = parser.add_argument
    add("--ranks", type=int, default=0, help="start so many ranks (not under torchrun)")
    add("--steps", type=int, default=3, help="updates that are watched (3)")
    add("--seconds", type=float, default=10.0,
        help="how long the script goes on after these updates (10)")  # fmt: skip
    add("--patience", type=float, default=10.0,
        help="seconds without work after which ranks hang (10)")  # fmt: skip
    add("--against", metavar="MODULE:FUNCTION", help="returns the module that ranks divide by hand")
    add("--split", metavar="NAME=DIM[/BLOCKS]", action="append", default=[],
        help="how ranks split a parameter of it, or its inputs")  # fmt: skip
    add("--one", action="store_true",
        help="run the script again as one process that has all batches")  # fmt: skip
    add("--cpu", action="store_true", help="run a script for GPUs on CPUs and gloo")
    add(report.AS_REFERENCE, action="store_true", help=argparse.SUPPRESS)  # of content/verified
    add("--as-one", help=argparse.SUPPRESS)
    add("--json", action="store_true", help="print all of the report as JSON")
    add("script", help="a training script")
    add("arguments", nargs=argparse.REMAINDER, help="of the script")


def main(arguments: argparse.Namespace) -> int:
    """Run as a rank under torchrun, else start `--ranks` of them; returns the exit code."""
    script = Path(arguments.script)
    if not script.is_file():
        raise FixableError(f"there is no script {script}")
    if arguments.steps < 1:
        raise FixableError(f"--steps must be at least 1, not {arguments.steps}")
    if arguments.split and not arguments.against:
        raise FixableError("--split needs --against")
    words = [*_options(arguments), arguments.script, *arguments.arguments]
    is_rank = "RANK" in os.environ and not arguments.ranks
    if is_rank or arguments.as_one or arguments.against:  # else torch is not needed here
        _run_here(arguments, script, words, is_rank=is_rank)
    if not 2 <= arguments.ranks <= MOST_RANKS:
        raise FixableError(
            f"--ranks must be from 2 to {MOST_RANKS}, and stands before the script; without it, "
            "start this under torchrun"
        )
    return _launch(arguments, words)


def _run_here(
    arguments: argparse.Namespace, script: Path, words: Sequence[str], *, is_rank: bool
) -> None:
    """Run as a rank, or as the one process, and end; else check what `--against` names."""
    from proofbook.companions.verify import cpu, rerun
    from proofbook.companions.verify.against import Against
    from proofbook.companions.verify.rank import WatchedRank

    against = Against(arguments.against, arguments.split, script) if arguments.against else None
    if arguments.cpu and (is_rank or arguments.as_one):
        cpu.install()
    if arguments.as_one:
        rerun.run_as_one(Path(arguments.as_one), arguments.script, arguments.arguments)
    if is_rank:
        WatchedRank(arguments, words, against).run()


def _options(arguments: argparse.Namespace) -> list[str]:
    """The options that each rank is given, without those at their defaults."""
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    names = ("steps", "seconds", "patience", "against")
    values = {name: getattr(arguments, name) for name in names}
    options = [report.AS_REFERENCE] * arguments.as_reference
    options += [f"--{name}={v}" for name, v in values.items() if v != parser.get_default(name)]
    options += [f"--split={split}" for split in arguments.split]
    return [*options, *["--one"] * arguments.one, *["--cpu"] * arguments.cpu]


def _launch(arguments: argparse.Namespace, words: Sequence[str]) -> int:
    """Start the ranks on this host; returns the exit code of the one that reported."""
    sweep()  # or each rank would say that its folder is somebody else's
    world_size, port = arguments.ranks, free_port()
    common = {"OMP_NUM_THREADS": "1", **os.environ}
    root = str(Path(__file__).parents[3])
    common["PYTHONPATH"] = os.pathsep.join(filter(None, (root, os.environ.get("PYTHONPATH", ""))))
    command = [
        sys.executable,
        "-m",
        "proofbook.companions.verify",
        *["--json"] * arguments.json,
        *words,
    ]
    ranks: list[subprocess.Popen[bytes]] = []
    try:
        for rank in range(world_size):
            own = common | environment(rank, world_size, port)
            ranks.append(subprocess.Popen(command, env=own))
        codes = _wait(ranks)
        code = next((own for own in codes.values() if own >= 0), None)
        if code is None:  # no rank was left to report
            from proofbook.companions.verify.board import Board, ended

            board, script = Board(None, world_size, port), Path(arguments.script)
            how = {rank: signal.Signals(-own).name for rank, own in codes.items()}
            document = sys.stdout if arguments.json else None
            code = report.publish(ended(board, how), script, words, world_size, (), document)
    finally:
        for process in ranks:
            process.kill()
        for process in ranks:
            process.wait()
        sweep()
    return code if code in (*report.CODES.values(), FixableError.exit_code) else 1


def _wait(ranks: Sequence[subprocess.Popen[bytes]]) -> dict[int, int]:
    """The exit codes of ranks; where one was killed, the others have a moment to report."""
    end = math.inf
    while any(own.poll() is None for own in ranks) and time.monotonic() < end:
        time.sleep(POLL_SECONDS)
        if any((own.poll() or 0) < 0 for own in ranks):
            end = min(end, time.monotonic() + KILLED_SECONDS)
    return {rank: own.returncode for rank, own in enumerate(ranks) if own.returncode is not None}
