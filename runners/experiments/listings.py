"""The programs that pages print: each is executed as it stands, and its outcome recorded.

A page that shows code shows a file of `content/`; this experiment runs that file in ranks, as
`torchrun` would: with RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and MASTER_PORT in the environment.
The settings of a run are the program's own constants, read from its syntax tree. A program that
leaves `step_seconds` or `model` behind has its step times, or its parameters' digest, recorded.

    python -m runners run listings
"""

from __future__ import annotations

import ast
import os
import runpy
import socket
import sys
import time
from pathlib import Path

import torch.distributed as dist
from torch import nn

from runners.experiment import RunPlan
from runners.rank import Rank
from runners.recorder import parameter_digest
from runners.trace import Setting, Status

QUESTION = "What do the programs of the common pitfalls, wrong and right, really do when they run?"

ROOT = Path(__file__).resolve().parents[2]
BYTES_PER_VALUE = 4
COPIES_PER_PARAMETER = 2  # plain SGD keeps each parameter and its gradient
# gloo's worker threads need Python's lock to drop a finished work, and a group that is destroyed
# waits for its threads without giving that lock up: destroyed at once, it can wait for ever.
SETTLE_SECONDS = 0.1

# Named in full, so that the digest of this experiment covers the programs too.
PROGRAMS = {
    "whole_model_wrong": "content/topics/large-models/code/whole_model_wrong.py",
    "whole_model_right": "content/topics/large-models/code/whole_model_right.py",
    "too_many_ranks_wrong": "content/topics/large-models/code/too_many_ranks_wrong.py",
    "too_many_ranks_right": "content/topics/large-models/code/too_many_ranks_right.py",
    "unsynchronized_wrong": "content/topics/large-models/code/unsynchronized_wrong.py",
    "unsynchronized_right": "content/topics/large-models/code/unsynchronized_right.py",
}


def constants(program: str) -> dict[str, Setting]:
    """The upper-case numbers that a program sets at its top level, by lower-case name."""
    found: dict[str, Setting] = {}
    for node in ast.parse((ROOT / program).read_text(encoding="utf-8")).body:
        match node:
            case ast.Assign(targets=[ast.Tuple(elts=names)], value=ast.Tuple(elts=values)):
                pairs = list(zip(names, values, strict=True))
            case ast.Assign(targets=[ast.Name() as name], value=value):
                pairs = [(name, value)]
            case _:
                continue
        found |= {
            name.id.lower(): ast.literal_eval(value)
            for name, value in pairs
            if isinstance(name, ast.Name) and name.id.isupper()
        }
    return found


def _settings(program: str) -> dict[str, Setting]:
    """The program's constants, and where they size a model its bytes: the closed form."""
    settings: dict[str, Setting] = {"program": program, **constants(program)}
    width, depth = settings.get("width"), settings.get("depth")
    if not (isinstance(width, int) and isinstance(depth, int)):
        return settings
    layer_bytes = BYTES_PER_VALUE * (width * width + 3 * width)  # weight, bias, the norm's two
    return {
        **settings,
        "copies_per_parameter": COPIES_PER_PARAMETER,
        "model_bytes": depth * layer_bytes,
        "largest_stage_bytes": -(-depth // 2) * layer_bytes,
    }


def budget_bytes(settings: dict[str, Setting]) -> int:
    """Halfway between what the larger stage keeps and what the whole model keeps."""
    stage, whole = settings["largest_stage_bytes"], settings["model_bytes"]
    assert isinstance(stage, int)
    assert isinstance(whole, int)
    return COPIES_PER_PARAMETER * (stage + whole) // 2


def _plan(
    program: str, world_size: int, *, limited: bool = False, expected: Status = "completed"
) -> RunPlan:
    settings = _settings(PROGRAMS[program])
    return RunPlan(
        "program",
        world_size,
        settings,
        expected=expected,
        budget_bytes=budget_bytes(settings) if limited else None,
        passes=("budgeted",) if limited else ("timed",),
        has_timeline=False,
        only_on_cpu=True,  # the programs place their tensors there
    )


RUNS = {
    "whole_model_wrong": _plan("whole_model_wrong", 1, limited=True, expected="out_of_memory"),
    "whole_model_right": _plan("whole_model_right", 2, limited=True),
    "whole_model_unlimited": _plan("whole_model_wrong", 1),
    "too_many_ranks_wrong": _plan("too_many_ranks_wrong", 4),
    "too_many_ranks_right": _plan("too_many_ranks_right", 4),
    "unsynchronized_wrong": _plan("unsynchronized_wrong", 2),
    "unsynchronized_right": _plan("unsynchronized_right", 2),
}


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


def _set_environment(rank: Rank) -> None:
    """Put into the environment what `torchrun` would, and leave the group to the program."""
    port: list[int | None] = [_free_port() if rank.rank == 0 else None]
    if dist.is_initialized():
        dist.broadcast_object_list(port, src=0)
        dist.barrier()
        time.sleep(SETTLE_SECONDS)
        dist.destroy_process_group()
    os.environ.update(
        RANK=str(rank.rank),
        LOCAL_RANK=str(rank.rank),
        WORLD_SIZE=str(rank.world_size),
        MASTER_ADDR="127.0.0.1",
        MASTER_PORT=str(port[0]),
    )


def program(rank: Rank) -> None:
    """Run the program of this run in this rank, from its first line to its last."""
    path = str(ROOT / rank.settings.program)
    _set_environment(rank)
    sys.argv = [path]
    with rank.phase("program"):
        left = runpy.run_path(path, run_name="__main__")
    rank.outcome.step_seconds = left.get("step_seconds", [])
    model = left.get("model")
    if isinstance(model, nn.Module):
        parameters = list(model.parameters())
        rank.outcome.num_parameters = sum(p.numel() for p in parameters)
        rank.outcome.parameter_digest = parameter_digest(parameters)


STRATEGIES = {"program": program}
