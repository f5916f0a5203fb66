"""The forkserver: a process that has torch loaded and forks ranks from itself on request.

    python -m runners.forkserver        (started by launch.py, never by hand)

In: JSON lines on standard input, one a request: {"start": [rank request, …]}. Out: JSON lines on
standard output: {"ready": true}, {"started": [pid, …]}, {"exited": pid, "code": n}. It is a
process of its own because two settings of the allocator cannot share one environment, and
because `multiprocessing` keeps a single forkserver with a single environment. When standard
input ends, however the launcher ended, it kills its ranks and goes.
"""

from __future__ import annotations

import json
import os
import select
import signal
import sys
from typing import Any

POLL_SECONDS = 0.01


def _say(message: dict[str, Any]) -> None:
    os.write(1, (json.dumps(message) + "\n").encode())


def _fork(request: dict[str, Any]) -> int:
    pid = os.fork()
    if pid:
        return pid
    # In the rank. It must never return into the server's loop.
    try:
        os.close(0)
        from runners.rank_process import live

        live(request)
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        os._exit(70)


def _reap(pids: set[int]) -> None:
    while pids:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
        pids.discard(pid)
        _say({"exited": pid, "code": os.waitstatus_to_exitcode(status)})


def serve() -> None:
    """Load torch, then fork ranks until standard input ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the launcher's to handle
    import runners.rank_process

    runners.rank_process.preload()
    pids: set[int] = set()
    _say({"ready": True})
    pending = b""
    while True:
        readable, _, _ = select.select([0], [], [], POLL_SECONDS)
        if readable:
            chunk = os.read(0, 1 << 16)
            if not chunk:
                break
            *lines, pending = (pending + chunk).split(b"\n")
            for line in lines:
                started = [_fork(request) for request in json.loads(line)["start"]]
                pids.update(started)
                _say({"started": started})
        _reap(pids)
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    sys.exit(0)


if __name__ == "__main__":
    serve()
