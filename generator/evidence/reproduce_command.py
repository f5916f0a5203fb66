"""The command with which a reader measures a number of the book again.

In: where values were read off. Out: one line for a shell, to be pasted in a clone of the book. What
it prints is in `runners/commands/reproduce.py`.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable
from itertools import zip_longest

from generator.evidence.value import Value

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
    of_runs = [one for one in value.decided_by if one.path]
    if value.absent or not of_runs:
        return None
    return arguments(_gathered(one.path for one in of_runs), of_runs[0].machine, reference)


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
