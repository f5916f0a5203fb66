"""Units that a text names beside or above values: those that the values are in.

In: the evidence and a file. Out: located errors. Values, columns and axes print their own units; a
text that says *milliseconds* where no value is a time would give a count one.
"""

from collections.abc import Iterator
from typing import Any

from proofbook.generator.content import prose
from proofbook.generator.content.documents import TEXTS, Document, TextField
from proofbook.generator.content.errors import ContentError
from proofbook.generator.content.exhibit import GrowthChart, PlayFact, TableRow, ValueTable
from proofbook.generator.content.lesson import CostRow
from proofbook.generator.content.numerals import NAMED, NOUN
from proofbook.generator.content.quiz import Item
from proofbook.generator.values.evaluation import Evidence
from proofbook.generator.values.value import Value


def mistakes(evidence: Evidence, document: Document[Any]) -> Iterator[ContentError]:
    """Yield an error for each unit that a text of a book names, where its values have others."""
    named = (field for field in document.fields if field.mark in TEXTS and NAMED.search(field.text))
    for field in named if evidence.rests_on_runs else ():
        headed = list(_headed(document, field))
        is_head = headed and not isinstance(field.part, Item | CostRow | TableRow)
        for start, sentence in prose.sentences(field.text):
            within = range(start, start + len(sentence))
            beside = [(e.text, None) for e in prose.expressions(field.text) if e.start in within]
            values = _values(evidence, [*beside, *headed])
            for unit in NAMED.finditer(sentence) if values else ():
                is_noun = not is_head and NOUN.match(sentence, unit.start())
                if not is_noun and not any(_is_in(value, str(unit.lastgroup)) for value in values):
                    message = f"unit {unit[0]!r}, in which no value beside it is; leave it out"
                    yield document.error_in(field, start + unit.start(), message)


def _values(evidence: Evidence, read: list[tuple[str, str | None]]) -> list[Value]:
    """The numbers that expressions give; none where this machine cannot tell one of them."""
    evaluations = [evidence.evaluate(*one) for one in read]
    if any(evaluation.error or evaluation.absent for evaluation in evaluations):
        return []
    results = (evaluation.result for evaluation in evaluations)
    return [one for one in results if isinstance(one, Value) and not isinstance(one.number, str)]


def _is_in(value: Value, power: str) -> bool:
    if power == "style":
        return value.unit.style == "share" or value.form.way in ("percent", "error")
    return bool(getattr(value.unit, power) or (power == "num_bytes" and value.unit.num_bits))


def _headed(document: Document[Any], field: TextField) -> Iterator[tuple[str, str | None]]:
    """The expressions, each with its run, below a head, along an axis or behind a question."""
    part, key = field.part, field.path[-1]
    match part:
        case ValueTable() if isinstance(key, int):
            yield from ((row.cells[key], None) for row in part.rows)
        case TableRow():
            yield from ((cell, None) for cell in part.cells)
        case CostRow():
            yield f"observed({part.law!r})", None
        case Item() if key == "stem" and isinstance(answer := getattr(part, "answer", None), str):
            yield answer, None
        case GrowthChart():
            along = (part.x if key == "x_label" else part.measured) or ""
            yield from ((along, run) for series in part.series for run in series.runs)
        case PlayFact():
            figure = document.model.figures[int(field.path[1])]
            yield from ((part.value, run) for run in figure.runs)
