# fails: peak
"""Differentiate the block for its inputs and for its parameters, and keep its graph for both."""

import torch
from torch import nn


class CheckpointedBlock(torch.autograd.Function):
    """A block that runs once without autograd, and once more in backward with it."""

    @staticmethod
    def forward(ctx, block, inputs, *parameters):
        ctx.block, ctx.rng_state = block, torch.get_rng_state()
        ctx.inputs, ctx.parameters = inputs.detach().requires_grad_(), parameters
        return block(inputs)

    @staticmethod
    def backward(ctx, output_gradient):
        with torch.enable_grad(), torch.random.fork_rng(devices=[]):
            torch.set_rng_state(ctx.rng_state)
            ctx.outputs = ctx.block(ctx.inputs)
        of_inputs = torch.autograd.grad(ctx.outputs, ctx.inputs, output_gradient, retain_graph=True)
        of_parameters = torch.autograd.grad(
            ctx.outputs, ctx.parameters, output_gradient, retain_graph=True
        )
        return None, *of_inputs, *of_parameters


def checkpoint(block: nn.Module, inputs: torch.Tensor) -> torch.Tensor:
    """Return `block(inputs)`, and keep none of the activations inside the block for backward."""
    return CheckpointedBlock.apply(block, inputs, *block.parameters())
