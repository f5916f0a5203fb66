"""Save a training, and resume it as if it had never been killed.

python -m runners lab resumed_run
"""

from pathlib import Path
from typing import Any


def save(folder: Path, training: Any) -> None:
    """Save in an empty folder what `load` needs. Every rank calls it between two steps.

    A step takes the next samples of `order`, this rank its own share of them. `training` has

        model: a module with dropout; all ranks have the same weights.
        average: a module with the mean of the model's weights after each step.
        optimizer: AdamW, and schedule: a learning-rate scheduler of it.
        order: the samples of this epoch, as a tensor of their numbers, the same on all ranks.
        shuffle: the `torch.Generator` that draws the next epoch's order, the same on all ranks.
        position: how many samples of `order` the ranks have used.
        step: how many steps are done; the mean is weighted by it.

    Dropout draws from torch's default generator, which each rank seeds differently.
    """
    raise NotImplementedError("write save here")


def load(folder: Path, training: Any) -> None:
    """Restore in place a training of a new process, which is built and seeded as at the start."""
    raise NotImplementedError("write load here")
