"""Every run of `listings` executes its program."""

from __future__ import annotations

from runners.experiments._executed.strategies import program

STRATEGIES = {"program": program}
