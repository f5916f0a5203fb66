"""Save a checkpoint of all ranks, and let `latest` name it.

python -m runners lab early_pointer
"""

import shutil
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor


def save(folder: Path, step: int, part: dict[str, Tensor]) -> None:
    """Save this rank's part as `step-STEP/rank-RANK.pt`, and write `step-STEP` into `latest`.

    Args:
        folder: of all checkpoints, which all ranks see. Only the newest one is kept. A save that
            was killed may have left files in it.
        step: of the checkpoint.
        part: what this rank saves.
    """
    rank, latest = dist.get_rank(), folder / "latest"
    checkpoint = folder / f"step-{step}"
    checkpoint.mkdir(exist_ok=True)
    torch.save(part, checkpoint / f"rank-{rank}.pt")
    if rank == 0:
        latest.write_text(checkpoint.name)
        for old in folder.glob("step-*"):
            if old != checkpoint:
                shutil.rmtree(old)
