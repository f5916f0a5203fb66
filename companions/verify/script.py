"""Runs a watched script in this process, and says how it ended."""

from __future__ import annotations

import atexit
import gc
import io
import linecache
import runpy
import sys
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from proofbook.companions.verify import internals, records
from proofbook.companions.verify.watch import Enough, Watch
from proofbook.runners.system.errors import first_line

_LEFT = "it left with exit code"
WRONG_CALL = f"{_LEFT} 2"  # as argparse ends a script


def run_script(
    script: str, arguments: Sequence[str], watch: Watch,
    is_reported: Callable[[], bool] = lambda: False,
) -> records.RankRecording:  # fmt: skip
    """A script's `RankRecording`, run to its end or `Enough`; errors print unless `is_reported`."""
    sys.argv = [script, *arguments]
    sys.path[0] = str(Path(script).resolve().parent)
    watch.install()
    try:
        runpy.run_path(script, run_name="__main__")
    except Enough:
        watch.recording.is_stopped = True
    except BaseException as error:  # noqa: BLE001 whatever ends the script is reported
        watch.recording.failure = _script_failure(error)
        if not isinstance(error, SystemExit) and not is_reported():
            traceback.print_exc()
    # This process ends without Python's own end, since threads of gloo may wait for ranks that are
    # gone: join the script's threads, and run what it left for the exit.
    with suppress(Exception):  # as Python, which goes on where an exit function fails
        threading._shutdown()  # type: ignore[attr-defined]
        atexit._run_exitfuncs()
    flush()
    return watch.end()


def _script_failure(error: BaseException) -> records.ScriptFailure | None:
    """How an exception ends a script; None for an exit with code 0."""
    message, at, text = f"{type(error).__name__}: {first_line(error)}", "", ""
    if isinstance(error, SystemExit):
        if not error.code:
            return None
        message = f"{_LEFT} {error.code}"
    frames = [
        pair for pair in traceback.walk_tb(error.__traceback__) if internals.is_script(pair[0])
    ]
    for frame, line in frames[-1:]:
        at = internals.place_of(frame, line)
        text = "".join(linecache.getlines(frame.f_code.co_filename)[max(line - 3, 0) : line])
    return records.ScriptFailure(message, at, time.monotonic(), text)


def flush() -> None:
    """Write what the script has buffered in any file."""
    for value in gc.get_objects():
        if issubclass(type(value), io.IOBase):
            with suppress(Exception):
                value.flush()
