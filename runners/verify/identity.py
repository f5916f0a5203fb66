"""Inside `loss_parallel`, torch's backward of `log_softmax` is the identity.

It suits `cross_entropy`, whose gradient comes complete; any other term of a loss gets a wrong one:
pytorch/pytorch#190746. The gradient g of log-probabilities becomes g - softmax(logits) x sum(g)
before it, so the identity is right where each row of g adds up to zero over the classes of all
ranks.

In: calls of `log_softmax`, and the gradients around them. Out: a `Passed` for each, and a finding.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor

from runners.verify.frames import place
from runners.verify.records import Part, Spec, assembled, part

ROUNDINGS = 100  # of sums over classes; a wrong gradient is off by about its size


class Passed(NamedTuple):
    """A gradient that `log_softmax` passed on unchanged.

    Attributes:
        place: the script's line.
        sums: of each row over the classes; those of a rank are a part of them.
        size: the sum of magnitudes of this rank's elements.
        eps: of the gradient's dtype.
    """

    place: str
    sums: Part
    size: float
    eps: float


def called(
    is_on: Callable[[], bool], keep: Callable[[Passed], None], original: Callable[..., Tensor], /,
    *args: Any, **kwargs: Any,
) -> Tensor:  # fmt: skip
    """Stands in the place of `log_softmax`."""
    value = original(*args, **kwargs)
    if is_on() and isinstance(value, DTensor) and value.grad_fn is not None:
        line, axis = place(), args[1] if len(args) > 1 else kwargs["dim"]

        def passed(after: Sequence[Any], before: Sequence[Any]) -> None:
            ends = after[0], before[0]
            if all(isinstance(one, DTensor) for one in ends):
                own, given = (part(one, copy=False) for one in ends)
                if torch.equal(own.local, given.local):
                    keep(_passed(line, given, axis % value.dim()))

        value.grad_fn.register_hook(passed)
    return value


def _passed(line: str, given: Part, axis: int) -> Passed:
    assert given.spec is not None
    local = given.local.double()
    shape = [*given.spec.shape]
    shape[axis] = 1
    placements = tuple(
        ("partial", "sum") if one == ("shard", axis) else one for one in given.spec.placements
    )
    sums = Part(local.sum(axis, keepdim=True), Spec(tuple(shape), given.spec.mesh, placements))
    return Passed(line, sums, float(local.abs().sum()), torch.finfo(given.local.dtype).eps)


def wrong(passed: Mapping[int, Sequence[Passed]]) -> Passed | None:
    """The first gradient that is wrong behind `log_softmax`; all ranks call it in one order."""
    for index in range(min(map(len, passed.values()), default=0)):
        calls = {rank: own[index] for rank, own in passed.items()}
        for rank, one in calls.items():
            total = assembled({r: other.sums for r, other in calls.items()}, rank)
            size = max(other.size for other in calls.values())
            if float(total.abs().sum()) > ROUNDINGS * one.eps * size:
                return one
    return None
