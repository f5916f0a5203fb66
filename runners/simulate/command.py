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
from runners.traces import machine
from runners.traces.files import read
from runners.traces.records import RankRecord, Run

NEAR_SHARE = 0.01  # a peak as near as this is as good as the real one
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
    compared = compare(runs, reference())
    if arguments.json:
        print(json.dumps({name: one._asdict() for name, one in compared.items()}, indent=1))
    else:
        lines = [f"{name:<44}{one.line()}" for name, one in compared.items()]
        print("\n".join([*lines, score(list(compared.values()))]))
    failed = [one for one in runs if one.has_failed]
    for one in failed:
        print(f"failed: {one.experiment}.{one.run}: {one.reason}", file=sys.stderr)
    return 1 if failed else 0


def reference() -> Path:
    """The folder of the reference machine's traces, with which simulations are compared."""
    return machine.references()[0]


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
    logs = simulated.ranks
    metered = [one for one in (recorded.ranks if recorded else ()) if _peak(one)]
    pairs = [(log, one) for one in metered if (log := simulated.of_rank(one.rank)) is not None]
    return Compared(
        reason=simulated.reason,
        peak_bytes=max((log.peak_bytes or 0 for log in logs), default=None),
        recorded_peak_bytes=max(map(_peak, metered), default=None),
        peak_error=_largest((log.peak_bytes or 0, _peak(one)) for log, one in pairs),
        payload_bytes=max((sum(log.payload_bytes.values()) for log in logs), default=None),
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
