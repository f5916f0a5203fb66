"""Who reads which field of the reference traces: topic pages, claims, evidence pages, or nobody.

    python -m generator coverage               every field, its runs and positions taken together
    python -m generator coverage ddp           of one experiment
    python -m generator coverage ddp.single    of one run, each field with the names of its readers

It is recorded while every claim is judged and every page printed, by the accesses of the evaluator
and of the views. A page that prints a claim's verdict reads none of the fields that decide it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from generator.content.book import Book
from generator.content.errors import ContentError
from generator.evidence import verdicts
from generator.evidence.evaluation import Evidence, Made, Names
from generator.evidence.other_machines import other_outcomes
from generator.evidence.paths import Evaluation
from generator.evidence.value import Value
from generator.evidence.verdicts import Outcome
from generator.pages.page import Judged, Sheet
from generator.pages.press import OF_EVIDENCE, Look, Press
from generator.pages.watched_traces import Watch, watched
from runners.traces.records import Trace
from runners.traces.schema import Record

KINDS = ("topic pages", "claims", "evidence pages")
NOBODY = "nobody"
CLAIM = "claim "
_POSITION = re.compile(r"\[\d+\]")
Readers = Mapping[str, tuple[str, ...]]


class _Noting(Evidence):
    """Evidence that notes what an expression reads, also where its result is known already."""

    def __init__(self, book: Book, watch: Watch) -> None:
        super().__init__(book)
        self._watch = watch
        self._read: dict[tuple[object, ...], set[str]] = {}
        self.read_by_claims: dict[str, set[str]] = {}

    def evaluate(self, expression: str, names: Names | None = None) -> Evaluation:
        key = (expression, *sorted((names or {}).items()))
        if key in self._read:
            self._watch.note(*self._read[key])
            return super().evaluate(expression, names)
        with self._watch.reading() as self._read[key]:
            return super().evaluate(expression, names)

    def outcome(self, claim: str) -> Outcome:
        if claim in self.read_by_claims:
            return super().outcome(claim)
        with self._watch.reading(is_apart=True) as read:
            found = super().outcome(claim)
        self.read_by_claims[claim] = read
        return found

    def once(self, what: str, thing: object, make: Callable[[], Made]) -> Made:
        return make()  # each page that asks reads what it is made from

    def _side(self, claim: str, side: str) -> Value:
        """What a claim predicts or observes, which a page prints."""
        value = super()._side(claim, side)
        self._watch.note(*self.read_by_claims[claim])
        return value


class _NotingPress(Press):
    """A press that notes which fields each page reads."""

    def __init__(self, judged: Judged, watch: Watch, readers: dict[str, set[str]]) -> None:
        super().__init__()
        self._by_claims, self._watch, self._readers = judged, watch, readers

    def judged(self, book: Book) -> Judged:
        return self._by_claims

    def _print(
        self, sheets: Mapping[str, Sheet], judged: Judged, looks: Mapping[str, Look]
    ) -> Iterator[ContentError]:
        yield from super()._print({}, judged, looks)
        for path, sheet in sheets.items():
            with self._watch.reading() as found:
                mistakes = list(super()._print({path: sheet}, judged, {}))
            self._readers[path] = found
            yield from mistakes


def readers(book: Book) -> Readers:
    """Every field of the reference traces that holds a value, with the claims and pages that read.

    Raises:
        ContentErrors: what authors wrote cannot be printed.
    """
    seen, watch = watched(book)
    evidence = _Noting(seen, watch)
    outcomes = verdicts.judge(seen, evidence)
    found = {f"{CLAIM}{name}": read for name, read in evidence.read_by_claims.items()}
    judged = Judged(evidence, outcomes, other_outcomes(seen, outcomes))
    _NotingPress(judged, watch, found).printed(seen)
    by_field: dict[str, list[str]] = {}
    for reader, fields in found.items():
        for one in fields:
            by_field.setdefault(one, []).append(reader)
    return {
        one: tuple(sorted(by_field.get(one, ())))
        for trace in book.machines[book.reference.name].traces.values()
        for one in fields_of(trace)
    }


def fields_of(trace: Trace) -> Iterator[str]:
    """The path of every field that holds a value, and of every element of a list."""
    for key in type(trace).model_fields:
        if key == "runs":
            for name, run in trace.runs.items():
                yield from _below(run, f"{trace.experiment}.{name}")
        else:
            yield from _below(getattr(trace, key), f"{trace.experiment}.{key}")


def _below(thing: object, place: str) -> Iterator[str]:
    if isinstance(thing, Record):
        for key in type(thing).model_fields:
            yield from _below(getattr(thing, key), f"{place}.{key}")
    elif isinstance(thing, dict):
        for key, part in thing.items():
            yield from _below(part, f"{place}.{key}")
    elif isinstance(thing, list):
        for position, part in enumerate(thing):
            yield from _below(part, f"{place}[{position}]")
    elif thing is not None:
        yield place


def kind_of(reader: str) -> str:
    """Which kind of reader it is; the home page and pages written by hand count as topic pages."""
    if reader.startswith(CLAIM):
        return "claims"
    return "evidence pages" if reader.startswith(OF_EVIDENCE) else "topic pages"


@dataclass(frozen=True)
class Row:
    """A field as the list shows it: over runs and positions, or one by itself."""

    field: str
    num_values: int
    readers: tuple[str, ...]

    def line(self, *, is_named: bool) -> str:
        """The field, how many values stand there, and who reads one of them."""
        by = Counter(map(kind_of, self.readers))
        who = [f"{by[kind]} {kind}" for kind in KINDS if by[kind]]
        if is_named:
            who = list(self.readers)
        return f"{self.field} ({self.num_values}): {', '.join(who) or NOBODY}"


def lines(found: Readers, of: str | None = None) -> Iterator[str]:
    """The list, one line a field, and below it how many values have no reader.

    Args:
        found: as `readers` gives it.
        of: an experiment, or one of its runs; all of them by default.
    """
    is_named = of is not None and "." in of
    chosen = {one: by for one, by in found.items() if of is None or f"{one}.".startswith(f"{of}.")}
    for row in rows(chosen, by_run=is_named):
        yield row.line(is_named=is_named)
    num_unread = sum(not by for by in chosen.values())
    yield f"{len(chosen):,} values, of which {num_unread:,} are read by nobody"


def rows(found: Readers, *, by_run: bool) -> Iterator[Row]:
    """Fields without their positions, `epochs[].loss`; the runs of an experiment too: `ddp.*`."""
    together: dict[str, list[tuple[str, ...]]] = {}
    for one, by in found.items():
        together.setdefault(_pattern(one, by_run=by_run), []).append(by)
    for pattern, all_readers in together.items():
        named = sorted({reader for by in all_readers for reader in by})
        yield Row(pattern, len(all_readers), tuple(named))


def _pattern(path: str, *, by_run: bool) -> str:
    path = _POSITION.sub("[]", path)
    experiment, name, *steps = path.split(".")
    if by_run or name in Trace.model_fields:
        return path
    return ".".join((experiment, "*", *steps))
