"""`python -m runners machine`: measure this machine in fifteen minutes, and say how to send it.

In: a number of minutes, and experiments, by default all. Out: this machine's folder of traces, then
lines: what ran, what did not and why, what differs from the reference machine, and how to send it.

Runs on several accelerators come first, then those on one; of these, runs with sizes of their own
before those that keep the sizes of a CPU. An experiment begins if it should end in time, by what it
took last, and by how much longer than last those before it took. Ctrl-C ends this early.
"""

import argparse
import platform
import re
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from proofbook.runners.commands.compare import HEADS, compare
from proofbook.runners.commands.run import InTurn, Ran, RunRequest, estimates, expected_seconds, run
from proofbook.runners.core.declared.experiment import check_names, find
from proofbook.runners.core.measuring import measure
from proofbook.runners.core.measuring.launch import Launcher, Place
from proofbook.runners.core.system import accelerator
from proofbook.runners.core.trace import machine
from proofbook.runners.core.trace.records import Trace
from proofbook.runners.session.pending import Pending
from proofbook.runners.system import stopping
from proofbook.runners.system.book import program
from proofbook.runners.traces.files import is_stale, read, read_machine, trace_paths

MOST_ROWS = 5  # of a list that `compare` prints whole


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's options and arguments to its parser."""
    add = parser.add_argument
    add("names", nargs="*", metavar="NAME", help="measure these experiments; all without one")
    add("--minutes", type=float, default=15, help="15, unless you say otherwise; 0 only reports")
    add("--dry", action="store_true", help="say what would run, in which order, how long")


def main(arguments: argparse.Namespace) -> int:
    """Measure and report; returns 1 if a run surprised or was not measured, else 0."""
    request, code, not_measured = RunRequest(tuple(arguments.names)), 0, list[str]()
    if arguments.dry:
        where = measure.folder()
        with Launcher(accelerator.kind()) as launcher:
            waiting = in_order(request.pending(where), launcher, where)
        print("\n".join(estimates(waiting, where)))
        return code
    try:
        if arguments.minutes:
            ran = run(request, in_time(60 * arguments.minutes))
            code, not_measured = ran.exit_code, ran.not_measured
    except KeyboardInterrupt as stopped:
        code = stopping.report(stopped)
    where = measure.folder()  # which has an id by now
    traces = {path.stem: trace for path in trace_paths(where) if not is_stale(trace := read(path))}
    parts = [_ran(where, traces, not_measured), _compared(where, traces), _to_send(where)]
    nothing = f"nothing is measured in {machine.from_home(where)}"
    print("\n".join(line for part in parts for line in part) if traces else nothing)
    return code


def in_time(seconds: float) -> InTurn:
    """Of pending experiments those that should end within `seconds` from now, in their order."""
    begin = time.monotonic()

    def in_turn(waiting: list[Pending], launcher: Launcher) -> Iterator[Pending]:
        started, expected, where = time.monotonic(), 0.0, measure.folder()
        for runs in in_order(waiting, launcher, where):
            now, own = time.monotonic(), expected_seconds(runs, where)
            pace = max(1.0, (now - started) / expected) if expected else 1.0
            if now + pace * own <= begin + seconds:
                yield runs
                expected += own

    return in_turn


def in_order(waiting: Iterable[Pending], launcher: Launcher, where: Path) -> list[Pending]:
    """Pending experiments, those first that only a machine with accelerators tells of."""

    def order(runs: Pending) -> tuple[bool, bool, bool, float]:
        declared = [runs.experiment.runs[name] for name in runs.measured]
        of_many = {launcher.place_of(one) for one in declared if one.world_size > 1}
        on_cpu = all(launcher.place_of(one).device == "cpu" for one in declared)
        needs_several, own_sizes = Place("cuda", "nccl") in of_many, bool(runs.experiment.on_cuda)
        return not needs_several, on_cpu, on_cpu or not own_sizes, expected_seconds(runs, where)

    return sorted(waiting, key=order)


