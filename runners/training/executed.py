"""How a program from `content/` is executed in a rank, as `torchrun` would execute it.

With RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and MASTER_PORT in the environment.
"""

import os
import runpy
import socket
import sys
import time

import torch.distributed as dist
from torch import nn

from proofbook.runners.api import ROOT, PredictionStep, Setting
from proofbook.runners.closed_forms.training_settings import ProgramSettings
from proofbook.runners.training.rank import Rank, parameter_digest

# gloo's worker threads need Python's lock to drop a finished work, and a group that is destroyed
# waits for its threads without giving that lock up: destroyed at once, it can wait for ever.
SETTLE_SECONDS = 0.1


def program(rank: Rank[ProgramSettings]) -> None:
    """Execute the settings' program as `__main__`; record its step times, model and report."""
    path = str(ROOT / rank.settings.program)
    _set_environment(rank)
    sys.argv = [path]
    with rank.phase("program"):
        left = runpy.run_path(path, run_name="__main__")
    if dist.is_initialized():
        _leave_group()
    rank.outcome.step_seconds = left.get("step_seconds", [])
    model = left.get("model")
    if isinstance(model, nn.Module):
        parameters = list(model.parameters())
        rank.outcome.num_parameters = sum(p.numel() for p in parameters)
        rank.outcome.parameter_digest = parameter_digest(parameters)
    gathered = left.get("report")
    if isinstance(gathered, list) and all(isinstance(facts, dict) for facts in gathered):
        rank.outcome.prediction.append(_as_step(gathered))


def _leave_group() -> None:
    dist.barrier()
    time.sleep(SETTLE_SECONDS)
    dist.destroy_process_group()


def _set_environment(rank: Rank[ProgramSettings]) -> None:
    """Put into the environment what `torchrun` would, and leave the group to the program."""
    port: list[int | None] = [None]
    if rank.rank == 0:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            port[0] = listener.getsockname()[1]
    if dist.is_initialized():
        dist.broadcast_object_list(port, src=0)
        _leave_group()
    os.environ.update(
        RANK=str(rank.rank),
        LOCAL_RANK=str(rank.rank),
        WORLD_SIZE=str(rank.world_size),
        MASTER_ADDR="127.0.0.1",
        MASTER_PORT=str(port[0]),
    )


def _as_step(gathered: list[dict[str, Setting]]) -> PredictionStep:
    """What the program gathered of every rank, as facts by rank."""
    return PredictionStep(
        name="report",
        rank=None,
        operation="gather the results of every rank",
        shape_in=[],
        shape_out=[],
        values=[],
        facts={
            f"rank_{rank}_{name}": value
            for rank, facts in enumerate(gathered)
            for name, value in facts.items()
        },
    )
