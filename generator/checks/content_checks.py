"""Every mistake that shows only when files are compared with each other and with the traces.

In: an `Evidence`. Out: located errors, for texts, expressions, ids, runs, figures, claims and keys.
"""

from collections.abc import Callable, Collection, Iterable, Iterator
from functools import cache
from typing import Any

from proofbook.generator.checks import claim_checks, unit_checks
from proofbook.generator.content import images, listed_code, prose
from proofbook.generator.content.book import Book
from proofbook.generator.content.claim import ClaimFile
from proofbook.generator.content.documents import TEXTS, Document, TextField
from proofbook.generator.content.errors import ContentError, ContentErrors, nearest, sort_errors
from proofbook.generator.content.exhibit import ExplainedProgram, Listing
from proofbook.generator.content.topic import TopicFile
from proofbook.generator.content.words import Written
from proofbook.generator.content.yaml_source import Mistake, Path
from proofbook.generator.values.evaluation import Evidence
from proofbook.generator.values.filters import ClaimSentence, Label, calls_of_claims
from proofbook.generator.values.perturbed import why_not_stated
from proofbook.runners.system.kinds import kinds

# The ids that there are of what texts name, by their mark.
_Ids = Callable[[Book, Document[Any]], Collection[str]]
_KNOWN: dict[str, _Ids] = {
    "reference": lambda book, _: book.references,
    "misconception": lambda book, _: book.misconceptions,
    "topic": lambda book, _: [topic.id for topic in book.topics],
    "lesson": lambda book, _: book.lessons,
    "page_path": lambda book, _: [*book.lessons, *book.handwritten_by_name],
    "figure": lambda _, document: [figure.id for figure in document.model.figures],
    "lesson figure": lambda book, document: [
        name
        for topic in book.topics
        if f"/topics/{topic.id}/" in document.source.file
        for name in topic.figures
    ],
}


@cache
def _known() -> dict[str, _Ids]:
    """`_KNOWN`, with what kinds and companions add."""
    more = {mark: kind.take(ids) for kind in kinds() for mark, ids in kind.known.items()}
    return _KNOWN | more


def check(evidence: Evidence) -> list[ContentError]:
    """Every mistake in any text of a book, in its claims' verdicts and in its references."""
    files = evidence.book.documents
    return sort_errors(error for document in files for error in document_errors(evidence, document))


def checked(book: Book) -> Evidence:
    """The evidence of a book; ContentErrors with every mistake that it has."""
    evidence = Evidence(book)
    raise_any(check(evidence), evidence)
    return evidence


def raise_any(errors: Iterable[ContentError], evidence: Evidence | None = None) -> None:
    """Raise the mistakes, if any; with the evidence, also the broken laws that cause some."""
    mistakes = list(errors)
    if mistakes:
        broken = claim_checks.broken_laws(evidence.book, evidence.judged_claims) if evidence else []
        raise ContentErrors([*broken, *mistakes])


def document_errors(evidence: Evidence, document: Document[Any]) -> Iterator[ContentError]:
    """Yield an error for every mistake in a file, by the runs shown and the reference machine's."""
    for judged in filter(None, (evidence, evidence.reference)):
        for field in document.fields:
            yield from _text_mistakes(judged, document, field)
            yield from _unknown_reference(judged, document, field)
        for check_file in (own for model, own in _by_file() if isinstance(document.model, model)):
            for mistake in check_file(judged, document):
                yield mistake if isinstance(mistake, ContentError) else document.error(*mistake)
    listed = (field for field in document.fields if isinstance(field.part, Listing))
    paths = {evidence.book.root / field.text for field in listed if field.path[-1] == "path"}
    programs = "\n".join(path.read_text("utf-8") for path in paths if path.is_file())
    yield from document.text_faults(programs, has_units=evidence.rests_on_runs)
    yield from unit_checks.mistakes(evidence, document)
    yield from images.problems(document, evidence.book.root)


