"""Another value for one field of a trace: of the same type, and far enough off to matter.

A time goes beyond its spread, and samples go together with their quartiles; a number is more than
doubled; a word becomes another of those that its kind knows.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, get_args

from runners.traces.measured import SampledSeconds
from runners.traces.records import Run
from runners.traces.schema import Activity, Nature, Status

FAR = 3  # times the old value
WORDS = (
    get_args(Status), get_args(Nature), get_args(Activity), ("gloo", "nccl"), ("cpu", "cuda"),
    ("fp32", "float32", "float64", "bfloat16", "float16"),
    ("forward", "backward", "optimizer", "build"),
)  # fmt: skip
_SUMMARY = frozenset(SampledSeconds.model_fields)


def places(document: Any, path: str) -> Iterator[tuple[Any, Any]]:
    """Each container on the way to a field, with the key or position that leads on.

    Args:
        document: a trace as JSON.
        path: as `generator.pages.field_readers` writes it; keys of dicts may hold dots.
    """
    holder, rest = document, path.partition(".")[2]
    name = next((one for one in document["runs"] if f"{rest}.".startswith(f"{one}.")), None)
    if name is not None:
        holder, rest = document["runs"][name], rest.removeprefix(f"{name}.")
    while rest:
        key = _first(holder, rest)
        yield holder, key
        holder = holder[key] if isinstance(key, int) else holder.get(key)
        rest = rest[len(f"[{key}]" if isinstance(key, int) else key) :].removeprefix(".")


def _first(holder: Any, rest: str) -> Any:
    if rest.startswith("["):
        return int(rest[1 : rest.index("]")])
    fits = [key for key in holder if rest == key or rest.startswith((f"{key}.", f"{key}["))]
    return max(fits, key=len, default=rest)


def changes(document: Any, path: str, siblings: list[str]) -> Iterator[str]:
    """Give the field of a trace's JSON one other value after another, and say which each is.

    Args:
        document: the trace.
        path: of the field.
        siblings: the fields of other runs, ranks or positions that hold the like.
    """
    *_, (holder, key) = places(document, path)
    if isinstance(holder, dict) and holder.keys() == _SUMMARY:
        first = dict(holder)
        for factor in (FAR, 1 / FAR):
            seconds = [one * factor for one in first["samples"]]
            holder.update(SampledSeconds.of(seconds).model_dump(mode="json"))
            yield "a time far beyond its spread"
        return
    old = holder[key] if isinstance(key, int) or key in holder else _unwritten(key)
    for value, what in others(old, [_held(document, one) for one in siblings]):
        holder[key] = value
        yield what


def _held(document: Any, path: str) -> Any:
    *_, (holder, key) = places(document, path)
    return holder[key] if isinstance(key, int) else holder.get(key)


def _unwritten(key: str) -> Any:
    """What a field of a run holds where a trace does not write it."""
    return Run.model_fields[key].default


def others(value: Any, like: list[Any]) -> Iterator[tuple[Any, str]]:
    """Other values of the same type, each with what it is; of numbers one above and one below."""
    if isinstance(value, bool):
        yield not value, "the other truth"
    elif isinstance(value, int):
        yield value * FAR + 1, "far above"
        yield value // FAR if value > 1 else 1 - value, "far below"
    elif isinstance(value, float):
        yield (1 - value if 0 <= value <= 1 and value != 0.5 else value * FAR), "far off"
        yield value / FAR, "far below"
    else:
        yield from _other_words(value, like)


def _other_words(word: str, like: list[Any]) -> Iterator[tuple[str, str]]:
    """Another word; first that of the like field beside it, where all of those differ."""
    known = [one for words in WORDS if word in words for one in words if one != word]
    own = next((one for one in like if isinstance(one, str) and one != word), None)
    if own is not None and word not in like:
        yield own, "the word of another"
    for one in known or [f"{word[:-1]}{'1' if word[-1:] == '0' else '0'}"]:
        yield one, "another word"
