"""Every mistake that shows only when files are held against each other and against the traces.

In: an `Evidence`. Out: located errors, for texts, expressions, ids, runs, figures, claims and keys.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from generator import prose
from generator.book import Book, Topic
from generator.claim import ClaimFile, MisconceptionFile, ReferenceFile
from generator.documents import Document, Field
from generator.errors import ContentError, nearest, sort_errors
from generator.exhibit import Listing
from generator.filters import Showed
from generator.keys import key_of
from generator.lesson import MODES, DeepFile, TraceFile
from generator.quiz import Item, QuizFile
from generator.value import ExpressionError
from runners.trace import Run

if TYPE_CHECKING:
    from generator.evidence import Evidence

_CLAIM_KEYS = frozenset({"claims", "claim", "refuted_by"})
_SOURCE_KEYS = frozenset({"source", "sources"})
_ITEM_KEYS = frozenset({"commit", "question", "quiz", "guess", "checks", "item", "leave_out"})
_RUN_KEYS = frozenset({"run", "runs", "budgeted", "current_metrics", "output"})


def check(evidence: Evidence) -> list[ContentError]:
    """Every mistake in any text of a book, in its claims' verdicts and in its references."""
    return sort_errors(_mistakes(evidence))


def _mistakes(evidence: Evidence) -> Iterator[ContentError]:
    for document in evidence.book.documents:
        for one in document.fields:
            yield from _text(evidence, document, one)
            yield from _reference(evidence.book, document, one)
        yield from document.text_faults()
        yield from _document(evidence, document)


def _text(evidence: Evidence, document: Document[Any], one: Field) -> Iterator[ContentError]:
    """What is wrong in a line, a prose or an expression."""
    if one.mark == "expression":
        yield from _expression(evidence, document, one)
    elif one.mark in ("line", "prose"):
        for found in prose.expressions(one.text):
            problem = _problem(evidence, document, found.text)
            if problem:
                message = f"{found.text}: {problem}"
                yield document.error(one.path, message, offset=found.start)


def _problem(evidence: Evidence, document: Document[Any], expression: str) -> str | None:
    """Why an expression cannot stand in a text of this file; an empty one is the text's fault."""
    if not expression:
        return None
    found = evidence.evaluate(expression)
    if isinstance(found.result, Showed) and isinstance(document.model, ClaimFile):
        return "a claim's own sentences cannot quote a claim's sentence"
    return evidence.unprintable(found)


def _expression(evidence: Evidence, document: Document[Any], one: Field) -> Iterator[ContentError]:
    """What is wrong in a field that is one expression; claims are judged on theirs elsewhere."""
    if isinstance(document.model, ClaimFile):
        return
    problem = evidence.unprintable(evidence.evaluate(one.text))
    if problem:
        yield document.error(one.path, f"{one.text}: {problem}")


def _reference(book: Book, document: Document[Any], one: Field) -> Iterator[ContentError]:
    """An id or a run that a text field names and that does not exist."""
    if one.mark:
        return
    if one.name in _RUN_KEYS:
        problem = _missing_run(book, one.text)
        if problem:
            yield document.error(one.path, problem)
    named: tuple[tuple[frozenset[str], Mapping[str, object], str], ...] = (
        (_CLAIM_KEYS, book.claims, "claim"),
        (_SOURCE_KEYS, book.references, "reference"),
        (frozenset({"misconception", "misconceptions"}), book.misconceptions, "misconception"),
    )
    for keys_of, known, word in named:
        if one.name in keys_of and one.text not in known:
            yield document.error(one.path, f"no {word} {one.text!r}{nearest(one.text, known)}")


def _missing_run(book: Book, path: str) -> str | None:
    """Why a run path leads nowhere; a run that only the reference machine has is not a mistake."""
    experiment, _, name = path.partition(".")
    shown = book.traces.get(experiment)
    if shown is None:
        return (
            f"no trace of {experiment!r} on any machine{nearest(experiment, book.traces)}; "
            f"or measure it with `python -m runners run {experiment}`"
        )
    if name in shown.trace.runs or (shown.reference and name in shown.reference.runs):
        return None
    return f"{experiment} has no run {name!r}{nearest(name, shown.trace.runs)}"


def _document(evidence: Evidence, document: Document[Any]) -> Iterator[ContentError]:
    """What is particular to one kind of file."""
    model = document.model
    if isinstance(model, ClaimFile):
        yield from _claims(evidence, document)
    elif isinstance(model, QuizFile):
        yield from _quiz(evidence, document)
    elif isinstance(model, MisconceptionFile):
        yield from _backed(document)
    elif isinstance(model, ReferenceFile):
        for position, reference in enumerate(model.references):
            if not reference.url.startswith("https://"):
                message = "a source is linked by https"
                yield document.error(("references", position, "url"), message)
    elif isinstance(model, tuple(MODES.values())):
        yield from _lesson(evidence, document)


def _claims(evidence: Evidence, document: Document[Any]) -> Iterator[ContentError]:
    from generator.falsify import falsified_problem

    for position, claim in enumerate(document.model.claims):
        outcome = evidence.outcome(claim.id)
        if outcome.error:
            yield document.error(("claims", position, outcome.at), outcome.error)
        problem = falsified_problem(evidence.book, claim)
        if problem:
            yield document.error(("claims", position, "falsified_by", "field"), problem)
        tolerance = claim.tolerance
        if tolerance and (tolerance.relative is None) == (tolerance.absolute is None):
            message = "give relative or absolute, one of the two"
            yield document.error(("claims", position, "tolerance"), message)


