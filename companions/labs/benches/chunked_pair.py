"""The bench of `chunked_pair`: a column-row pair whose transfers overlap with its products."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from types import ModuleType

import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn.functional import gelu

from proofbook.companions.labs import laws
from proofbook.companions.labs.grading import ELEMENT_BYTES, LabCase, Requirement, normal
from proofbook.runners.judging.comparison import Tensors
from proofbook.runners.judging.ranks import JudgedRank


def drawn(draw: random.Random, world_size: int) -> Mapping[str, int]:
    """A case's settings, by name: tokens and hidden features that ranks divide, and the width."""
    return {
        "tokens": world_size * draw.randrange(5, 9),
        "width": draw.randrange(12, 20),
        "hidden": world_size * draw.randrange(6, 10),
    }


def _tensors(case: LabCase, dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
    """Whole tokens, and the whole weights before and after GELU."""
    tokens, width, hidden = (case.settings[name] for name in ("tokens", "width", "hidden"))
    shapes = (tokens, width), (width, hidden), (hidden, width)
    generator = case.generator()
    return tuple(normal(shape, generator, dtype) for shape in shapes)  # type: ignore[return-value]


class _Links:
    """Transfers around the ring, and products; it counts the products under a transfer."""

    def __init__(self, rank: int, world_size: int) -> None:
        self._rank, self._size, self._num_open = rank, world_size, 0
        self.num_overlapping = 0

    def start(self, part: Tensor) -> Callable[[], Tensor]:
        """Send a part to the next rank; the result waits for the part of the previous one."""
        arriving, part = torch.empty_like(part), part.contiguous()
        send = dist.isend(part, (self._rank + 1) % self._size)
        receive = dist.irecv(arriving, (self._rank - 1) % self._size)
        self._num_open += 1

        def wait() -> Tensor:
            assert receive is not None
            receive.wait()
            assert send is not None
            send.wait()
            self._num_open -= 1
            return arriving

        return wait

    def multiply(self, left: Tensor, right: Tensor) -> Tensor:
        """The product, during which the links go on."""
        self.num_overlapping += self._num_open > 0
        return left @ right


def attempt(rank: JudgedRank, program: ModuleType, case: LabCase) -> Tensors:
    """By name, the output of the reader's `pair` for the rank's tokens; overlapping products."""
    whole, first, second = _tensors(case, torch.float32)
    here, size = rank.rank, case.world_size
    tokens, columns, rows = (
        part.clone()
        for part in (whole.chunk(size)[here], first.chunk(size, 1)[here], second.chunk(size)[here])
    )
    links = _Links(here, size)
    with rank.metered({"tokens": tokens, "weights": [columns, rows]}):
        outputs = program.pair(tokens, columns, rows, links.start, links.multiply)
    num_products = torch.tensor(links.num_overlapping)
    return {"outputs": outputs.detach(), "products under a transfer": num_products}


def one_process(case: LabCase, dtype: torch.dtype) -> Tensors:
    """A case's outputs for all tokens, by name."""
    tokens, first, second = _tensors(case, dtype)
    return {"outputs": gelu(tokens @ first) @ second}


def _own(name: str, tensor: Tensor, rank: int, world_size: int) -> Tensor:
    return tensor.chunk(world_size)[rank]


def requirements(case: LabCase) -> Sequence[Requirement]:
    """A case's requirements: outputs; each part once around; all products but two overlap."""
    n = case.world_size
    part = ELEMENT_BYTES * case.settings["tokens"] // n * case.settings["width"]
    around = 2 * (n - 1) * part
    return [
        laws.same_as_one_process(one_process, case, _own),
        laws.sends({"send": around, "recv": around}),
        laws.counts("overlaps", "products under a transfer", 2 * (n - 1), or_more=True),
    ]
