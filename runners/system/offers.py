"""What companions offer to the runners: commands, and values that are computed again. No torch.

In: the files `offer.py` of the folders beside this one. Out: an `Offer` of each. The runners know
no companion by its name: what stands in such a file is imported when it is asked for.
"""

from collections.abc import Mapping
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import NamedTuple


class Offer(NamedTuple):
    """What a companion offers."""

    # The module of each command: `add_arguments` says what it takes, `main` returns the exit code.
    commands: Mapping[str, str] = {}
    usage: str = ""  # the lines of `--help` on these
    stopped: str = ""  # what is said where one of them is stopped
    needs_torch: bool = True  # before such a command can begin
    # A module that computes experiments again which no run measures: `trace_of(name)`, which is
    # None for any other, `runs_again(name, runs)`, and `is_stale(trace)`.
    again: str = ""


@cache
def offers() -> tuple[Offer, ...]:
    """All of them, in the order of their folders' names."""
    found = sorted(Path(__file__).parents[1].glob("*/offer.py"))
    modules = (import_module(f"proofbook.runners.{path.parent.name}.offer") for path in found)
    return tuple(module.OFFER for module in modules)
