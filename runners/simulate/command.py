"""`python -m runners simulate`: every run as one rank of many, beside what real ranks recorded.

In: names of runs. Out: a line a run, or JSON. Every run has a process of its own, in which its
ranks follow each other: a crash or an endless loop costs that run alone. No torch here.
"""

import argparse
import json
import os
import resource
import sys
import time
import traceback
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import NamedTuple

from runners.declared.experiment import RunPlan, find, names, runs_named
from runners.simulate.log import RankLog, SimulatedRun, UnsimulatedError
from runners.simulate.processes import Job, results
from runners.system.errors import first_line
from runners.traces import machine
from runners.traces.files import read
from runners.traces.records import RankRecord, Run

# Processor seconds of one rank: a program that waits for a value to change never ends.
MOST_SECONDS = 60
# Ends that ranks come to because of each other, and what they then do.
TAKE_OTHERS = {"deadlocked": "hang", "died": "die", "failed": "fail"}
MIB = 1 << 20


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    parser.add_argument(
        "names", nargs="*", metavar="EXPERIMENT[.RUN]", help="what to simulate; all without one"
    )
    parser.add_argument("--json", action="store_true", help="every value, as JSON")


def main(arguments: argparse.Namespace) -> int:
    """Simulate runs; 1 where a simulation failed.

    Raises:
        FixableError: a name means nothing.
    """
    runs = simulate(wanted(arguments.names), machine.num_cores())
    compared = compare(runs, machine.references()[0])
    if arguments.json:
        print(json.dumps({name: one._asdict() for name, one in compared.items()}, indent=1))
    else:
        print("\n".join(f"{name:<44}{one.line()}" for name, one in compared.items()))
    failed = [one for one in runs if one.has_failed]
    for one in failed:
        print(f"failed: {one.experiment}.{one.run}: {one.reason}", file=sys.stderr)
    return 1 if failed else 0


# --- simulations


class Wanted(NamedTuple):
    """One run to simulate, by name; another process loads its settings anew."""

    experiment: str
    run: str

    @property
    def plan(self) -> RunPlan:
        """The run as declared."""
        return find(self.experiment).runs[self.run]

    def unsimulated(self, reason: str, *, has_failed: bool = True) -> SimulatedRun:
        """That it could not be simulated, and why."""
        return SimulatedRun(**self._asdict(), reason=reason, has_failed=has_failed)


def wanted(names_given: Iterable[str]) -> list[Wanted]:
    """The runs that are named: `EXPERIMENT` or `EXPERIMENT.RUN`; all without a name.

    Raises:
        FixableError: there is no such experiment, or it has no such run.
    """
    named = runs_named(list(names_given) or names())
    return [Wanted(name, run) for name, runs in named.items() for run in runs]


def simulate(runs: Sequence[Wanted], num_workers: int = 2) -> list[SimulatedRun]:
    """Simulate runs, each in a process of its own."""
    jobs = [Job(partial(_run, one), one.unsimulated) for one in runs]
    return results(jobs, num_workers, "runs simulated")


def _run(wanted: Wanted) -> SimulatedRun:
    """Simulate the ranks of a run, in this process, which prints nothing and uses one core."""
    import torch
    from torch._subclasses import fake_tensor

    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, 1)
    if not os.environ.get("PROOFBOOK_STDERR"):
        os.dup2(nothing, 2)
    torch.set_num_threads(1)
    try:
        ranks = _logs(wanted)
    except UnsimulatedError as error:
        return wanted.unsimulated(str(error), has_failed=False)
    except (
        fake_tensor.DynamicOutputShapeException,
        fake_tensor.DataDependentOutputException,
    ) as error:
        reason = f"what it does follows from values of tensors ({error})"
        return wanted.unsimulated(reason, has_failed=False)
    except BaseException as error:  # noqa: BLE001 whatever it was, the run cannot be simulated
        traceback.print_exc()
        said = f"{type(error).__name__}: {first_line(error)}"
        return wanted.unsimulated(said.rstrip(": "))
    return SimulatedRun(**wanted._asdict(), ranks=ranks)


