"""What a rank held when its budget refused it memory: read where it happens, before it is released.

In: the operations of a budgeted pass on CPU. Out: the bytes held, noted on the exception itself, so
that they travel with it to the rank's handler.

By the time an exception has left a backward pass, the gradients in flight are freed, and so are the
temporary tensors of an operation that is made of others. In one backward pass under a budget of
240 MB we saw the handler read 152 MB where 223 MB had been held at the refusal. A dispatch mode
sees the refused operation while its arguments are still there.
"""

from __future__ import annotations

from typing import Any

from torch.distributed.tensor import DTensor
from torch.utils._python_dispatch import TorchDispatchMode

from runners.meters.kernel import heap_bytes

_HELD = "proofbook_held_bytes"


def note_held_bytes(error: BaseException, held_bytes: int) -> None:
    """Note on an exception what was held when it was raised; the first note stays."""
    if not hasattr(error, _HELD):
        setattr(error, _HELD, held_bytes)


def held_bytes_at(error: BaseException) -> int | None:
    """What was held when an exception, or one that led to it, was raised; None without a note."""
    cause: BaseException | None = error
    while cause is not None:
        held = getattr(cause, _HELD, None)
        if held is not None:
            return int(held)
        cause = cause.__cause__ or cause.__context__
    return None


class DataSegmentLimit(TorchDispatchMode):
    """Notes the growth of the process's data segment on what operations raise.

    The limit itself is the kernel's: RLIMIT_DATA bounds the data segment (VmData).

    Args:
        start_bytes: of the data segment when it was limited.
    """

    def __init__(self, start_bytes: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._start_bytes = start_bytes

    def __enter__(self) -> DataSegmentLimit:
        super().__enter__()  # type: ignore[no-untyped-call]
        return self

    def __exit__(self, *exception: Any) -> None:
        super().__exit__(*exception)  # type: ignore[no-untyped-call]

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run an operation; where it raises, note what is held."""
        if any(issubclass(t, DTensor) for t in types):
            return NotImplemented  # its local operations pass by here next
        try:
            return func(*args, **(kwargs or {}))
        except (RuntimeError, MemoryError) as error:
            self.note(error)
            raise

    def note(self, error: BaseException) -> None:
        """Note on an exception what is held now; nothing where even a reading is refused."""
        try:
            now = heap_bytes()
        except MemoryError:
            return
        if now is not None:
            note_held_bytes(error, now - self._start_bytes)

    def check(self) -> None:
        """Nothing: the kernel has refused whatever went beyond the limit."""
