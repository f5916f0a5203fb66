"""What the runs of `at_scale` will need. No torch."""

from __future__ import annotations

from runners.experiments.at_scale import Settings
from runners.plans.experiment import RunPlan
from runners.plans.work import Choice, Work

CHOICES = (
    Choice(
        "least_for_seven_billion",
        "Of seven billion parameters over 64 ranks, where does a rank peak lower?",
        ("seven_fsdp_tensor_64", "seven_hsdp_64"),
        by="peak_bytes",
    ),
    Choice(
        "least_for_seventy_billion",
        "Of seventy billion parameters over 1024 ranks, where does a rank peak lowest?",
        tuple(f"seventy_{way}_1024" for way in ("fsdp", "fsdp_tensor", "hsdp")),
        by="peak_bytes",
    ),
)


def forecast(plan: RunPlan[Settings]) -> Work:
    """The closed form of a rank's peak; nothing here is timed."""
    return Work(peak_bytes=plan.settings.peak_bytes)