def _logs(wanted: Wanted) -> list[RankLog]:
    """The log of each rank; one that waits for an object is simulated again after the others.

    Raises:
        UnsimulatedError: the run cannot be simulated.
    """
    from runners.simulate.one_rank import simulate_rank
    from runners.simulate.stand_ins import NotSentError, Sent

    plan, experiment, sent = wanted.plan, find(wanted.experiment), Sent()
    if plan.follows is not None:
        raise UnsimulatedError(f"it works with what was measured of {plan.follows}")
    if how := TAKE_OTHERS.get(plan.expected):
        said = f"its ranks are meant to {how}, which takes ranks that meet each other"
        raise UnsimulatedError(said)
    logs: dict[int, RankLog] = {}
    while missing := set(range(plan.world_size)) - logs.keys():
        known = len(logs), len(sent)
        for rank in sorted(missing):
            _limit(MOST_SECONDS)
            with suppress(NotSentError):
                logs[rank] = simulate_rank(experiment, plan, rank, sent)
        if (len(logs), len(sent)) == known:
            raise UnsimulatedError("its ranks wait for objects of each other")
    return [logs[rank] for rank in sorted(logs)]


def _limit(most_seconds: float) -> None:
    """End this process after so many seconds of its processor time from now on."""
    most = int(most_seconds + time.process_time()) + 1
    resource.setrlimit(resource.RLIMIT_CPU, (most, resource.getrlimit(resource.RLIMIT_CPU)[1]))


# --- beside what was recorded


class Compared(NamedTuple):
    """One run: simulated beside recorded; bytes are those of the rank that has most.

    Attributes:
        reason: why it is not simulated.
        recorded_peak_bytes: None where no pass has metered it.
        peak_error: the largest difference of any rank, as a share of what it recorded, signed.
        payload_bytes: in the counted step, over all operations.
        payload_error: the largest difference of any rank and operation.
    """

    reason: str | None
    peak_bytes: int | None
    recorded_peak_bytes: int | None
    peak_error: float | None
    payload_bytes: int | None
    payload_error: float | None

    def line(self) -> str:
        """As a person reads it."""
        if self.reason is not None:
            return f"  not simulated: {self.reason}"
        peak, payload = (
            f"{(n or 0) / MIB:10.3f} MiB" for n in (self.peak_bytes, self.payload_bytes)
        )
        if self.recorded_peak_bytes is None:
            return f"  peak {peak}  payload {payload}  not metered"
        recorded = f"recorded {self.recorded_peak_bytes / MIB:.3f} MiB, {self.peak_error:+.2%}"
        return f"  peak {peak} ({recorded})  payload {payload} ({self.payload_error or 0:+.2%})"


def compare(runs: Iterable[SimulatedRun], folder: Path) -> dict[str, Compared]:
    """Simulations beside the traces of a machine's folder, by name; a run may have none there."""
    found = {}
    for one in runs:
        path = folder / f"{one.experiment}.json"
        recorded = read(path).runs.get(one.run) if path.exists() else None
        found[f"{one.experiment}.{one.run}"] = _compared(one, recorded)
    return found


def _compared(simulated: SimulatedRun, recorded: Run | None) -> Compared:
    logs = {one.rank: one for one in simulated.ranks}
    metered = [one for one in (recorded.ranks if recorded else ()) if _peak(one)]
    pairs = [(logs[one.rank], one) for one in metered if one.rank in logs]
    return Compared(
        reason=simulated.reason,
        peak_bytes=max((log.peak_bytes or 0 for log in simulated.ranks), default=None),
        recorded_peak_bytes=max(map(_peak, metered), default=None),
        peak_error=_largest((log.peak_bytes or 0, _peak(one)) for log, one in pairs),
        payload_bytes=max(
            (sum(log.payload_bytes.values()) for log in simulated.ranks), default=None
        ),
        payload_error=_largest(sides for pair in pairs for sides in _payloads(*pair)),
    )


def _peak(record: RankRecord) -> int:
    """What a rank recorded; 0 where it was not metered."""
    return (record.memory.peak_bytes if record.memory else None) or 0


def _payloads(log: RankLog, record: RankRecord) -> Iterator[tuple[int, int]]:
    """Of each operation, simulated and recorded."""
    ours, theirs = log.payload_bytes, {one.operation: one.bytes for one in record.collectives}
    for name in ours | theirs:
        yield ours.get(name, 0), theirs.get(name, 0)


def _largest(pairs: Iterable[tuple[int, int]]) -> float | None:
    """The error furthest from zero; what only one of two has is off by all of it."""
    errors = (ours / theirs - 1 if theirs else float(ours > 0) for ours, theirs in pairs)
    return max(errors, key=abs, default=None)
