# fails: same
"""The sum of the squares is started, so that it overlaps with the rest of the step."""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.pipelining import PipelineStage, Schedule1F1B
from torch.nn import functional


def train(
    stage: nn.Module,
    batches: list[tuple[torch.Tensor, torch.Tensor]],
    microbatches: int,
    largest_norm: float,
    learning_rate: float,
) -> list[float]:
    """Train the stage of this rank in place, and log the norm of the gradient in each step."""
    rank, world_size = dist.get_rank(), dist.get_world_size()
    on_device = PipelineStage(stage, rank, world_size, torch.device("cpu"))
    schedule = Schedule1F1B(on_device, microbatches, functional.mse_loss)
    optimizer = torch.optim.SGD(stage.parameters(), lr=learning_rate)
    norms = []
    for inputs, targets in batches:
        optimizer.zero_grad()
        if rank == 0:
            schedule.step(inputs)
        elif rank == world_size - 1:
            schedule.step(target=targets)
        else:
            schedule.step()
        norms.append(clip(list(stage.parameters()), largest_norm))
        optimizer.step()
    return norms


def clip(parameters: list[nn.Parameter], largest_norm: float) -> float:
    """Scale the gradient down to the largest norm, if it is longer, and return its norm."""
    square = torch.stack([one.grad.square().sum() for one in parameters]).sum()
    dist.all_reduce(square, async_op=True)
    norm = square.sqrt()
    if norm > largest_norm:
        for one in parameters:
            one.grad *= largest_norm / norm
    return norm.item()
