"""The committed simulations of published measurements: how content/published_plans.json is made.

In: answers to the questions of all rows. Out: the file, with each published number beside its
simulation.
"""

from __future__ import annotations

import platform
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path

from runners.planning.answer import Answer
from runners.planning.processes import ROOT
from runners.planning.published_rows import (
    MOST_ERROR,
    WORKSPACE_BYTES,
    compared,
    explanation,
)
from runners.plans.published import PublishedRow, published
from runners.traces.files import write_published
from runners.traces.published_plans import (
    FILE,
    PublishedPeak,
    PublishedPlan,
    PublishedPlans,
    code_digest,
    rows_digest,
)
from runners.traces.schema import Setting

PATH = ROOT / "content" / FILE


def write(answers: Sequence[Answer], path: Path = PATH) -> PublishedPlans:
    """Write the file.

    Args:
        answers: to `questions()`, in their order.
        path: where.
    """
    by_row = zip(published().rows, answers, strict=False)  # after them: the most that some hold
    rows = [_row(row, one, answers) for row, one in by_row]
    found = PublishedPlans(
        schema_version=1,
        made_at=datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        code=code_digest(),
        torch=metadata.version("torch"),
        python=platform.python_version(),
        values=rows_digest(rows),
        most_error=MOST_ERROR,
        rows=rows,
    )
    write_published(path, found)
    return found


def _row(row: PublishedRow, answer: Answer, answers: Sequence[Answer]) -> PublishedPlan:
    found = compared([answer], [row])
    fields = {one.kind: one.field for one in row.measured if one.moment == "peak"}
    peaks = [
        PublishedPeak(
            kind=one.kind,
            field=fields[one.kind],
            measured_bytes=one.measured,
            resolution_bytes=row.resolution_of(one.kind) or 0.0,
            simulated_bytes=None if one.simulated is None else round(one.simulated),
            explained=explanation(one, answers) if abs(one.error or 0.0) > MOST_ERROR else None,
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
