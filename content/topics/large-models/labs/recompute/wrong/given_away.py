# fails: runs
"""torch has this function already."""

import torch
import torch.utils.checkpoint
from torch import nn


def checkpoint(block: nn.Module, inputs: torch.Tensor) -> torch.Tensor:
    """Return `block(inputs)`, and keep none of the activations inside the block for backward."""
    return torch.utils.checkpoint.checkpoint(block, inputs, use_reentrant=False)
