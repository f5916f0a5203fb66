"""A sharded training left in peace, resumed from a checkpoint, killed; and its costs replayed."""

from __future__ import annotations

from dataclasses import asdict

import torch.distributed as dist

from runners.experiments.faults import ElasticSettings, ResumedSettings, Settings
from runners.experiments.faults.elastic import launch, record
from runners.experiments.faults.replay import replayed
from runners.experiments.faults.training import Shape, Training, last_checkpoint
from runners.ranks.rank import Rank
from runners.training.networks import description


def resumed(rank: Rank[ResumedSettings]) -> None:
    """Saved after some steps, built anew, loaded and gone on; without what is forgotten."""
    _describe(rank, rank.world_size)
    folder = rank.scratch / "checkpoints"
    first = Training(_shape(rank))
    while first.step < rank.settings.stop_step:
        first.take_step()
    with rank.phase("save"):
        first.save(folder)
    del first
    place = last_checkpoint(folder)
    assert place is not None
    second = Training(_shape(rank))
    with rank.phase("load"):
        second.load(place)
    if rank.settings.forgets == "optimizer":
        second.forget_optimizer()
    if rank.settings.forgets == "position":
        second.sampler_step = 0
    _train(rank, second)
    dist.barrier()


def elastic(rank: Rank[ElasticSettings]) -> None:
    """Ranks of the elastic launcher train, die as planned, and are started again."""
    settings = rank.settings
    _describe(rank, settings.num_ranks)
    deaths = [
        {"step": step, "rank": one, "moment": settings.moment}
        for step, one in zip(settings.death_steps, settings.death_ranks, strict=True)
    ]
    plan = {
        "shape": asdict(_shape(rank)),
        "num_steps": settings.num_steps,
        "num_ranks": settings.num_ranks,
        "checkpoint_every": settings.checkpoint_every,
        "deaths": deaths,
    }
    record(rank, launch(rank, plan))


def undisturbed(rank: Rank[Settings]) -> None:
    """From the first step to the last, with no checkpoint."""
    _describe(rank, rank.world_size)
    _train(rank, Training(_shape(rank)))


def _train(rank: Rank[Settings], training: Training) -> None:
    """To the last step; the rank's clock reads each."""
    rank.watch(training.model, training.optimizer)
    for _ in rank.steps(rank.settings.num_steps - training.step):
        with rank.phase("step"):
            training.take_step()


def _shape(rank: Rank[Settings]) -> Shape:
    settings = rank.settings
    return Shape(
        settings.width, settings.num_layers, settings.batch_size, settings.learning_rate, rank.seed
    )


def _describe(rank: Rank[Settings], num_ranks: int) -> None:
    num_layers = rank.settings.num_layers
    widths = [rank.settings.width] * (num_layers + 1)
    holders = [range(num_ranks)] * num_layers
    rank.describe(description(widths, holders, sharded=[True] * num_layers))


STRATEGIES = {
    "undisturbed": undisturbed,
    "resumed": resumed,
    "elastic": elastic,
    "replayed": replayed,
}
