"""A bad batch, and a run that goes back to its checkpoint: resumed exactly, and past the batch.

torchrun --nproc-per-node 1 rewound.py
"""

import torch

BATCHES, BAD, EVERY, LARGEST, RATE = 12, 7, 4, 10.0, 0.1

torch.manual_seed(0)
batches = torch.randn(BATCHES, 16, 8)
batches[BAD] *= 100


def train(skips):
    """The batches of the updates that count, and those of spikes; it goes back once."""
    weights, kept, spikes, position = torch.eye(8), [], [], 0
    while position < BATCHES:
        if position % EVERY == 0:
            saved = weights, list(kept), position  # and all else that a step reads
        if skips and position in spikes:
            position += 1
            continue
        batch = batches[position]
        error = batch @ weights - batch.flip(1)
        if error.square().mean() > LARGEST:  # of all ranks' losses, so that all decide alike
            spikes.append(position)
            if len(spikes) == 1:
                weights, kept, position = saved
                continue
        weights = weights - RATE * batch.T @ error / error.numel()
        kept.append(position)
        position += 1
    return kept, spikes


report = [{}]
for name, skips in (("exact", False), ("past", True)):
    kept, spikes = train(skips)
    report[0] |= {f"{name}_spikes": len(spikes), f"{name}_kept": kept}
    print(f"{name:>5}: spikes at {spikes}, updates from batches {kept}")
