"""Simulations in processes of their own: a crash or an endless loop costs one alone. No torch here.

In: a function and its arguments. Out: what it returns for each.
"""

import gc
import importlib
import multiprocessing
import platform
import signal
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import TypeVar

from runners.core.system import accelerator
from runners.system import stopping
from runners.system.patience import WORD_SECONDS, Patience

# Processes are forked where that is safe: then they share torch, which is loaded once.
FORKS = platform.system() == "Linux"

G = TypeVar("G")
R = TypeVar("R")


def results(
    work: Callable[[G], R],
    given: Sequence[G],
    failed: Callable[[G, str], R],
    num_workers: int,
    what: str,
) -> list[R]:
    """The results of a function for each argument, each from a process of its own.

    `failed` gives the result of an argument whose process ends without one, for a reason; `what`
    names the work in the line of progress.
    """
    if given and FORKS:
        prepare()
    patience, waiting = Patience(), list(enumerate(given))
    running: dict[int, tuple[BaseProcess, Connection]] = {}
    by_place: dict[int, R] = {}
    try:
        while waiting or running:
            while waiting and len(running) < num_workers:
                place, argument = waiting.pop(0)
                running[place] = _started(partial(work, argument))
            patience.tell(f"{len(by_place)}/{len(given)} {what}, {{}} so far")
            wait([receiving for _, receiving in running.values()], WORD_SECONDS)
            for place, (process, receiving) in list(running.items()):
                if receiving.poll():
                    try:
                        by_place[place] = receiving.recv()
                    except EOFError:
                        by_place[place] = failed(given[place], _reason(process))
                    _end(*running.pop(place))
    finally:
        for both in running.values():
            _end(*both)
    return [by_place[place] for place in range(len(given))]


def _started(work: Callable[[], object]) -> tuple[BaseProcess, Connection]:
    """Start a process; return it and the connection on which its result arrives."""
    context = multiprocessing.get_context("fork" if FORKS else "spawn")
    receiving, sending = context.Pipe(duplex=False)
    process = context.Process(  # type: ignore[attr-defined]
        target=_execute, args=(sending, work), daemon=True
    )
    with stopping.held(), warnings.catch_warnings():  # what is raised in a fork is swallowed
        warnings.simplefilter("ignore", DeprecationWarning)  # threads here hold no lock of ours
        process.start()
    sending.close()
    return process, receiving


def _reason(process: BaseProcess) -> str:
    """Why a process has ended without a result."""
    process.join()
    code = process.exitcode or 0
    if code == -signal.SIGXCPU:
        return "it does not end"
    how = f"by signal {-code}" if code < 0 else f"by itself, with code {code}"
    return f"its process ended {how}"


def _end(process: BaseProcess, receiving: Connection) -> None:
    process.kill()
    process.join()
    receiving.close()


def _execute(sending: Connection, work: Callable[[], object]) -> None:
    """Send the result of the work; signals end this process at once."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    with accelerator.hidden():
        sending.send(work())


def prepare() -> None:
    """Load torch and the modules of ranks once, before any process is forked."""
    import torch

    from runners.core.ranks.process import preload
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
