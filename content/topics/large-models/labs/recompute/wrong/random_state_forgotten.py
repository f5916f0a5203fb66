# fails: same
"""The block is a function of its inputs, so running it again gives the same activations."""

import torch
from torch import nn


class CheckpointedBlock(torch.autograd.Function):
    """A block that runs once without autograd, and once more in backward with it."""

    @staticmethod
    def forward(ctx, block, inputs, *parameters):
        ctx.block = block
        ctx.save_for_backward(inputs, *parameters)
        return block(inputs)

    @staticmethod
    def backward(ctx, output_gradient):
        inputs, *parameters = ctx.saved_tensors
        inputs = inputs.detach().requires_grad_()
        with torch.enable_grad():
            outputs = ctx.block(inputs)
        return None, *torch.autograd.grad(outputs, (inputs, *parameters), output_gradient)


def checkpoint(block: nn.Module, inputs: torch.Tensor) -> torch.Tensor:
    """Return `block(inputs)`, and keep none of the activations inside the block for backward."""
    return CheckpointedBlock.apply(block, inputs, *block.parameters())
