"""Hold simulations against what real ranks recorded. No torch.

In: simulated runs and a machine's traces. Out: for each run its simulated and its recorded peak,
their difference, the same for payloads, and the reason where a run cannot be simulated.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from runners.simulate.log import RankLog, SimulatedRun
from runners.traces.files import read
from runners.traces.records import RankRecord, Run

NEAR_SHARE = 0.01  # a peak as near as this is as good as the real one


@dataclass(frozen=True)
class Compared:
    """One run: simulated beside recorded.

    Attributes:
        peak_bytes: of the fullest rank, simulated; None where it cannot be.
        recorded_peak_bytes: of the fullest rank; None where no pass has metered it.
        peak_error: the largest difference of any rank, as a share of what it recorded, signed.
        payload_bytes: of the rank that communicates most, in the counted step.
        recorded_payload_bytes: the same, recorded.
        payload_error: the largest difference of any rank and operation, as a share; signed.
        flops: of the busiest rank in the counted step.
        reason: why it is not simulated.
    """

    experiment: str
    run: str
    nature: str
    num_ranks: int
    peak_bytes: int | None
    recorded_peak_bytes: int | None
    peak_error: float | None
    payload_bytes: int | None
    recorded_payload_bytes: int | None
    payload_error: float | None
    flops: int | None
    reason: str | None

    @property
    def name(self) -> str:
        """`EXPERIMENT.RUN`."""
        return f"{self.experiment}.{self.run}"

    def as_json(self) -> dict[str, Any]:
        """Every field."""
        return asdict(self)


def compare(runs: Iterable[SimulatedRun], folder: Path) -> list[Compared]:
    """Simulations beside the traces of a machine's folder; a run without one stands alone."""
    taken = list(runs)
    known = {}
    for name in {one.experiment for one in taken}:
        path = folder / f"{name}.json"
        known[name] = read(path).runs if path.exists() else {}
    return [_compared(one, known[one.experiment].get(one.run)) for one in taken]


def _compared(simulated: SimulatedRun, recorded: Run | None) -> Compared:
    records = recorded.ranks if recorded else []
    pairs = [
        (log, record) for record in records if (log := simulated.of_rank(record.rank)) is not None
    ]
    metered = [(log, record) for log, record in pairs if _peak(record) is not None]
    num_ranks = (
        recorded.world_size if recorded else len(simulated.ranks) + len(simulated.like_first)
    )
    return Compared(
        experiment=simulated.experiment,
        run=simulated.run,
        nature=recorded.nature if recorded else "real",
        num_ranks=num_ranks,
        peak_bytes=max((log.peak_bytes or 0 for log in simulated.ranks), default=None),
        recorded_peak_bytes=max((_peak(r) or 0 for r in records if _peak(r)), default=None),
        peak_error=_largest(
            (log.peak_bytes or 0) / _peak_of(record) - 1 for log, record in metered
        ),
        payload_bytes=max((sum(r.payload_bytes.values()) for r in simulated.ranks), default=None),
        recorded_payload_bytes=max(
            (sum(c.bytes for c in r.collectives) for r in records if _peak(r)), default=None
        ),
        payload_error=_largest(
            error for log, record in metered for error in _payload_errors(log, record)
        ),
        flops=max((log.flops for log in simulated.ranks), default=None),
        reason=simulated.reason,
    )


def _peak(record: RankRecord) -> int | None:
    return record.memory.peak_bytes if record.memory else None


def _peak_of(record: RankRecord) -> int:
    return _peak(record) or 1


def _payload_errors(log: RankLog, record: RankRecord) -> list[float]:
    """Of each operation; one that only one of the two has is off by all of it."""
    ours, theirs = log.payload_bytes, {c.operation: c.bytes for c in record.collectives}
    shared = [ours.get(name, 0) / size - 1 for name, size in theirs.items() if size]
    return [*shared, *(1.0 for name, size in ours.items() if size and not theirs.get(name))]


def _largest(errors: Iterable[float]) -> float | None:
    """The error furthest from zero."""
    return max(errors, key=abs, default=None)


@dataclass(frozen=True)
class Score:
    """How near all simulations together come.

    Attributes:
        num_runs: asked for.
        num_simulated: of them.
        num_metered: simulated, and metered with real ranks.
        num_near: of these, peaks within `NEAR_SHARE`.
        num_exact: of these, peaks equal to the byte.
        num_payloads_equal: of the metered ones, payloads of all operations equal.
    """

    num_runs: int
    num_simulated: int
    num_metered: int
    num_near: int
    num_exact: int
    num_payloads_equal: int

    def line(self) -> str:
        """All of it in words."""
        return (
            f"{self.num_simulated} of {self.num_runs} runs simulated; of {self.num_metered} that "
            f"were metered, the peak of {self.num_near} is within {NEAR_SHARE:.0%} "
            f"({self.num_exact} to the byte), the payload of {self.num_payloads_equal} equal"
        )


def score(compared: Iterable[Compared]) -> Score:
    """Count what came near."""
    taken = list(compared)
    errors = [one.peak_error for one in taken if one.peak_error is not None]
    return Score(
        num_runs=len(taken),
        num_simulated=sum(one.reason is None for one in taken),
        num_metered=len(errors),
        num_near=sum(abs(error) <= NEAR_SHARE for error in errors),
        num_exact=sum(error == 0 for error in errors),
        num_payloads_equal=sum(
            one.peak_error is not None and not one.payload_error for one in taken
        ),
    )
