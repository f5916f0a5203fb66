"""The tables of lessons: stages, epochs, predictions, verdicts, failing runs, before and after."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from markupsafe import Markup, escape

from generator.claim import Claim, Retraction
from generator.lesson import Compared, DataFlow, Prediction, Training
from generator.observations import observe
from generator.value import Value
from generator.verdicts import Outcome
from generator.views.folio import Folio
from runners.trace import PredictionStep, Stage

NUM_VALUES = 4
MAX_DIGITS = 12
_OF_RANK = re.compile(r"rank_(\d+)_(\w+)")
_UNIT_IN_NAME = re.compile(r"^num_|_(?:share|bytes|seconds)$")
RELATIONS = {
    "equals": "",
    "at_least": "≥ ",
    "at_most": "≤ ",
    "above": "> ",
    "below": "< ",
    "differs": "≠ ",
    "faster": "< ",
    "slower": "> ",
}


@dataclass(frozen=True)
class StageRow:
    """One row of a data-flow or prediction table."""

    title: Markup
    note: Markup
    operation: str
    shape_in: Markup
    shape_out: Markup
    num_bytes: Markup | None
    seconds: Markup
    rank: str
    values: Markup
    facts: list[tuple[str, Markup]]
    by_rank: ByRank


@dataclass(frozen=True)
class ByRank:
    """Facts that a step shows of every rank: a column each, a row a rank."""

    columns: list[str]
    rows: list[tuple[str, list[Markup]]]


def data_flow(flow: DataFlow, folio: Folio) -> list[StageRow]:
    """The stages of a run as the recorder read them off the tensors."""
    run = folio.run(flow.run)
    rows = []
    for written in flow.stages:
        found = next((s for s in run.stages if s.name == written.stage), None) if run else None
        base = f"{flow.run}.stages['{written.stage}']"
        time = f"{flow.run}.timing.stages['{written.stage}']"
        rows.append(_row(found, base, time, written.title, written.note, folio))
    return rows


def prediction(written: Prediction, folio: Folio) -> list[StageRow]:
    """One real batch through the model, step by step."""
    run = folio.run(written.run)
    rows = []
    for step in written.steps:
        found = next((s for s in run.prediction if s.name == step.step), None) if run else None
        base = f"{written.run}.prediction['{step.step}']"
        time = f"{written.run}.timing.prediction['{step.step}']"
        rows.append(_row(found, base, time, step.title, step.note, folio))
    return rows


def _row(
    found: Stage | PredictionStep | None, base: str, time: str, title: str, note: str, folio: Folio
) -> StageRow:
    words = folio.ui["table"]
    rank = ""
    if found is not None:
        rank = (
            words["every_rank"] if found.rank is None else f"{words['on_rank']} rank {found.rank}"
        )
    return StageRow(
        title=folio.line(title),
        note=folio.line(note),
        operation=found.operation if found else "",
        shape_in=_shape(found.shape_in if found else [], f"{base}.shape_in", folio),
        shape_out=_shape(found.shape_out if found else [], f"{base}.shape_out", folio),
        num_bytes=folio.cell(f"{base}.bytes") if isinstance(found, Stage) else None,
        seconds=folio.cell(time),
        rank=rank,
        values=_values(found, base, folio),
        facts=_facts(found, base, folio),
        by_rank=_by_rank(found, base, folio),
    )


def _shape(shape: list[int], expression: str, folio: Folio) -> Markup:
    return folio.cell(f"{expression} | shape") if shape else Markup("–")


def _values(found: Stage | PredictionStep | None, base: str, folio: Folio) -> Markup:
    if found is None or not found.values:
        return Markup("")
    shown = [
        folio.cell(f"{base}.values[{position}] | digits(3)")
        for position in range(min(NUM_VALUES, len(found.values)))
    ]
    more = Markup(", …") if len(found.values) > NUM_VALUES else Markup("")
    return Markup("[{}{}]").format(Markup(", ").join(shown), more)


def _facts(
    found: Stage | PredictionStep | None, base: str, folio: Folio
) -> list[tuple[str, Markup]]:
    if not isinstance(found, PredictionStep):
        return []
    rows = []
    for name, fact in sorted(found.facts.items()):
        if _OF_RANK.fullmatch(name):
            continue
        label = _UNIT_IN_NAME.sub("", name).replace("_", " ")
        rows.append((label, _fact(f"{base}.facts.{name}", fact, folio)))
    return rows


def _by_rank(found: Stage | PredictionStep | None, base: str, folio: Folio) -> ByRank:
    """Facts named `rank_0_before`: what each rank had, before and after."""
    facts = found.facts if isinstance(found, PredictionStep) else {}
    named = {name: match for name in facts if (match := _OF_RANK.fullmatch(name))}
    columns = sorted({match[2] for match in named.values()}, key=_before_after)
    rows = [
        (
            f"rank {rank}",
            [
                _fact(
                    f"{base}.facts.rank_{rank}_{column}", facts.get(f"rank_{rank}_{column}"), folio
                )
                for column in columns
            ],
        )
        for rank in sorted({int(match[1]) for match in named.values()})
    ]
    return ByRank([column.replace("_", " ") for column in columns], rows)


def _before_after(column: str) -> tuple[int, str]:
    return (0 if column.startswith("before") else 1 if column.startswith("after") else 2, column)


def _fact(expression: str, fact: object, folio: Folio) -> Markup:
    if fact is None:
        return Markup("–")
    if isinstance(fact, list):
        parts = [_fact(f"{expression}[{i}]", one, folio) for i, one in enumerate(fact)]
        return Markup(", ").join(parts)
    if isinstance(fact, str):
        return Markup("<code>{}</code>").format(fact)
    if isinstance(fact, float):
        return folio.cell(f"{expression} | digits(4)")
    return folio.cell(expression)


@dataclass(frozen=True)
class EpochRow:
    """One epoch: its cells and what a detector noticed."""

    epoch: int
    cells: list[Markup]
    observation: str
    is_notable: bool


def epochs(training: Training, folio: Folio) -> tuple[list[str], list[EpochRow]]:
    """The columns that the run measured, and a row an epoch."""
    run = folio.run(training.run)
    if run is None:
        return [], []
    columns = [
        name
        for name in ("loss", "accuracy", "validation_loss", "validation_accuracy")
        if any(getattr(epoch, name) is not None for epoch in run.epochs)
    ]
    notable = observe(run.epochs)
    rows = [
        EpochRow(
            epoch.epoch,
            [folio.cell(f"{training.run}.epochs[{position}].{name}") for name in columns],
            notable.get(epoch.epoch, folio.ui["table"]["nothing_notable"]),
            epoch.epoch in notable,
        )
        for position, epoch in enumerate(run.epochs)
    ]
    return [folio.ui["figure"][name] for name in columns], rows


@dataclass(frozen=True)
class VerdictRow:
    """A claim on this machine."""

    claim: Claim
    outcome: Outcome
    says: Markup
    predicted: Markup
    observed: Markup
    words: str
    css: str
    verdict: str
    runs: tuple[str, ...]
    explanation: Markup
    tolerance: str
    domain: Markup
    formula: Markup | None
    source: str | None


def verdict_row(name: str, folio: Folio) -> VerdictRow:
    """One claim, judged on the runs this book shows."""
    claim, outcome = folio.book.claims[name], folio.outcomes[name]
    folio.runs.update(outcome.runs)
    relation = RELATIONS[claim.relation]
    predicted, observed = _told_apart(outcome)
    return VerdictRow(
        claim=claim,
        outcome=outcome,
        says=folio.line(claim.says),
        predicted=Markup("{}{}").format(relation, _side(predicted, folio)),
        observed=_side(observed, folio),
        words=folio.ui["verdicts"][outcome.verdict],
        css=f"pb-{outcome.verdict.replace('_', '-')}",
        verdict=outcome.verdict,
        runs=outcome.runs,
        explanation=folio.line(outcome.explanation),
        tolerance=_tolerance(claim),
        domain=_domain(claim, folio),
        formula=folio.line(claim.formula) if claim.formula else None,
        source=claim.source,
    )


def verdict_rows(names: Sequence[str], folio: Folio) -> list[VerdictRow]:
    """Several claims, in the order in which they are named."""
    return [verdict_row(name, folio) for name in names]


def _told_apart(outcome: Outcome) -> tuple[Value | None, Value | None]:
    """Both sides, with digits enough to differ where the verdict says that they do."""
    predicted, observed = outcome.predicted, outcome.observed
    if predicted is None or observed is None or predicted.number == observed.number:
        return predicted, observed
    if outcome.claim.relation == "equals" and outcome.verdict == "holds":
        return predicted, observed
    for digits in range(5, MAX_DIGITS + 1):
        if str(predicted) != str(observed) or isinstance(predicted.number, str):
            break
        predicted, observed = predicted.shown(digits=digits), observed.shown(digits=digits)
    return predicted, observed


def _side(value: Value | None, folio: Folio) -> Markup:
    if value is None:
        return Markup("–")
    if isinstance(value.number, str):
        value = replace(value, number=value.number.replace("_", " "))
    return folio.show(value)


def _tolerance(claim: Claim) -> str:
    if claim.tolerance is None:
        return ""
    if claim.tolerance.relative is not None:
        return f"{claim.tolerance.relative * 100:g}%"
    return f"{claim.tolerance.absolute:g}"


def _domain(claim: Claim, folio: Folio) -> Markup:
    if claim.domain is None:
        return Markup("")
    parts = [*(claim.domain.device or []), *(claim.domain.backend or [])]
    because = folio.line(claim.domain.because) if claim.domain.because else Markup("")
    return Markup("{} {}").format(escape(", ".join(parts)), because)


def failing(paths: Sequence[str], folio: Folio) -> list[dict[str, Markup | str]]:
    """The runs that fail, a row each: outcome, phase, bytes asked, budget, epochs done."""
    rows: list[dict[str, Markup | str]] = []
    for path in paths:
        run = folio.run(path)
        if run is None:
            continue
        asked = run.error.asked_bytes if run.error else None
        rows.append(
            {
                "run": path,
                "strategy": folio.strategy(run),
                "css": "pb-holds" if run.status == "completed" else "pb-does-not-hold",
                "outcome": folio.ui["statuses"][run.status],
                "phase": run.error.phase.replace("_", " ") if run.error else "–",
                "asked": folio.cell(f"{path}.error.asked_bytes") if asked else Markup("–"),
                "budget": folio.cell(f"{path}.budget_bytes") if run.budget_bytes else Markup("–"),
                "epochs": folio.cell(f"{path}.epochs | count"),
                "message": run.error.message if run.error else "",
            }
        )
    return rows


def compared(written: Compared, folio: Folio) -> list[tuple[Markup, Markup, Markup]]:
    """Before-and-after rows."""
    return [
        (folio.line(row.what), folio.text.expression(row.before), folio.text.expression(row.after))
        for row in written.rows
    ]


@dataclass(frozen=True)
class Standing:
    """How a sentence stands after its run; `word` is a key of the interface's words."""

    word: str
    css: str


def standing(sentence: Retraction, outcome: Outcome) -> Standing:
    """Whether a run retracts a sentence, confirms it, or leaves it open on this machine."""
    if outcome.verdict in ("does_not_apply", "no_evidence", "too_few_samples"):
        return Standing("untested", "pb-does-not-apply")
    if sentence.confirmed_if is not None:
        if outcome.verdict == sentence.confirmed_if:
            return Standing("confirmed", "pb-holds")
        return Standing("retracted", "pb-does-not-hold")
    if outcome.verdict == "holds":
        return Standing("retracted", "pb-does-not-hold")
    return Standing("untested", "pb-differs")
