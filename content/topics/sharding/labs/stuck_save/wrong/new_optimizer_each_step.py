# fails: same
"""Make the optimizer where it is used, so that it always has the parameters of now."""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.nn import functional


def train(
    model: nn.Module, batches: list[tuple[torch.Tensor, torch.Tensor]], learning_rate: float
) -> dict[str, torch.Tensor] | None:
    """Train under FSDP, and return on rank 0 the whole parameters by name."""
    prepare(model)
    for inputs, classes in batches:
        optimizer = torch.optim.SGD(model.parameters(), lr=learning_rate, momentum=0.9)
        loss = functional.cross_entropy(model(inputs), classes)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return checkpoint(model)


def prepare(model: nn.Module) -> None:
    """Shard each block, and then what is left."""
    for block in model.blocks:
        fully_shard(block)
    fully_shard(model)


def checkpoint(model: nn.Module) -> dict[str, torch.Tensor] | None:
    """The parameters on rank 0, which writes the file; the others return nothing."""
    whole = {name: one.full_tensor().detach() for name, one in model.named_parameters()}
    return whole if dist.get_rank() == 0 else None
