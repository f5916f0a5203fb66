"""What the runs of `model_parallel` will need. No torch."""

from __future__ import annotations

from dataclasses import replace

from runners.experiments.model_parallel import Settings
from runners.plans.experiment import RunPlan
from runners.plans.work import FLOAT_BYTES, Choice, Communication, Work, stack_work

CHOICES = (
    Choice(
        "faster",
        "Which step is faster, one model on four ranks or on one?",
        ("full", "full_single"),
    ),
    Choice(
        "smaller",
        "Which has the lower peak on its fullest rank?",
        ("full", "full_single"),
        by="peak_bytes",
    ),
)


def forecast(plan: RunPlan[Settings]) -> Work:
    """The layers of one stage; a batch goes through all of them one after another, and back."""
    settings, ranks = plan.settings, plan.world_size
    width, features, samples = settings.width, settings.num_features, settings.batch_size
    # Every stage holds as many hidden layers; the first and the last layer are at the ends.
    num_hidden = (settings.num_layers - 2) // ranks
    # What the ends add is spread over the stages: the step passes through all.
    own = stack_work([width] * (num_hidden + 1), samples, momentum=bool(settings.momentum))
    activation = FLOAT_BYTES * samples * width
    held = FLOAT_BYTES * own.optimizer_parameters
    ends = FLOAT_BYTES * width * (features + 1)
    num_samples = settings.num_samples + settings.num_validation_samples
    kept_samples = num_samples * (FLOAT_BYTES * features + 8)
    work = replace(
        own,
        peak_bytes=2 * held + ends + (6 if ranks > 1 else 4) * activation + kept_samples,
        moved_bytes=own.moved_bytes + 5 * activation * num_hidden,
        num_operations=own.num_operations + 2 * num_hidden + 9,
    )
    if ranks == 1:
        return replace(work, flops=work.flops + 4.0 * samples * features * width)
    messages = 2 * (ranks - 1)
    passing = Communication("send", messages * activation // ranks, -(-messages // ranks))
    return replace(work, communication=(passing,), num_sequential=float(ranks))
