"""What a resumed run shows: schedulers that go on from where they stood, and states that are read.

In: what a script calls (`intercept`), by a `Watch`. Out: where a scheduler stands before the first
watched update, and the line that read a checkpoint with the moments of an optimizer.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

from proofbook.companions.verify import records, roots
from proofbook.companions.verify.internals import place


class ResumeWatch:
    """Follows schedulers and checkpoints of one rank; `count` gives the steps so far."""

    def __init__(self, recording: records.RankRecording, count: Callable[[], int]) -> None:
        self.recording, self._count = recording, count
        self.scheduled: Counter[int] = Counter()  # steps since the update before, by scheduler
        self._known = set[int]()  # schedulers
        self._moments: list[tuple[str, Counter[tuple[int, ...]]]] = []  # that were read, and where

    @property
    def num_scheduled(self) -> int:
        """How often a scheduler has stepped since the update before, at most."""
        return max(self.scheduled.values(), default=0)

    def scheduler_steps(self, scheduler: Any, *, is_part: bool = False) -> None:
        """A scheduler of the learning rate steps; keep where it stood in a resumed run."""
        is_new = id(scheduler) not in self._known
        self._known.add(id(scheduler))
        self.scheduled[id(scheduler)] += 1
        counts = [state.get("step", 0) for state in scheduler.optimizer.state.values()]
        before = int(max(counts, default=0)) - self._count()
        resumed = self.recording.resumed
        if self._count() == 1 and resumed is None and before > 0 and not is_part:
            rates = next(iter(getattr(scheduler, "_last_lr", ())), 0.0)
            pair = float(rates), float(scheduler.optimizer.param_groups[0]["lr"])
            self.recording.resumed = records.Resumed(scheduler.last_epoch, before, place(), pair)
        elif resumed and is_new:  # two of them change one rate
            self.recording.resumed = resumed._replace(rates=(0.0, 0.0))

    def checkpoint_read(self, checkpoint: Any) -> None:
        """Record an optimizer's state in a checkpoint that the script has read."""
        if shapes := roots.moment_shapes(checkpoint):
            self._moments.append((place(), shapes))

    def read_at(self, shapes: Counter[tuple[int, ...]]) -> str:
        """The line that read moments of these shapes, and maybe others; empty if none did."""
        return next((where for where, known in self._moments if shapes <= known), "")
