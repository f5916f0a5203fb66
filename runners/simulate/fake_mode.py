"""Fake tensors that answer when a program asks for a value, so that it runs to its end.

In: operations on tensors without data. Out: tensors without data; and where an operation gives a
number, nothing: 0, 0.0 or False. A program that only reports its losses runs unchanged. One whose
shapes follow from values raises `DynamicOutputShapeException`, and is not simulated.
"""

import inspect
from typing import Any

import torch
from torch._subclasses.fake_tensor import DataDependentOutputException, FakeTensorMode

_WAIT = torch.ops._c10d_functional.wait_tensor.default
_READ = torch.ops.aten._local_scalar_dense.default


class ValuelessMode(FakeTensorMode):
    """A fake mode in which every number that is read is zero."""

    def __init__(self) -> None:
        super().__init__(allow_non_fake_inputs=True)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Dispatch as torch does, without its slow guard against compilers."""
        return self.dispatch(func, types, args, kwargs)

    def dispatch(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Dispatch as torch does, but a wait returns its argument, and reading a value gives 0."""
        if func is _WAIT:
            return args[0]
        try:
            return super().dispatch(func, types, args, kwargs or {})
        except DataDependentOutputException:
            return self.answer(func, args)

    def answer(self, func: Any, args: Any) -> Any:
        """The number that an operation reads from a tensor."""
        if func is not _READ:
            raise DataDependentOutputException(func)
        dtype = args[0].dtype
        return False if dtype is torch.bool else 0.0 if dtype.is_floating_point else 0


_unwrapped: Any = inspect.unwrap(ValuelessMode.__torch_dispatch__)
ValuelessMode.__torch_dispatch__ = _unwrapped  # type: ignore[method-assign]
