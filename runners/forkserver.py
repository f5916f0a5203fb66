"""The forkserver: a process that has torch loaded and forks ranks from itself on request.

    python -m runners.forkserver        (started by `ForkServer`, never by hand)

`ForkServer` is the launcher's side of the conversation, `serve` the process's own. In: JSON lines
on standard input, one a request: {"start": [rank request, …]}. Out: JSON lines on standard output:
{"ready": true}, {"started": [pid, …]}, {"exited": pid, "code": n}. It is a process of its own
because two settings of the allocator cannot share one environment, and because `multiprocessing`
keeps a single forkserver with a single environment. When standard input ends, however the
launcher ended, it kills its ranks and goes.
"""

from __future__ import annotations

import json
import os
import queue
import select
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

POLL_SECONDS = 0.01


class LaunchError(RuntimeError):
    """The ranks could not be started at all."""


class ForkServer:
    """One forkserver process and the conversation with it."""

    def __init__(self, environment: dict[str, str]) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "runners.forkserver"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "OMP_NUM_THREADS": "1", **environment},
            cwd=Path(__file__).resolve().parent.parent,
            start_new_session=True,
        )
        self._messages: queue.Queue[dict[str, Any]] = queue.Queue()
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()
        self._is_ready = False  # several load torch side by side; the first request waits

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._messages.put(json.loads(line))

    def _expect(self, word: str, seconds: float) -> object:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            try:
                message = self._messages.get(timeout=0.1)
            except queue.Empty:
                if self._process.poll() is not None:
                    raise LaunchError(
                        f"the forkserver ended before it said {word!r}; "
                        "try `python -m runners.forkserver` to see why"
                    ) from None
                continue
            if word in message:
                return message[word]
        raise LaunchError(f"the forkserver said nothing for {seconds:.0f} s")

    def start(self, requests: list[dict[str, Any]]) -> list[int]:
        """Fork one process a request; their process ids, in order.

        Raises:
            LaunchError: the forkserver has ended, or never got ready.
        """
        if not self._is_ready:
            self._expect("ready", 120)
            self._is_ready = True
        assert self._process.stdin is not None
        try:
            self._process.stdin.write((json.dumps({"start": requests}) + "\n").encode())
            self._process.stdin.flush()
        except BrokenPipeError:
            raise LaunchError("the forkserver has ended; run again") from None
        return cast("list[int]", self._expect("started", 30))

    def exits(self) -> dict[int, int]:
        """Process ids that have ended since the last call, with their exit codes.

        Raises:
            LaunchError: the forkserver itself has ended, and its ranks with it.
        """
        if self._process.poll() is not None:
            raise LaunchError(
                "the forkserver ended in the middle of a run; run again, and see whether this "
                f"machine ran out of memory (exit code {self._process.returncode})"
            )
        ended: dict[int, int] = {}
        while True:
            try:
                message = self._messages.get_nowait()
            except queue.Empty:
                return ended
            if "exited" in message:
                ended[message["exited"]] = message["code"]

    def close(self) -> None:
        """End the forkserver and every rank it still has."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._listener.join()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with suppress(BrokenPipeError):  # a request that a dead forkserver never took
                    pipe.close()


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
    except BaseException:  # noqa: BLE001 a rank that cannot even fail properly: say why, and leave
        import traceback

        traceback.print_exc()
    finally:
        os._exit(70)


def _load_experiments(requests: list[dict[str, Any]]) -> None:
    """Import what experiments import, once for all of their ranks: some of it takes a second.

    One that cannot be loaded fails in its ranks, which say so.
    """
    from runners.experiment import find

    for name in {request["experiment"] for request in requests}:
        with suppress(Exception):
            find(name)


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
                requests = json.loads(line)["start"]
                _load_experiments(requests)
                started = [_fork(request) for request in requests]
                pids.update(started)
                _say({"started": started})
        _reap(pids)
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    sys.exit(0)


if __name__ == "__main__":
    serve()
