"""Standard streams that a command's starter closed, or that take nothing more. No torch.

In: the descriptors 0, 1 and 2, as the command was given them. Out: `sys.stdin`, `sys.stdout` and
`sys.stderr`, which its code can use as they are. A closed one leads nowhere, and its descriptor is
taken, so that no other file gets it. What a full disk or a lost terminal refuses is left out: the
command goes on, and `report` says so at its end. A pipe that nobody reads still raises
BrokenPipeError, once.
"""

from __future__ import annotations

import io
import os
import sys
from contextlib import suppress
from typing import Any, TextIO


class _Output(io.FileIO):
    """A descriptor that raises nothing but the first BrokenPipeError, and keeps what it met."""

    def __init__(self, number: int) -> None:
        super().__init__(number, "w", closefd=False)
        self.refusal: OSError | None = None

    def write(self, data: Any, /) -> int:  # noqa: ANN401 as the standard library has it
        try:
            return super().write(data)
        except OSError as error:
            is_first, self.refusal = self.refusal is None, error
            if is_first and isinstance(error, BrokenPipeError):
                raise
            return len(data)


_stdout: _Output | None = None


def open_all() -> None:
    """Replace this process's standard streams, before it opens another file."""
    global _stdout  # noqa: PLW0603
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)  # takes the lowest number
    sys.stdin = sys.stdin or open(0, closefd=False)  # noqa: SIM115
    _stdout = _Output(1)
    sys.stdout = _writer(_stdout, sys.stdout, "strict")
    sys.stderr = _writer(_Output(2), sys.stderr, "backslashreplace")


def _writer(output: _Output, before: TextIO | None, errors: str) -> TextIO:
    return io.TextIOWrapper(
        io.BufferedWriter(output),
        encoding=before.encoding if before else None,
        errors=before.errors if before else errors,
        line_buffering=True,
    )


def report(exit_code: int) -> int:
    """Say where standard output did not take all that was printed; the command's exit code then."""
    with suppress(BrokenPipeError):
        sys.stdout.flush()
    refusal = _stdout.refusal if _stdout else None
    if refusal is None or isinstance(refusal, BrokenPipeError):
        return exit_code
    sys.stderr.write(
        f"standard output did not take all that was printed ({refusal.strerror}); "
        "every file that was written is whole\n"
    )
    return exit_code or 2
