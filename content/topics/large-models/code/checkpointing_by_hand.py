"""Activation checkpointing: store a block's input only, and recompute the rest.

Forward runs each block without recording it for autograd. Backward takes the stored
input, runs the block a second time, now with recording, and differentiates it at once.
The activations inside a block are in memory only during its own backward pass, at the
price of one more forward pass. Dropout needs the same random numbers both times.

torchrun --nproc-per-node 1 checkpointing_by_hand.py
"""

from functools import partial

import torch
import torch.utils.checkpoint
from torch import nn
from torch.autograd.graph import saved_tensors_hooks

BATCH, WIDTH, DEPTH = 64, 128, 8
# closed_form_bytes: 4 * BATCH * WIDTH * (DEPTH + 1)


class CheckpointedBlock(torch.autograd.Function):
    """A block as one operation of autograd, which saves its inputs only."""

    @staticmethod
    def forward(ctx, block, inputs, *parameters):
        ctx.block, ctx.rng_state = block, torch.get_rng_state()
        ctx.save_for_backward(inputs, *parameters)
        return block(inputs)  # autograd records nothing inside of a Function

    @staticmethod
    def backward(ctx, output_gradient):
        inputs, *parameters = ctx.saved_tensors
        inputs = inputs.detach().requires_grad_()
        with torch.enable_grad(), torch.random.fork_rng(devices=[]):
            torch.set_rng_state(ctx.rng_state)  # dropout drops the same values again
            outputs = ctx.block(inputs)
        needed = inputs, *parameters
        gradients = torch.autograd.grad(outputs, needed, output_gradient)
        return None, *gradients  # one for each argument of forward; the block has none


def checkpoint(block, inputs):
    return CheckpointedBlock.apply(block, inputs, *block.parameters())


def run_block(block, inputs):
    return block(inputs)


def build_block():
    layers = nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Dropout()
    return nn.Sequential(*layers, nn.Linear(4 * WIDTH, WIDTH))


def forward_and_backward(blocks, inputs, run):
    """One step. Returns the gradients and the bytes that forward saved for backward."""
    parameters = list(blocks.parameters())
    stored = {p.data_ptr(): 0 for p in parameters}  # parameters are stored anyway

    def note(tensor):
        stored.setdefault(tensor.untyped_storage().data_ptr(), tensor.nbytes)
        return tensor

    torch.manual_seed(1)  # the same dropout each time
    outputs = inputs
    with saved_tensors_hooks(note, lambda tensor: tensor):
        for block in blocks:
            outputs = run(block, outputs)
        loss = outputs.square().mean()
    return torch.autograd.grad(loss, parameters), sum(stored.values())


def main():
    torch.manual_seed(0)
    blocks = nn.ModuleList(build_block() for _ in range(DEPTH))
    inputs = torch.randn(BATCH, WIDTH)
    torchs = partial(torch.utils.checkpoint.checkpoint, use_reentrant=False)
    _, ordinary_bytes = forward_and_backward(blocks, inputs, run_block)
    ours, our_bytes = forward_and_backward(blocks, inputs, checkpoint)
    theirs, their_bytes = forward_and_backward(blocks, inputs, torchs)
    pairs = zip(ours, theirs, strict=True)
    difference = max((a - b).abs().max().item() for a, b in pairs)
    print(f"largest difference from torch.utils.checkpoint: {difference:.1e}")
    print(f"bytes saved for an ordinary backward pass: {ordinary_bytes:,}")
    print(f"bytes saved with checkpointing by hand: {our_bytes:,}")
    print(f"bytes saved with torch.utils.checkpoint: {their_bytes:,}")
    return [{"difference": difference, "counted_bytes": our_bytes}]


if __name__ == "__main__":
    report = main()
