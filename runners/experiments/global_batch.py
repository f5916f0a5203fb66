"""What becomes of training when more ranks make the global batch larger, and how to avoid it.

Four ranks train the classifier of `ddp`, whose run `ddp_fp64` keeps the global batch of one device.
Here each rank keeps the batch of the one device, so that fewer updates are left.

    python -m runners run global_batch
"""

from __future__ import annotations

from contextlib import nullcontext
from functools import partial

from runners.closed_forms.training_settings import GlobalBatchSettings
from runners.core.declared.experiment import Declaration
from runners.core.declared.settings import Count
from runners.core.ranks.rank import Rank
from runners.training import steps


def train(rank: Rank[Settings]) -> None:
    """Train to the end: a step is one update, on a batch taken whole or in parts."""
    settings = rank.settings
    lesson = steps.scaled_lesson(rank)
    samples, model = steps.shard_of(rank, lesson.training), steps.mlp_for(rank)
    replica = steps.replica_of(rank, model)
    optimizer = steps.optimizer_for(rank, model)
    line = "epoch {epoch}: {validation_accuracy:.1%} of the validation samples right"
    for epoch in steps.epochs(rank, replica, optimizer, lesson.validation, line):
        for batch in epoch.batches(samples, settings.batch_size):
            for part in range(settings.num_parts):
                own = steps.batch_of(batch, part, settings.batch_size // settings.num_parts)
                reduces = settings.reduces_each_part or part == settings.num_parts - 1
                with nullcontext() if reduces else replica.no_sync():
                    logits, loss = steps.forward_backward(replica, own, settings.num_parts)
                epoch.add(loss, logits, own.labels)
                del logits, loss  # before the next forward pass
            optimizer.step()
            optimizer.zero_grad()


QUESTION = "What changes when each rank keeps the batch size that one device had?"


class Settings(GlobalBatchSettings):
    """A small classifier, updated from a batch that is taken whole or in parts."""

    batch_size: Count = 100
    num_parts: Count = 1
    reduces_each_part: bool = False
    equal_parts = (("batch_size", "num_parts"),)


in_parts = partial(Declaration, "train", 4, label="ddp")
whole = partial(in_parts, passes=("timed",))
RUNS = {
    "grown": whole(Settings()),
    "grown_scaled": whole(Settings(learning_rate=0.4)),
    "accumulated": in_parts(Settings(num_parts=4)),
    "reduced_each": in_parts(Settings(num_parts=4, reduces_each_part=True)),
}
TRIED_WITH = {"*": {"num_samples": 2000, "num_epochs": 2}}
