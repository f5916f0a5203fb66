"""The bench of `ring_attention`: causal attention whose keys and values travel around a ring."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from types import ModuleType

import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from proofbook.companions.labs import laws, sequences
from proofbook.companions.labs.grading import ELEMENT_BYTES, LabCase, Requirement, normal
from proofbook.runners.judging import comparison
from proofbook.runners.judging.comparison import Comparison, Tensors
from proofbook.runners.judging.ranks import JudgedRank, RankResult

NAMES = ("queries", "keys", "values")
LARGE = 400.0  # in some queries; no float32 holds the exponentials of their scores
PRODUCTS = 7  # matrix products of a block: two in forward; one again and four more in backward


def drawn(draw: random.Random, world_size: int) -> Mapping[str, int]:
    """A case's settings, by name: heads, tokens that blocks divide, and the width of a head."""
    return {
        "heads": draw.randrange(2, 5),
        "tokens": 2 * world_size * draw.randrange(5, 10),
        "width": 2 * draw.randrange(4, 8),
    }


def _whole(case: LabCase, dtype: torch.dtype) -> dict[str, Tensor]:
    shape = tuple(case.settings.values())
    whole = {name: normal(shape, case.generator(at), dtype) for at, name in enumerate(NAMES)}
    whole["queries"][:, ::3, 0], whole["keys"][:, :, 0] = LARGE, 1
    return whole


def attempt(rank: JudgedRank, program: ModuleType, case: LabCase) -> Tensors:
    """By name, the outputs of the reader's `attention`, its gradients, and its operations."""
    whole = _whole(case, torch.float32)
    own = sequences.leaves_of(
        {name: _own(name, whole[name], rank.rank, case.world_size) for name in NAMES}
    )
    with rank.metered(own), FlopCounterMode(display=False) as counter:
        results = sequences.with_gradients(program.attention(*own.values()), own)
    return {**results, sequences.OPERATIONS: torch.tensor(counter.get_total_flops())}


def one_process(case: LabCase, dtype: torch.dtype) -> Tensors:
    """A case's outputs and gradients, by name, of the undivided sequence."""
    leaves = sequences.leaves_of(_whole(case, dtype))
    return sequences.with_gradients(sequences.attended(*leaves.values()), leaves)


def _own(_: str, tensor: Tensor, rank: int, world_size: int) -> Tensor:
    return sequences.head_tail(tensor, rank, world_size, axis=1)


def requirements(case: LabCase) -> Sequence[Requirement]:
    """A case's requirements: results; bytes, between neighbours; scores that the mask leaves."""
    (heads, tokens, width), n = case.settings.values(), case.world_size
    by_ring = (3 * n - 2) * 2 * ELEMENT_BYTES * heads * tokens // n * width
    sends = laws.sends({"send": by_ring, "recv": by_ring})
    # Two of the four blocks of scores in each turn, and all four in the first.
    scores = heads * (n + 1) * tokens**2 // (2 * n**2)
    return [
        laws.same_as_one_process(one_process, case, _own),
        laws.both(sends, Requirement("sends", _to_neighbours)),
        laws.counts("waits", sequences.OPERATIONS, PRODUCTS * 2 * width * scores, or_less=True),
    ]


def _to_neighbours(ranks: Sequence[RankResult]) -> Iterable[Comparison]:
    def wrong(result: RankResult) -> str:
        near = {(result.rank + step) % len(ranks) for step in (1, -1)}
        sent = (call.destination for call in result.calls if call.operation == "send")
        far = sorted({to for to in sent if to is not None and to not in near})
        return f"sent to rank {far[0]}, which is no neighbour" if far else ""

    return comparison.on_each_rank("messages", ranks, wrong)
