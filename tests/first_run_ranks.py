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

LOADED = ["torch.distributed.checkpoint.state_dict", "torch.distributed.fsdp", "torch.utils.data"]


def _watch() -> None:
    """Log some calls of a program; its clock counts a second for a step, and 1000 for a save."""
    clock = 0

    def watch(owner, name, seconds, seen):
        call = getattr(owner, name)

        def watched(*given, **options):
            nonlocal clock
            clock += seconds
            sys.stdout.write(f"{name} {seen(*given, **options)}\n")
            return call(*given, **options)

        setattr(owner, name, watched)

    watch(dist, "init_process_group", 0, lambda *_, timeout=None, **__: timeout)
    watch(nn.Embedding, "reset_parameters", 0, lambda built: built.weight.device)
    watch(dist, "reduce_scatter_single", 0, lambda *_, **__: "")
    watch(torch.optim.AdamW, "step", 1, lambda optimizer, *_: optimizer.param_groups[0]["lr"])
    watch(dcp, "save", 1000, lambda *_, **__: "")
    time.perf_counter = lambda: clock


def _rank(rank, count, port, program, arguments, log, is_watched) -> None:
    os.environ |= {"RANK": str(rank), "WORLD_SIZE": str(count), "LOCAL_RANK": str(rank)}
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    torch.set_num_threads(1)  # as under torchrun: sums of two threads have other last digits
    with log.open("a", encoding="utf-8") as sys.stdout:
        if is_watched:
            _watch()
        sys.argv = [str(program), *arguments]
        runpy.run_path(str(program), run_name="__main__")


def run(
    program: Path, count: int, arguments: list[str], log: Path, is_watched: bool = False
) -> None:
    """Run a program on ranks of this machine; what they print goes into a file."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(LOADED)
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    ranks = [
        context.Process(target=_rank, args=(rank, count, port, program, arguments, log, is_watched))
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
