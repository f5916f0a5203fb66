"""What the trace of `model_parallel` shows: samples and layers on ranks, and one prediction."""

from __future__ import annotations

import torch
from torch import nn

from runners.experiments.model_parallel import Settings
from runners.ranks.rank import Rank
from runners.traces.schema import Setting
from runners.training.networks import flat
from runners.training.steps import num_correct
from runners.training.teacher import Lesson, Samples


def show_loading(rank: Rank[Settings], lesson: Lesson, own: nn.Module) -> None:
    """The first two stages of the data's way: samples into batches, layers onto ranks."""
    whole = lesson.training.features
    with rank.stage("load", "take one batch of the samples", whole) as out:
        if rank.rank == 0:
            out(whole[: rank.settings.batch_size])
    with rank.stage("partition", "keep this rank's layers of the whole model") as out:
        out(flat(own))


@torch.no_grad()
def predict(rank: Rank[Settings], own: nn.Module, validation: Samples) -> None:
    """Follow one validation batch through the layers of all ranks to probabilities."""
    batch = validation.take(slice(0, rank.settings.batch_size))
    taken = batch.features
    if rank.rank == 0:
        with rank.predict("input", "take one batch of validation samples", taken) as out:
            out(taken)
    else:
        taken = rank.receive((len(batch.labels), rank.settings.width), source=rank.rank - 1)
    with rank.predict(f"forward_rank_{rank.rank}", "run this rank's layers", taken) as out:
        given = own(taken)
        out(given)
    if rank.rank < rank.world_size - 1:
        rank.send(given, to=rank.rank + 1)
        return
    facts: dict[str, Setting] = {}
    with rank.predict("softmax", "turn logits into probabilities", given, facts) as out:
        probabilities = torch.softmax(given, dim=1)
        out(probabilities)
    facts.update(
        {
            "predicted_class": int(probabilities[0].argmax()),
            "true_class": int(batch.labels[0]),
            "largest_probability_share": round(float(probabilities[0].max()), 6),
            "num_correct": num_correct(given, batch.labels),
            "num_samples_shown": len(batch.labels),
        }
    )
