"""Which machine a topic shows: the one at hand if it has measured what the topic names.

In: what authors wrote, as documents, and the evidence over the machine at hand. Out:
whether the topic shows the reference machine instead. A run that was skipped, or that is about no
machine, does not decide it: a figure or a table shows the reference machine's, and says so.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from generator.content import prose
from generator.content.documents import Document
from generator.evidence.evaluation import Evidence

_PATH = re.compile(r"\b[a-z0-9_]+\.[a-z0-9_]+")
_CLAIM = re.compile(r"\b[a-z0-9]+(?:-[a-z0-9]+)+(?:@[a-z0-9_.]+)?")


def shows_reference(documents: Iterable[Document[Any]], at_hand: Evidence) -> bool:
    """Whether the machine at hand lacks what the reference machine has of what is named here.

    Args:
        documents: the files that a topic or a page is written in.
        at_hand: what the machine at hand says.
    """
    reference = at_hand.reference
    if reference is None:
        return False
    files = list(documents)
    fields = [one for document in files for one in document.fields]
    text = "\n".join(one.text for one in fields)
    whole = "\n".join([text, *(one.source.text for one in files)])
    claims = sorted(set(_CLAIM.findall(whole)) & at_hand.book.claims.keys())
    runs = sorted(_runs(whole, claims, reference))
    named = [path for path in runs if _status(path, reference)]
    found = {_status(path, at_hand) for path in named}
    if None in found or found == {"skipped"}:
        return True
    printed = {one.text for one in prose.expressions(text)}
    printed |= {one.text for one in fields if one.mark == "expression"}
    of_runs = {one.text for one in fields if one.mark == "per_run"}
    return (
        any(_is_undecided(one, at_hand, reference) for one in claims)
        or any(_lacks(one, {}, at_hand) for one in sorted(printed))
        or any(_lacks(one, {"run": run}, at_hand) for one in sorted(of_runs) for run in runs)
    )


def _runs(text: str, claims: Iterable[str], evidence: Evidence) -> set[str]:
    """The runs that a text names, or on which a claim rests that it names, if about a machine."""
    named = {path for path in set(_PATH.findall(text)) if evidence.book.run(path)}
    for claim in claims:
        named.update(evidence.outcome(claim).runs)
    return {path for path in named if evidence.book.machine_of(path)}


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


def _is_undecided(claim: str, at_hand: Evidence, reference: Evidence) -> bool:
    """Whether only the runs of the reference machine give evidence of a claim."""
    there = reference.outcome(claim).verdict
    return at_hand.outcome(claim).verdict == "no_evidence" and there != "no_evidence"


def _lacks(expression: str, names: dict[str, str], at_hand: Evidence) -> bool:
    """Whether a run that ended as declared lacks the value of an expression here."""
    absent = at_hand.evaluate(expression, names).absent
    return absent is not None and absent.is_unexplained