def _quiz(evidence: Evidence, document: Document[Any]) -> Iterator[ContentError]:
    for position, item in enumerate(document.model.items):
        path = ("items", position)
        for number, option in enumerate(getattr(item, "options", ())):
            place = (*path, "options", number)
            if not (option.right_if or option.misconception or option.slip):
                message = "an option that is never right names its misconception"
                yield document.error(place, message)
            yield from _refuted(evidence, document, (*place, "refuted_by"), option.refuted_by)
        yield from _key(evidence, document, path, item)


def _key(
    evidence: Evidence, document: Document[Any], path: tuple[str | int, ...], item: Item
) -> Iterator[ContentError]:
    """An item without a key, or with two; what its expressions or ids lack is said elsewhere."""
    bound = [o.right_if.claim for o in getattr(item, "options", ()) if o.right_if]
    if any(claim not in evidence.book.claims for claim in bound):
        return
    listings = [one for one in (getattr(item, "wrong", None), getattr(item, "right", None)) if one]
    if any(listing_problem(evidence.book, one) for one in listings):
        return
    try:
        key_of(item, evidence)
    except ContentError as error:
        yield document.error((*path, "id"), error.message)
    except ExpressionError:
        return


def _refuted(
    evidence: Evidence, document: Document[Any], path: tuple[str | int, ...], claim: str | None
) -> Iterator[ContentError]:
    """A claim that is to refute an option must hold, at least where the book was written."""
    if claim is None or claim not in evidence.book.claims:
        return
    outcome = evidence.outcome(claim)
    if outcome.on_reference and outcome.verdict != "holds":
        message = f"claim {claim!r} refutes nothing: {outcome.verdict}, {outcome.explanation}"
        yield document.error(path, message)


def _backed(document: Document[Any]) -> Iterator[ContentError]:
    for position, belief in enumerate(document.model.misconceptions):
        if belief.refuted_by is None and belief.source is None:
            message = "a misconception needs refuted_by: (a claim) or source: (a reference)"
            yield document.error(("misconceptions", position), message)


def _lesson(evidence: Evidence, document: Document[Any]) -> Iterator[ContentError]:
    book, model = evidence.book, document.model
    topic = book.topic_of(model)
    yield from _named(document, _ITEM_KEYS, topic.items, f"item in {topic.id}/quiz.yml")
    figures = {figure.id: figure for figure in model.figures}
    yield from _named(document, frozenset({"figure"}), figures, "figure in this file")
    yield from _repeated(document, "figures", [figure.id for figure in model.figures])
    yield from _listings(book, document)
    if isinstance(model, TraceFile):
        yield from _recorded(book, document, "data_flow", "stages", "stage")
        yield from _recorded(book, document, "prediction", "steps", "step")
        yield from _repeated(document, "quiz", model.quiz)
    if isinstance(model, DeepFile):
        yield from _yes_or_no(document, topic)


def _named(
    document: Document[Any], names: frozenset[str], known: Mapping[str, object], word: str
) -> Iterator[ContentError]:
    for one in document.fields:
        if not one.mark and one.name in names and one.text not in known:
            yield document.error(one.path, f"no {word} is {one.text!r}{nearest(one.text, known)}")


def _repeated(document: Document[Any], key: str, names: Iterable[str]) -> Iterator[ContentError]:
    seen: set[str] = set()
    for position, name in enumerate(names):
        if name in seen:
            yield document.error((key, position), f"{name!r} stands above already")
        seen.add(name)


def _recorded(
    book: Book, document: Document[Any], part: str, rows: str, key: str
) -> Iterator[ContentError]:
    """The stages or steps of a table that its run did not record."""
    table = getattr(document.model, part)
    run = book.run(table.run)
    if run is None or run.status == "skipped" or run.is_surprise:
        return
    recorded = _RECORDED[part](run)
    for position, row in enumerate(getattr(table, rows)):
        name = getattr(row, key)
        if name not in recorded:
            message = f"{table.run} recorded no {key} {name!r}{nearest(name, recorded)}"
            yield document.error((part, rows, position, key), message)


_RECORDED: dict[str, Callable[[Run], list[str]]] = {
    "data_flow": lambda run: [stage.name for stage in run.stages],
    "prediction": lambda run: [step.name for step in run.prediction],
}


def _yes_or_no(document: Document[Any], topic: Topic) -> Iterator[ContentError]:
    for position, myth in enumerate(document.model.myths):
        item = topic.items.get(myth.question)
        if item and len(getattr(item, "options", ())) != 2:
            message = f"item {item.id!r} asks for more than yes or no"
            yield document.error(("myths", position, "question"), message)


def _listings(book: Book, document: Document[Any]) -> Iterator[ContentError]:
    for one in document.fields:
        listing = _at(document.model, one.path[:-1])
        if one.name == "path" and isinstance(listing, Listing):
            problem = listing_problem(book, listing)
            if problem:
                yield document.error(one.path, problem)


def _at(model: object, path: tuple[str | int, ...]) -> object:
    for part in path:
        model = model[part] if isinstance(part, int) else getattr(model, part, None)  # type: ignore[index]
    return model


def listing_problem(book: Book, listing: Listing) -> str | None:
    """Why a listing cannot be shown, or None."""
    path = (book.root / listing.path).resolve()
    if not path.is_relative_to(book.root) or not path.is_file():
        return f"no file {listing.path!r} in the project"
    if listing.object is None:
        return None
    names = [
        node.name
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef | ast.ClassDef)
    ]
    if listing.object not in names:
        return f"{listing.path} defines no {listing.object!r}{nearest(listing.object, names)}"
    return None
