"""Claims whose regime is incomplete: the dtype is unknown, or what stays fixed.

In: a file of `content/claims/` and the evidence. Out: claims over runs that have recorded no dtype
and whose file states none, and claims that compare different numbers of ranks without saying what
is fixed meanwhile. A dtype or an optimizer that a run has recorded may not be stated otherwise for
that run alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from generator.content.claim import Claim, ClaimFile
from generator.content.documents import Document
from generator.content.errors import ContentError
from generator.evidence.regime import dtype_of
from runners.traces.records import Run

if TYPE_CHECKING:
    from generator.evidence.evaluation import Evidence


def mistakes(evidence: Evidence, document: Document[ClaimFile]) -> Iterator[ContentError]:
    """Claims that leave open under which conditions they were measured."""
    for position, written in enumerate(document.model.claims):
        for name in evidence.book.laws.of_law[written.id]:
            claim = evidence.book.claims[name]
            names = evidence.outcome(name).runs
            runs = {one: run for one in names if (run := evidence.book.run(one))}
            problem = _problem(claim, runs)
            if problem:
                yield document.error(("claims", position), problem)
                break


def _problem(claim: Claim, runs: dict[str, Run]) -> str | None:
    measured = {name: run for name, run in runs.items() if run.nature != "simulated"}
    for name, run in measured.items():
        if run.status != "skipped" and dtype_of(run) is None and claim.regime.dtype is None:
            return f"{name} has recorded no dtype; state it: regime: {{dtype: float32}}"
    ranks = {run.world_size for run in measured.values()}
    if len(ranks) > 1 and claim.regime.fixed is None:
        return (
            "compares different numbers of ranks; say what is fixed: "
            "regime: {fixed: the global batch}"
        )
    return None
