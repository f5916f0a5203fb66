"""What one rank holds of a transformer that ranks split and shard: closed forms. No torch."""

from __future__ import annotations

from dataclasses import dataclass

from runners.training.shape import TransformerShape

BYTES_PER_VALUE = 4
COPIES_PER_PARAMETER = 4  # Adam keeps each parameter, its gradient and two moments


def parameters_on_a_rank(shape: TransformerShape, shards: int, parts: int) -> int:
    """Parameters that one rank keeps between steps: the closed form."""
    blocks = shape.num_layers * shape.block_parameters_on_a_rank(parts)
    return (_root_parameters(shape, parts) + blocks) // shards


def _root_parameters(shape: TransformerShape, parts: int) -> int:
    """Parameters outside the blocks: two tables of the vocabulary, positions and the last norm."""
    tables = 2 * shape.vocabulary * shape.width // parts
    return tables + shape.context * shape.width + 2 * shape.width


def activations_of_a_block(shape: TransformerShape, parts: int) -> int:
    """Values that a block keeps for backward, for each token.

    Whole on every rank: what comes in and what lies between its halves, each also behind its norm,
    and two statistics of each norm. Split: three projections and what attention makes of them, its
    own statistic a head, and the MLP's hidden features before and behind its GELU.
    """
    split = 4 * shape.width + 2 * shape.hidden + shape.num_heads
    return 4 * shape.width + 4 + split // parts


@dataclass(frozen=True)
class Sizes:
    """Bytes on one rank that its peak is added up from.

    Attributes:
        own: its parameters, between steps.
        block: one block's parameters gathered, as far as no layer is split.
        root: the same of what lies outside the blocks.
        kept: what one block keeps for backward.
        activation: one activation that no split makes smaller.
        logits: scores of every token.
        table: one table of the vocabulary, whole.
    """

    own: int
    block: int
    root: int
    kept: int
    activation: int
    logits: int
    table: int

    @classmethod
    def of(cls, shape: TransformerShape, num_tokens: int, shards: int, parts: int) -> Sizes:
        """From the shape of the model and how its ranks divide it."""
        values = (
            parameters_on_a_rank(shape, shards, parts),
            shape.block_parameters_on_a_rank(parts),
            _root_parameters(shape, parts),
            num_tokens * activations_of_a_block(shape, parts),
            num_tokens * shape.width,
            num_tokens * shape.vocabulary,
            shape.vocabulary * shape.width,
        )
        return cls(*(BYTES_PER_VALUE * value for value in values))


def _in_forward(sizes: Sizes, num_layers: int, *, is_sharded: bool) -> int:
    """As the loss is taken: all activations, logits three times over, the last block and the root.

    Logits stand there as one rank's part gathered, as scores, and as their logarithms.
    """
    gathered = sizes.block + sizes.root if is_sharded else 0
    kept = num_layers * sizes.kept + 3 * (sizes.logits + sizes.activation)
    return 3 * sizes.own + gathered + kept


def _in_backward(sizes: Sizes, num_layers: int, shards: int, parts: int) -> int:
    """Under FSDP: four blocks are whole, one gathered, one ahead, a gradient, and one to scatter.

    The root stays gathered with its head's gradient. How many blocks have their gradients scattered
    by then follows from what weighs more: a block's share of these, or what it kept for backward.
    """
    share = sizes.block // shards
    done = num_layers - 2 if share > sizes.kept else 1
    whole = 4 * sizes.block + sizes.root + sizes.table // parts
    kept = (num_layers - 1 - done) * sizes.kept + 6 * sizes.activation
    return 3 * sizes.own + done * share + whole + kept


def peak_of(
    shape: TransformerShape, num_tokens: int, shards: int, parts: int, *, is_sharded: bool
) -> int:
    """Bytes that a rank holds at its peak: the highest of forward, backward and update."""
    sizes = Sizes.of(shape, num_tokens, shards, parts)
    forward = _in_forward(sizes, shape.num_layers, is_sharded=is_sharded)
    if is_sharded:
        return max(forward, _in_backward(sizes, shape.num_layers, shards, parts))
    # The update takes its part of the one gradient that DTensor left whole.
    return max(forward, COPIES_PER_PARAMETER * sizes.own + sizes.table)
