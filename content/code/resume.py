"""Save a training when it is told to stop, resume it anywhere, skip bad steps, and evaluate.

Put this file beside your program: `from resume import …`. Every rank calls each function.
"""

import shutil
import signal
from dataclasses import dataclass
from itertools import islice

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.checkpoint.stateful import Stateful
from torch.utils.data import DistributedSampler


@dataclass
class Resumable(Stateful):
    """What a checkpoint holds. DCP calls the first two methods to save and to load."""

    model: nn.Module
    optimizer: torch.optim.Optimizer
    scheduler: torch.optim.lr_scheduler.LRScheduler
    step: int = 0
    num_skipped: int = 0  # of the last steps, in a row
    most_skipped: int = 3

    def state_dict(self):
        model, optimizer = get_state_dict(self.model, self.optimizer)
        own = {"scheduler": self.scheduler.state_dict(), "step": self.step}
        return {"model": model, "optimizer": optimizer, **own}

    def load_state_dict(self, state):
        loaded = {"model_state_dict": state["model"], "optim_state_dict": state["optimizer"]}
        set_state_dict(self.model, self.optimizer, **loaded)
        self.scheduler.load_state_dict(state["scheduler"])
        self.step = state["step"]

    def save(self, folder, keep):
        """Every rank writes its part; rank 0 then keeps the last complete checkpoints."""
        dcp.save({"training": self}, checkpoint_id=folder / f"step-{self.step:08d}")
        if dist.get_rank() == 0:  # a save that is complete has the parts of all ranks
            oldest = (complete(folder) or [folder])[-keep:][0]
            for old in [one for one in folder.glob("step-*") if one < oldest]:
                (old / ".metadata").unlink(missing_ok=True)  # it counts as complete no more
                shutil.rmtree(old, ignore_errors=True)

    def resume(self, folder):
        """Load the last complete checkpoint, on any number of ranks; whether there is one."""
        last = complete(folder)[-1:] or [None]
        dist.broadcast_object_list(last)  # all ranks load what rank 0 has found
        if last[0]:
            dcp.load({"training": self}, checkpoint_id=last[0])
        return bool(last[0])

    def update(self, norm):
        """Update the model, unless a gradient is not finite on any rank: then on none."""
        is_finite = norm.isfinite().int()
        dist.all_reduce(is_finite, dist.ReduceOp.MIN)
        if is_finite.item():  # waits for the device
            self.optimizer.step()
        self.num_skipped = 0 if is_finite.item() else self.num_skipped + 1
        self.scheduler.step()
        self.optimizer.zero_grad()
        if self.num_skipped > self.most_skipped:
            raise RuntimeError(f"step {self.step}: gradients are not finite; nothing is saved")


class Stop:
    """Whether any rank was told to stop by SIGTERM, as `torchrun` and Slurm tell them."""

    def __init__(self, device):
        self.device, self.is_told = device, False
        signal.signal(signal.SIGTERM, self._note)

    def _note(self, *_):
        self.is_told = True

    def __call__(self):
        """The same answer on all ranks, which get the signal in different steps."""
        is_told = torch.tensor(int(self.is_told), device=self.device)
        dist.all_reduce(is_told, dist.ReduceOp.MAX)
        return bool(is_told.item())


class ResumableSampler(DistributedSampler):
    """Epoch and index of each sample that this rank has not seen yet in the epoch."""

    num_seen = 0

    def __iter__(self):
        for index in islice(super().__iter__(), self.num_seen, None):
            yield self.epoch, index


def batches(loader, step, steps_per_epoch, accumulation):
    """The microbatches of each step, from the next one on, epoch after epoch."""
    while True:
        epoch, done = divmod(step, steps_per_epoch)
        loader.sampler.set_epoch(epoch)  # otherwise every epoch has the same order
        loader.sampler.num_seen = done * accumulation * loader.batch_size
        drawn = iter(loader)
        for _ in range(done, steps_per_epoch):
            yield list(islice(drawn, accumulation))
            step += 1


def complete(folder):
    """The checkpoints that have the file that is written last, oldest first."""
    return sorted(one.parent for one in folder.glob("step-*/.metadata"))


@torch.no_grad()
def evaluate(model, samples, batch_size, measure):
    """The mean of what `measure` sums and counts, over each sample once, on any number of ranks.

    `measure(model, batch)` returns a sum and a count as tensors.
    """
    rank, num_ranks = dist.get_rank(), dist.get_world_size()
    own, most = range(rank, len(samples), num_ranks), -(-len(samples) // num_ranks)
    totals, was_training = 0, model.training
    model.eval()
    for first in range(0, most, batch_size):
        indices = own[first : first + batch_size]
        # A rank that has no samples left takes part with one that does not count: FSDP gathers.
        batch = torch.stack([samples[index] for index in indices or [0]])
        found = torch.stack([part.double() for part in measure(model, batch)])
        totals = totals + found * bool(indices)
    model.train(was_training)
    dist.all_reduce(totals)
    return (totals[0] / totals[1]).item()
