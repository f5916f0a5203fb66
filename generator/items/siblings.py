"""The runs on which a question can be asked again: the other runs of the laws that it names.

In: an item that asks for a number, and the evidence. Out: mappings of runs, as an author writes
them under `variants:`. An option in words may be true of one run of a law and not of another, so
for other kinds of items only an author can say where they may be asked.

An item names a verdict such as `ddp-bytes-follow-model@growth.ddp_ranks_4`. The law behind it was
judged on other runs as well, under the same regime, so the question can be asked there. All runs
that the item reads change in the same way: where one of them shares a setting in which the two runs
of the law differ, its counterpart has the new one. No mapping is made where a word would become
untrue: where a setting that is a word differs and the text does not print it, where the text spells
a number that differs, or where a run ended otherwise; nor where what decides an answer would stay
with a run that is replaced. What the item
shows as further evidence (`claims:`) and stays with such a run is left out. `variants.py` checks
the rest.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Set
from typing import TYPE_CHECKING

from generator.content.documents import fields_of
from generator.content.quiz import Complete, Item, Number, Predict
from runners.traces.records import Run

if TYPE_CHECKING:
    from generator.content.book import Book
    from generator.evidence.evaluation import Evidence

_RUN = re.compile(r"\b[a-z_]+\.[a-z0-9_]+\b")
_VERDICT = re.compile(r"\b([a-z][a-z0-9]*(?:-[a-z0-9]+)+)(?:@([a-z_]+\.[a-z0-9_]+))?")
_NOT_SEVERAL = (None, 0, 1)
Settings = Mapping[str, object]


def mappings(item: Item, evidence: Evidence) -> list[dict[str, str]]:
    """What to replace for each run of the item's laws, in the order of their `for:`."""
    found: list[dict[str, str]] = []
    if not isinstance(item, Number | Predict | Complete):
        return found
    fields = list(fields_of(item))
    text = "\n".join(one.text for one in fields)
    own = "\n".join(one.text for one in fields if one.name != "claims")
    read = {run for run in _RUN.findall(text) if evidence.book.run(run)}
    named = [one for one in _VERDICT.finditer(text) if one[0] in evidence.book.claims]
    judged = {one[0]: set(evidence.outcome(one[0]).runs) for one in named if one[0] in own}
    for law, run in dict.fromkeys((one[1], one[2]) for one in named if one[2]):
        for verdict in evidence.book.laws.of_law.get(law, ()):
            runs = _moved(read, run, verdict.partition("@")[2], evidence.book)
            if (
                runs
                and runs not in found
                and _prints_words(text, runs, evidence.book)
                and _follows(judged, runs, evidence.book)
            ):
                found.append(runs)
    return found


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
    printed = {
        (name, shown.settings[name])
        for run, name in re.findall(r"\b([a-z_]+\.[a-z0-9_]+)\.settings\.(\w+)", text)
        if run in runs and (shown := book.run(run)) and name in shown.settings
    }
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


def _follows(judged: Mapping[str, set[str]], runs: Mapping[str, str], book: Book) -> bool:
    """Whether each verdict that is judged on a replaced run exists for the run in its place."""
    for name, its_runs in judged.items():
        law, _, run = name.partition("@")
        if its_runs & runs.keys() and f"{law}@{runs.get(run, '')}" not in book.claims:
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
    return None if read & set(found.values()) else found  # it compares these runs already


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
