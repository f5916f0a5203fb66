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
_RED, _GREEN, _DIM, _PLAIN = "\x1b[31m", "\x1b[32m", "\x1b[2m", "\x1b[0m"


class Progress:
    """Writes to standard error, so that standard output stays for results."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stderr
        self._live = self._stream.isatty()
        self._experiment = ""
        self._total = 0
        self._number = 0
        self._drawn = time.monotonic()

    def _write(self, text: str) -> None:
        self._drawn = time.monotonic()
        self._stream.write(text)
        self._stream.flush()

    def _coloured(self, text: str, colour: str) -> str:
        return f"{colour}{text}{_PLAIN}" if self._live else text

    def begin(self, experiment: Experiment) -> None:
        """A new experiment starts."""
        self._experiment, self._total, self._number = experiment.name, len(experiment.runs), 0
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
            self._write(f"\r\x1b[K{line[:width]}" if self._live else f"{line}\n")

        return watch

    def clear(self) -> None:
        """Remove the live line, for results to follow."""
        if self._live:
            self._write("\r\x1b[K")

    def said(self, line: str) -> None:
        """A line of its own, beneath the experiment's name."""
        self._number += 1
        self.clear()
        self._write(f"  {line}\n")

    def note(self, line: str) -> None:
        """Something to know of the whole experiment, beneath its name."""
        self.clear()
        self._write(f"  note: {line}\n")

    def kept(self, name: str) -> None:
        """A run is not measured again."""
        self._number += 1
        said = self._coloured("kept as measured before", _DIM)
        self._write(f"  [{self._number}/{self._total}] {name:<32} {'':6}    {said}\n")

    def not_measured(self, name: str, cause: str) -> None:
        """A run failed for want of the machine."""
        self._number += 1
        self.clear()
        said = self._coloured(f"not measured: {cause}", _RED)
        self._write(f"  [{self._number}/{self._total}] {name:<32} {'':6}    {said}\n")

    def ended(self, name: str, run: Run) -> None:
        """A run ended; say how, and whether that was expected."""
        self._number += 1
        clear = "\r\x1b[K" if self._live else ""
        verdict = "as expected"
        colour = _GREEN
        if run.status == "skipped":
            verdict, colour = "", _DIM
        elif run.is_surprise:
            verdict = f"SURPRISE, expected {how_it_was_meant_to_end(run)}"
            colour = _RED
        elif run.status == "completed":
            verdict = ""
        tail = f" ({verdict})" if verdict else ""
        said = self._coloured(f"{how_it_ended(run)}{tail}", colour)
        seconds = run.timing.wall_seconds
        self._write(
            f"{clear}  [{self._number}/{self._total}] {name:<32} {seconds:6.1f} s  {said}\n"
        )
