"""How often replicas must communicate, and what: gradients each step, or parameters now and then.

Four ranks train the classifier of `ddp` on their own shards, as its run `ddp_fp64` does with DDP.
Here no gradient travels; the ranks average their parameters every so many steps. With Adam, whose
moments do not follow a gradient in proportion, DDP is measured beside it.

    python -m runners run averaging
"""

from __future__ import annotations

from functools import partial
from typing import Literal

from torch import nn

from runners.closed_forms.training_settings import SmallClassifierSettings
from runners.core.declared.experiment import Declaration
from runners.core.declared.settings import Count
from runners.core.ranks.rank import Rank
from runners.training import steps
from runners.training.networks import average, flat
from runners.training.teacher import Samples


def train(rank: Rank[Settings]) -> None:
    """Train to the end; average as the settings say."""
    settings = rank.settings
    lesson = steps.scaled_lesson(rank)
    samples, model = steps.shard_of(rank, lesson.training), steps.mlp_for(rank)
    by_gradients = settings.averages == "gradients"
    replica = steps.replica_of(rank, model) if by_gradients else model
    optimizer = steps.optimizer_for(rank, model)
    last = settings.num_epochs * (len(samples.labels) // settings.batch_size)
    for epoch in steps.epochs(rank, replica, optimizer, lesson.validation):
        for batch in epoch.batches(samples, settings.batch_size):
            steps.train_batch(replica, optimizer, batch, epoch)
            done = rank.step_index + 1
            if by_gradients or done % settings.steps_between:
                continue
            if done < last:
                average(list(model.parameters()))
            else:
                _average_and_compare(rank, model, lesson.validation)


def _average_and_compare(rank: Rank[Settings], model: nn.Module, validation: Samples) -> None:
    """Average the replicas, and look at each of them before and after."""
    losses = steps.of_all_ranks(rank, steps.validate(model, validation)[1])
    num_distinct = steps.num_distinct(rank, model.parameters())
    before = flat(model)
    with rank.predict("average", "average the replicas' parameters", before) as out:
        after = average(list(model.parameters()))
        apart = ((before - after).norm() / after.norm()).item()
        distances = [*steps.of_all_ranks(rank, apart)]
        out(after, validation_losses=[*losses], num_distinct=num_distinct, distances=distances)
        _, loss, accuracy = steps.validate(model, validation)
        out(after, validation_loss=loss, validation_accuracy=accuracy)


QUESTION = (
    "Can replicas average their parameters instead of their gradients, and less "
    "often than every step?"
)


class Settings(SmallClassifierSettings):
    """A small classifier on a shard for each rank, and what the ranks average, how often."""

    optimizer: Literal["sgd", "adam"] = "sgd"
    averages: Literal["parameters", "gradients"] = "parameters"
    steps_between: Count = 1


timed = partial(Declaration, "train", 4, passes=("timed",))
averaged = partial(timed, label="averaged")
with_adam = partial(Settings, optimizer="adam", learning_rate=0.01, num_epochs=1)
RUNS = {
    "each_step": averaged(Settings()),
    "ten_steps": averaged(Settings(steps_between=10)),
    "each_epoch": averaged(Settings(steps_between=100)),
    "at_end": averaged(Settings(steps_between=500)),
    "gradients_adam": timed(with_adam(averages="gradients"), label="ddp"),
    "each_step_adam": averaged(with_adam()),
}
TRIED_WITH = {
    "*": {"num_samples": 1000, "num_epochs": 4},  # as `ddp`, with which a law compares
    "each_epoch": {"steps_between": 10},
    "at_end": {"steps_between": 30},
}
