"""What a simulation records of the counted step beside its log: the timeline. No torch.

A timeline says what a rank does one after another: it computes, begins a collective or a message,
waits for it, or sleeps.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from runners.simulate.log import RankLog, SimulatedRun
from runners.traces.schema import Record


class Moment(Record):
    """What a rank does from one point of its step to the next; fields of other kinds are empty."""

    kind: Literal["compute", "begin", "wait", "sleep"]
    phase: str = Field(default="", description="of a stretch of computing")
    flops: int = Field(default=0, description="of the same")
    call: int = Field(default=0, description="which communication begins, or is waited for")
    operation: str = ""
    ranks: list[int] = Field(default=[], description="that take part")
    peer: int | None = Field(default=None, description="of a message: its other end")
    bytes: int = Field(default=0, description="payload")
    seconds: float = Field(default=0.0, description="slept")


class StepLog(RankLog):
    """What one simulated rank recorded, with the timeline of its counted step."""

    timeline: list[Moment] = []

    def without_places(self) -> StepLog:
        """The log without what tells equal ranks apart: their number, and those of their groups."""
        moments = [one.model_copy(update={"ranks": [len(one.ranks)]}) for one in self.timeline]
        return self.model_copy(update={"rank": 0, "timeline": moments})


class SimulatedSteps(SimulatedRun):
    """A simulated run whose ranks have timelines.

    Where it has failed, `reason` is an error, and nobody keeps it: it says nothing of the run.
    """

    ranks: list[StepLog]  # type: ignore[assignment] # a list of a narrower kind
    has_failed: bool = False
