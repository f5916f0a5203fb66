"""Simulations in processes of their own, and what came of them before. No torch here.

In: jobs, of runs or of plans. Out: a result each, in the same order. A result is kept under the key
of its job, a digest of all that it follows from, unless it has a reason instead of values.
"""

from __future__ import annotations

import asyncio
import gc
import importlib
import multiprocessing
import platform
import signal
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import metadata
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Generic, TypeVar

from runners.simulate.log import Result
from runners.system import count, stopping
from runners.system.count import Count
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

    async def simulate() -> None:
        told, places = Count(len(missing), what), asyncio.Semaphore(num_workers)
        # Whoever stops the command may do so within a task, and is answered once, by the command.
        asyncio.get_running_loop().set_exception_handler(lambda *_: None)

        async def done(job: Job[R]) -> None:
            async with places:
                known[job.key] = result = await _result(job)
            if result.is_kept():
                folder.mkdir(parents=True, exist_ok=True)
                write_json(folder / f"{job.key}.json", result.as_json())

        running = {asyncio.create_task(done(job)) for job in missing.values()}
        while running:
            told.tell(len(missing) - len(running))
            ended, running = await asyncio.wait(
                running, timeout=count.WORD_SECONDS, return_when=asyncio.FIRST_COMPLETED
            )
            for one in ended:
                one.result()
        told.end()

    if missing:
        if FORKS:
            prepare()
        asyncio.run(simulate())
    found = (known[job.key] for job in jobs)
    return [one for one in found if one is not None], len(missing)


def _kept(path: Path, kind: type[R]) -> R | None:
    """What was simulated before; nothing where the file is of another version or torn."""
    try:
        return kind.model_validate_json(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None


async def _result(job: Job[R]) -> R:
    """What a job returns in a process of its own."""
    context = multiprocessing.get_context("fork" if FORKS else "spawn")
    receiving, sending = context.Pipe(duplex=False)
    process = context.Process(  # type: ignore[attr-defined]
        target=_execute, args=(sending, job.work), daemon=True
    )
    with stopping.held(), warnings.catch_warnings():  # what is raised while one forks is swallowed
        warnings.simplefilter("ignore", DeprecationWarning)  # threads here hold no lock of ours
        process.start()
    sending.close()
    try:
        async with asyncio.timeout(MOST_WALL_SECONDS):
            await _readable(receiving)
        result: R = receiving.recv()
        return result
    except TimeoutError:
        return job.failed("it does not end")
    except EOFError:
        process.join()
        return job.failed(_end(process.exitcode))
    finally:
        process.kill()
        process.join()
        receiving.close()


async def _readable(connection: Connection) -> None:
    loop, is_ready = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(connection.fileno(), is_ready.set)
    try:
        await is_ready.wait()
    finally:
        loop.remove_reader(connection.fileno())


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
