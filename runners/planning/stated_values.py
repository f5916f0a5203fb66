"""A fake mode in which the user's code reads only values that the user states.

In: operations on tensors without data, and values by line (`--assume`). Out: what `ValuelessMode`
gives; but where a line of the user's reads a value that is not stated, a refusal that names it.
What torch's own optimizers read is zero, since no size follows from it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
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

_aten = torch.ops.aten
# Of these the stated value is how many elements are true; masks that index come here as well.
_COUNTED = (_aten.nonzero.default, _aten.masked_select.default)


class StatedMode(ValuelessMode):
    """Refuses to give a value that nobody stated.

    Args:
        stated: a value by `FILE:LINE`, as a refusal names the line.

    Attributes:
        used: the lines at which a stated value was read.
    """

    def __init__(self, stated: Mapping[str, float]) -> None:
        super().__init__()
        self.allow_fallback_kernels = False  # they would compute with real tensors of full size
        self._stated = stated
        self._refusal: PlanError | None = None
        self.used: set[str] = set()

    def check(self) -> None:
        """Refuse again what was refused, since a model may catch whatever is raised.

        Raises:
            PlanError: a value was read that nobody stated.
        """
        if self._refusal is not None:
            raise self._refusal

    def dispatch(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """As `ValuelessMode` does; what it cannot do is refused in one line."""
        try:
            return super().dispatch(func, types, args, kwargs)
        except DynamicOutputShapeException:
            if func in _COUNTED:
                return self._selected(func, args[0])
            self._refuse(f"the size of what {func} gives follows from values; a plan has none")
        except UnsupportedOperatorException:
            self._refuse(f"torch gives no size for {func}, unless it computes")

    def answer(self, func: Any, args: Any) -> float | int | bool:
        """The number that an operation reads from a tensor, or whether two are equal."""
        line = own_code.running_line()
        if line is None:
            return super().answer(func, args)
        is_number = func is _aten._local_scalar_dense.default
        read: float | int | bool = self._value(line, args[0].dtype if is_number else torch.bool)
        return read

    def array(self, tensor: FakeTensor) -> Any:
        """What `numpy` gives: an array of the stated value."""
        line = own_code.running_line()
        if line is None:
            return super().array(tensor)
        value = self._value(line, tensor.dtype)
        with torch._C._DisableTorchDispatch():
            return torch.full(tensor.shape, value, dtype=tensor.dtype).numpy()

    def _selected(self, func: Any, tensor: Tensor) -> Tensor:
        """Of a mask's elements as many as are stated."""
        line = own_code.running_line()
        count = self._value(line, torch.int64, "how many elements are selected")
        if func is _aten.masked_select.default:
            return tensor.new_empty(count)
        return tensor.new_empty_strided((count, tensor.dim()), (1, count), dtype=torch.int64)

    def _value(self, line: str | None, dtype: torch.dtype, what: str = "what is read") -> Any:
        if line is None or line not in self._stated:
            self._refuse(
                "reads values of a tensor, and a plan has none; "
                f"state {what} there: --assume {line}=VALUE"
            )
        self.used.add(line)
        value = self._stated[line]
        if dtype is torch.bool:
            return bool(value)
        if dtype.is_floating_point:
            return value
        if not value.is_integer():
            self._refuse(f"reads a whole number, and --assume {line}={value:g} states none")
        return int(value)

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
