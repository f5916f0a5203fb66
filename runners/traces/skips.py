"""Why a run was skipped: the reason that traces record, and how pages know it again. No torch."""

from __future__ import annotations

_NEEDS_FULL = (
    "a heavier run, left out here; `python -m runners run {experiment} --full` measures it"
)


def needs_full(experiment: str) -> str:
    """Why a run was left out that only `--full` measures."""
    return _NEEDS_FULL.format(experiment=experiment)


def is_heavier(reason: str) -> bool:
    """Whether a run was left out because only `--full` measures it."""
    return reason.startswith(_NEEDS_FULL.partition("{")[0])
