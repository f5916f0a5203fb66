"""Runs the watched script in this process, as Python would.

In: its path and arguments. Out: what a `Watch` has seen, and how the script ended.
"""

from __future__ import annotations

import atexit
import gc
import io
import runpy
import sys
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from runners.system.errors import first_line
from runners.verify.frames import is_script, place_of
from runners.verify.records import Seen
from runners.verify.watch import Enough, Watch


def run(
    script: str, arguments: Sequence[str], watch: Watch,
    is_reported: Callable[[], bool] = lambda: False,
) -> Seen:  # fmt: skip
    """Run a script to its end, or until the watch has seen enough.

    Args:
        script: its path.
        arguments: that it is given.
        watch: which is installed first.
        is_reported: whether another rank has reported, so that an error here says nothing more.
    """
    sys.argv = [script, *arguments]
    sys.path[0] = str(Path(script).resolve().parent)
    watch.install()
    ended = at = ""
    try:
        runpy.run_path(script, run_name="__main__")
    except Enough:
        pass
    except SystemExit as left:
        ended = "" if left.code in (None, 0) else f"it left with exit code {left.code}"
    except BaseException as error:  # noqa: BLE001 whatever ends the script is reported
        if not is_reported():
            traceback.print_exc()
        ended = f"{type(error).__name__}: {first_line(error)}"
        frames = [one for one in traceback.walk_tb(error.__traceback__) if is_script(one[0])]
        at = place_of(*frames[-1]) if frames else ""
    seen = watch.seen
    seen.ended, seen.ended_at, seen.ended_seconds = ended, at, time.monotonic()
    # This process ends without Python's own end, since threads of gloo may wait for ranks that are
    # gone: join the script's threads, and run what it left for the exit.
    with suppress(Exception):  # as Python, which goes on where an exit function fails
        threading._shutdown()  # type: ignore[attr-defined]
        atexit._run_exitfuncs()
    flush()
    return watch.end()


def flush() -> None:
    """Write what the script has buffered in any file."""
    for one in gc.get_objects():
        if issubclass(type(one), io.IOBase):
            with suppress(Exception):
                one.flush()
