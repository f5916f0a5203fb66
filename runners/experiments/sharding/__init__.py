"""What sharding saves and what it costs: one model under DDP, ZeRO's first stage, and FSDP.

Equal linear layers trained with Adam over 1, 2 and 4 ranks: under DDP; under DDP with
`ZeroRedundancyOptimizer`; under FSDP as it comes, where the root's own layer stays gathered; under
FSDP that frees every layer after forward, and under FSDP that frees none. Memory by class, and
payloads by collective.

    python -m runners run sharding
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from itertools import pairwise

from runners.plans.experiment import PassName, RunPlan
from runners.plans.settings import Count, Factor, RunSettings
from runners.plans.work import layer_parameters

QUESTION = (
    "How much memory does each way of sharding save on a rank, and what does it communicate for it?"
)
BYTES_PER_VALUE = 4
COPIES_PER_PARAMETER = 4  # Adam keeps each parameter, its gradient and two moments
WORLD_SIZES = (1, 2, 4)
SHARDED = ("fsdp", "fsdp_freed", "fsdp_kept")


class Settings(RunSettings):
    """A stack of linear layers, and the bytes of it that a rank keeps."""

    widths: tuple[Count, ...] = (512,) * 9
    batch_size: Count = 4
    num_steps: Count = 9
    learning_rate: Factor = 0.001

    def check(self) -> None:
        """Refuse widths that make no network, or weights whose samples no ranks share equally."""
        widths, n = list(self.widths), self.world_size
        if len(widths) < 3:
            raise ValueError(
                f"widths must be three or more whole numbers above zero, not {widths!r}"
            )
        if self.strategy in SHARDED and any(width % n for width in widths[1:]):
            raise ValueError(f"widths {widths} cannot be sharded equally over {n} ranks")

    @cached_property
    def num_layers(self) -> int:
        """Linear layers."""
        return len(self.widths) - 1

    @cached_property
    def copies_per_parameter(self) -> int:
        """Of Adam: parameter, gradient, two moments."""
        return COPIES_PER_PARAMETER

    @cached_property
    def bytes_per_value(self) -> int:
        """Of fp32."""
        return BYTES_PER_VALUE

    @cached_property
    def model_bytes(self) -> int:
        """All parameters."""
        return BYTES_PER_VALUE * sum(layer_parameters(self.widths))

    @cached_property
    def layer_bytes(self) -> int:
        """Parameters of the first layer, which is no smaller than the others."""
        return BYTES_PER_VALUE * layer_parameters(self.widths)[0]

    @cached_property
    def root_bytes(self) -> int:
        """Parameters of the last layer, which is the root's own under FSDP."""
        return BYTES_PER_VALUE * layer_parameters(self.widths)[-1]

    @cached_property
    def largest_part_bytes(self) -> int:
        """Parameters of the rank that updates most of them under ZeRO's first stage."""
        tensors = [n for a, b in pairwise(self.widths) for n in (a * b, b)]
        return BYTES_PER_VALUE * max(parts(tensors, self.world_size))

    @cached_property
    def shared_bytes(self) -> int:
        """Bytes at the peak that ranks share."""
        return self._at_peak[0]

    @cached_property
    def whole_bytes(self) -> int:
        """Bytes at the peak that each rank holds whole."""
        return self._at_peak[1]

    @property
    def _at_peak(self) -> tuple[int, int]:
        """Bytes at the peak of a stack of equal layers: what ranks share, and what each has whole.

        DDP: the four copies, and the buckets. FSDP: near the end of backward the four copies but
        for the gradients of three layers, still to come; whole are the root and its gradient, and
        four layers: the one computed, the next one gathered ahead, a gradient, and its copy to be
        scattered. FSDP without resharding peaks as backward begins to free layers.
        """
        model, layer, root = self.model_bytes, self.layer_bytes, self.root_bytes
        if self.strategy == "ddp":
            return 0, 5 * model
        if self.strategy == "zero":
            return 0, 3 * model + 2 * self.largest_part_bytes
        if self.strategy == "fsdp_kept":
            return 3 * model + layer, model + root + layer
        return 4 * model - 3 * layer, 2 * root + 4 * layer


def parts(sizes: Sequence[int], num_ranks: int) -> list[int]:
    """What each rank gets where whole parameters are distributed, the largest first.

    Each goes to the rank that has least so far, as `ZeroRedundancyOptimizer` distributes them.
    """
    loads = [0] * num_ranks
    for size in sorted(sizes, reverse=True):
        loads[loads.index(min(loads))] += size
    return loads


EVEN = Settings()


def _run(
    strategy: str, world_size: int, *passes: PassName, settings: Settings = EVEN
) -> RunPlan[Settings]:
    return RunPlan(
        strategy,
        world_size,
        settings,
        passes=passes or (("timed", "metered") if world_size == 2 else ("metered",)),
        has_timeline=False,
        can_share_device=strategy in ("ddp", "zero"),
        full=world_size == 1 and strategy in ("zero", "fsdp_kept"),
    )


RUNS = {
    f"{strategy}_{world_size}": _run(strategy, world_size)
    for strategy in ("ddp", "zero", "fsdp", "fsdp_kept")
    for world_size in WORLD_SIZES
} | {
    "fsdp_freed_2": _run("fsdp_freed", 2, "metered"),
    # The first layer is most of the model.
    "zero_uneven_2": _run("zero", 2, "metered", settings=Settings(widths=(2048, 512, 512, 512))),
}
ON_CUDA = {"*": {"widths": [8192] * 9}, "zero_uneven_2": {"widths": [32768, 8192, 8192, 8192]}}
