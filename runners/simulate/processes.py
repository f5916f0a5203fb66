"""Simulations in processes of their own, and what came of them before. No torch here.

In: jobs, of runs or of plans. Out: a result each, in the same order. A result is kept under the key
of its job, a digest of all that it follows from, unless it has a reason instead of values.
"""

from __future__ import annotations

import gc
import importlib
import multiprocessing
import platform
import signal
import time
import warnings
from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from dataclasses import dataclass
from importlib import metadata
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Generic, TypeVar

from runners.simulate.log import Result
from runners.system import stopping
from runners.system.patience import WORD_SECONDS, Patience
from runners.traces.files import write_json
from runners.traces.machine import HOME

CACHE = HOME / ".cache" / "simulations"
MOST_WALL_SECONDS = 3600.0  # of a simulation that waits without computing
# Processes are forked where that is safe: then they share torch, which is loaded once.
FORKS = platform.system() == "Linux"

R = TypeVar("R", bound=Result)


@dataclass(frozen=True)
class Job(Generic[R]):
    """A simulation.

    Attributes:
        key: a digest of what its result follows from.
        work: gives the result; it is called in a process of its own.
        failed: the result for a reason, where that process ends without one.
    """

    key: str
    work: Callable[[], R]
    failed: Callable[[str], R]


def results(
    jobs: Sequence[Job[R]], kind: type[R], num_workers: int, folder: Path | None, what: str
) -> tuple[list[R], int]:
    """The result of each job, and how many were simulated now.

    Args:
        jobs: what is wanted.
        kind: the class of the results.
        num_workers: jobs that are done side by side.
        folder: where results are kept; by default `CACHE`.
        what: the jobs are, and what is done to them.
    """
    folder = folder or CACHE
    known = {job.key: _kept(folder / f"{job.key}.json", kind) for job in jobs}
    missing = {job.key: job for job in jobs if known[job.key] is None}
    if missing and FORKS:
        prepare()
    with closing(_finished(list(missing.values()), num_workers, what)) as finished:
        for job, result in finished:
            known[job.key] = result
            if result.is_kept():
                folder.mkdir(parents=True, exist_ok=True)
                write_json(folder / f"{job.key}.json", result.as_json())
    found = (known[job.key] for job in jobs)
    return [one for one in found if one is not None], len(missing)


def _kept(path: Path, kind: type[R]) -> R | None:
    """What was simulated before; nothing where the file is of another version or torn."""
    try:
        return kind.model_validate_json(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None


def _finished(
    jobs: list[Job[R]], num_workers: int, what: str
) -> Generator[tuple[Job[R], R], None, None]:
    """Each job with its result, as soon as it is there."""
    patience, total = Patience(), len(jobs)
    running: list[_Process[R]] = []
    try:
        while jobs or running:
            while jobs and len(running) < num_workers:
                running.append(_Process(jobs.pop(0)))
            patience.tell(f"{total - len(jobs) - len(running)}/{total} {what}, {{}} so far")
            wait([one.receiving for one in running], WORD_SECONDS)
            for one in tuple(running):
                if (result := one.result()) is not None:
                    one.end()
                    running.remove(one)
                    yield one.job, result
    finally:
        for one in running:
            one.end()


class _Process(Generic[R]):
    """The process in which a job is done."""

    def __init__(self, job: Job[R]) -> None:
        self.job, self._until = job, time.monotonic() + MOST_WALL_SECONDS
        context = multiprocessing.get_context("fork" if FORKS else "spawn")
        self.receiving, sending = context.Pipe(duplex=False)
        self._process = context.Process(  # type: ignore[attr-defined]
            target=_execute, args=(sending, job.work), daemon=True
        )
        with stopping.held(), warnings.catch_warnings():  # what is raised in a fork is swallowed
            warnings.simplefilter("ignore", DeprecationWarning)  # threads here hold no lock of ours
            self._process.start()
        sending.close()

    def result(self) -> R | None:
        """What the job has returned, or that it failed; None while it works."""
        try:
            found: R | None = self.receiving.recv() if self.receiving.poll() else None
        except EOFError:
            self._process.join()
            return self.job.failed(_end(self._process.exitcode))
        late = found is None and time.monotonic() > self._until
        return self.job.failed("it does not end") if late else found

    def end(self) -> None:
        """End it, whatever it does."""
        self._process.kill()
        self._process.join()
        self.receiving.close()


def _execute(sending: Connection, work: Callable[[], Result]) -> None:
    """What a process does; it is no command, and ends at once."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    sending.send(work())


def _end(exit_code: int) -> str:
    if exit_code == -signal.SIGXCPU:
        return "it does not end"
    how = f"by signal {-exit_code}" if exit_code < 0 else f"by itself, with code {exit_code}"
    return f"its process ended {how}"


def prepare() -> None:
    """Load what ranks use, once, before any is forked."""
    import torch

    from runners.ranks.process import preload
    from runners.simulate.fake_mode import ValuelessMode

    preload()
    importlib.import_module("torch.distributed.optim")  # scripts functions, which takes long
    importlib.import_module("torch.distributed.pipelining")
    with ValuelessMode():
        layer = torch.nn.Linear(4, 4)
        update = torch.optim.Adam(layer.parameters(), fused=True)
        layer(torch.ones(2, 4))
        # No backward pass: on a torch with devices it starts threads, and after that no process
        # forked from this one can take one. Under fake tensors a build for CUDA has a device.
        for parameter in layer.parameters():
            parameter.grad = torch.ones_like(parameter)
        update.step()
    gc.collect()
    gc.freeze()  # no later collection looks at what was loaded


def torch_release() -> str:
    """The version of torch without the tag of its build: tensors have the same bytes in each."""
    return metadata.version("torch").partition("+")[0]