def _text_mistakes(
    evidence: Evidence, document: Document[Any], field: TextField
) -> Iterator[ContentError]:
    if isinstance(document.model, ClaimFile):
        return  # judged and checked on each run
    if field.mark == "expression":
        problem = why_not_stated(evidence, field.text)
        if isinstance(evidence.evaluate(field.text).result, Label | ClaimSentence):
            problem = "these are words; a value is wanted here"
        if problem:
            yield document.error(field.path, f"{' '.join(field.text.split())}: {problem}")
    elif field.mark in TEXTS:
        for at, expression in prose.expressions(field.text):
            problem = why_not_stated(evidence, expression) or _fallen(evidence, expression)
            if problem:
                is_shown = "unknown name" in problem and prose.in_code(field.text, at)
                hint = r"; braces that code shows begin with \{{" if is_shown else ""
                yield document.error_in(field, at, f"{expression}: {problem}{hint}")


def _fallen(evidence: Evidence, expression: str) -> str | None:
    """Message if `holds(claim)` names a claim that the reference machine refutes, else None."""
    for claim in (claim for name, claim in calls_of_claims(expression) if name == "holds"):
        outcome = evidence.judged(claim)
        if evidence.reference is None and outcome.verdict != "holds":
            return f"the sentence rests on {claim}, which does not hold: {outcome.explanation}"
    return None


def _unknown_reference(
    evidence: Evidence, document: Document[Any], field: TextField
) -> Iterator[ContentError]:
    """Ids and runs that do not exist; claims behind an advice that do not hold."""
    book, problem = evidence.book, None
    if field.mark == "run":
        evaluation = evidence.evaluate(field.text)
        problem = evaluation.error or (None if evaluation.runs else f"{field.text!r} is no run")
    elif field.mark == "claim" and field.text not in book.claims:
        problem = book.claim_index.why_unknown(field.text)
    elif field.mark in _known() and field.text not in (ids := _known()[field.mark](book, document)):
        problem = f"no {field.mark} {field.text!r}{nearest(field.text, ids)}"
    if problem:
        yield document.error(field.path, problem)


def _topic(evidence: Evidence, document: Document[TopicFile]) -> Iterator[Mistake]:
    """Required topics that do not come before the topic, so that none leads in a circle."""
    orders = {topic.id: topic.file.order for topic in evidence.book.topics}
    for position, name in enumerate(document.model.requires):
        if orders.get(name, -1) >= document.model.order:
            yield ("requires", position), f"{name!r} comes later; give it a smaller order"


def _listings(evidence: Evidence, document: Document[Any]) -> Iterator[Mistake]:
    """Listed code that is missing, that another run executed, or that lacks a noted line."""
    book = evidence.book
    for field in document.fields:
        listing = field.part
        if not isinstance(listing, Listing) or field.path[-1] != "path":
            continue
        which = book.root, listing.path, listing.object
        problem = listed_code.why_not_listed(*which) or listed_code.why_stated(*which)
        run = book.run(listing.run) if listing.run else None
        executed = run.settings.get("program") if run else None
        if not problem and executed not in (None, listing.path):
            problem = f"{listing.run} executed {executed}, not this file"
        if problem:
            yield field.path, problem
            continue
        if isinstance(listing, ExplainedProgram):
            code = listed_code.listed(*which)
            lines: dict[Path, str | None] = {
                ("walkthrough", at, "code"): note.code
                for at, note in enumerate(listing.walkthrough)
            }
            for path, line in {**lines, ("reports_from",): listing.reports_from}.items():
                if line and (problem := listed_code.why_misplaced(code, line)):
                    yield (*field.path[:-1], *path), problem


_Check = Callable[[Evidence, Document[Any]], Iterator[Mistake | ContentError]]


@cache
def _by_file() -> list[tuple[type[Written], _Check]]:
    """What looks for mistakes in files of a model, or of any derived from it."""
    own = [(Written, _listings), (ClaimFile, claim_checks.mistakes), (TopicFile, _topic)]
    named = [(kind, pair) for kind in kinds() for pair in kind.mistakes.items()]
    return [*own, *((kind.take(model), kind.take(check)) for kind, (model, check) in named)]
