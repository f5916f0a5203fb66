"""The forkserver: a process that has torch loaded and forks ranks from itself on request.

    python -m runners.measuring.forkserver serve PID   started by `ForkServer` of that process
    python -m runners.measuring.forkserver RANK        one rank by itself: a JSON request

`ForkServer` is the launcher's side of the conversation, `serve` the process's own. In: JSON lines
on standard input, one a request: {"start": [rank request, …]}. Out: JSON lines on standard output:
{"ready": true}, {"started": [pid, …]}, {"exited": pid, "code": n}. It is a process of its own
because two settings of the allocator cannot share one environment, and because `multiprocessing`
keeps a single forkserver with a single environment. The kernel kills it with the launcher, and its
ranks with it; where the kernel cannot, it goes when standard input ends.

Only on Linux are ranks forked. On macOS a process that has loaded torch must not be: the system's
frameworks, of which torch uses one for linear algebra, are undefined after a fork without exec.
There each rank is a new process that loads torch itself.
"""

from __future__ import annotations

import gc
import json
import os
import platform
import select
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn, cast

from runners.system import processes
from runners.system.count import WORD_SECONDS
from runners.system.errors import LaunchError

PROGRAM = [sys.executable, "-m", "runners.measuring.forkserver"]
SERVE = "serve"
ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",
    # A process that has asked the driver for its devices cannot fork ranks that use them. With
    # this torch asks NVML instead, should anything that is imported ask.
    "PYTORCH_NVML_BASED_CUDA_CHECK": "1",
}


