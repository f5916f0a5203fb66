# fails: peak
"""Copy the parameters in forward, in case an update changes them before backward."""

import torch
from torch import nn
from torch.func import functional_call


class CheckpointedBlock(torch.autograd.Function):
    """A block that runs once without autograd, and once more in backward with it."""

    @staticmethod
    def forward(ctx, block, inputs, *parameters):
        ctx.block, ctx.rng_state = block, torch.get_rng_state()
        ctx.copies = {name: one.detach().clone() for name, one in block.named_parameters()}
        ctx.save_for_backward(inputs)
        return block(inputs)

    @staticmethod
    def backward(ctx, output_gradient):
        inputs = ctx.saved_tensors[0].detach().requires_grad_()
        copies = {name: one.requires_grad_() for name, one in ctx.copies.items()}
        with torch.enable_grad(), torch.random.fork_rng(devices=[]):
            torch.set_rng_state(ctx.rng_state)
            outputs = functional_call(ctx.block, copies, (inputs,))
        return None, *torch.autograd.grad(outputs, (inputs, *copies.values()), output_gradient)


def checkpoint(block: nn.Module, inputs: torch.Tensor) -> torch.Tensor:
    """Return `block(inputs)`, and keep none of the activations inside the block for backward."""
    return CheckpointedBlock.apply(block, inputs, *block.parameters())
