"""The size of a transformer and what follows from it, in closed form. No torch."""

from __future__ import annotations

from dataclasses import dataclass

from runners.plans.settings import Count, RunSettings

VOCABULARY = 256  # where a byte is a token


@dataclass(frozen=True)
class TransformerShape:
    """What a transformer's size follows from.

    Attributes:
        vocabulary: tokens there are.
        context: the longest sequence.
        width: features of a token.
        num_heads: of attention; divides the width.
        num_layers: blocks.
        hidden: features inside a block's mlp; four times the width as in GPT-2.
    """

    vocabulary: int
    context: int
    width: int
    num_heads: int
    num_layers: int
    hidden: int

    def block_parameters(self) -> int:
        """Parameters of one block: four square projections, two of the mlp, two norms."""
        attention = 4 * (self.width * self.width + self.width)
        mlp = 2 * self.width * self.hidden + self.hidden + self.width
        return attention + mlp + 2 * 2 * self.width

    def num_parameters(self) -> int:
        """Of the whole: embeddings of tokens and positions, blocks, last norm, head."""
        embeddings = (self.vocabulary + self.context) * self.width
        head = self.width * self.vocabulary
        return embeddings + self.num_layers * self.block_parameters() + 2 * self.width + head

    def forward_flops(self, samples: int, length: int) -> int:
        """Of the matrix products of one forward pass over (samples, length) tokens.

        Two operations a weight and token, and 4·length·width a token and layer for attention's
        two products, counted whole as kernels without a mask compute them.
        """
        tokens = samples * length
        weights = self.num_layers * (4 * self.width**2 + 2 * self.width * self.hidden)
        attention = self.num_layers * 2 * length * self.width
        return 2 * tokens * (weights + attention + self.width * self.vocabulary)

    def whole_block_parameters(self) -> int:
        """Of a block split by columns and rows, what every rank keeps: norms, biases after rows."""
        return 2 * 2 * self.width + 2 * self.width

    def block_parameters_on_a_rank(self, num_ranks: int) -> int:
        """Parameters of a block that one of so many ranks holds, split by columns and rows."""
        whole = self.whole_block_parameters()
        return (self.block_parameters() - whole) // num_ranks + whole


class TransformerSettings(RunSettings):
    """A transformer's size but for its vocabulary."""

    context: Count
    width: Count
    num_heads: Count
    num_layers: Count
    hidden: Count

    @property
    def shape(self) -> TransformerShape:
        """The transformer: with a vocabulary of its own where there is such a setting, or bytes."""
        return TransformerShape(
            vocabulary=getattr(self, "vocabulary", VOCABULARY),
            context=self.context,
            width=self.width,
            num_heads=self.num_heads,
            num_layers=self.num_layers,
            hidden=self.hidden,
        )
