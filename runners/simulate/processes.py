"""Simulations in processes of their own: a crash or an endless loop costs one alone. No torch here.

In: jobs, of runs or of plans. Out: their results.
"""

import gc
import importlib
import multiprocessing
import platform
import signal
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from typing import Generic, TypeVar

from runners.system import accelerator, stopping
from runners.system.patience import WORD_SECONDS, Patience

# Processes are forked where that is safe: then they share torch, which is loaded once.
FORKS = platform.system() == "Linux"

R = TypeVar("R")


@dataclass(frozen=True)
class Job(Generic[R]):
    """A simulation.

    Attributes:
        work: gives the result; it is called in a process of its own.
        failed: the result for a reason, where that process ends without one.
    """

    work: Callable[[], R]
    failed: Callable[[str], R]


def results(jobs: Sequence[Job[R]], num_workers: int, what: str) -> list[R]:
    """Do each job in a process; their results, in the order of the jobs.

    Args:
        jobs: what is to be done.
        num_workers: jobs that are done side by side.
        what: the jobs are, and what is done to them.
    """
    if jobs and FORKS:
        prepare()
    patience, waiting = Patience(), list(range(len(jobs)))
    running: dict[int, _Process[R]] = {}
    found: dict[int, R] = {}
    try:
        while waiting or running:
            while waiting and len(running) < num_workers:
                place = waiting.pop(0)
                running[place] = _Process(jobs[place])
            patience.tell(f"{len(found)}/{len(jobs)} {what}, {{}} so far")
            wait([one.receiving for one in running.values()], WORD_SECONDS)
            for place, one in list(running.items()):
                if (result := one.result()) is not None:
                    running.pop(place).end()
                    found[place] = result
    finally:
        for one in running.values():
            one.end()
    return [found[place] for place in range(len(jobs))]


class _Process(Generic[R]):
    """The process in which a job is done."""

    def __init__(self, job: Job[R]) -> None:
        self.job = job
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
            return self.receiving.recv() if self.receiving.poll() else None
        except EOFError:
            self._process.join()
            code: int = self._process.exitcode
            how = f"by signal {-code}" if code < 0 else f"by itself, with code {code}"
            is_endless = code == -signal.SIGXCPU
            return self.job.failed("it does not end" if is_endless else f"its process ended {how}")

    def end(self) -> None:
        """End it, whatever it does."""
        self._process.kill()
        self._process.join()
        self.receiving.close()


def _execute(sending: Connection, work: Callable[[], R]) -> None:
    """What a process does; it is no command, and ends at once."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    with accelerator.hidden():
        sending.send(work())


def prepare() -> None:
    """Load what ranks use, once, before any is forked."""
    import torch

    from runners.ranks.process import preload
    from runners.simulate.fake_mode import ValuelessMode

    preload()
    importlib.import_module("torch.distributed.optim")  # scripts functions, which takes long
    importlib.import_module("torch.distributed.pipelining")
    with accelerator.hidden(), ValuelessMode():
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
