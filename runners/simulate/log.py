"""What a simulation of a run records. No torch.

Bytes are tensor bytes, as the memory meter counts them; a payload is counted as the meter of
collectives counts it, the larger side of a call. Counts and FLOPs are those of one settled step; of
a program, which has no steps that are known, they are those of all of it.
"""

from runners.traces.measured import Collective, Memory
from runners.traces.schema import Record

RESHARDED = "resharded"  # the axis over which FSDP gathers what it resharded to a smaller group


class UnsimulatedError(Exception):
    """A rank does what no rank alone can do without data and without waiting."""


class AxisCalls(Record):
    """All calls of one collective on one axis of the mesh, in a step."""

    operation: str
    axis: str
    num_ranks: int  # of the group
    count: int
    bytes: int  # payload, summed over the calls


class Call(AxisCalls):
    """All calls of one collective in one group of ranks during the counted step.

    Its axis is that of a named mesh, `all` for every rank, else `group`.
    """

    phase: str


class RankLog(Record):
    """What one simulated rank recorded."""

    rank: int
    memory: Memory | None
    collectives: list[Collective]
    calls: list[Call]
    flops: dict[str, int]  # by phase: matrix products and attention, by torch's own formulas

    @property
    def peak_bytes(self) -> int | None:
        """The most tensor bytes held at one time."""
        return self.memory.peak_bytes if self.memory else None

    @property
    def payload_bytes(self) -> dict[str, int]:
        """Payload of the counted step by operation."""
        return {one.operation: one.bytes for one in self.collectives}
