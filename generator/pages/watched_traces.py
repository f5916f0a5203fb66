"""Traces that note which of their fields are read, and by whom.

In: a book. Out: the same book over copies of the reference machine's traces, and a `Watch` that
collects the full path of every field (`ddp.single.epochs[0].loss`) whose value anybody takes, be it
an expression or a view that walks through a run by itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

from generator.content.book import Book
from runners.traces.records import Trace
from runners.traces.schema import Record


@dataclass(eq=False)
class Watch:
    """Collects the fields that are read between the beginning and the end of a reading."""

    places: dict[int, tuple[Record, str]] = field(default_factory=dict)  # by the record's identity
    _open: list[set[str]] = field(default_factory=list)

    def note(self, *paths: str) -> None:
        """Fields were read; nobody is told while no reading is open."""
        if self._open:
            self._open[-1].update(paths)

    @contextmanager
    def reading(self, *, is_apart: bool = False) -> Iterator[set[str]]:
        """The fields that are read from here on; a reading around it has them too, unless apart."""
        found: set[str] = set()
        self._open.append(found)
        try:
            yield found
        finally:
            self._open.pop()
            if not is_apart:
                self.note(*found)


class _Entries(dict[str, Any]):
    """A dict of a trace, each of whose entries is read by itself."""

    def __init__(self, entries: dict[str, Any], watch: Watch, place: str) -> None:
        super().__init__(entries)
        self._watch, self._place = watch, place

    def __getitem__(self, key: str) -> Any:  # noqa: ANN401
        self._watch.note(f"{self._place}.{key}")
        return super().__getitem__(key)

    def __iter__(self) -> Iterator[str]:
        """As ever; that it stands here makes `dict(…)` read entry by entry too."""
        return super().__iter__()

    def get(self, key: str, default: Any = None) -> Any:  # noqa: ANN401
        if key in self:
            self._watch.note(f"{self._place}.{key}")
        return super().get(key, default)

    def items(self) -> Iterable[tuple[str, Any]]:  # type: ignore[override]
        return [(key, self[key]) for key in self]

    def values(self) -> Iterable[Any]:  # type: ignore[override]
        return [self[key] for key in self]


class _Items(list[Any]):
    """A list of numbers or words, each of which is read by itself."""

    def __init__(self, items: list[Any], watch: Watch, place: str) -> None:
        super().__init__(items)
        self._watch, self._place = watch, place

    def __getitem__(self, key: Any) -> Any:  # noqa: ANN401
        positions = range(len(self))[key]
        chosen = [positions] if isinstance(positions, int) else positions
        self._watch.note(*(f"{self._place}[{one}]" for one in chosen))
        return super().__getitem__(key)

    def __iter__(self) -> Iterator[Any]:
        return iter(self[:])


def watched(book: Book) -> tuple[Book, Watch]:
    """A book over traces that note what is read of them."""
    watch = Watch()
    name = book.reference.name
    kept = {
        experiment: _watched_trace(trace, watch)
        for experiment, trace in book.machines[name].traces.items()
    }
    shown = {
        experiment: replace(
            one,
            trace=kept[experiment] if one.machine.name == name else one.trace,
            reference=kept.get(experiment),
        )
        if not one.is_plan
        else one
        for experiment, one in book.traces.items()
    }
    machines = {**book.machines, name: replace(book.machines[name], traces=kept)}
    return replace(book, traces=shown, machines=machines), watch


def _watched_trace(trace: Trace, watch: Watch) -> Trace:
    whole = trace.model_copy(deep=True)
    _follow(whole, trace.experiment, watch)
    return whole


def _follow(thing: object, place: str, watch: Watch) -> None:
    """Let a record, and whatever lies below it, note what is read of it."""
    if isinstance(thing, list):
        for position, part in enumerate(thing):
            _follow(part, f"{place}[{position}]", watch)
    elif isinstance(thing, dict):
        for key, part in thing.items():
            _follow(part, f"{place}.{key}", watch)
            thing[key] = _noting_list(part, f"{place}.{key}", watch)
    elif isinstance(thing, Record):
        for key, part in thing.__dict__.items():
            below = place if isinstance(thing, Trace) and key == "runs" else f"{place}.{key}"
            _follow(part, below, watch)
            if isinstance(part, dict) and below != place:
                thing.__dict__[key] = _Entries(part, watch, below)
            else:
                thing.__dict__[key] = _noting_list(part, below, watch)
        watch.places[id(thing)] = (thing, place)
        object.__setattr__(thing, "__class__", _noting(type(thing), watch))


def _noting_list(thing: object, place: str, watch: Watch) -> object:
    """A list that notes which of its numbers or words are read; anything else as it is."""
    if isinstance(thing, list) and thing and not isinstance(thing[0], Record):
        return _Items(thing, watch, place)
    return thing


@cache
def _noting(kind: type[Record], watch: Watch) -> type[Record]:
    """A kind of record that notes each of its fields that is read."""
    names = frozenset(kind.model_fields)

    def noted(record: Record, name: str) -> object:
        known = watch.places.get(id(record)) if name in names else None
        if known:
            watch.note(f"{known[1]}.{name}")
        return object.__getattribute__(record, name)

    return type(kind.__name__, (kind,), {"__getattribute__": noted, "__module__": __name__})
