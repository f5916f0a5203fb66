"""Ranks that say which instructions they may use: the tests' own, for what is measured of them."""

import os

import torch

from runners.plans.experiment import RunPlan

QUESTION = "Which instructions may a rank use?"


def trained(rank):
    """It has a float, as a training does."""
    rank.measure("first_loss", 0.5)
    counted(rank)


def counted(rank):
    """It has none."""
    rank.measure("capability", torch.backends.cpu.get_cpu_capability())
    rank.measure("products", os.environ.get("MKL_CBWR", "any"))


RUNS = {"trained": RunPlan("trained"), "counted": RunPlan("counted")}
