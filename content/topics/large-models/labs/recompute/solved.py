"""A block as one operation of autograd, which saves the input and the random state."""

import torch
from torch import nn


class CheckpointedBlock(torch.autograd.Function):
    """A block that runs once without autograd, and once more in backward with it."""

    @staticmethod
    def forward(ctx, block, inputs, *parameters):
        ctx.block, ctx.rng_state = block, torch.get_rng_state()  # before dropout draws
        ctx.save_for_backward(inputs, *parameters)
        return block(inputs)  # autograd records nothing inside of a Function

    @staticmethod
    def backward(ctx, output_gradient):
        inputs, *parameters = ctx.saved_tensors
        # Detached, so that backward ends at this block and does not go on into the ones before it.
        inputs = inputs.detach().requires_grad_()
        with torch.enable_grad(), torch.random.fork_rng(devices=[]):  # restores the state of now
            torch.set_rng_state(ctx.rng_state)
            outputs = ctx.block(inputs)
        gradients = torch.autograd.grad(outputs, (inputs, *parameters), output_gradient)
        return None, *gradients  # the block itself has none


def checkpoint(block: nn.Module, inputs: torch.Tensor) -> torch.Tensor:
    """Return `block(inputs)`, and keep none of the activations inside the block for backward."""
    # Parameters are arguments, so that autograd expects gradients even if the inputs need none.
    return CheckpointedBlock.apply(block, inputs, *block.parameters())
