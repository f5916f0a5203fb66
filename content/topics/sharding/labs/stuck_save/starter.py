"""Train a sharded model, and save it.

python -m runners lab stuck_save
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.nn import functional


def train(
    model: nn.Module, batches: list[tuple[torch.Tensor, torch.Tensor]], learning_rate: float
) -> dict[str, torch.Tensor] | None:
    """Train under FSDP, and return on rank 0 the whole parameters by name.

    Args:
        model: has a `stem` (a linear layer), `blocks` (a list of modules) and a `head` (a linear
            layer), and gives logits; its parameters are the same on all ranks.
        batches: inputs (samples × features) and classes (samples) of this rank, for each step.
        learning_rate: of SGD with a momentum of 0.9.
    """
    optimizer = prepare(model, learning_rate)
    for inputs, classes in batches:
        loss = functional.cross_entropy(model(inputs), classes)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return checkpoint(model)


def prepare(model: nn.Module, learning_rate: float) -> torch.optim.Optimizer:
    """Shard each block, and then what is left."""
    for block in model.blocks:
        fully_shard(block)
    optimizer = torch.optim.SGD(model.parameters(), lr=learning_rate, momentum=0.9)
    fully_shard(model)
    return optimizer


def checkpoint(model: nn.Module) -> dict[str, torch.Tensor] | None:
    """The parameters on rank 0, which writes the file; the others return nothing."""
    if dist.get_rank() == 0:
        return {name: one.full_tensor().detach() for name, one in model.named_parameters()}
    return None
