"""Two ways of splitting at once, on ranks in a square: what each axis carries, and what ranks hold.

The same small transformer on the same batch: on one device; as two pipelines whose stages are
averaged by DDP; under FSDP along one axis and split inside its layers along the other; in shards
along one axis, replicated along the other (HSDP); and in shards over all four ranks.

    python -m runners run hybrid
"""

from __future__ import annotations

from functools import cached_property

from runners.plans.experiment import RunPlan
from runners.plans.settings import Count, Factor
from runners.training.shape import TransformerSettings

QUESTION = "What does each axis of the mesh carry when a model is split in two ways at once?"
FLOAT_BYTES = 4
SIDE = 2  # ranks along each axis of the square
# How many parts the samples of a batch are dealt out in.
DATA_PARTS = {"single": 1, "ddp_pipeline": SIDE, "fsdp_tensor": SIDE, "hsdp": 4, "fsdp": 4}


class Settings(TransformerSettings):
    """A small transformer, its batch, and what each rank holds and sends."""

    vocabulary: Count = 64
    context: Count = 32
    width: Count = 64
    num_heads: Count = 4
    num_layers: Count = 2
    hidden: Count = 256
    batch_size: Count = 16
    num_microbatches: Count = 4
    num_steps: Count = 5
    learning_rate: Factor = 0.003

    @cached_property
    def num_samples_per_rank(self) -> int:
        """Sequences of the batch that a rank sees."""
        return self.batch_size // DATA_PARTS[self.strategy]

    @cached_property
    def model_bytes(self) -> int:
        """Parameters of the whole model."""
        return FLOAT_BYTES * self.shape.num_parameters()

    @cached_property
    def block_bytes(self) -> int:
        """Parameters of one block."""
        return FLOAT_BYTES * self.shape.block_parameters()

    @cached_property
    def ends_bytes(self) -> int:
        """Parameters outside the blocks: what FSDP's root gathers once and keeps."""
        return self.model_bytes - self.num_layers * self.block_bytes

    @cached_property
    def tensor_block_bytes(self) -> int:
        """Parameters of a block on one rank of the tensor axis."""
        return FLOAT_BYTES * self.shape.block_parameters_on_a_rank(SIDE)

    @cached_property
    def first_stage_bytes(self) -> int:
        """Parameters of the pipeline's first stage: the embeddings and the first blocks."""
        embeddings = (self.vocabulary + self.context) * self.width
        return FLOAT_BYTES * embeddings + self.num_layers // SIDE * self.block_bytes

    @cached_property
    def activation_bytes(self) -> int:
        """Of (num_samples_per_rank, context, width)."""
        return FLOAT_BYTES * self.num_samples_per_rank * self.context * self.width

    def check(self) -> None:
        """Refuse ranks that form no square, and what they cannot share equally."""
        if self.world_size != (1 if self.strategy == "single" else SIDE * SIDE):
            raise ValueError(
                f"world_size must stay: the ranks stand in a square of {SIDE} by {SIDE}"
            )
        has_stages = self.strategy == "ddp_pipeline"
        if self.batch_size % DATA_PARTS[self.strategy] or (
            has_stages and self.num_samples_per_rank % self.num_microbatches
        ):
            raise ValueError(
                f"batch_size {self.batch_size} cannot be dealt out to the ranks equally"
            )
        for name, count, parts in (
            ("width", self.width, SIDE * SIDE),
            ("num_heads", self.num_heads, SIDE),
            ("num_layers", self.num_layers, SIDE),
            ("hidden", self.hidden, SIDE),
        ):
            if count % parts:
                raise ValueError(f"{name} {count} cannot be split over the ranks")
        if self.width % self.num_heads:
            raise ValueError(f"width {self.width} is not divisible by {self.num_heads} heads")


RUNS = {
    strategy: RunPlan(
        strategy,
        1 if strategy == "single" else SIDE * SIDE,
        Settings(),
        has_timeline=False,
        can_share_device=False,
        full=strategy == "fsdp",
    )
    for strategy in DATA_PARTS
}
# Larger models, so that what they hold and send weighs; the batch stays small.
ON_CUDA = {
    "*": {"vocabulary": 4096, "context": 512, "width": 1024, "num_heads": 16, "hidden": 4096}
}
