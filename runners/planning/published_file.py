"""The committed simulations of published measurements: how planner/published_plans.json is made.

In: answers to the questions of all rows. Out: the file, with each published number beside its
simulation.
"""

from __future__ import annotations

import platform
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from tempfile import TemporaryDirectory

from runners.planning.answer import Answer
from runners.planning.processes import ROOT, answers
from runners.planning.published_rows import (
    MOST_ERROR,
    WORKSPACE_BYTES,
    Compared,
    compared,
    questions,
)
from runners.planning.question import PlanError
from runners.plans.published import PublishedRow, published
from runners.traces.files import write_rows
from runners.traces.published_plans import (
    FILE,
    PublishedPeak,
    PublishedPlan,
    PublishedPlans,
    as_trace,
    code_digest,
    rows_digest,
    run_of,
)
from runners.traces.records import Run
from runners.traces.schema import Setting

PATH = ROOT / "content" / FILE


def write(found: Sequence[Answer], path: Path = PATH) -> PublishedPlans:
    """Write the file.

    Args:
        found: answers to the `questions` of all rows, in their order.
        path: where.
    """
    made = _made(published().rows, found)
    write_rows(path, made)
    return made


def again(names: Sequence[str]) -> dict[str, Run]:
    """Rows simulated anew, as runs by their names.

    Raises:
        PlanError: there is no such row any more, or it cannot be simulated now.
    """
    known = {run_of(row.id): row for row in published().rows}
    gone = [name for name in names if name not in known]
    if gone:
        raise PlanError(f"no published row is called {gone[0]!r} any more")
    rows = [known[name] for name in names]
    with TemporaryDirectory() as folder:
        found = answers(questions(rows), 1, folder=Path(folder))
    return as_trace(_made(rows, found)).runs


def _made(asked: Sequence[PublishedRow], found: Sequence[Answer]) -> PublishedPlans:
    peaks = compared(found, asked)
    rows = [
        _row(row, answer, [one for one in peaks if one.row == row.id])
        for row, answer in zip(asked, found, strict=False)  # after them those with a term
    ]
    return PublishedPlans(
        schema_version=1,
        made_at=datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        code=code_digest(),
        torch=metadata.version("torch"),
        python=platform.python_version(),
        values=rows_digest(rows),
        most_error=MOST_ERROR,
        rows=rows,
    )


def _row(row: PublishedRow, answer: Answer, found: Sequence[Compared]) -> PublishedPlan:
    fields = {one.kind: one.field for one in row.measured if one.moment == "peak"}
    peaks = [
        PublishedPeak(
            kind=one.kind,
            field=fields[one.kind],
            measured_bytes=one.measured,
            resolution_bytes=row.resolution_of(one.kind) or 0.0,
            simulated_bytes=_rounded(one.simulated),
            explained=one.explained,
            with_term_bytes=_rounded(one.with_term) if one.misses else None,
        )
        for one in found
    ]
    source = row.source
    assert source.repository is not None
    assert source.commit is not None
    assert source.path is not None
    return PublishedPlan(
        id=row.id,
        case=row.case,
        repository=source.repository,
        commit=source.commit,
        path=source.path,
        settings=_settings(row),
        workspace_bytes=WORKSPACE_BYTES if row.implementation != "torchtitan" else 0,
        peaks=peaks,
        reason=answer.reason,
        seconds=answer.seconds,
    )


def _rounded(num_bytes: float | None) -> int | None:
    return None if num_bytes is None else round(num_bytes)


def _settings(row: PublishedRow) -> dict[str, Setting]:
    axes = row.parallelism
    return {
        "model": row.model,
        "num_ranks": row.device.count,
        "device": row.device.name,
        "sharding": axes.sharding,
        "data": axes.data,
        "tensor": axes.tensor,
        "pipeline": axes.pipeline,
        "context": axes.context,
        "sequence": row.batch.sequence_length,
        "microbatch": row.batch.micro,
        "global_batch": row.batch.total,
        "recomputation": row.recomputation,
        "optimizer": row.optimizer,
    }
