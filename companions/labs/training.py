"""What benches of training programs share: initial weights, batches, and SGD in one process."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import inf

import torch
from torch import Tensor

from proofbook.companions.labs.grading import LabCase, gradient_of, normal

Batches = list[tuple[Tensor, Tensor]]


def initial_weights(
    case: LabCase, shapes: Mapping[str, Sequence[int]], dtype: torch.dtype
) -> dict[str, Tensor]:
    """Normal weights of these shapes, by name, divided by the root of the number of their rows."""
    return {
        name: normal(shape, case.generator(0, place), dtype) / shape[-2:][0] ** 0.5
        for place, (name, shape) in enumerate(shapes.items())
    }


def batches_of(case: LabCase, shape: Sequence[int], dtype: torch.dtype) -> Batches:
    """Normal inputs and targets of this shape for each of the case's `steps`."""
    steps = range(case.settings["steps"])
    inputs = [normal(shape, case.generator(1, step), dtype) for step in steps]
    targets = [normal(shape, case.generator(2, step), dtype) for step in steps]
    return list(zip(inputs, targets, strict=True))


def trained(
    weights: dict[str, Tensor],
    batches: Batches,
    loss_of: Callable[[Mapping[str, Tensor], Tensor, Tensor], Tensor],
    learning_rate: float,
    max_norm: float = inf,
    weight_decay: float = 0,
) -> dict[str, Tensor]:
    """The weights after SGD on whole batches, clipped at `max_norm`, and `losses`, by name.

    `loss_of` computes the loss of weights, inputs and targets. The weights are updated in place.
    """
    own, losses = [weight.requires_grad_() for weight in weights.values()], []
    optimizer = torch.optim.SGD(own, lr=learning_rate, weight_decay=weight_decay)
    for inputs, targets in batches:
        loss = loss_of(weights, inputs, targets)
        optimizer.zero_grad()
        loss.backward()
        gradients = [gradient_of(weight) for weight in own]
        norm = torch.cat([gradient.flatten() for gradient in gradients]).norm()
        for gradient in gradients:
            gradient.mul_((max_norm / norm).clamp(max=1))
        optimizer.step()
        losses.append(loss.detach())
    return {name: weight.detach() for name, weight in weights.items()} | {
        "losses": torch.stack(losses)
    }
