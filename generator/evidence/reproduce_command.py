"""The command with which a reader measures a number of the book again.

In: where values were read off. Out: one line for a shell, to be pasted in a clone of the book. What
it prints is in `runners/commands/reproduce.py`.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable
from itertools import zip_longest

from generator.evidence.value import Origin, Value

COMMAND = ".venv/bin/python -m runners reproduce"
_ELEMENT = re.compile(r"\[\d+\]")


def command(paths: Iterable[str], machine: str, reference: str) -> str:
    """The line that measures these fields again, as a shell takes it.

    Args:
        paths: as `EXPERIMENT.RUN.FIELD`, or less.
        machine: whose trace the page shows.
        reference: the machine that the command takes without being told.
    """
    return f"{COMMAND} {arguments(paths, machine, reference)}"


def arguments(paths: Iterable[str], machine: str, reference: str) -> str:
    """What follows the command."""
    on = [] if machine in ("", reference) else ["--from", machine]
    return " ".join(map(shlex.quote, (*on, *paths)))


def arguments_for(value: Value, reference: str) -> str | None:
    """What follows the command for a value, measured or simulated, or for what it is computed from.

    Args:
        value: as a page shows it; values of one page come from one machine.
        reference: the reference machine.

    Returns:
        None where no run decided it: of what is given, cited, or known of a machine.
    """
    origins = [one.origin for one in value.leaves if one.kind in ("measured", "simulated")]
    of_runs = [one for one in origins if one and one.run and one.field]
    if value.absent or not of_runs:
        return None
    return arguments(_gathered(map(_path, of_runs)), of_runs[0].machine, reference)


def path_of(value: Value) -> str:
    """The path of a value that was read off a run; empty for any other."""
    return _path(value.origin) if value.origin and value.origin.run else ""


def of_each(value: Value) -> str:
    """What follows the command where each input that a run decided is named by itself, as pages do.

    A path with a bracket is quoted, and no path holds what a shell would read in quotes.
    """
    found = (path_of(one) for one in value.leaves if one.kind in ("measured", "simulated"))
    return " ".join(f"'{one}'" if "[" in one else one for one in found)


def is_own_path(said: str, origin: Origin) -> bool:
    """Whether arguments name nothing but where a value was read off, in plain quotes or none."""
    return said in (_path(origin), f"'{_path(origin)}'")


def _path(origin: Origin) -> str:
    return f"{origin.experiment}.{origin.run}.{origin.field}"


def _gathered(paths: Iterable[str]) -> list[str]:
    """Each path once; paths that differ in positions alone as one, with `[]` for these."""
    alike: dict[str, dict[tuple[str, ...], None]] = {}
    for path in paths:
        alike.setdefault(_ELEMENT.sub("[]", path), {})[tuple(_ELEMENT.findall(path))] = None
    return [_with_positions(pattern, list(places)) for pattern, places in alike.items()]


def _with_positions(pattern: str, places: list[tuple[str, ...]]) -> str:
    """The pattern with every position that is the same in all places."""
    same = ("".join(set(at)) if len(set(at)) == 1 else "[]" for at in zip(*places, strict=True))
    return "".join(
        part for pair in zip_longest(pattern.split("[]"), same, fillvalue="") for part in pair
    )
