"""Saves of `content/code/resume.py` that are killed, and what their folder then holds."""

import multiprocessing
import os
import signal
import sys

import torch
import torch.distributed as dist
from resume import Resumable, complete
from torch import nn
from torch.distributed.checkpoint.format_utils import dcp_to_torch_save

CHANGES = {"open", "os.mkdir", "os.rename", "os.remove", "os.rmdir"}


def training(step):
    """A training whose every weight is the number of its step."""
    model = nn.Linear(64, 256)
    for parameter in model.parameters():
        nn.init.constant_(parameter, step)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    return Resumable(model, optimizer, torch.optim.lr_scheduler.ConstantLR(optimizer), step)


def _saved_twice(folder, left, seconds):
    store = dist.HashStore()
    dist.init_process_group("gloo", store=store, rank=0, world_size=1)
    training(1).save(folder, keep=1)
    if seconds is not None:
        signal.setitimer(signal.ITIMER_REAL, seconds)  # its signal ends the process, at any point
    points = iter(range(left)) if left is not None else iter(int, 1)

    def die_in_time(event, given):
        is_own = event != "open" or str(folder) in str(given[0])
        if event in CHANGES and is_own and next(points, None) is None:
            os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(die_in_time)
    training(2).save(folder, keep=1)
    os._exit(0)


def saved_twice(folder, left=None, seconds=None):
    """Save twice; the second time, die after so many changes of the folder, or seconds.

    Whether it died, and the step of which the last complete checkpoint has every weight.
    """
    context = multiprocessing.get_context("forkserver")
    process = context.Process(target=_saved_twice, args=(folder, left, seconds))
    process.start()
    process.join()
    last = complete(folder)[-1]
    dcp_to_torch_save(last, folder / "whole.pt")
    state = torch.load(folder / "whole.pt", weights_only=False)["training"]
    steps = {state["step"], *state["model"]["weight"].unique().tolist()}
    assert len(steps) == 1, steps
    assert process.exitcode in (0, -signal.SIGKILL, -signal.SIGALRM)
    return process.exitcode != 0, steps.pop()
