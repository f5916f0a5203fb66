"""A run whose settings depend on each other: the tests' own experiment for what readers try."""

import torch
import torch.distributed as dist

from proofbook.runners.core.declared.experiment import Declaration
from proofbook.runners.core.declared.settings import Count, RunSettings

QUESTION = "What happens when a reader sets something?"
MEBIBYTE = 1 << 20
TRIED_WITH = {"shared": {"num_epochs": 2}}


class Settings(RunSettings):
    num_samples: Count = 12
    rate: float = 0.5
    word: str = "sum"
    widths: tuple[Count, ...] = (3, 4)
    num_epochs: Count = 3

    @property
    def num_samples_per_rank(self):
        return self.num_samples // self.world_size

    def closed_forms(self):
        return {"num_samples_per_rank": self.num_samples_per_rank}

    def check(self):
        if self.num_samples % self.world_size:
            raise ValueError(
                f"num_samples {self.num_samples} cannot be shared by {self.world_size} ranks"
            )


def shared(rank):
    """Every rank counts its samples; all agree on their number."""
    settings = rank.settings
    counted = torch.full((1,), float(settings.num_samples_per_rank))
    for epoch in rank.epochs(settings.num_epochs):
        for _ in rank.steps(5):
            total = counted.clone()
            with rank.phase("all_reduce"):
                dist.all_reduce(total)
        rank.epoch(epoch, loss=settings.rate * total.item(), num_samples=settings.num_samples)
        print(f"{settings.word} of {settings.num_samples_per_rank} each: {total.item():.0f}")


def alone(rank):
    """One device asks for memory by the sample."""
    with rank.phase("forward"):
        torch.ones(rank.settings.num_samples * MEBIBYTE // 4)


RUNS = {
    "shared": Declaration("shared", 2, Settings()),
    "alone": Declaration("alone", 1, Settings(), passes=("budgeted",), budget_bytes=48 * MEBIBYTE),
    "free": Declaration("alone", 1, Settings(), passes=("timed",)),
}
