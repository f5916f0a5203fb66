"""What pages print of a run, beside the run itself: read off it, and computed from it.

In: a run, the values that other pages print of it, and the claims that say what a computed value
is. Out: lists of names and texts, one for each way in which values are found. The positions of a
list share a line, and neighbours that hold the same share one text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import groupby

from generator.content.claim import Claim
from generator.content.typesetting import plain
from generator.evidence import units
from generator.evidence.folio import Folio
from generator.evidence.found_by import found_by
from generator.evidence.value import Kind, Origin, Value, computed
from generator.pages.shown import Shown
from runners.traces.records import Run

LONGEST = 200  # letters of a formula that a line may show; its inputs are listed in any case
RECEIVES = "recv"
ORDER = ("counted", "computed", "formula", "measured", "simulated", "given")
_STEP = re.compile(r"\[(\d+)\]|[^.\[\]]+")
_NAMES = ("name", "operation")  # by which people call an element, rather than by its position
_BY_NAME = re.compile(r"\['(\w+)'\]")
_OF_RANKS = "ranks[]."
_PAYLOAD = re.compile(r"collectives\.(\w+)\.bytes")
_EACH = re.compile(r"([\w.]+)\[\d+\]([\w.]+)(?:, \1\[\d+\]\2)+")  # one field of several ranks
_SIGNS = {" * ": " × ", " - ": " − "}
Positions = tuple[int, ...]
Place = tuple[str, str | None, str | None]  # machine, experiment, run


def payloads(run: Run, origin: Origin, kind: Kind) -> list[Value]:
    """What each rank passes to each kind of collective in one step."""
    path = f"{origin.experiment}.{origin.run}"
    return [
        Value(one.bytes, units.BYTES, kind, f"{path}.{field}", origin=origin._replace(field=field))
        for place, rank in enumerate(run.ranks)
        for position, one in enumerate(rank.collectives)
        for field in [f"ranks[{place}].collectives[{position}].bytes"]
    ]


def largest_payload(run: Run, of_ranks: Iterable[Value]) -> Value | None:
    """What the rank with the largest payload sends in one step; what it receives, others sent."""
    left = iter(of_ranks)
    by_rank = [
        [one for of, one in zip(rank.collectives, left, strict=False) if of.operation != RECEIVES]
        for rank in run.ranks
    ]
    most = max(by_rank, key=_total, default=[])
    if not most:
        return None
    formula = " + ".join(one.formula for one in most)
    return computed(_total(most), units.BYTES, formula, tuple(most))


def _total(values: Iterable[Value]) -> int:
    return sum(int(one.number) for one in values)


class ShownOnPages:
    """What pages print of the runs of one experiment."""

    def __init__(self, values: Iterable[Value], folio: Folio) -> None:
        """Sort values by the run that their link leads to.

        Args:
            values: that pages print; a computed one belongs to the run of its first input.
            folio: the page that lists them, with the claims that say what a computed value is.
        """
        self._folio = folio
        outcomes = list(reversed(folio.outcomes.values()))
        self._observed = {
            one.observed.formula: one.claim for one in outcomes if one.observed is not None
        }
        self._predicted = {
            one.predicted.formula: one.claim for one in outcomes if one.predicted is not None
        }
        self._by_run: dict[Place, list[Value]] = {}
        for value in values:
            if value.leads_to is not None:
                self._by_run.setdefault(value.leads_to[:3], []).append(value)

    def of_run(self, run: Run, origin: Origin, more: Iterable[Value]) -> list[Shown]:
        """The values of one run on one machine, and how found; none where pages print none.

        Args:
            run: as its trace holds it.
            origin: where its values were read off.
            more: what is listed beside them.
        """
        words: dict[str, str] = self._folio.ui["runs"]["found_by"]
        printed = self._by_run.get(origin[:3])
        values = [*printed, *more] if printed else []
        rows: dict[str, Iterator[str]] = {}
        for way in ORDER:
            found = [one for one in values if _way(one) == way]
            rows[way] = self._read_off(found, run)
        computed_ones = [one for one in values if _way(one) == "computed"]
        rows["computed"] = self._by_claim(computed_ones)
        rows["formula"] = self._by_formula(computed_ones, origin)
        listed = ((words[way], tuple(found)) for way, found in rows.items())
        return [Shown(found_by=way, lines=found) for way, found in listed if found]

    def _by_claim(self, values: Iterable[Value]) -> Iterator[str]:
        """A line for each side of a claim that gives a value; both sides are neighbours."""
        predicted = self._folio.ui["runs"]["predicted"]
        lines: dict[str, None] = {}
        for one in values:
            if one.formula in self._observed:
                lines[f"{self._says(self._observed[one.formula])}: {one}"] = None
            elif one.formula in self._predicted:
                lines[f"{self._says(self._predicted[one.formula])}, {predicted}: {one}"] = None
        yield from sorted(lines)

    def _by_formula(self, values: Iterable[Value], origin: Origin) -> Iterator[str]:
        """A line for each formula that no claim says in words."""
        lines: dict[str, None] = {}
        for one in values:
            if one.formula in self._observed or one.formula in self._predicted:
                continue
            if len(formula := _formula(one.formula, origin)) <= LONGEST:
                lines[f"{formula} = {one}"] = None
        yield from lines

    def _says(self, claim: Claim) -> str:
        return plain(self._folio.line(claim.says)).rstrip(".")

    def _read_off(self, values: Iterable[Value], run: Run) -> Iterator[str]:
        """A line for each field, with all its positions."""
        by_name: dict[str, dict[Positions, dict[str, None]]] = {}
        for one in values:
            if one.origin is None:
                continue
            name, at = _called(one.origin.field, run)
            by_name.setdefault(name, {}).setdefault(at, {})[str(one)] = None
        for name, printed in sorted(by_name.items()):
            places = sorted((at, _also(list(forms))) for at, forms in printed.items())
            if name.startswith(_OF_RANKS) and name.count("[]") == 1:
                yield self._by_rank(name.removeprefix(_OF_RANKS), places)
            elif len(places) == 1:
                (at, said), *_ = places
                called = name.replace("[]", "[{}]").format(*at) if at else name
                yield f"{called} = {said}"
            else:
                held = (f"{_place(ends)} {said}" for ends, said in _alike(places))
                yield f"{name} = {' '.join(held)}"

    def _by_rank(self, name: str, places: list[tuple[Positions, str]]) -> str:
        """A field of ranks, in words where it is a payload."""
        words = self._folio.ui
        payload = _PAYLOAD.fullmatch(name)
        called = words["runs"]["payload_of"].format(collective=payload[1]) if payload else name
        held = []
        for ((first,), (last,)), said in _alike(places):
            is_one = first == last
            rank = words["figure"]["rank" if is_one else "ranks"]
            held.append(f"{rank} {first if is_one else f'{first}–{last}'}: {said}")
        return f"{called}, {'; '.join(held)}"


def _way(value: Value) -> str:
    """How a value of a run was found; what is computed is listed apart from what is read off."""
    if value.origin is None:
        return "computed"
    return "given" if value.kind == "given" else found_by(value)


def _formula(formula: str, origin: Origin) -> str:
    """A formula over one run, without what its page says already, in printed signs."""
    text = formula.replace(f"{origin.experiment}.{origin.run}.", "")
    text = _BY_NAME.sub(r".\1", text.replace(f"{origin.experiment}.", ""))
    text = _EACH.sub(r"\1[]\2", text)
    for sign, printed in _SIGNS.items():
        text = text.replace(sign, printed)
    return text


def _also(forms: list[str]) -> str:
    first, *others = forms
    return f"{first} ({', '.join(others)})" if others else first


def _alike(
    places: list[tuple[Positions, str]],
) -> Iterator[tuple[tuple[Positions, Positions], str]]:
    """The first and the last of neighbours in one list that hold the same, and what they hold."""
    for said, group in groupby(places, key=lambda one: one[1]):
        found = [at for at, _ in group]
        first, last = found[0], found[-1]
        if len(first) == 1 and found == [(at,) for at in range(first[0], last[0] + 1)]:
            yield (first, last), said
        else:
            yield from (((at, at), said) for at in found)


def _place(ends: tuple[Positions, Positions]) -> str:
    first, last = ends
    if first != last:
        return f"[{first[0]}–{last[0]}]"
    return "".join(f"[{one}]" for one in first)


def _called(field: str, run: Run) -> tuple[str, Positions]:
    """A field with its elements by their names, and the positions of those that have none."""
    name, at = "", []
    thing: object = run
    for found in _STEP.finditer(field):
        if found[1] is None:
            name += f".{found[0]}"
            if isinstance(thing, dict):
                thing = thing.get(found[0])
            else:
                thing = getattr(thing, found[0], None)
            continue
        thing = thing[int(found[1])] if isinstance(thing, list) else None
        own = next((str(getattr(thing, one)) for one in _NAMES if hasattr(thing, one)), None)
        if own is None:
            at.append(int(found[1]))
        name += "[]" if own is None else f".{own}"
    return name.removeprefix("."), tuple(at)
