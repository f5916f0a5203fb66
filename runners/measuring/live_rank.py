"""One rank's process as the launcher sees it: whether it works, waits, was stopped, or has ended.

In: its heartbeat, its record, and the kernel's account of its processor time. Out: answers.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import ValidationError

from runners.ranks.heartbeat import Beat, listen
from runners.system import processes
from runners.system.errors import LaunchError
from runners.traces.outcome import RankOutcome

# NCCL waits by spinning, on the device and in the process: processor time says nothing there, and
# only heartbeats do. They come at each phase, so ranks with an accelerator are given longer.
SPINNING_QUIET = 5.0  # times as long, before such ranks hang
SPINNING_SETTLE_SECONDS = 3.0  # the same for peers of a failed one
# gloo's threads wake up a hundred times a second while they wait; that little is not work.
IDLE_SHARE = 0.02
TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


@dataclass
class LiveRank:
    """One rank's process as the launcher sees it."""

    pid: int
    record: Path
    heart: Path
    exit_code: int | None = None
    outcome: RankOutcome | None = None
    ticks: int | None = None
    state: str | None = None
    beat: Beat = field(default_factory=lambda: Beat(0, -1, "start"))
    quiet_since: float = field(default_factory=time.monotonic)
    quiet_ticks: int = 0
    spins: bool = False  # whether it waits by spinning: it has an accelerator

    def look(self, exit_code: int | None) -> None:
        """Read its record once it is there, its heartbeat, and whether it works."""
        self.exit_code = self.exit_code if exit_code is None else exit_code
        if self.outcome is None and self.record.exists():
            try:
                self.outcome = RankOutcome.model_validate_json(self.record.read_bytes())
            except ValidationError as error:
                raise LaunchError(f"a rank wrote a record that cannot be read: {error}") from None
        beat = listen(self.heart)
        ticks = None if self.spins else processes.cpu_ticks(self.pid)
        now = time.monotonic()
        idle_ticks = IDLE_SHARE * (now - self.quiet_since) * TICKS_PER_SECOND
        works = ticks is not None and ticks - self.quiet_ticks > max(1.0, idle_ticks)
        if beat != self.beat or works:
            self.quiet_since, self.quiet_ticks = now, ticks or 0
        self.beat, self.ticks = beat, ticks
        self.state = processes.state(self.pid)

    def is_quiet(self, seconds: float) -> bool:
        """Whether it has neither spoken nor worked for these seconds."""
        if self.spins:
            return time.monotonic() - self.quiet_since > seconds * SPINNING_QUIET
        # Where the kernel does not say who works, only heartbeats tell, and they come seldom.
        patience = seconds if self.ticks is not None else seconds * 10
        if time.monotonic() - self.quiet_since <= patience:
            return False
        if processes.wants_processor(self.pid):  # starved by others, not waiting for anybody
            self.quiet_since = time.monotonic()
            return False
        return True

    def has_settled(self, seconds: float) -> bool:
        """Whether this peer of a failed rank only waits for it now, and has for these seconds."""
        if self.spins:
            return time.monotonic() - self.quiet_since > max(seconds, SPINNING_SETTLE_SECONDS)
        return self.is_quiet(seconds)

    @property
    def has_failed(self) -> bool:
        """Whether its record names a failure."""
        return self.outcome is not None and self.outcome.failure is not None

    @property
    def is_broken(self) -> bool:
        """Whether it failed, or left as no rank should."""
        return self.has_failed or self.exit_code not in (None, 0)

    @property
    def is_over(self) -> bool:
        """Whether nothing more will come of it."""
        return self.exit_code is not None or self.has_failed
