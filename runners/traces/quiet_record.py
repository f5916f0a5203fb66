"""How quiet a machine was around an experiment: the record in its trace, and the judgement.

In: what `runners/measuring/quiet.py` read before and after the experiment. Out: a `Quiet`, and
whether the experiment was quiet: other processes used at most `MOST_LOAD_SHARE` of the cores before
and after it, and each canary took the same time before and after it, within `MOST_RATIO`. Pure; no
torch.
"""

from __future__ import annotations

from pydantic import Field

from runners.traces.schema import Record

MOST_LOAD_SHARE = 0.05
MOST_RATIO = 1.05


class Canary(Record):
    """The time of one small, fixed piece of work before and after an experiment."""

    before_seconds: float = Field(gt=0)
    after_seconds: float = Field(gt=0)

    @property
    def ratio(self) -> float:
        """The longer time over the shorter one, from 1."""
        times = (self.before_seconds, self.after_seconds)
        return max(times) / min(times)


class Quiet(Record):
    """What else the machine did around an experiment; of sessions, one that was not quiet."""

    # Of the cores, used by other processes; null: the platform does not tell.
    load_before_share: float | None
    load_after_share: float | None
    canaries: dict[str, Canary]  # by name

    @property
    def disturbances(self) -> list[str]:
        """Why the experiment was not quiet, in words; empty where it was quiet."""
        loads = (("before", self.load_before_share), ("after", self.load_after_share))
        busy = [
            f"other processes used {share:.0%} of the cores {when} it"
            for when, share in loads
            if share is not None and share > MOST_LOAD_SHARE
        ]
        return busy + [
            f"the {name} canary differed by {one.ratio - 1:.1%} before and after it"
            for name, one in sorted(self.canaries.items())
            if one.ratio > MOST_RATIO
        ]

    @property
    def is_quiet(self) -> bool:
        """Whether nothing disturbed the experiment."""
        return not self.disturbances


def least_quiet(sessions: list[Quiet | None]) -> Quiet | None:
    """One that was not quiet, if any was; None where one of them was not recorded."""
    known = [one for one in sessions if one is not None]
    return min(known, key=lambda one: one.is_quiet) if len(known) == len(sessions) else None
