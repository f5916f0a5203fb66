"""Ranks that run a program of the page "first run", forked from a process that has loaded torch.

As a command, under torchrun: a rank that dies. `first_run_ranks.py PROGRAM …` runs a program as it
stands, but kills the last rank of the first attempt where it would save for the second time.
"""

import multiprocessing
import os
import runpy
import signal
import socket
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn

# For a program, `resume.py` lies beside it.
sys.path.append(str(Path(__file__).parents[1] / "content" / "code"))


def _watch(file) -> None:
    """Write calls down, with what a lambda shows; the clock counts 1 s a step, 1000 s a save."""
    clock = 0

    def watch(owner, name, shown, seconds=0):
        call = getattr(owner, name)

        def watched(*given, **options):
            nonlocal clock
            clock += seconds
            file.write(f"{name} {shown(*given, **options)}\n")
            return call(*given, **options)

        setattr(owner, name, watched)

    watch(dist, "init_process_group", lambda *_, **options: options.get("timeout"))
    watch(nn.Embedding, "reset_parameters", lambda built: built.weight.device)
    watch(dist, "reduce_scatter_single", lambda *_, **__: "")
    watch(torch.optim.AdamW, "step", lambda one, **_: one.param_groups[0]["lr"], seconds=1)
    watch(dcp, "save", lambda *_, **__: "", seconds=1000)
    time.perf_counter = lambda: clock


def _rank(rank: int, count: int, port: int, program: Path, arguments: list[str], log: Path) -> None:
    os.environ |= {"RANK": str(rank), "WORLD_SIZE": str(count), "LOCAL_RANK": str(rank)}
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    torch.set_num_threads(1)  # as under torchrun: sums of two threads have other last digits
    with log.open("a") as sys.stdout, log.with_suffix(".calls").open("a") as calls:
        _watch(calls)
        sys.argv = [str(program), *arguments]
        sys.path.insert(0, str(program.parent))
        runpy.run_path(str(program), run_name="__main__")


def run(program: Path, count: int, arguments: list[str], log: Path) -> None:
    """Run a program on ranks of this machine; what they print goes into a file."""
    context = multiprocessing.get_context("forkserver")
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    ranks = [
        context.Process(target=_rank, args=(rank, count, port, program, arguments, log))
        for rank in range(count)
    ]
    for one in ranks:
        one.start()
    for one in ranks:
        one.join()
    assert [one.exitcode for one in ranks] == [0] * count


def _run_and_die() -> None:
    save, is_last = dcp.save, os.environ["RANK"] == str(int(os.environ["WORLD_SIZE"]) - 1)
    num_saved = 0

    def dying(*state, **where):
        nonlocal num_saved
        num_saved += 1
        if is_last and num_saved == 2 and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
            os.kill(os.getpid(), signal.SIGKILL)
        return save(*state, **where)

    dcp.save = dying
    del sys.argv[0]
    runpy.run_path(sys.argv[0], run_name="__main__")


if __name__ == "__main__":
    _run_and_die()
