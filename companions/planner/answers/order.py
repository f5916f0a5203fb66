"""In which order layouts are tried: a rule of thumb as practitioners state it. No torch.

In: a layout, and how long it sends next to computing. Out: its `Priority`; the smallest is tried
first. Nothing is fitted, and no time is predicted: `content/planner/plan_order.json` says how far
the rule's choice was from the fastest layout of each published cluster.
"""

from typing import NamedTuple

from proofbook.companions.planner.answers.question import Question

KNOWN_TO = 64  # devices up to which the rule was near the fastest on most published clusters
RECOMPUTATION = ("none", "selective", "all")
AGAIN = 4 / 3  # times the operations, where everything is computed again
_SHARDING = ("none", "zero1", "fsdp-keep", "fsdp")


class Priority(NamedTuple):
    """The key by which the rule orders layouts; earlier fields decide first."""

    # it sends for longer than computing all of it again would take, or its pipeline has fewer
    # microbatches than ranks, of which some then idle at any time
    is_stalled: bool
    recomputation: int  # none before selective before all
    is_exposed: bool  # what ranks send takes longer than computing
    leaves_node: bool  # tensor-parallel ranks lie on several nodes
    context: int  # a sample is divided only where a whole one does not fit
    stages: int  # as few as fit; they come after tensor-parallel ranks within a node
    tensor: int  # as few ranks as fit
    sharding: int  # DDP, ZeRO-1, FSDP that keeps its parameters gathered, FSDP
    shards: int  # over as few ranks as fit: HSDP shards within a node
    expert: int  # ranks that divide the experts
    microbatch: int  # the largest first, so negative


def priority(question: Question, per_node: int, *, sending: float) -> Priority:
    """A `Priority`, sorted least first; `sending` is its time, as a multiple of computing's."""
    strategy, training = question.strategy, question.training
    sends_longer = sending > (AGAIN if training.checkpointing == "none" else 1)
    return Priority(
        is_stalled=sends_longer or question.num_microbatches < strategy.pipeline,
        recomputation=RECOMPUTATION.index(training.checkpointing),
        is_exposed=sending > 1,
        leaves_node=strategy.tensor > per_node,
        context=strategy.context,
        stages=strategy.num_stages,
        tensor=strategy.tensor,
        sharding=_SHARDING.index(strategy.sharding),
        shards=strategy.reshards_to or strategy.shards,
        expert=strategy.expert,
        microbatch=-training.microbatch,
    )
