"""What the forkserver of a session loads before it forks ranks for tests.

Each rank would load it anew, and look through it in each collection of garbage: three hundred
thousand objects, which the last line takes from the collector.
"""
# ruff: noqa: F401

import gc
from contextlib import suppress
from importlib import import_module

import torch._dynamo
import torch.distributed.checkpoint.state_dict
import torch.distributed.tensor.parallel
import torch.utils.data

import tests.judging.programs
import tests.runners.planned_ranks

for module in (
    "labs.grading",
    *(f"verify.{part}" for part in ["against", "command", "cpu", "rank", "rerun"]),
):
    with suppress(ModuleNotFoundError):  # a companion that was taken away
        import_module(f"proofbook.companions.{module}")
gc.freeze()
