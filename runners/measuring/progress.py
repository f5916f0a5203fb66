"""What a person sees while experiments run: one line a run, and a live line on a terminal."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Callable
from typing import TextIO

from runners.plans.experiment import Experiment
from runners.ranks.heartbeat import Beat
from runners.system import count
from runners.traces.records import Run
from runners.traces.summary import how_it_ended, how_it_was_meant_to_end

REFRESH_SECONDS = 0.2
_CLEAR = "\r\x1b[K"


class Progress:
    """Writes to standard error, so that standard output stays for results."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stderr
        self._live = self._stream.isatty()
        self._total = self._number = 0
        self._causes: set[str] = set()  # of runs that were not measured, as far as they were said
        self._drawn = time.monotonic()

    def _write(self, text: str) -> None:
        self._drawn = time.monotonic()
        self._stream.write(text)
        self._stream.flush()

    def begin(self, experiment: Experiment) -> None:
        """A new experiment starts."""
        self._total, self._number = len(experiment.runs), 0
        self._write(f"{experiment.name}: {experiment.question}\n")

    def watcher(self, run: str, pass_name: str) -> Callable[[list[Beat]], None]:
        """A function that draws what the ranks do now, a few times a second.

        Where nobody looks on, it writes a line when there was none for a while.
        """
        start = time.monotonic()

        def watch(beats: list[Beat]) -> None:
            now = time.monotonic()
            if now - self._drawn < (REFRESH_SECONDS if self._live else count.WORD_SECONDS):
                return
            ranks = ", ".join(
                f"rank {i} {b.phase}{f' (step {b.step})' if b.step >= 0 else ''}"
                for i, b in enumerate(beats)
            )
            head = f"  [{self._number + 1}/{self._total}] {run} · {pass_name}"
            line = f"{head} · {now - start:.1f} s · {ranks}"
            width = shutil.get_terminal_size().columns - 1  # a line that wraps cannot be cleared
            self._write(f"{_CLEAR}{line[:width]}" if self._live else f"{line}\n")

        return watch

    def clear(self) -> None:
        """Remove the live line, for results to follow."""
        if self._live:
            self._write(_CLEAR)

    def said(self, line: str) -> None:
        """A line of its own, beneath the experiment's name."""
        self._number += 1
        self.note(line, head="")

    def note(self, line: str, head: str = "note: ") -> None:
        """Something to know of the whole experiment, beneath its name."""
        self.clear()
        self._write(f"  {head}{line}\n")

    def kept(self, name: str) -> None:
        """A run is not measured again."""
        self._ended(name, "kept as measured before")

    def not_measured(self, name: str, cause: str) -> None:
        """A run failed for want of the machine."""
        why = ", for a cause above" if cause in self._causes else f": {cause}"
        self._causes.add(cause)
        self._ended(name, f"not measured{why}")

    def ended(self, name: str, run: Run) -> None:
        """A run ended; say how, and whether that was expected."""
        verdict = "" if run.status in ("completed", "skipped") else " (as expected)"
        if run.is_surprise:
            verdict = f" (SURPRISE, expected {how_it_was_meant_to_end(run)})"
        self._ended(name, f"{how_it_ended(run)}{verdict}", f"{run.timing.wall_seconds:6.1f} s")

    def _ended(self, name: str, how: str, seconds: str = "") -> None:
        self._number += 1
        self.clear()
        self._write(f"  [{self._number}/{self._total}] {name:<32} {seconds:8}  {how}\n")
