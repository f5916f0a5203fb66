"""gloo's own threads: wait until they have given back what collectives that ended had used.

A collective ends for the rank before the thread that carried it out lets go of its buffers. How
much later depends on when that thread next gets a processor, which on a busy machine takes long;
memory between two steps is therefore looked at only when none of these threads has work left.
"""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path

NAME = "pt_gloo_runloop"  # as torch names them
LOOK_SECONDS = 0.001
GUESS_SECONDS = 0.02  # where the kernel does not show threads


def wait_until_idle(process: Path = Path("/proc/self")) -> None:
    """Return once no thread of gloo runs or would run; call it with no collective in flight."""
    if not (process / "task").exists():
        time.sleep(GUESS_SECONDS)
        return
    while any(_works(thread) for thread in (process / "task").iterdir()):
        time.sleep(LOOK_SECONDS)


def _works(thread: Path) -> bool:
    with suppress(OSError):  # it may have ended a moment ago
        name, _, rest = (thread / "stat").read_text(encoding="ascii").rpartition(")")
        return name.partition("(")[2] == NAME and rest.split()[0] in "RD"
    return False
