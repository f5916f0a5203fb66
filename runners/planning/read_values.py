"""A fake mode in which the user's code reads no value of a tensor, since a plan has none.

In: operations on tensors without data. Out: what `ValuelessMode` gives; but where a line of the
user's reads a value, a refusal that names it. What torch's own optimizers read is zero, since no
size follows from it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NoReturn
from unittest.mock import patch

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import (
    DynamicOutputShapeException,
    FakeTensor,
    UnsupportedOperatorException,
)

from runners.planning import own_code
from runners.planning.question import PlanError
from runners.simulate.fake_mode import ValuelessMode

_READS = "reads values of a tensor, and a plan has none"


class RefusingMode(ValuelessMode):
    """Refuses to give the user's code a value."""

    def __init__(self) -> None:
        super().__init__()
        self.allow_fallback_kernels = False  # they would compute with real tensors of full size
        self._refusal: PlanError | None = None

    def check(self) -> None:
        """Refuse again what was refused, since a model may catch whatever is raised.

        Raises:
            PlanError: a value was read.
        """
        if self._refusal is not None:
            raise self._refusal

    def dispatch(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """As `ValuelessMode` does; what it cannot do is refused in one line."""
        try:
            return super().dispatch(func, types, args, kwargs)
        except DynamicOutputShapeException:
            self._refuse(f"the size of what {func} gives follows from values; a plan has none")
        except UnsupportedOperatorException:
            self._refuse(f"torch gives no size for {func}, unless it computes")

    def answer(self, func: Any, args: Any) -> float | int | bool:
        """The number that torch's own code reads from a tensor, or whether two are equal."""
        if own_code.running_line() is not None:
            self._refuse(_READS)
        return super().answer(func, args)

    def array(self, tensor: FakeTensor) -> Any:
        """What `numpy` gives torch's own code."""
        if own_code.running_line() is not None:
            self._refuse(_READS)
        return super().array(tensor)

    def _refuse(self, what: str) -> NoReturn:
        line = own_code.running_line()
        refusal = PlanError(f"{line}: {what}" if line else what)
        self._refusal = self._refusal or refusal
        raise refusal


@contextmanager
def own_code_at_work() -> Iterator[None]:
    """Let the user's code do without data what it does with them.

    Arrays of NumPy keep their own values, `torch.compile` leaves a
    model as it is, and an LSTM computes step by step: a fused one on a CPU has a workspace that
    fake tensors leave out.
    """
    array, is_fused = Tensor.numpy, torch._C._get_mkldnn_enabled()

    def numpy(tensor: Tensor, *arguments: Any, **named: Any) -> Any:
        with torch._C._DisableTorchDispatch():
            return array(tensor, *arguments, **named)

    with (
        patch.object(Tensor, "numpy", numpy),
        torch.compiler.set_stance("force_eager"),
    ):
        torch._C._set_mkldnn_enabled(False)
        try:
            yield
        finally:
            torch._C._set_mkldnn_enabled(is_fused)
