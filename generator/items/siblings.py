"""The runs on which a question can be asked again: the other runs of its laws.

In: an item, and the evidence. Out: mappings of runs, as an author writes them under `variants:`.

A law is an item's where the item names a verdict of it, such as
`ddp-bytes-follow-model@growth.ddp_ranks_4`, or where the law holds of a run that the answer is read
off. The law was judged on other runs as well, under the same regime, so the question can be asked
there. All runs that the item reads change in the same way: where one of them shares a setting in
which the two runs of the law differ, its counterpart has the new one.

No mapping is made where a word would become untrue: where a setting that is a word differs and the
text does not print it; where the text spells a number that differs, or says a word by which only
one of the two runs is called; or where a run ended otherwise. None is made where what decides
an answer would stay with a run that is replaced, or has another verdict on the run in its place.
An option in words is as true there as here only if its claims are, and if it does not say how much.
What the item shows as further evidence (`claims:`) and stays with such a run is left out.
`variants.py` checks the rest.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence, Set
from typing import TYPE_CHECKING

from generator.content import prose
from generator.content.documents import fields_of
from generator.content.errors import ContentError
from generator.content.quiz import (
    Choice,
    Complete,
    FaultyLine,
    Item,
    Number,
    Order,
    Predict,
    Several,
)
from generator.evidence.value import ExpressionError, Value
from generator.items.keys import asked_for, value_of
from runners.traces.records import Run

if TYPE_CHECKING:
    from generator.content.book import Book
    from generator.evidence.evaluation import Evidence

_RUN = re.compile(r"\b[a-z_][a-z0-9_]*\.[a-z0-9_]+\b")
_VERDICT = re.compile(r"\b([a-z][a-z0-9]*(?:-[a-z0-9]+)+)(?:@([a-z_][a-z0-9_]*\.[a-z0-9_]+))?")
_NOT_SEVERAL = (None, 0, 1)
_WORD = re.compile(r"[^\W_]+")
_HOW_MUCH = re.compile(
    r"\b(?:about|almost|barely|far|few|hardly|large|little|many|most|mostly|much|nearly|"
    r"roughly|several|small|times)\b",
    re.IGNORECASE,
)
_ANYWHERE = frozenset(
    {"each", "from", "over", "rank", "ranks", "than", "that", "the", "their", "under", "with"}
)
Settings = Mapping[str, object]


def mappings(item: Item, evidence: Evidence) -> list[dict[str, str]]:
    """What to replace for each run of the item's laws, in the order of their `for:`."""
    found: list[dict[str, str]] = []
    if isinstance(item, FaultyLine):  # it is about a program
        return found
    book, fields = evidence.book, list(fields_of(item))
    text = "\n".join(one.text for one in fields)
    own = "\n".join(one.text for one in fields if one.name != "claims")
    said = "\n".join(prose.around(one.text) for one in fields if one.mark in ("line", "prose"))
    read = {run for run in _RUN.findall(text) if book.run(run)}
    named = [one for one in _VERDICT.finditer(text) if one[0] in book.claims]
    judged = {one[0]: set(evidence.outcome(one[0]).runs) for one in named if one[0] in own}
    laws = [(one[1], one[2]) for one in named if one[2]]
    for law, run in dict.fromkeys([*laws, *_answering(item, evidence)]):
        for verdict in book.laws.of_law.get(law, ()):
            runs = _moved(read, run, verdict.partition("@")[2], book)
            if (
                runs
                and runs not in found
                and _prints_words(text, runs, book)
                and _is_decided_there(item, runs, evidence)
                and not _is_called_otherwise(said, f"{law}@{run}", verdict, runs, book)
                and _follows(judged, runs, evidence)
            ):
                found.append(runs)
    return found


def _is_decided_there(item: Item, runs: Mapping[str, str], evidence: Evidence) -> bool:
    """Whether the laws alone decide which options are right, on the replaced runs as well.

    Options that say how much are left out: no law says whether that is true of another run.
    """
    if not isinstance(item, Choice | Several):
        return True
    if any(_HOW_MUCH.search(f"{one.text} {one.why}") for one in item.options):
        return False
    deciding = [one.right_if.claim for one in item.options if one.right_if]
    known = evidence.book.claims
    return bool(deciding) and all(
        name in known and runs.keys() & set(evidence.outcome(name).runs) for name in deciding
    )


def _answering(item: Item, evidence: Evidence) -> Iterator[tuple[str, str]]:
    """The laws that hold of a run which the answer to an item reads, each with that run.

    What is right is worked out from the run itself, so a law only says which runs are alike.
    """
    answered = {
        f"{leaf.origin.experiment}.{leaf.origin.run}"
        for answer in _answers(item, evidence)
        for leaf in answer.leaves
        if leaf.origin and leaf.origin.run
    }
    laws = evidence.book.laws.of_law
    for law, run in evidence.once("laws by run", laws, lambda: _on_several_runs(laws)):
        if run in answered and _holds(f"{law}@{run}", evidence):
            yield law, run


def _on_several_runs(laws: Mapping[str, Sequence[str]]) -> list[tuple[str, str]]:
    """The laws that were judged on more than one run, with each of these runs."""
    several = ((law, verdicts) for law, verdicts in laws.items() if len(verdicts) > 1)
    return [(law, one.partition("@")[2]) for law, verdicts in several for one in verdicts]


