"""The sizes of linear stacks and of transformers, and what follows, in closed form. No torch."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from proofbook.runners.api import Count, Layer, Model, RunSettings

VOCABULARY = 256  # where a byte is a token
FLOAT_BYTES = 4
LABEL_BYTES = 8


def layer_parameters(widths: Sequence[int]) -> list[int]:
    """Weights and biases of each linear layer of a stack."""
    return [a * b + b for a, b in pairwise(widths)]


def mlp_parameters(widths: Sequence[int]) -> int:
    """Weights and biases of a stack of linear layers."""
    return sum(layer_parameters(widths))


def whole(layers: Sequence[Layer], dtype: str = "float32") -> Model:
    """The `Model` of these layers, their parameters and bytes added up."""
    number = sum(layer.num_parameters for layer in layers)
    size = sum(layer.bytes for layer in layers)
    value_bytes = size // number
    return Model(
        num_parameters=number, bytes=size, dtype=dtype, layers=list(layers), value_bytes=value_bytes
    )


@dataclass(frozen=True)
class TransformerShape:
    """The sizes of a transformer, from which its numbers of parameters and activations follow."""

    vocabulary: int  # number of tokens
    context: int  # the longest sequence
    width: int  # features of a token
    num_heads: int  # of attention; divides the width
    num_layers: int  # number of blocks
    hidden: int  # features inside a block's MLP; four times the width as in GPT-2

    def block_parameters(self) -> int:
        """Parameters of one block: four square projections, two of the mlp, two norms."""
        attention = 4 * (self.width * self.width + self.width)
        mlp = 2 * self.width * self.hidden + self.hidden + self.width
        return attention + mlp + 2 * 2 * self.width

    def embedding_parameters(self) -> int:
        """Parameters before the blocks: a row for each token, and for each position."""
        return (self.vocabulary + self.context) * self.width

    def head_parameters(self) -> int:
        """Parameters after the blocks: the last norm, and the scores."""
        return (2 + self.vocabulary) * self.width

    def num_parameters(self) -> int:
        """Parameters of the whole model."""
        ends = self.embedding_parameters() + self.head_parameters()
        return ends + self.num_layers * self.block_parameters()

    def block_activations(self, num_ranks: int = 1) -> int:
        """How many values of each token a block keeps for backward, on each rank that splits it.

        Whole on every rank: what comes in and what lies between its halves, each also behind its
        norm, and two statistics of each norm. Split: three projections and what attention makes of
        them, its own statistic a head, and the MLP's hidden features before and behind its GELU.
        """
        split = 4 * self.width + 2 * self.hidden + self.num_heads
        return 4 * self.width + 4 + split // num_ranks

    def whole_block_parameters(self) -> int:
        """Parameters of a block split by columns and rows that every rank keeps whole.

        They are norms, and the biases after rows.
        """
        return 2 * 2 * self.width + 2 * self.width

    def block_parameters_on_a_rank(self, num_ranks: int) -> int:
        """Parameters of a block that one of so many ranks holds, split by columns and rows."""
        whole = self.whole_block_parameters()
        return (self.block_parameters() - whole) // num_ranks + whole

    def root_parameters(self, num_ranks: int) -> int:
        """Parameters outside the blocks: two tables, split over ranks, positions, the last norm."""
        tables = 2 * self.vocabulary * self.width // num_ranks
        return tables + self.context * self.width + 2 * self.width

    def parameters_on_a_rank(self, shards: int, parts: int) -> int:
        """Parameters that a rank keeps: a shard of a part of every layer."""
        blocks = self.num_layers * self.block_parameters_on_a_rank(parts)
        return (self.root_parameters(parts) + blocks) // shards

    def description(
        self,
        num_ranks: int,
        *,
        is_sharded: bool = False,
        is_split: bool = False,
        is_staged: bool = False,
    ) -> Model:
        """The `Model` that a trace shows: embedding, blocks and head in fp32, with their ranks.

        A rank holds a shard of everything if `is_sharded`, some columns and rows of each block and
        the ends whole if `is_split`, and some layers if `is_staged`.
        """
        size = max(1, self.num_layers // num_ranks)
        layers = [
            ("embedding", "Embedding", self.embedding_parameters(), 0),
            *(
                (f"block{i + 1}", "Block", self.block_parameters(), i // size)
                for i in range(self.num_layers)
            ),
            ("head", "Head", self.head_parameters(), num_ranks - 1),
        ]
        return whole(
            [
                Layer(
                    name=name,
                    kind=kind,
                    weight_shape=[self.hidden if kind == "Block" else self.vocabulary, self.width],
                    num_parameters=count,
                    bytes=FLOAT_BYTES * count,
                    ranks=[place] if is_staged else list(range(num_ranks)),
                    is_sharded=is_sharded or (is_split and kind == "Block"),
                )
                for name, kind, count, place in layers
            ]
        )


class TransformerSettings(RunSettings):
    """A transformer's size but for its vocabulary."""

    context: Count
    width: Count
    num_heads: Count
    num_layers: Count
    hidden: Count

    @property
    def shape(self) -> TransformerShape:
        """The `TransformerShape` of these settings; without a vocabulary, a token is a byte."""
        return TransformerShape(
            vocabulary=getattr(self, "vocabulary", VOCABULARY),
            context=self.context,
            width=self.width,
            num_heads=self.num_heads,
            num_layers=self.num_layers,
            hidden=self.hidden,
        )
