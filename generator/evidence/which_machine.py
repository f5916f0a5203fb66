"""Which machine a topic shows: the one at hand if it has measured what the topic names.

In: what authors wrote, as text, and the evidence over the machine at hand. Out: whether the topic
shows the reference machine instead. A run that was skipped, or that is about no machine, does not
decide it: a figure or a table shows the reference machine's, and says so.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from generator.evidence.evaluation import Evidence

_PATH = re.compile(r"\b[a-z0-9_]+\.[a-z0-9_]+")
_CLAIM = re.compile(r"\b[a-z0-9]+(?:-[a-z0-9]+)+(?:@[a-z0-9_.]+)?")


def shows_reference(text: str, at_hand: Evidence) -> bool:
    """Whether the machine at hand lacks a run named here that the reference machine has."""
    reference = at_hand.reference
    if reference is None:
        return False
    named = [path for path in _runs(text, reference) if _status(path, reference)]
    found = {_status(path, at_hand) for path in named}
    return None in found or found == {"skipped"}


def _runs(text: str, evidence: Evidence) -> Iterator[str]:
    """The runs that a text names, or on which a claim rests that it names, if about a machine."""
    named = {path for path in set(_PATH.findall(text)) if evidence.book.run(path)}
    for claim in set(_CLAIM.findall(text)) & evidence.book.claims.keys():
        named.update(evidence.outcome(claim).runs)
    return (path for path in named if evidence.book.machine_of(path))


def _status(path: str, evidence: Evidence) -> str | None:
    """How a run ended on the machine of this evidence; None where that says nothing of it today."""
    book = evidence.book
    experiment, _, name = path.partition(".")
    measured = book.machines[book.machine.name]
    trace = measured.traces.get(experiment)
    if trace is None or experiment in measured.stale or name not in trace.runs:
        return None
    run = trace.runs[name]
    return None if run.is_surprise else run.status
