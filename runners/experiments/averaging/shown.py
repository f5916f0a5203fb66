"""What the trace of `averaging` shows of its last average.

In: a rank and its replica. Out: a prediction step: how each replica does before it, how far it then
moves, and how the mean of all does.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.distributed as dist
from torch import nn

from runners.experiments.averaging import Settings
from runners.ranks.rank import Rank
from runners.ranks.recorder import parameter_digest
from runners.traces.records import Setting
from runners.training.networks import flat
from runners.training.steps import validate
from runners.training.teacher import Rows


def average_and_show(
    rank: Rank[Settings],
    model: nn.Module,
    validation: Rows,
    average: Callable[[nn.Module], None],
) -> None:
    """Average the replicas; before and after it, look at each of them."""
    facts = _grades(rank, model, validation)
    before = flat(model)
    with rank.predict("average", "average the replicas' parameters", before, facts) as out:
        average(model)
        after = flat(model)
        out(after)
        apart = (torch.linalg.norm(before - after) / torch.linalg.norm(after)).item()
        facts["distances"] = _of_all(rank, apart)
        _, facts["validation_loss"], facts["validation_accuracy"] = validate(model, validation)


def _grades(rank: Rank[Settings], model: nn.Module, validation: Rows) -> dict[str, Setting]:
    """How each replica does on samples never trained on, and whether the replicas are equal."""
    _, loss, accuracy = validate(model, validation)
    digests: list[str] = [""] * rank.world_size
    dist.all_gather_object(digests, parameter_digest(model.parameters()))
    return {
        "validation_losses": _of_all(rank, loss),
        "validation_accuracies": _of_all(rank, accuracy),
        "num_distinct": len(set(digests)),
    }


def _of_all(rank: Rank[Settings], value: float) -> list[float]:
    """The value of every rank, on every rank."""
    values = [0.0] * rank.world_size
    dist.all_gather_object(values, value)
    return values
