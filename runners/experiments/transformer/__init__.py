"""A small GPT on real text: one training, and the strategies that all should arrive at it.

The text is sources of Python's standard library, a byte a token. The same global batches in the
same order train a transformer on one device, under DDP, under FSDP, with tensor parallelism and
cut into the stages of a pipeline. Beside the loss curves: what each rank holds and sends, held-out
text, what the model writes, and the operations of a step, counted and by the closed form.

    python -m runners run transformer
"""

from __future__ import annotations

from functools import cached_property

from runners.plans.experiment import RunPlan
from runners.plans.settings import Count, Factor
from runners.training.shape import VOCABULARY, TransformerSettings

QUESTION = (
    "Does a transformer learn the same under every strategy, and what does each strategy cost?"
)
FLOAT = 4


class Settings(TransformerSettings):
    """A small GPT, its training, and the closed forms that its claims rest on."""

    context: Count = 64
    width: Count = 64
    num_heads: Count = 4
    num_layers: Count = 4
    hidden: Count = 256
    global_batch_size: Count = 8
    num_steps: Count = 32
    learning_rate: Factor = 0.003
    num_held_out_samples: Count = 32
    num_sample_bytes: Count = 100

    @property
    def num_samples_per_rank(self) -> int:
        """Sequences of a global batch that a rank sees."""
        deals_samples = self.strategy in ("ddp", "fsdp")
        return self.global_batch_size // (self.world_size if deals_samples else 1)

    @property
    def num_parts(self) -> int:
        """Microbatches of a batch."""
        return 1

    @cached_property
    def num_tokens_per_step(self) -> int:
        """Of the global batch."""
        return self.global_batch_size * self.context

    @cached_property
    def num_parameters(self) -> int:
        """Of the whole model."""
        return self.shape.num_parameters()

    @cached_property
    def num_embedding_parameters(self) -> int:
        """Of tokens and positions."""
        return (VOCABULARY + self.context) * self.width

    @cached_property
    def num_rank_parameters(self) -> int:
        """The most that a rank keeps between steps."""
        return max(self.held())

    @cached_property
    def model_bytes(self) -> int:
        """Parameters of the whole model."""
        return FLOAT * self.num_parameters

    @cached_property
    def hidden_state_bytes(self) -> int:
        """Of the global batch: (global_batch_size, context, width)."""
        return FLOAT * self.num_tokens_per_step * self.width

    @cached_property
    def num_weight_flops(self) -> int:
        """Operations of the blocks' projections in a step of the global batch."""
        weights = self.num_layers * (4 * self.width**2 + 2 * self.width * self.hidden)
        return 3 * 2 * self.num_tokens_per_step * weights

    @cached_property
    def num_attention_flops(self) -> int:
        """Operations of attention's two products in a step of the global batch."""
        layers = self.num_layers * 2 * self.context * self.width
        return 3 * 2 * self.num_tokens_per_step * layers

    @cached_property
    def num_head_flops(self) -> int:
        """Operations of the scores in a step of the global batch."""
        return 3 * 2 * self.num_tokens_per_step * VOCABULARY * self.width

    @cached_property
    def sample_bytes(self) -> int:
        """The tokens of a rank's sequences, and the one that follows each."""
        return 8 * self.num_samples_per_rank * (self.context + 1)

    @cached_property
    def block_bytes(self) -> int:
        """Parameters of all blocks."""
        return FLOAT * self.num_layers * self.shape.block_parameters()

    @cached_property
    def state_bytes(self) -> int:
        """What the fullest rank keeps between steps."""
        return self._state_bytes(self._fullest)

    @cached_property
    def activation_bytes(self) -> int:
        """What the fullest rank keeps of a forward pass."""
        return self._activation_bytes(self._fullest)

    @property
    def _fullest(self) -> int:
        ranks = range(self.world_size)
        return max(ranks, key=lambda rank: self._state_bytes(rank) + self._activation_bytes(rank))

    def held(self) -> list[int]:
        """Parameters that each rank keeps: the closed form."""
        shape, ranks, whole = self.shape, self.world_size, self.num_parameters
        if self.strategy == "fsdp":
            return [whole // ranks] * ranks
        if self.strategy == "tensor_parallel":
            saved = shape.block_parameters() - shape.block_parameters_on_a_rank(ranks)
            return [whole - shape.num_layers * saved] * ranks
        if self.strategy == "pipelined":
            blocks = shape.num_layers // ranks * shape.block_parameters()
            ends = [0] * ranks
            ends[0] += self.num_embedding_parameters
            ends[-1] += 2 * shape.width + shape.width * shape.vocabulary
            return [blocks + end for end in ends]
        return [whole] * ranks

    def _state_bytes(self, rank: int) -> int:
        """What a rank keeps between steps, and what its wrapper adds: the closed form.

        Parameters and Adam's two moments; DDP's buckets; what FSDP's root group has gathered.
        """
        own = FLOAT * self.held()[rank]
        added = {"ddp": own, "fsdp": self.model_bytes - self.block_bytes}
        return 3 * own + added.get(self.strategy, 0)

    def _activation_bytes(self, rank: int) -> int:
        """What a rank keeps of a forward pass, and the scores' gradients: the closed form.

        A block keeps for each token its two norms' outputs and statistics, query, key, value, what
        attention gives and its log-sum, both ends of the GELU, and the two sums. The head keeps its
        norm's output and the scores' logarithms, beside which the scores' gradient stands twice
        when backward begins.
        """
        shape, ranks, strategy = self.shape, self.world_size, self.strategy
        split = ranks if strategy == "tensor_parallel" else 1
        inside = 4 * shape.width + 2 * shape.hidden + shape.num_heads
        block = 4 * shape.width + 4 + inside // split
        is_staged = strategy == "pipelined"
        layers = shape.num_layers // ranks if is_staged else shape.num_layers
        token = shape.width + layers * block
        if not is_staged or rank == ranks - 1:
            token += shape.width + 2 + shape.vocabulary
            token += 2 * shape.vocabulary // self.num_parts
        return FLOAT * self.num_samples_per_rank * shape.context * token

    def check(self) -> None:
        """Refuse a batch, heads, layers or a width that cannot be divided so."""
        for name, (whole, parts) in self._divided().items():
            if whole % parts:
                raise ValueError(f"{whole} cannot be divided by {parts}: {name}")

    def _divided(self) -> dict[str, tuple[int, int]]:
        """What must be divisible by what."""
        ranks = self.world_size
        if self.strategy == "tensor_parallel":
            return {"world_size, over which the heads go": (self.num_heads, ranks)}
        divided = {
            "num_heads": (self.width, self.num_heads),
            "world_size, over which the samples go": (self.global_batch_size, ranks),
        }
        if self.strategy == "fsdp":
            divided["world_size, over which the width goes"] = (self.width, ranks)
        return divided


class PipelinedSettings(Settings):
    """The same training in microbatches, which follow each other through stages."""

    num_microbatches: Count = 4

    @property
    def num_parts(self) -> int:
        """Microbatches of a batch."""
        return self.num_microbatches

    def _divided(self) -> dict[str, tuple[int, int]]:
        return {
            "world_size, over which the layers go": (self.num_layers, self.world_size),
            "num_microbatches": (self.global_batch_size, self.num_microbatches),
        }


LONG = Settings(
    context=128,
    width=128,
    hidden=512,
    num_steps=800,
    num_held_out_samples=128,
    num_sample_bytes=800,
    learning_rate=0.002,
)
RUNS = {
    "single": RunPlan("single", 1, Settings(), keeps_steps=True, has_timeline=False),
    "ddp": RunPlan("ddp", 2, Settings(), keeps_steps=True, has_timeline=False),
    "fsdp": RunPlan(
        "fsdp", 2, Settings(), keeps_steps=True, has_timeline=False, can_share_device=False
    ),
    "tensor_parallel": RunPlan(
        "tensor_parallel",
        2,
        Settings(),
        keeps_steps=True,
        has_timeline=False,
        can_share_device=False,
    ),
    "pipelined": RunPlan("pipelined", 2, PipelinedSettings(), keeps_steps=True),
    "long": RunPlan("ddp", 2, LONG, full=True, passes=("timed",), has_timeline=False),
}
ON_CUDA = {
    "*": {
        "context": 512,
        "width": 1024,
        "num_heads": 16,
        "num_layers": 12,
        "hidden": 4096,
        "global_batch_size": 32,
        "learning_rate": 0.0003,
    }
}
TRIED_WITH = {"long": {"num_steps": 100}}
