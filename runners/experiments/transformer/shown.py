"""What the trace of `transformer` shows of the model: its layers, and a step's operations."""

from __future__ import annotations

from typing import Literal

from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from runners.experiments.transformer import FLOAT, Settings
from runners.experiments.transformer.training import on_device
from runners.ranks.rank import Rank
from runners.traces.records import Layer, Model
from runners.training.text import Text, windows
from runners.training.transformer_model import next_token_loss


def count_operations(rank: Rank[Settings], model: nn.Module, text: Text) -> None:
    """Count the operations of a step's matrix products with torch's own counter.

    Once as training runs it, and once with attention in plain matrix products: the counter has no
    formula for the CPU's fused attention, and passes over it in silence.
    """
    starts = range(rank.settings.global_batch_size)
    tokens, targets = on_device(rank, *windows(text.training, starts, rank.settings.context))
    rank.measure("num_counted_flops", _counted(model, tokens, targets))
    with sdpa_kernel(SDPBackend.MATH):
        rank.measure("num_counted_plain_flops", _counted(model, tokens, targets))


def _counted(model: nn.Module, tokens: Tensor, targets: Tensor) -> int:
    with FlopCounterMode(display=False) as counter:
        next_token_loss(model(tokens), targets).backward()
    model.zero_grad()
    return int(counter.get_total_flops())


def describe(
    rank: Rank[Settings],
    *,
    is_sharded: bool = False,
    is_split: bool = False,
    is_staged: bool = False,
) -> None:
    """Record of the whole model who holds which layer, and whether whole.

    Args:
        rank: whose run it is.
        is_sharded: every rank holds a shard of everything.
        is_split: every rank holds some columns and rows of each block, and the ends whole.
        is_staged: every rank holds some layers.
    """
    shape = rank.settings.shape
    everyone = list(range(rank.world_size))
    size = max(1, shape.num_layers // rank.world_size)

    def layer(
        name: str, kind: Literal["Embedding", "Block", "Head"], count: int, place: int
    ) -> Layer:
        return Layer(
            name=name,
            kind=kind,
            weight_shape=[shape.hidden if kind == "Block" else shape.vocabulary, shape.width],
            num_parameters=count,
            bytes=count * FLOAT,
            ranks=[place] if is_staged else everyone,
            is_sharded=is_sharded or (is_split and kind == "Block"),
        )

    blocks = [
        layer(f"block{i + 1}", "Block", shape.block_parameters(), i // size)
        for i in range(shape.num_layers)
    ]
    first = (shape.vocabulary + shape.context) * shape.width
    last = 2 * shape.width + shape.vocabulary * shape.width
    rank.describe(
        Model(
            num_parameters=shape.num_parameters(),
            bytes=shape.num_parameters() * FLOAT,
            dtype="float32",
            layers=[
                layer("embedding", "Embedding", first, 0),
                *blocks,
                layer("head", "Head", last, rank.world_size - 1),
            ],
        )
    )
