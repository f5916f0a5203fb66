"""What a rank held when its budget refused it memory: read where it happens, before it is released.

In: the operations of a budgeted pass. Out: the bytes held, noted on the exception itself, so that
they travel with it to the rank's handler.

By the time an exception has left a backward pass, the gradients in flight are freed, and so are the
temporary tensors of an operation that is made of others. In one backward pass under a budget of
240 MB we saw the handler read 152 MB where 223 MB had been held at the refusal. A dispatch mode
sees the refused operation while its arguments are still there.
"""

from contextlib import suppress
from typing import Any

from proofbook.runners.core.meters.collectives import Operations
from proofbook.runners.core.meters.kernel import heap_bytes

_HELD = "proofbook_held_bytes"


def held_bytes_at(error: BaseException) -> int | None:
    """Bytes held when an exception, or one that led to it, was raised; None without a note."""
    cause: BaseException | None = error
    while cause is not None:
        held: int | None = getattr(cause, _HELD, None)
        if held is not None:
            return held
        cause = cause.__cause__ or cause.__context__
    return None


class Limit(Operations):
    """A budget; where an operation raises, what was held is noted on the exception."""

    def held_bytes(self) -> int:
        """Bytes that the budget counts as held now."""
        raise NotImplementedError

    def enforce(self) -> None:
        """Raise out of memory where the kernel does not refuse it; called after each operation."""

    def operate(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Execute an operation, `enforce`, return its result; note bytes held on an error."""
        try:
            result = func(*args, **kwargs)
        except (RuntimeError, MemoryError) as error:
            self.note(error)
            raise
        self.enforce()
        return result

    def note(self, error: BaseException) -> None:
        """Note the bytes held now on an exception; the first note stays."""
        with suppress(MemoryError):
            held = self.held_bytes()
            if not hasattr(error, _HELD):
                setattr(error, _HELD, held)


class DataSegmentLimit(Limit):
    """On CPU: the kernel itself bounds the data segment (VmData) by RLIMIT_DATA."""

    def __init__(self, start_bytes: int) -> None:
        super().__init__()
        self._start_bytes = start_bytes

    def held_bytes(self) -> int:
        """Bytes by which the data segment has grown."""
        return heap_bytes() - self._start_bytes
