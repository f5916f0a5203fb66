"""A trial: the run that measures it, what running it prints, and settings worth changing."""

from __future__ import annotations

from dataclasses import dataclass

from markupsafe import Markup

from generator.modes.trials import Suggestion, Trial
from generator.views.folio import Folio

COMMAND = "python -m runners try"


@dataclass(frozen=True)
class SuggestionOnPage:
    """A command with settings changed, and what to look at in its output."""

    command: str
    look: Markup


@dataclass(frozen=True)
class TrialOnPage:
    """What follows the question of a trial.

    Attributes:
        item: the question that comes first.
        run: `experiment.run`.
        command: what measures it.
        lines: what the command printed when the book was made.
        value: the number to look at, in the book's run.
    """

    item: str
    run: str
    command: str
    lines: str
    value: Markup
    suggestions: list[SuggestionOnPage]


def trial(written: Trial, folio: Folio) -> TrialOnPage:
    """What a trial shows once its question is answered."""
    run = folio.run(written.run)
    return TrialOnPage(
        item=written.item,
        run=written.run,
        command=f"{COMMAND} {written.run}",
        lines="\n".join(run.printed) if run else "",
        value=folio.cell(written.value),
        suggestions=[_suggestion(written.run, one, folio) for one in written.suggestions],
    )


def _suggestion(run: str, written: Suggestion, folio: Folio) -> SuggestionOnPage:
    changed = " ".join(f"--set {key}={value}" for key, value in written.set.items())
    return SuggestionOnPage(f"{COMMAND} {run} {changed}", folio.line(written.look))
