"""The pointer moves at once, after all parts are there; what it named goes after it has moved."""

import shutil
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor


def save(folder: Path, step: int, part: dict[str, Tensor]) -> None:
    """Save this rank's part as `step-STEP/rank-RANK.pt`, and write `step-STEP` into `latest`."""
    rank, latest = dist.get_rank(), folder / "latest"
    checkpoint = folder / f"step-{step}"
    checkpoint.mkdir(exist_ok=True)
    torch.save(part, checkpoint / f"rank-{rank}.pt")
    dist.barrier()  # every part is written
    if rank == 0:
        written = folder / "latest.new"
        written.write_text(checkpoint.name)
        written.replace(latest)  # in one operation of the file system
        for old in folder.glob("step-*"):
            if old != checkpoint:
                shutil.rmtree(old)
