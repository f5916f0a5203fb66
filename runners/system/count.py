"""How far a command is that works through many things: a live line, or lines. No torch.

In: how many are done. Out: on a terminal one line that is drawn anew; elsewhere one line
every few seconds, so that a log shows that the command goes on and a short one stays short.
"""

from __future__ import annotations

import sys
import time

WORD_SECONDS = 5.0  # no wait is longer than this without a word to the person who waits


class Count:
    """Tells on standard error how many are done. Call `tell` at least every `WORD_SECONDS`.

    Args:
        total: how many there are.
        what: they are, and what is done to them.
    """

    def __init__(self, total: int, what: str) -> None:
        self._total, self._what = total, what
        self._start = self._last_line = time.monotonic()

    def tell(self, done: int) -> None:
        """Say how many are done, unless that was said a moment ago."""
        now = time.monotonic()
        line = f"{done}/{self._total} {self._what}, {now - self._start:.0f} s so far"
        if sys.stderr.isatty():
            sys.stderr.write(f"\r\x1b[K{line}")
        elif now - self._last_line >= WORD_SECONDS:
            self._last_line = now
            sys.stderr.write(f"{line}\n")
        sys.stderr.flush()

    def end(self) -> None:
        """Remove the live line, for results to follow."""
        if sys.stderr.isatty():
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