class ForkServer:
    """One forkserver process and the conversation with it.

    It ends with the thread that makes this object.

    Args:
        environment: what it sets of the allocator.
        errors: a file for what it writes to standard error: its last words, where it ends itself.
    """

    def __init__(self, environment: dict[str, str], errors: Path) -> None:
        self._errors = errors
        with errors.open("wb") as file:
            self._process = subprocess.Popen(
                [*PROGRAM, SERVE, str(os.getpid())],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=file,
                bufsize=0,
                env={**os.environ, **ENVIRONMENT, **environment},
                cwd=Path(__file__).resolve().parents[2],
                start_new_session=True,
            )
        self._heard = b""  # of messages, what has not been read so far
        self._is_ready = False  # several load torch side by side; the first request waits

    def _message(self, seconds: float) -> dict[str, Any] | None:
        """Its next message; None where none comes in time."""
        assert self._process.stdout is not None
        out = self._process.stdout.fileno()
        while b"\n" not in self._heard:
            chunk = os.read(out, 1 << 16) if select.select([out], [], [], seconds)[0] else b""
            if not chunk:
                return None
            self._heard += chunk
        line, _, self._heard = self._heard.partition(b"\n")
        return cast("dict[str, Any]", json.loads(line))

    def _expect(self, word: str, seconds: float) -> object:
        start = last_line = time.monotonic()
        while (now := time.monotonic()) < start + seconds:
            message = self._message(0.1)
            if message is not None and word in message:
                return message[word]
            self._check()
            if now - last_line > WORD_SECONDS:
                last_line = now
                doing = "starts the ranks" if self._is_ready else "loads torch"
                sys.stderr.write(f"the forkserver still {doing}, for {now - start:.0f} s so far\n")
                sys.stderr.flush()
        raise LaunchError(f"the forkserver said nothing for {seconds:.0f} s")

    def _check(self) -> None:
        """See that it works.

        Raises:
            LaunchError: it has ended; what to do.
        """
        pid, code = self._process.pid, self._process.poll()
        if code is not None:
            words = self._errors.read_text(encoding="utf-8", errors="replace").strip()
            last = (words or "it wrote nothing").splitlines()[-1]
            when = "in the middle of a run" if self._is_ready else "before its first run"
            raise LaunchError(
                f"the forkserver (process {pid}) ended {when} (exit code {code}: {last}); run "
                "again, and see whether this machine ran out of memory"
            )

    def wait_until_ready(self) -> None:
        """Wait until it has loaded torch: once, and in nobody's measured time.

        Raises:
            LaunchError: the forkserver has ended, or never got ready.
        """
        if not self._is_ready:
            self._expect("ready", 120)
            self._is_ready = True

    def start(self, requests: list[dict[str, Any]]) -> list[int]:
        """Fork one process a request; their process ids, in order.

        Raises:
            LaunchError: the forkserver has ended, or never got ready.
        """
        self.wait_until_ready()
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):  # it is about to end, and the wait for its answer says so
            self._process.stdin.write((json.dumps({"start": requests}) + "\n").encode())
        return cast("list[int]", self._expect("started", 30))

    def exits(self) -> dict[int, int]:
        """Process ids that have ended since the last call, with their exit codes.

        Raises:
            LaunchError: it has ended, and its ranks with it.
        """
        self._check()
        ended: dict[int, int] = {}
        while (message := self._message(0)) is not None:
            if "exited" in message:
                ended[message["exited"]] = message["code"]
        return ended

    def close(self) -> None:
        """End the forkserver and every rank it still has."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()


def _say(message: dict[str, Any]) -> None:
    os.write(1, (json.dumps(message) + "\n").encode())


def _fork(request: dict[str, Any]) -> int:
    server = os.getpid()
    pid = os.fork()
    if not pid:  # in the rank; it must never return into the server's loop
        processes.end_with(server)
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.close(0)
        _be(request)
    return pid


def _spawn(request: dict[str, Any]) -> int:
    """Start a rank as a process of its own; what it prints before it begins is no message."""
    return os.posix_spawn(
        sys.executable,
        [*PROGRAM, json.dumps(request)],
        os.environ,
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_DUP2, 2, 1),
        ],
    )


def _be(request: dict[str, Any]) -> NoReturn:
    """Be a rank to the end of this process."""
    try:
        from runners.ranks.process import live, preload

        preload()  # a forked rank finds all of it loaded
        live(request)
    except BaseException:  # noqa: BLE001 a rank that cannot even fail properly: say why, and leave
        import traceback

        traceback.print_exc()
    finally:
        os._exit(70)


def _start(requests: list[dict[str, Any]], *, forks: bool) -> list[int]:
    """Start a rank for each request; their process ids, in order."""
    if not forks:
        return [_spawn(one) for one in requests]
    from runners.plans.experiment import find

    # What experiments import may take a second: it is loaded once for all of their ranks. One that
    # cannot be loaded fails in its ranks, which say so.
    for name in {request["experiment"] for request in requests}:
        with suppress(Exception):
            find(name).strategies  # noqa: B018
    gc.freeze()  # or each rank's first collection copies the pages of all that was loaded
    return [_fork(one) for one in requests]


def _reap(pids: set[int]) -> None:
    while pids:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid == 0:
            return
        pids.discard(pid)
        _say({"exited": pid, "code": os.waitstatus_to_exitcode(status)})


def _ended_children() -> int:
    """A file that can be read when a child has ended."""
    ended, said = os.pipe()
    os.set_blocking(said, False)
    signal.set_wakeup_fd(said, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)  # or the signal would be ignored, and not told
    return ended


def serve(launcher: int) -> None:
    """Load torch, then fork ranks until standard input ends.

    Args:
        launcher: the process that started this one.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the launcher's to handle
    processes.end_with(launcher)
    forks = platform.system() == "Linux"
    if forks:
        import runners.ranks.process

        runners.ranks.process.preload()
    pids: set[int] = set()
    ended = _ended_children()
    _say({"ready": True})
    pending = b""
    while True:
        ready, _, _ = select.select([0, ended], [], [])
        if ended in ready:
            os.read(ended, 4096)
        if 0 in ready:
            chunk = os.read(0, 1 << 16)
            if not chunk:
                break
            *lines, pending = (pending + chunk).split(b"\n")
            for line in lines:
                started = _start(json.loads(line)["start"], forks=forks)
                pids.update(started)
                _say({"started": started})
        _reap(pids)
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    sys.exit(0)


if __name__ == "__main__":
    if sys.argv[1] == SERVE:
        serve(int(sys.argv[2]))
    _be(json.loads(sys.argv[1]))
