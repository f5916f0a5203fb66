"""What a simulation records. No torch.

Bytes are tensor bytes, as the memory meter counts them; a payload is counted as the meter of
collectives counts it, the larger side of a call. Counts and FLOPs are those of one settled step; of
a program, which has no steps that are known, they are those of all of it.
"""

from __future__ import annotations

from pydantic import Field

from runners.traces.measured import Collective, Memory
from runners.traces.schema import Record

# Ends that ranks come to because of each other, and what they then do.
TAKE_OTHERS = {"deadlocked": "hang", "died": "die", "failed": "fail"}


class Call(Record):
    """All calls of one collective in one group of ranks during the counted step."""

    operation: str
    axis: str = Field(description="of a named mesh; `all` for every rank, else `group`")
    num_ranks: int = Field(description="of the group")
    phase: str
    count: int
    bytes: int = Field(description="payload, summed over the calls")


class Operation(Record):
    """All calls of one operation in one phase of the counted step."""

    name: str
    phase: str
    count: int
    flops: int = Field(description="of matrix products and attention, by torch's own formulas")
    bytes: int = Field(description="of the tensors that it reads and writes; views move none")


class RankLog(Record):
    """What one simulated rank recorded."""

    rank: int
    memory: Memory | None
    num_parameters: int | None
    collectives: list[Collective]
    calls: list[Call]
    operations: list[Operation]

    @property
    def peak_bytes(self) -> int | None:
        """The most tensor bytes held at one time."""
        return self.memory.peak_bytes if self.memory else None

    @property
    def flops(self) -> int:
        """Of the counted step."""
        return sum(one.flops for one in self.operations)

    @property
    def payload_bytes(self) -> dict[str, int]:
        """Payload of the counted step by operation."""
        return {one.operation: one.bytes for one in self.collectives}


class SimulatedRun(Record):
    """A run, simulated rank by rank; or why it cannot be.

    Ranks that were not simulated by themselves are left out: `like_first` names them, since the
    first and the last rank came out equal.
    """

    experiment: str
    run: str
    ranks: list[RankLog]
    like_first: list[int] = []
    reason: str | None = None
    seconds: float = Field(description="the simulation itself took, all ranks together")

    def of_rank(self, rank: int) -> RankLog | None:
        """The log of a rank, or of the rank that it is like."""
        wanted = 0 if rank in self.like_first else rank
        return next((one for one in self.ranks if one.rank == wanted), None)
