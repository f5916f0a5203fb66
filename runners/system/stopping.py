"""How a command ends when somebody stops it: Ctrl-C, `kill`, a closed terminal. No torch.

    if __name__ == "__main__":
        stopping.listen("stopped; what was measured before is kept")
    import …                       # may take a second

In: SIGINT, SIGTERM or SIGHUP. Out: `Stopped` wherever the command then is, so that it cleans up as
it unwinds; further signals do not disturb that. While a module is loaded the command ends at once
instead, after `at_end`: an exception inside somebody else's import may be swallowed, and inside
torch's own it aborts the process. A process forked from the command is no command: it ends at once,
without a word.
"""

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import NoReturn

from proofbook.runners.system.progress_lines import say

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
AGAIN_SECONDS = 5.0  # a command that has not ended by then is stopped anew
at_end: list[Callable[[], None]] = []  # what must be cleaned up where nothing unwinds
_leave_at_once = os._exit
_line = "stopped"
_command: int | None = None  # the process that listens; one forked from it has another id
_stopped_at: float | None = None
_is_held = False
_waiting: list[int] = []  # signals that came while one was held


class Stopped(KeyboardInterrupt):
    """Somebody has stopped this command; `exit_code` is as a shell would report it."""

    def __init__(self, number: int) -> None:
        super().__init__(f"stopped by {signal.Signals(number).name}")
        self.exit_code = 128 + number


def listen(line: str) -> None:
    """Let `SIGNALS` stop this command with a line, except a signal that is ignored already."""
    global _line, _command
    _line, _command, os._exit = line, os.getpid(), _exit
    for number in SIGNALS:
        if signal.getsignal(number) is not signal.SIG_IGN:  # such as SIGHUP under nohup
            signal.signal(number, _stop)


@contextmanager
def held() -> Iterator[None]:
    """Let a signal wait until the block has ended, which must take little time.

    For a block that starts another program: stopped within, nobody would know what that one made.
    """
    global _is_held  # noqa: PLW0603
    _is_held = True
    try:
        yield
    finally:
        _is_held = False
        if _waiting:
            number = _waiting[0]
            _waiting.clear()
            _stop(number, None)


def report(stopped: KeyboardInterrupt) -> int:
    """Print that a person stopped the command; the exit code for it."""
    say(_line)
    return stopped.exit_code if isinstance(stopped, Stopped) else 128 + signal.SIGINT


def leave(exit_code: int) -> NoReturn:
    """Ignore signals, flush the output and exit, quietly where nobody reads it any more."""
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    with suppress(BrokenPipeError):
        sys.stdout.flush()
        sys.exit(exit_code)
    os._exit(exit_code)  # nobody reads the pipe, and Python would complain of that as it leaves


def _exit(status: int) -> NoReturn:
    """As `os._exit`; where the command loads an author's file, an error that names the file."""
    if os.getpid() == _command and _is_loading(sys._getframe()):
        raise SystemExit(f"os._exit({status})")
    _leave_at_once(status)


def _stop(number: int, frame: FrameType | None) -> None:
    global _stopped_at  # noqa: PLW0603
    if os.getpid() != _command:
        signal.signal(number, signal.SIG_DFL)
        signal.raise_signal(number)
    if _is_held:
        _waiting.append(number)
        return
    now = time.monotonic()
    if _stopped_at is not None and now - _stopped_at < AGAIN_SECONDS:
        return  # it is cleaning up already
    _stopped_at = now
    if _is_loading(frame):
        for clean in reversed(tuple(at_end)):
            clean()
        _leave_at_once(report(Stopped(number)))
    raise Stopped(number)


def _is_loading(frame: FrameType | None) -> bool:
    """Whether a module is being loaded below this frame."""
    while frame is not None:
        code = frame.f_code
        if code.co_filename.startswith("<frozen importlib") or code.co_name == "run_path":
            return True
        frame = frame.f_back
    return False
