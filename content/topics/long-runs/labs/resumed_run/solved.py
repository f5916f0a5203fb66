"""Rank 0 saves what all ranks share, and each rank its own generator."""

from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

WITH_STATE = ("model", "average", "optimizer", "schedule")
VALUES = ("order", "position", "step")


def save(folder: Path, training: Any) -> None:
    """Save in an empty folder what `load` needs. Every rank calls it between two steps."""
    if dist.get_rank() == 0:
        shared = {name: getattr(training, name).state_dict() for name in WITH_STATE}
        shared |= {name: getattr(training, name) for name in VALUES}
        shared["shuffle"] = training.shuffle.get_state()
        torch.save(shared, folder / "shared.pt")
    torch.save(torch.get_rng_state(), folder / f"masks-{dist.get_rank()}.pt")


def load(folder: Path, training: Any) -> None:
    """Restore in place a training of a new process, which is built and seeded as at the start."""
    shared = torch.load(folder / "shared.pt")
    for name in WITH_STATE:
        getattr(training, name).load_state_dict(shared[name])
    for name in VALUES:
        setattr(training, name, shared[name])
    training.shuffle.set_state(shared["shuffle"])
    torch.set_rng_state(torch.load(folder / f"masks-{dist.get_rank()}.pt"))
