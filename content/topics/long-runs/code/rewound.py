"""A bad batch, and a run that goes back to its checkpoint: resumed exactly, and past the batch.

torchrun --nproc-per-node 1 rewound.py
"""

import copy

import torch
from torch import nn

BATCHES, BAD, EVERY, LARGEST = 12, 7, 4, 10.0

torch.manual_seed(0)
batches = torch.randn(BATCHES, 16, 8)
batches[BAD] *= 100


def train(skips):
    """The batches of the updates that count, and those of spikes; it goes back once."""
    torch.manual_seed(1)
    model = nn.Linear(8, 8)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    kept, spikes, position = [], [], 0
    while position < BATCHES:
        if position % EVERY == 0:
            saved = copy.deepcopy((model.state_dict(), optimizer.state_dict(), kept, position))
        if skips and position in spikes:
            position += 1
            continue
        batch = batches[position]
        loss = (model(batch) - batch.flip(1)).square().mean()
        if loss > LARGEST:  # of the loss of all ranks, so that all decide alike
            spikes.append(position)
            if len(spikes) == 1:
                state, optimizer_state, kept, position = saved
                model.load_state_dict(state)
                optimizer.load_state_dict(optimizer_state)
                continue
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        kept.append(position)
        position += 1
    return kept, spikes


report = {}
for name, skips in (("exact", False), ("past", True)):
    kept, spikes = train(skips)
    report |= {f"{name}_spikes": len(spikes), f"{name}_kept": kept}
    print(f"{name:>5}: spikes at {spikes}, updates from batches {kept}")
report = [report]
