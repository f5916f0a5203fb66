"""What the forkserver of a session loads before it forks ranks for tests.

Each rank would load it anew, and look through it in each collection of garbage: three hundred
thousand objects, which the last line takes from the collector.
"""
# ruff: noqa: F401

import gc

import torch._dynamo
import torch.distributed.checkpoint.state_dict
import torch.distributed.tensor.parallel
import torch.utils.data

import proofbook.companions.labs.grading
import proofbook.companions.verify.against
import proofbook.companions.verify.command
import proofbook.companions.verify.cpu
import proofbook.companions.verify.rank
import proofbook.companions.verify.rerun
import tests.judging.programs
import tests.runners.planned_ranks

gc.freeze()