def _ran(where: Path, traces: Mapping[str, Trace], not_measured: list[str]) -> Iterator[str]:
    """Yield lines: the machine, what it measured and where, what it did not and why."""
    found, places, why_not, cpu_sizes = Ran(where), Counter[str](), Counter[str](), Counter[str]()
    for name, trace in traces.items():
        found.add(trace, is_new=True)
        fitted = find(name).on_cuda
        for run_name, one in trace.runs.items():
            if one.status == "skipped":
                why_not[f"{one.why_skipped}: {name}"] += not one.is_left_out
                continue
            places[f"{one.device}{f' over {one.backend}' if one.world_size > 1 else ''}"] += 1
            keeps = one.device == "cuda" and "timed" in one.passes
            cpu_sizes[name] += keeps and not fitted.keys() & {"*", run_name}
    here = read_machine(where)
    cards = ", ".join(_counts(Counter(card.name for card in here.accelerators)))
    yield f"{here.name}: {here.cpu}, cores: {here.num_cores}, accelerators: {cards or 'none'}"
    yield from _list(f"measured: {len(traces)} experiments, runs on", _counts(places))
    left = [name for name in check_names([]) if name not in traces]
    heavy = [f"{found.num_left} runs of these", *(name for name in left if find(name).is_full)]
    yield from _list("ended otherwise than declared", found.surprises)
    yield from _list("not measured, for the causes above", not_measured)
    yield from _list(
        "left to the same command", [", ".join(name for name in left if name not in heavy)]
    )
    yield from _list("beside a load, so times may be too long", [", ".join(found.not_quiet)])
    yield from _list("not run here", _counts(+why_not))
    yield from _list("timed at a CPU's sizes, where launches may decide", _counts(+cpu_sizes))
    yield from _list(f"left to `{program()} run --full`", [", ".join(heavy)])


def _compared(where: Path, traces: Mapping[str, Trace]) -> Iterator[str]:
    """Yield lines: what differs from the reference machine, and the commands that say all of it."""
    there = machine.folder_of(None)
    known = {path.stem: read(path) for path in trace_paths(there) if path.stem in traces}
    difference = compare(known, traces)
    yield f"\n{there.name} | {where.name}"
    for kind, head in HEADS.items():
        yield from _list(head, getattr(difference, kind), MOST_ROWS)
    yield f"equal: {difference.num_equal} outcomes, fields and times"
    yield f"all of it: {program()} compare {there.name} {where.name}"
    if (machine.TRACES.parent / "claims").is_dir():  # with a wheel alone there are none
        yield f"claims: {program('.venv/bin/python -m generator')} check --machine {where.name}"


def _to_send(where: Path) -> Iterator[str]:
    """Yield lines: what the folder says of its owner, and how to send it."""
    text = "".join(path.read_text(encoding="utf-8") for path in where.glob("*.json"))
    own = {str(Path.home()), str(machine.HOME), platform.node()} - {"", "/"}
    told = [name for name in sorted(own) if re.search(rf"(?<!\w){re.escape(name)}(?!\w)", text)]
    folder, python = map(machine.from_home, (where, Path(sys.executable)))
    yield f"\n{folder}: {len(text) / 1e3:.0f} kB, with the names of processor and accelerators,"
    yield "numbers of cores and bytes, releases, CUDA_VISIBLE_DEVICES, and how busy the cores were."
    yield f"Your home folder, this folder or this host: {', '.join(told) or 'not named'}."
    yield "Say what else ran meanwhile, and send it as a commit of your clone, or as one file:"
    yield f"  git add --force {folder}/*.json"
    yield f"  {python} -m zipfile -c {where.name}.zip {folder}"


def _counts(counted: Counter[str]) -> list[str]:
    return [f"{name} ({count})" for name, count in counted.items()]


def _list(head: str, rows: Iterable[str], most: int = 99) -> list[str]:
    """Rows under their heading, at most so many of them; nothing where there are none."""
    rows = [*dict.fromkeys(filter(None, rows))]
    rows[most:] = [f"… and {len(rows) - most} more"] if len(rows) > most else []
    return [f"{head}:", *(f"  {row}" for row in rows)] if rows else []
