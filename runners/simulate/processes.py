"""Simulations in processes of their own, and what came of them before. No torch here.

In: jobs. Out: a result each, in the same order. A result is kept under the key of its job, a digest
of all that it follows from, unless it has a reason instead of values.
"""

from __future__ import annotations

import multiprocessing
import os
import platform
import signal
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from multiprocessing.connection import Connection, wait
from multiprocessing.context import BaseContext
from pathlib import Path
from typing import Any, Generic, TypeVar

from runners.simulate.log import Result
from runners.system import count, stopping
from runners.system.count import Count
from runners.traces.files import write_json

CACHE = Path(__file__).resolve().parents[2] / ".cache" / "simulations"


R = TypeVar("R", bound=Result)


@dataclass(frozen=True)
class Job(Generic[R]):
    """A simulation.

    Attributes:
        key: a digest of what its result follows from.
        work: gives the result in a process of its own.
        request: what `work` is given.
        died: the result of a process that ended by itself, from a line that says how.
    """

    key: str
    work: Callable[[Any], R]
    request: Any
    died: Callable[[str], R]


def results(
    jobs: Sequence[Job[R]], kind: type[R], num_workers: int, folder: Path | None, what: str
) -> tuple[list[R], int]:
    """The result of each job, and how many were simulated now.

    Args:
        jobs: what is wanted.
        kind: the class of the results.
        num_workers: processes that simulate side by side.
        folder: where results are kept; by default `CACHE`.
        what: the jobs are, and what is done to them.
    """
    folder = folder or CACHE
    known = {job.key: _kept(folder / f"{job.key}.json", kind) for job in jobs}
    missing = {job.key: job for job in jobs if known[job.key] is None}
    for key, result in _new(missing, num_workers, what):
        known[key] = result
        if result.is_kept():
            folder.mkdir(parents=True, exist_ok=True)
            kept = result.model_dump(mode="json", exclude_defaults=True)
            write_json(folder / f"{key}.json", kept)
    found = (known[job.key] for job in jobs)
    return [one for one in found if one is not None], len(missing)


def _kept(path: Path, kind: type[R]) -> R | None:
    """What was simulated before; nothing where the file is of another version or torn."""
    try:
        return kind.model_validate_json(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None


def _new(jobs: Mapping[str, Job[R]], num_workers: int, what: str) -> Iterator[tuple[str, R]]:
    """The results of jobs by their keys, as processes end."""
    if not jobs:
        return
    told, context, waiting = Count(len(jobs), what), _context(), list(jobs.values())
    running: dict[Connection, tuple[Job[R], multiprocessing.process.BaseProcess]] = {}
    while waiting or running:
        while waiting and len(running) < num_workers:
            job = waiting.pop(0)
            receiving, process = _started(context, job)
            running[receiving] = job, process
        told.tell(len(jobs) - len(waiting) - len(running))
        for ready in wait(list(running), count.WORD_SECONDS):
            assert isinstance(ready, Connection)
            job, process = running.pop(ready)
            try:
                result = ready.recv()
            except EOFError:
                process.join()
                result = job.died(f"its process ended by itself, with code {process.exitcode}")
            process.join()
            yield job.key, result
    told.end()


def _started(
    context: BaseContext, job: Job[Any]
) -> tuple[Connection, multiprocessing.process.BaseProcess]:
    receiving, sending = context.Pipe(duplex=False)
    process = context.Process(  # type: ignore[attr-defined]
        target=_execute, args=(job.work, job.request, sending), daemon=True
    )
    with stopping.held(), warnings.catch_warnings():  # what is raised while one forks is swallowed
        warnings.simplefilter("ignore", DeprecationWarning)  # threads here hold no lock of ours
        process.start()
    sending.close()
    return receiving, process


def _context() -> BaseContext:
    """Processes are forked where that is safe: then they share torch, which is loaded once."""
    if platform.system() != "Linux":
        return multiprocessing.get_context("spawn")
    from runners.simulate.rank_processes import prepare

    prepare()
    return multiprocessing.get_context("fork")


def _execute(work: Callable[[Any], Any], request: Any, sending: Connection) -> None:
    """What a process does; it is no command, and ends at once."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    sending.send(work(request))


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def torch_release() -> str:
    """The version of torch without the tag of its build: tensors have the same bytes in each."""
    return metadata.version("torch").partition("+")[0]
