"""A transformer's block split by columns and by rows, over 1, 2 and 4 ranks.

The projections that come first are split by columns, those that follow by rows, so that a block
needs one sum over the ranks after attention and one after its mlp, and as many backward.
How many DTensor really makes is counted twice: by the memory meter and by PyTorch's own
`CommDebugMode`. Outputs and gradients are compared with the block that is not split.

    python -m runners run tensor_parallel
"""

from __future__ import annotations

from functools import cached_property

from runners.plans.experiment import RunPlan
from runners.plans.settings import Count, Factor, RunSettings
from runners.training.shape import TransformerShape

QUESTION = (
    "What does splitting a transformer block over ranks save, and what must the ranks communicate?"
)

BYTES_PER_VALUE = 4
COPIES_PER_PARAMETER = 4  # Adam keeps each parameter, its gradient and two moments
SUMS = 2  # a block needs one after attention and one after its mlp, in each direction
# In backward through the last of attention's first projections these are whole on every rank: the
# input, its norm's output, the block's output, the gradient that passes attention by, that of the
# norm's output so far, and what is added to it. The gradient of that projection's output is split.
WHOLE_ACTIVATIONS = 6


class Settings(RunSettings):
    """One block of a transformer, its tokens, and what each rank holds and sends."""

    width: Count = 512
    num_heads: Count = 8
    hidden: Count = 2048
    num_samples: Count = 2
    length: Count = 64
    num_steps: Count = 13
    learning_rate: Factor = 0.001

    @property
    def shape(self) -> TransformerShape:
        """The block as a transformer of one layer, without a vocabulary."""
        return TransformerShape(1, 1, self.width, self.num_heads, 1, self.hidden)

    @cached_property
    def num_parameters(self) -> int:
        """Of the block."""
        return self.shape.block_parameters()

    @cached_property
    def whole_bytes(self) -> int:
        """Parameters that every rank keeps whole."""
        return BYTES_PER_VALUE * self.shape.whole_block_parameters()

    @cached_property
    def split_bytes(self) -> int:
        """Parameters that are split over the ranks."""
        return BYTES_PER_VALUE * self.num_parameters - self.whole_bytes

    @cached_property
    def num_parameters_per_rank(self) -> int:
        """Parameters that one rank holds."""
        return self.shape.block_parameters_on_a_rank(self.world_size)

    @cached_property
    def bytes_per_value(self) -> int:
        """Of float32."""
        return BYTES_PER_VALUE

    @cached_property
    def copies_per_parameter(self) -> int:
        """What Adam keeps of each: itself, its gradient and two moments."""
        return COPIES_PER_PARAMETER

    @cached_property
    def held_bytes(self) -> int:
        """Parameters, gradients and Adam's moments of one rank."""
        return BYTES_PER_VALUE * COPIES_PER_PARAMETER * self.num_parameters_per_rank

    @cached_property
    def num_whole_activations(self) -> int:
        """Activations that are whole on every rank at the peak."""
        return WHOLE_ACTIVATIONS

    @cached_property
    def num_forward_sums(self) -> int:
        """All-reduces of a forward pass."""
        return SUMS

    @cached_property
    def num_backward_sums(self) -> int:
        """All-reduces of a backward pass: four where each projection takes its input for itself."""
        return SUMS if self.strategy == "split" else 1 + 3

    @cached_property
    def activation_bytes(self) -> int:
        """Of (num_samples, length, width)."""
        return BYTES_PER_VALUE * self.num_samples * self.length * self.width

    def check(self) -> None:
        """Refuse heads or features that the ranks cannot share equally."""
        if self.width % self.num_heads:
            raise ValueError(f"width {self.width} is not divisible by {self.num_heads} heads")
        for name, count in (("num_heads", self.num_heads), ("hidden", self.hidden)):
            if count % self.world_size:
                raise ValueError(f"{name} {count} cannot be split over {self.world_size} ranks")


RUNS = {
    name: RunPlan(strategy, num_ranks, Settings(), has_timeline=False, can_share_device=False)
    for name, strategy, num_ranks in (
        ("ranks_1", "whole", 1),
        ("ranks_2", "split", 2),
        ("ranks_4", "split", 4),
        ("each_input_2", "split_each", 2),
    )
}
ON_CUDA = {"*": {"width": 8192, "num_heads": 64, "hidden": 32768, "num_samples": 4, "length": 2048}}
