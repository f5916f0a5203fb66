"""Lines of progress for a person who waits. No torch.

In: how far something is. Out: a line on standard error every few seconds, so that a log shows that
a command goes on, and the log of a short one stays short.
"""

import sys
import time

WORD_SECONDS = 5.0  # no wait is longer than this without a word


def say(line: str) -> None:
    """Write a line to standard error, at once."""
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()


class Patience:
    """Says how far a slow task has come. Call `tell` at least as often as a word is due."""

    def __init__(self, seconds: float = WORD_SECONDS) -> None:
        self._start = self._said = time.monotonic()
        self._seconds = seconds  # without a word

    def tell(self, line: str) -> None:
        """Write a line with the seconds since the start, if some have passed without one."""
        now = time.monotonic()
        if now - self._said >= self._seconds:
            self._said = now
            say(line.replace("{}", f"{now - self._start:.0f} s"))
