"""What the runs of `synchronization` will need. No torch."""

from __future__ import annotations

from dataclasses import replace

from runners.experiments.synchronization import LocalSettings, ParabolaSettings, Settings
from runners.plans.experiment import RunPlan
from runners.plans.work import Choice, Communication, Work, stack_work

CHOICES = (
    Choice(
        "fastest", "Whose typical step is the shortest?", ("synchronous", "local_32", "stale_4")
    ),
)


def forecast(plan: RunPlan[Settings | ParabolaSettings]) -> Work | None:
    """The work of a typical step: a small classifier, and what is communicated with it."""
    settings, n = plan.settings, plan.world_size
    if isinstance(settings, ParabolaSettings):
        return None
    widths = (settings.num_features, settings.num_hidden, settings.num_classes)
    shards = settings.shards if n == 1 else 1
    alone = stack_work(widths, shards * settings.batch_size)
    averages_always = isinstance(settings, LocalSettings) and settings.steps_between == 1
    communicates = plan.strategy in ("synchronous", "stale") or averages_always
    # The batch is put together, the gradient laid out in a row and measured.
    own = 8 + 2 * shards + (10 if communicates and plan.strategy != "synchronous" else 0)
    return replace(
        alone,
        num_operations=alone.num_operations + own,
        communication=(Communication("all_reduce", settings.model_bytes, 1, n),)
        if communicates
        else (),
        num_busy_ranks=n,
    )
