"""What a simulated rank calls. No torch.

A payload is counted as the meter of collectives counts it, the larger side of a call.
"""

from proofbook.runners.core.trace.schema import Record

RESHARDED = "resharded"  # the axis over which FSDP gathers what it resharded to a smaller group


class AxisCalls(Record):
    """All calls of one collective on one axis of the mesh, in a step."""

    operation: str
    axis: str
    num_ranks: int  # of the group
    count: int
    bytes: int  # payload, summed over the calls
