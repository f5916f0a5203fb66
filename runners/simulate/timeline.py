"""What a rank does one after another in the counted step: computing, communicating, sleeping.

In: what the meter of a simulation sees, the waits for communication, and `time.sleep`. Out: a list
of `Moment`. Operations between two moments of another kind are summed by what they cost: a `Cost`
is a kind, up to three sizes, and how often. The kinds are

    product    rows, width, width: a matrix product, the two nearest of its dimensions last
    narrow     FLOPs of a product of 16-bit values
    pass       bytes that are read and written
    smooth     values that go through an exponential or the like
    attention  FLOPs
    update     parameters that a fused optimizer updates
    start      operations that are started; the kinds `start.forward`, `start.backward` … by phase
    dtensor    operations on a DTensor, which works out placements before the local ones
    fsdp       copies into and out of FSDP's buffers, one for each call of its hooks
    stage      forwards and backwards of a microbatch in a stage of a pipeline
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

import torch

from runners.meters.collectives import OPERATIONS, ends_of, payload_bytes, tensors_in
from runners.simulate.step_log import Moment

# What takes longer than passing over its values.
SMOOTH = {
    "_log_softmax",
    "_log_softmax_backward_data",
    "_softmax",
    "_softmax_backward_data",
    "gelu",
    "gelu_backward",
    "native_layer_norm",
    "native_layer_norm_backward",
    "tanh",
    "tanh_backward",
    "sigmoid",
    "exp",
    "log",
    "pow",
    "normal_",
    "uniform_",
    "bernoulli_",
    "randn",
    "rand",
}
# What allocates and moves nothing.
EMPTY = {"empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided", "detach"}
NARROW = (torch.float16, torch.bfloat16)
PHASES = ("forward", "backward", "optimizer")
Sizes = tuple[str, int, int, int]


class Timeline:
    """Collects moments; it is told what happens, and knows no torch state.

    Attributes:
        is_on: whether the counted step is under way.
        has_begun: whether it has ever begun.
    """

    def __init__(self) -> None:
        self.is_on = self.has_begun = False
        self._moments: list[Moment] = []
        self._costs: Counter[Sizes] = Counter()
        self._number = 0  # of the last call that has begun
        self._has_computed = True  # since it began
        self._under_way: set[int] = set()

    def start(self) -> None:
        """The counted step begins."""
        self.is_on = self.has_begun = True

    def compute(self, phase: str, sizes: Sizes | None) -> None:
        """An operation has been started, and cost this."""
        self._has_computed = True
        self._costs[f"start.{phase if phase in PHASES else 'other'}", 0, 0, 0] += 1
        if sizes is not None:
            self._costs[sizes] += 1

    def add(self, kind: str) -> None:
        """One more of what Python does around operations."""
        if self.is_on:
            self._costs[kind, 0, 0, 0] += 1

    def sleep(self, seconds: float) -> None:
        """The rank does nothing for so long."""
        if self.is_on and seconds > 0:
            self._close()
            self._moments.append(Moment(kind="sleep", seconds=round(seconds, 9)))

    def begin(self, name: str, args: Iterable[Any], ranks: Iterable[int]) -> None:
        """A collective or a message begins; `wait` says when it has to be over."""
        operation = "all_reduce" if name == "barrier" else OPERATIONS.get(name)
        if not self.is_on or operation is None:
            return
        self._close()
        self._number += 1
        self._has_computed = False
        self._under_way.add(self._number)
        source, destination = ends_of(name, args) if operation in ("send", "recv") else (None, None)
        moment = Moment(
            kind="begin",
            call=self._number,
            operation=operation,
            ranks=list(ranks),
            peer=destination if operation == "send" else source,
            bytes=payload_bytes(args),
        )
        self._moments.append(moment)

    def wait(self) -> None:
        """The rank waits for a call: the last one, if it has done nothing since; else the first."""
        if not self.is_on or not self._under_way:
            return
        number = min(self._under_way) if self._has_computed else max(self._under_way)
        self._under_way.remove(number)
        self._close()
        self._moments.append(Moment(kind="wait", call=number))

    def wait_for_all(self) -> None:
        """The rank waits for every call."""
        self._has_computed = True
        while self.is_on and self._under_way:
            self.wait()

    def moments(self) -> list[Moment]:
        """All of them; what is still under way at the end is left to the next step."""
        self._close()
        return self._moments

    def _close(self) -> None:
        if not self._costs:
            return
        costs = [(*sizes, count) for sizes, count in sorted(self._costs.items())]
        self._moments.append(Moment(kind="compute", costs=costs))
        self._costs.clear()


def sizes_of(func: Any, args: Any, kwargs: Any, result: Any, flops: int) -> Sizes | None:
    """What an operation costs; None for a view, which costs its start alone."""
    name = func.__name__.partition(".")[0]
    if func.is_view or name in EMPTY:
        return None
    if flops and "attention" in name:
        return "attention", flops, 0, 0
    if flops:
        is_narrow = any(t.dtype in NARROW for t in tensors_in(args))
        return ("narrow", flops, 0, 0) if is_narrow else _product(args, flops)
    if name == "_fused_adam_":
        return "update", sum(t.numel() for t in args[0]), 0, 0
    if name in SMOOTH:
        return "smooth", max((t.numel() for t in tensors_in((args, result))), default=0), 0, 0
    moved = sum(t.nbytes for t in tensors_in((args, kwargs, result)))
    return "pass", moved, 0, 0


def _product(args: Any, flops: int) -> Sizes:
    """Rows and two widths: of three dimensions, the one furthest from the others comes first."""
    matrices: list[torch.Tensor] = [t for t in args if isinstance(t, torch.Tensor) and t.dim() > 1]
    left, right = matrices[-2:]
    small, middle, large = sorted((left.shape[-2], left.shape[-1], right.shape[-1]))
    batch = max(1, flops // (2 * small * middle * large))
    if small and large * small < middle * middle:  # the two largest are nearest
        return "product", small * batch, middle, large
    return "product", large * batch, small, middle
