"""`python -m runners simulate`: every run as one rank of many, beside what real ranks recorded.

In: names of runs. Out: a line a run, or JSON; then how near all of them come.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from runners.simulate.log import RankLog, SimulatedRun
from runners.simulate.suite import simulate, wanted
from runners.system import accelerator
from runners.traces import machine
from runners.traces.files import read
from runners.traces.records import RankRecord, Run

NEAR_SHARE = 0.01  # a peak as near as this is as good as the real one


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    parser.add_argument(
        "names", nargs="*", metavar="EXPERIMENT[.RUN]", help="what to simulate; all without one"
    )
    parser.add_argument("--json", action="store_true", help="every value, as JSON")


def main(arguments: argparse.Namespace) -> int:
    """Simulate runs; 1 where a simulation failed.

    Where there is an accelerator, as if each rank had one, beside what this machine recorded.

    Raises:
        FixableError: a name means nothing.
    """
    device = accelerator.kind()
    folder = machine.TRACES / machine.name() if device == "cuda" else reference()
    runs = simulate(wanted(arguments.names, device), machine.num_cores())
    compared = compare(runs, folder)
    if arguments.json:
        print(json.dumps([one._asdict() for one in compared], indent=1), flush=True)
    else:
        print("\n".join([*(one.line() for one in compared), score(compared)]), flush=True)
    failed = [one for one in runs if one.has_failed]
    for one in failed:
        print(f"failed: {one.experiment}.{one.run}: {one.reason}", file=sys.stderr)
    return 1 if failed else 0


def reference() -> Path:
    """The folder of the reference machine's traces, with which simulations are compared."""
    return machine.references()[0]


class Compared(NamedTuple):
    """One run: simulated beside recorded.

    Attributes:
        peak_bytes: of the fullest rank, simulated; None where it cannot be.
        recorded_peak_bytes: of the fullest rank; None where no pass has metered it.
        peak_error: the largest difference of any rank, as a share of what it recorded, signed.
        payload_bytes: of the rank that communicates most, in the counted step.
        recorded_payload_bytes: the same, recorded.
        payload_error: the largest difference of any rank and operation, as a share; signed.
        reason: why it is not simulated.
    """

    experiment: str
    run: str
    num_ranks: int
    peak_bytes: int | None
    recorded_peak_bytes: int | None
    peak_error: float | None
    payload_bytes: int | None
    recorded_payload_bytes: int | None
    payload_error: float | None
    reason: str | None

    def line(self) -> str:
        """As a person reads it."""
        head = f"{f'{self.experiment}.{self.run}':<44}{self.num_ranks:>5}"
        if self.reason is not None:
            return f"{head}  not simulated: {self.reason}"
        peak = _beside(self.peak_bytes, self.recorded_peak_bytes, self.peak_error)
        payload = _beside(self.payload_bytes, self.recorded_payload_bytes, self.payload_error)
        return f"{head}  peak {peak}  payload {payload}"


def _beside(simulated: int | None, recorded: int | None, error: float | None) -> str:
    said = f"{(simulated or 0) / 2**20:10.3f} MiB"
    if recorded is None:
        return f"{said} (not metered)"
    return f"{said} (recorded {recorded / 2**20:.3f} MiB, {error or 0.0:+.2%})"


def compare(runs: Iterable[SimulatedRun], folder: Path) -> list[Compared]:
    """Simulations beside the traces of a machine's folder; a run without one stands alone."""
    taken = list(runs)
    paths = {name: folder / f"{name}.json" for name in {one.experiment for one in taken}}
    known = {name: read(path).runs if path.exists() else {} for name, path in paths.items()}
    return [_compared(one, known[one.experiment].get(one.run)) for one in taken]


def _compared(simulated: SimulatedRun, recorded: Run | None) -> Compared:
    metered = [one for one in (recorded.ranks if recorded else ()) if _peak(one)]
    pairs = [(log, one) for one in metered if (log := simulated.of_rank(one.rank)) is not None]
    logs, num_simulated = simulated.ranks, len(simulated.ranks) + len(simulated.like_first)
    sums = (sum(c.bytes for c in one.collectives) for one in metered)
    return Compared(
        experiment=simulated.experiment,
        run=simulated.run,
        num_ranks=recorded.world_size if recorded else num_simulated,
        peak_bytes=max((log.peak_bytes or 0 for log in logs), default=None),
        recorded_peak_bytes=max(map(_peak, metered), default=None),
        peak_error=_largest((log.peak_bytes or 0) / _peak(one) - 1 for log, one in pairs),
        payload_bytes=max((sum(log.payload_bytes.values()) for log in logs), default=None),
        recorded_payload_bytes=max(sums, default=None),
        payload_error=_largest(error for pair in pairs for error in _payload_errors(*pair)),
        reason=simulated.reason,
    )


def _peak(record: RankRecord) -> int:
    """What a rank recorded; 0 where it was not metered."""
    return (record.memory.peak_bytes if record.memory else None) or 0


def _payload_errors(log: RankLog, record: RankRecord) -> Iterator[float]:
    """Of each operation; one that only one of the two has is off by all of it."""
    ours, theirs = log.payload_bytes, {c.operation: c.bytes for c in record.collectives}
    for name in sorted(ours | theirs):
        if theirs.get(name):
            yield ours.get(name, 0) / theirs[name] - 1
        elif ours.get(name):
            yield 1.0


def _largest(errors: Iterable[float]) -> float | None:
    """The error furthest from zero."""
    return max(errors, key=abs, default=None)


def score(compared: Sequence[Compared]) -> str:
    """How near all simulations together come, in words."""
    metered = [one for one in compared if one.peak_error is not None]
    errors = [abs(one.peak_error or 0.0) for one in metered]
    return (
        f"{sum(one.reason is None for one in compared)} of {len(compared)} runs simulated; of "
        f"{len(metered)} that were metered, the peak of "
        f"{sum(error <= NEAR_SHARE for error in errors)} is within {NEAR_SHARE:.0%} "
        f"({errors.count(0)} to the byte), the payload of "
        f"{sum(not one.payload_error for one in metered)} equal"
    )
