"""The forkserver: a process that has torch loaded and forks ranks from itself on request.

    python -m runners.measuring.forkserver        started by `ForkServer`, never by hand
    python -m runners.measuring.forkserver RANK   one rank as a process of its own: a JSON request

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

import json
import os
import platform
import queue
import select
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn, cast

from runners.system import processes
from runners.system.errors import LaunchError

POLL_SECONDS = 0.01
WORD_SECONDS = 5.0  # no wait is longer than this without a word to the person who waits
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
                [sys.executable, "-m", "runners.measuring.forkserver"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=file,
                env={**os.environ, **ENVIRONMENT, **environment},
                cwd=Path(__file__).resolve().parents[2],
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
        start = last_line = time.monotonic()
        while time.monotonic() < start + seconds:
            try:
                message = self._messages.get(timeout=0.1)
            except queue.Empty:
                self._check()
                if time.monotonic() - last_line > WORD_SECONDS:
                    last_line = time.monotonic()
                    doing = "starts the ranks" if self._is_ready else "loads torch"
                    sys.stderr.write(
                        f"the forkserver still {doing}, for {last_line - start:.0f} s so far\n"
                    )
                    sys.stderr.flush()
                continue
            if word in message:
                return message[word]
        raise LaunchError(f"the forkserver said nothing for {seconds:.0f} s")

    def _check(self) -> None:
        """See that it works.

        Raises:
            LaunchError: it has ended, or somebody has stopped it; what to do.
        """
        pid = self._process.pid
        if self._process.poll() is not None:
            raise LaunchError(self._why_it_ended())
        if processes.state(pid) == processes.STOPPED:
            raise LaunchError(
                f"the forkserver (process {pid}) is stopped (SIGSTOP); "
                f"continue it with `kill -CONT {pid}`, or end it, and run again"
            )

    def _why_it_ended(self) -> str:
        """One line, from its exit code and its last words."""
        words = self._errors.read_text(encoding="utf-8", errors="replace")
        last = words.strip().splitlines()[-1:] or ["it wrote nothing"]
        code = self._process.returncode
        when = "in the middle of a run" if self._is_ready else "before its first run"
        how, then = f"exit code {code}", "or see what `python -m runners.measuring.forkserver` says"
        if code < 0:
            how, then = f"signal {-code}", "and see whether this machine ran out of memory"
        return (
            f"the forkserver (process {self._process.pid}) ended {when} ({how}: {last[0]}); "
            f"run again, {then}"
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
        try:
            self._process.stdin.write((json.dumps({"start": requests}) + "\n").encode())
            self._process.stdin.flush()
        except BrokenPipeError:
            self._process.wait()  # it has closed its end: it is about to end, if it has not
            raise LaunchError(self._why_it_ended()) from None
        return cast("list[int]", self._expect("started", 30))

    def exits(self) -> dict[int, int]:
        """Process ids that have ended since the last call, with their exit codes.

        Raises:
            LaunchError: it has ended, and its ranks with it, or was stopped.
        """
        self._check()
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
    server = os.getpid()
    pid = os.fork()
    if not pid:  # in the rank; it must never return into the server's loop
        processes.end_with(server)
        os.close(0)
        _be(request)
    return pid


def _spawn(request: dict[str, Any]) -> int:
    """Start a rank as a process of its own; what it prints before it begins is no message."""
    return os.posix_spawn(
        sys.executable,
        [sys.executable, "-m", "runners.measuring.forkserver", json.dumps(request)],
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


def _load_experiments(requests: list[dict[str, Any]]) -> None:
    """Import what experiments import, once for all of their ranks: some of it takes a second.

    One that cannot be loaded fails in its ranks, which say so.
    """
    from runners.plans.experiment import find

    for name in {request["experiment"] for request in requests}:
        with suppress(Exception):
            len(find(name).strategies)


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


def _start(requests: list[dict[str, Any]], *, forks: bool) -> list[int]:
    """Start a rank for each request; their process ids, in order."""
    if not forks:
        return [_spawn(one) for one in requests]
    _load_experiments(requests)
    return [_fork(one) for one in requests]


def _has_nobody() -> bool:
    """Whether the launcher has ended already: before the first request it writes nothing."""
    readable, _, _ = select.select([0], [], [], 0)
    return bool(readable) and not sys.stdin.isatty()


def serve() -> None:
    """Load torch, then fork ranks until standard input ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the launcher's to handle
    processes.end_with(os.getppid())
    if _has_nobody():
        return
    forks = platform.system() == "Linux"
    if forks:
        import runners.ranks.process

        runners.ranks.process.preload()
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
                started = _start(json.loads(line)["start"], forks=forks)
                pids.update(started)
                _say({"started": started})
        _reap(pids)
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    sys.exit(0)


if __name__ == "__main__":
    if sys.argv[1:]:
        _be(json.loads(sys.argv[1]))
    serve()
