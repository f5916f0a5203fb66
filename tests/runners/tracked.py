"""Torch's own memory tracker: a second oracle for what one process needs."""

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed._tools.mem_tracker import MemTracker


def tracked_peak(build, batch, loss_of):
    """The peak of a second step of Adam, in bytes of tensors.

    Args:
        build: the module.
        batch: its arguments, which are there until the backward pass ends.
        loss_of: the module's loss of a batch.
    """
    with FakeTensorMode():
        model = build()
        optimizer = torch.optim.AdamW(model.parameters(), 1e-3, fused=True)
        for _ in range(2):
            tracker = MemTracker()
            tracker.track_external(model, optimizer)
            with tracker:
                given = batch()
                loss_of(model, given).backward()
                optimizer.step()
                optimizer.zero_grad()
        return tracker.get_tracker_snapshot("peak")[torch.device("cpu")]["Total"]
