"""What every dispatch mode of ours shares: it is entered as itself, and sees plain tensors only."""

from __future__ import annotations

from typing import Any, Self

from torch.distributed.tensor import DTensor
from torch.utils._python_dispatch import TorchDispatchMode


class Operations(TorchDispatchMode):
    """Passes each operation through `operate` while it is entered.

    An operation on DTensors is left to DTensor, whose operations on local tensors pass by next.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]

    def __enter__(self) -> Self:
        super().__enter__()  # type: ignore[no-untyped-call]
        return self

    def __exit__(self, *exception: Any) -> None:
        super().__exit__(*exception)  # type: ignore[no-untyped-call]

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if any(issubclass(one, DTensor) for one in types):
            return NotImplemented
        return self.operate(func, args, kwargs or {})

    def operate(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Execute an operation and look at it."""
        raise NotImplementedError
