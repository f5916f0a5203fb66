"""Simulations in processes of their own: a crash or an endless loop costs one alone. No torch here.

In: a function and its arguments. Out: its result for each.
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

from proofbook.runners.core.system import accelerator
from proofbook.runners.system import stopping
from proofbook.runners.system.progress_lines import Patience

# Processes are forked where that is safe: then they share torch, which is loaded once.
FORKS = platform.system() == "Linux"
WORD_SECONDS = 1.0  # no wait is longer than this without a word

Argument = TypeVar("Argument")
Result = TypeVar("Result")


def results(
    work: Callable[[Argument], Result],
    arguments: Sequence[Argument],
    failed: Callable[[Argument, str], Result],
    num_workers: int,
    what: str,
) -> list[Result]:
    """Call a function with each argument in a process of its own; a list of results, in order.

    A process that ends without a result gets `failed(argument, reason)`. `what` names arguments and
    function in lines of progress, as in "strategies simulated".
    """
    if arguments and FORKS:
        prepare()
    patience, waiting = Patience(WORD_SECONDS), list(enumerate(arguments))
    running: dict[int, tuple[BaseProcess, Connection]] = {}
    ended: dict[int, Result] = {}
    try:
        while waiting or running:
            while waiting and len(running) < num_workers:
                place, argument = waiting.pop(0)
                running[place] = _started(partial(work, argument))
            wait([receiving for _, receiving in running.values()], WORD_SECONDS)
            patience.tell(f"{len(ended)}/{len(arguments)} {what}, {{}} so far")
            for place in [place for place, (_, receiving) in running.items() if receiving.poll()]:
                process, receiving = running[place]
                try:
                    ended[place] = receiving.recv()
                except EOFError:
                    ended[place] = failed(arguments[place], _reason(process))
                _end(*running.pop(place))
    finally:
        for both in running.values():
            _end(*both)
    return [ended[place] for place in range(len(arguments))]


def _started(work: Callable[[], object]) -> tuple[BaseProcess, Connection]:
    """Start a process that executes a function; the process, and the pipe of its result."""
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
    """Execute a function and send its result; signals end this process, which is no command."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    with accelerator.hidden():
        sending.send(work())


def prepare() -> None:
    """Import what simulated ranks use, make a fake update, and freeze it all before any fork."""
    import torch

    from proofbook.runners.core.ranks.process import preload
    from proofbook.runners.simulate.fake_mode import ValuelessMode

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