def _answers(item: Item, evidence: Evidence) -> Iterator[Value]:
    """The values that decide what is right, of an item that is about numbers."""
    asked = []
    if isinstance(item, Number | Predict | Complete):
        asked = [asked_for(item)[1]]
    elif isinstance(item, Order):
        asked = [piece.by for piece in item.pieces if piece.by]
    for expression in asked:
        try:
            answer = value_of(evidence, expression)
        except (ContentError, ExpressionError):
            continue
        if answer is not None:
            yield answer


def _holds(verdict: str, evidence: Evidence) -> bool:
    is_law = evidence.book.claims[verdict].kind == "law"
    return is_law and evidence.outcome(verdict).verdict == "holds"


def without_stale_claims(variant: Item, runs: Mapping[str, str], evidence: Evidence) -> Item:
    """A variant that shows no evidence on the runs it replaces."""
    claims = [
        name for name in variant.claims
        if name in evidence.book.claims and not runs.keys() & set(evidence.outcome(name).runs)
    ]  # fmt: skip
    return variant.model_copy(update={"claims": claims})


def _prints_words(text: str, runs: Mapping[str, str], book: Book) -> bool:
    """Whether the item prints each setting that differs and is a word, such as the optimizer.

    A number that is nothing or one on one side, such as a batch without microbatches, counts as a
    word.
    """
    printed = [
        (name, shown.settings[name])
        for run, name in re.findall(r"\b([a-z_][a-z0-9_]*\.[a-z0-9_]+)\.settings\.(\w+)", text)
        if run in runs and (shown := book.run(run)) and name in shown.settings
    ]
    for old, new in runs.items():
        before, after = book.run(old), book.run(new)
        if before is None or after is None:
            return False
        for name, value in before.settings.items():
            other = after.settings.get(name)
            is_word = isinstance(value, str) or value in _NOT_SEVERAL or other in _NOT_SEVERAL
            if value != other and is_word and (name, value) not in printed:
                return False
    return True


def _is_called_otherwise(
    said: str, verdict: str, other: str, runs: Mapping[str, str], book: Book
) -> bool:
    """Whether a text says a word by which a replaced run is called, and not the one in its place.

    A run is called by its name and, in a law, by `called:`, such as *the wide model*.
    """
    words = {word.lower() for word in _WORD.findall(said)}
    names = [(old.partition(".")[2], new.partition(".")[2]) for old, new in runs.items()]
    names.append((_called(verdict, book), _called(other, book)))
    return any(words & (_names(old) - _names(new)) for old, new in names)


def _called(verdict: str, book: Book) -> str:
    cases = book.claims[verdict].cases
    return cases[0].called or "" if cases else ""


def _names(text: str) -> set[str]:
    found = {word.lower() for word in _WORD.findall(text)}
    return {word for word in found if len(word) > 2 and word not in _ANYWHERE}


def _follows(judged: Mapping[str, set[str]], runs: Mapping[str, str], evidence: Evidence) -> bool:
    """Whether each verdict that is judged on a replaced run is the same on the run in its place."""
    for name, its_runs in judged.items():
        if its_runs & runs.keys():
            law, _, run = name.partition("@")
            there = f"{law}@{runs.get(run, '')}"
            if there not in evidence.book.claims:
                return False
            if evidence.outcome(there).verdict != evidence.outcome(name).verdict:
                return False
    return True


def _moved(read: Set[str], run: str, other: str, book: Book) -> dict[str, str] | None:
    """The runs that an item reads and what replaces them; None where one has no counterpart."""
    before, after = book.run(run), book.run(other)
    if before is None or after is None or _kind(before) != _kind(after):
        return None
    old, new = _settings(before), _settings(after)
    change = {name for name in old.keys() | new.keys() if old.get(name) != new.get(name)}
    if not change:
        return None
    found = {run: other}
    for path in sorted(read - {run}):
        if path.partition(".")[0] != run.partition(".")[0]:
            continue
        shown = book.run(path)
        assert shown is not None
        shared = {name for name in change & _settings(shown).keys()
                  if _settings(shown)[name] == old.get(name)}  # fmt: skip
        if not shared:
            continue
        own = [one for one in _alike(path, shown, change, book)
               if all(_settings(one[1]).get(name) == new.get(name) for name in shared)]  # fmt: skip
        if len(own) != 1:
            return None
        found[path] = own[0][0]
    others = set(found.values())
    if read & others or len(others) < len(found):  # it compares these runs already, or no two
        return None
    return found


def _alike(path: str, shown: Run, change: Set[str], book: Book) -> Iterator[tuple[str, Run]]:
    """The runs of an experiment that are like one of them, but for some settings."""
    experiment = path.partition(".")[0]
    kept = {name: value for name, value in _settings(shown).items() if name not in change}
    for name, run in book.traces[experiment].trace.runs.items():
        its = {name: value for name, value in _settings(run).items() if name not in change}
        if _kind(run) == _kind(shown) and its == kept:
            yield f"{experiment}.{name}", run


def _kind(run: Run) -> tuple[str, str]:
    return run.strategy, run.status


def _settings(run: Run) -> Settings:
    return {**run.settings, "world_size": run.world_size}
