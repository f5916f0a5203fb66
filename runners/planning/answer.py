"""What a plan answers for one strategy, rank by rank. No torch.

Bytes are tensor bytes, as the memory meter counts them; `reserved_bytes` is what CUDA's caching
allocator would hold for the same allocations.
"""

from __future__ import annotations

from runners.planning.law_of_time import Bounds, Cluster, bounds
from runners.planning.question import Question
from runners.plans.closed_forms import pipelined_work, ring_bytes, share_bytes
from runners.traces.plan_grid import GridCall, GridRank
from runners.traces.schema import Record


class Answer(Record):
    """A strategy: its ranks, or the reason why it cannot be simulated."""

    question: Question
    reason: str | None = None
    ranks: list[GridRank] = []
    seconds: float  # of the simulation
    has_failed: bool = False  # by an error, and not since this model or mesh does not allow it

    @property
    def busiest(self) -> GridRank | None:
        """The rank with the highest peak."""
        return max(self.ranks, key=lambda one: one.peak_bytes, default=None)

    def bounds(self, cluster: Cluster) -> Bounds:
        """Between which times a step lies on these devices, by the law of time."""
        strategy = self.question.strategy
        pipelined = self._pipelined_flops() if strategy.pipeline > 1 else 0.0
        return bounds(self.ranks, strategy, cluster, pipelined)

    def _pipelined_flops(self) -> float:
        """Of one stage after another; what is known of the inner ones are their layers."""
        asked, strategy = self.question, self.question.strategy
        layers = [
            sum(len(asked.layers_of(stage)) for stage in strategy.stages_of(rank))
            for rank in range(strategy.pipeline)
        ]
        inner = sum(layers[1:-1]) / layers[1] if layers[1] else 1.0
        units = asked.num_microbatches * strategy.chunks
        found = pipelined_work([one.flops for one in self.ranks], inner, units)
        return float(found)


def sent_bytes(call: GridCall) -> float:
    """Bytes that a rank sends at least, by the ring algorithms' closed forms."""
    if call.operation == "all_reduce":
        return float(ring_bytes(call.bytes, call.num_ranks))
    if call.operation in ("all_gather", "reduce_scatter", "all_to_all"):
        return float(share_bytes(call.bytes, call.num_ranks))
    return float(call.bytes) if call.operation == "send" else 0.0
