"""Write the sealed forecasts, once, and say how they did. No torch.

In: forecasts, or their score on a machine. Out: content/sealed_forecasts.json with its SHA-256
beside it, or lines. `runners/traces/sealed_forecasts.py` says what they are, and reads them.
"""

from __future__ import annotations

from pathlib import Path
from typing import get_args

from runners.planning.question import PlanError, Question
from runners.traces.digest import ROOT
from runners.traces.files import write_json
from runners.traces.sealed_forecasts import (
    FILE,
    OUTCOMES,
    LimitForecast,
    SealedForecasts,
    SealedOutcomes,
    seal_path,
    sha256_of,
)
from runners.traces.sealed_score import Score, What

PATH = ROOT / "content" / FILE


def question_of(forecast: LimitForecast) -> Question:
    """What the plan was asked."""
    return Question.model_validate(forecast.question)


def check_unsealed(path: Path = PATH) -> None:
    """Refuse a second sealing.

    Raises:
        PlanError: there are forecasts.
    """
    if path.exists() or seal_path(path).exists():
        raise PlanError(f"{path.name} is sealed; forecasts are made once")


def write_forecasts(forecasts: SealedForecasts, path: Path = PATH) -> None:
    """Write forecasts and their hash, once.

    Raises:
        PlanError: there are some.
    """
    check_unsealed(path)
    write_json(path, forecasts.model_dump(mode="json"))
    seal_path(path).write_text(f"{sha256_of(path)}  {path.name}\n", encoding="utf-8")


def write_outcomes(outcomes: SealedOutcomes, path: Path = PATH) -> None:
    """Write what came of the forecasts on a machine, into the folder beside them."""
    file = path.with_name(OUTCOMES) / f"{outcomes.machine}.json"
    write_json(file, outcomes.model_dump(mode="json"))


def lines(scored: Score) -> list[str]:
    """The score, and each miss."""
    rows = [
        f"{kind}: median error {scored.median_error(kind) or 0.0:.1%} over {len(scored.of(kind))}"
        for kind in get_args(What)
        if scored.of(kind)
    ]
    right = scored.num_verdicts - len(scored.wrong_verdicts)
    rows.append(f"fits or not: {right} of {scored.num_verdicts} as forecast")
    rows += [f"    wrong: {name}" for name in scored.wrong_verdicts]
    rows += [
        f"    {one.what} of {one.id}: {one.forecast} bytes forecast, {one.outcome} found, "
        f"{one.error:+.1%}"
        for one in scored.misses
    ]
    return rows
