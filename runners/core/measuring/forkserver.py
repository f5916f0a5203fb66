"""The forkserver: a process that has torch loaded and forks ranks from itself on request.

    python -m runners.core.measuring.forkserver PID FD   started by `ForkServer` of that process

`ForkServer` is the launcher's side, `serve` the process's own; they communicate over a pipe of
`multiprocessing`. In: lists of rank requests. Out: pairs of a word and its argument: "ready",
"started" with process ids, "exited" with a process id and its exit code. It is a process of its own
because two settings of the allocator cannot share one environment, and because `multiprocessing`
keeps a single forkserver with a single environment. The kernel kills it with the launcher, and its
ranks with it; where the kernel cannot, it goes when the pipe ends.

Only on Linux are ranks forked. On macOS a process that has loaded torch must not be: the system's
frameworks, of which torch uses one for linear algebra, are undefined after a fork without exec.
There each rank is a new process that loads torch itself.
"""

import gc
import multiprocessing
import os
import platform
import signal
import subprocess
import sys
import time
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from proofbook.runners.core.measuring.endings import NO_REPORT
from proofbook.runners.core.system import processes
from proofbook.runners.system.book import ROOT, enter_book, own_book
from proofbook.runners.system.errors import LaunchError
from proofbook.runners.system.progress_lines import Patience

Request = dict[str, Any]  # the run, pass, rank and files of a process
FORKS = platform.system() == "Linux"
ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",
    # A process that has asked the driver for its devices cannot fork ranks that use them. With
    # this torch asks NVML instead, should anything that is imported ask.
    "PYTORCH_NVML_BASED_CUDA_CHECK": "1",
}
# What a person has set of NCCL would change what a run measures. Which interface and adapters
# connect nodes is theirs to say, and what NCCL prints measures nothing.
UNSET = ("NCCL_", "TORCH_NCCL_")
NOT_UNSET = ("NCCL_SOCKET_IFNAME", "NCCL_IB_", "NCCL_DEBUG")


class ForkServer:
    """One forkserver process with this environment, which ends with the thread that starts it.

    It writes standard error to `errors`, whose last line says why it ended.
    """

    def __init__(self, environment: dict[str, str], errors: Path) -> None:
        self._errors = errors
        inherited = {
            name: value
            for name, value in os.environ.items()
            if name.startswith(NOT_UNSET) or not name.startswith(UNSET)
        }
        self._pipe, theirs = multiprocessing.Pipe()
        command = [sys.executable, "-m", __name__]
        with errors.open("wb") as file, theirs:
            self._process = subprocess.Popen(
                [*command, str(os.getpid()), str(theirs.fileno()), str(own_book() or "")],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
                env={**inherited, **ENVIRONMENT, **environment},
                cwd=ROOT,
                start_new_session=True,
            )
        self._is_ready = False  # several load torch side by side; the first request waits

    def _message(self, seconds: float) -> tuple[str, Any]:
        """The next message; an empty word where none comes in time, LaunchError at the end."""
        with suppress(EOFError, OSError):
            if self._pipe.poll(seconds):
                message: tuple[str, Any] = self._pipe.recv()
                return message
        code = self._process.poll()
        if code is None:
            return "", None
        words = self._errors.read_text(encoding="utf-8", errors="replace").strip()
        last = (words or "it wrote nothing").splitlines()[-1]
        when = "in the middle of a run" if self._is_ready else "before its first run"
        raise LaunchError(
            f"the forkserver (process {self._process.pid}) ended {when} (exit code {code}: "
            f"{last}); run again, and see whether this machine ran out of memory"
        )

    def _wait_for(self, word: str, seconds: float) -> Any:  # noqa: ANN401
        """The argument of the next message with this word."""
        patience, end = Patience(), time.monotonic() + seconds
        while time.monotonic() < end:
            received, argument = self._message(0.1)
            if received == word:
                return argument
            patience.tell(f"waiting for the forkserver ({word}), {{}} so far")
        raise LaunchError(f"the forkserver said nothing for {seconds:.0f} s")

    def wait_until_ready(self) -> None:
        """Wait until the process has loaded torch, or LaunchError; no measured time contains it."""
        if not self._is_ready:
            self._wait_for("ready", 120)
            self._is_ready = True

    def start(self, requests: list[Request]) -> list[int]:
        """Fork a process per request; return their ids in that order, or raise LaunchError."""
        self.wait_until_ready()
        with suppress(OSError):  # it is about to end, and the wait for its answer says so
            self._pipe.send(requests)
        pids: list[int] = self._wait_for("started", 30)
        return pids

    def exits(self) -> dict[int, int]:
        """The exit codes of processes that ended since the last call, by id; or LaunchError."""
        ended: dict[int, int] = {}
        while (message := self._message(0))[0]:  # of nothing but ranks that have ended
            ended.update([message[1]])
        return ended

    def close(self) -> None:
        """End the forkserver and every rank it still has."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._pipe.close()


def _run_rank(request: Request, server: int, book: Path | None) -> None:
    """Run one rank, then end this process: it must never return into the server's loop."""
    processes.end_with(server)
    enter_book(book)
    try:
        from proofbook.runners.core.ranks.process import preload, run_rank

        preload()  # a forked rank finds all of it loaded
        run_rank(request)
    except BaseException:  # noqa: BLE001 a rank that cannot even fail properly: say why, and leave
        import traceback

        traceback.print_exc()
    finally:
        os._exit(NO_REPORT)


def _started(requests: list[Request]) -> list[BaseProcess]:
    """Start a rank for each request, in order."""
    if FORKS:
        from proofbook.runners.core.declared.experiment import find

        # What experiments import may take a second: it is loaded once for all of their ranks. One
        # that cannot be loaded fails in its ranks, which say so.
        for name in {request["experiment"] for request in requests}:
            with suppress(Exception):
                find(name).strategies  # noqa: B018
        gc.freeze()  # or each rank's first collection copies the pages of all that was loaded
    context = multiprocessing.get_context("fork" if FORKS else "spawn")
    ranks: list[BaseProcess] = [
        context.Process(target=_run_rank, args=(request, os.getpid(), own_book()))  # type: ignore[attr-defined]
        for request in requests
    ]
    for rank in ranks:
        rank.start()
    return ranks


def serve(launcher: int, pipe: Connection) -> None:
    """Load torch, fork ranks as the pipe asks, report their exits; kill the rest at its end."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the launcher's to handle
    processes.end_with(launcher)
    if FORKS:
        from proofbook.runners.core.ranks.process import preload

        preload()
    ranks: list[BaseProcess] = []
    pipe.send(("ready", None))
    while True:
        if pipe in wait([pipe, *(rank.sentinel for rank in ranks)]):
            try:
                started = _started(pipe.recv())
            except EOFError:
                break
            ranks += started
            pipe.send(("started", [rank.pid for rank in started]))
        for rank in [rank for rank in ranks if rank.exitcode is not None]:
            pipe.send(("exited", (rank.pid, rank.exitcode)))
            ranks.remove(rank)
    for rank in ranks:
        rank.kill()


if __name__ == "__main__":
    enter_book(Path(sys.argv[3]) if sys.argv[3] else None)
    serve(int(sys.argv[1]), Connection(int(sys.argv[2])))
