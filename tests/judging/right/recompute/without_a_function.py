"""Hooks on what autograd saves: an index is kept, and the first one asked for runs the block."""

import torch
from torch.autograd.graph import saved_tensors_hooks


def checkpoint(block, inputs):
    state, packed, again = torch.get_rng_state(), [], []

    def pack(_):
        packed.append(None)
        return len(packed) - 1

    def unpack(index):
        if not again:
            with torch.random.fork_rng(devices=[]), torch.enable_grad():
                torch.set_rng_state(state)
                with saved_tensors_hooks(lambda one: again.append(one.detach()), lambda _: None):
                    block(inputs.detach().requires_grad_(inputs.requires_grad))
        found, again[index] = again[index], None
        return found

    with saved_tensors_hooks(pack, unpack):
        return block(inputs)
