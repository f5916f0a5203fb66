"""Published measurements of memory beside their simulations, and the file that is committed.

In: the rows of content/planner/published_measurements.yml. Out: for each a `Question`; a table of
measured and simulated bytes, misses included; and planner/published_plans.json. Nothing is fitted
to a row. What a simulation cannot know is a named term: the workspaces of libraries on Megatron's
ranks (`WORKSPACE_BYTES`). A row that misses because of what a plan leaves out is simulated once
more with it (`TERMS`).
"""

from __future__ import annotations

import platform
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Literal, NamedTuple

from runners.planning.answer import Answer
from runners.planning.processes import answers
from runners.planning.question import Model, PlanError, Question, Strategy, Training
from runners.planning.table import GIB
from runners.plans.published import PublishedRow, published
from runners.traces.digest import ROOT
from runners.traces.files import write_rows
from runners.traces.plan_grid import now
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
# Workspaces on Megatron's ranks: 32 MiB for each of torch's two handles of cuBLAS, that of the main
# thread and that of autograd's (aten/src/ATen/cuda/CublasHandlePool.cpp of pytorch/pytorch at
# 26a39059: a handle a thread; 32 MiB on Hopper, and by CUBLAS_WORKSPACE_CONFIG :4096:8), and 32 MiB
# of Transformer Engine (`get_cublas_workspace_size_bytes`: on Hopper). What these rows hold between
# steps exceeds their state by 96 to 116 MiB (tests/runners/test_published.py).
WORKSPACE_BYTES = 3 * 32 * 2**20
MOST_ERROR = 0.15  # a row that misses by more has its term here


class Term(NamedTuple):
    """What the simulation of a row leaves out; both were found after the first comparison.

    Attributes:
        says: what it is, and where that is stated.
        training: the fields that add it.
    """

    says: str
    training: dict[str, bool]


TERMS = {
    "megatron-small-tp2-pp2-ddp-fused-loss": Term(
        "torch.compile: Megatron compiles the gradient of this loss (calculate_gradients in "
        "megatron/core/fusions/fused_cross_entropy.py). The compiled function writes to an fp32 "
        "copy of the softmax (tests/runners/test_published.py), the eager one to the softmax.",
        {"has_compiled_loss": True},
    ),
    "torchtitan-7b-fsdp4-tp2": Term(
        "Tensor.record_stream: what tensor-parallel ranks send stays active until the device comes "
        "to where the program freed it (torchtitan's issue 191; e62573d4 turned it off). The "
        "program is ahead of the device by the length of a CUDA stream's queue.",
        {"records_streams": True},
    ),
}
# At this commit of torchtitan the model ends with `output(h).float()`; train.py names the result
# `pred`, which lives until the next one. Seen after the first comparison, in which the two rows
# concerned lacked it: the row with FSDP alone erred by -11.1 % (active) and -17.4 % (reserved).
# FSDP of that time also copied gradients on the stream of its reduce-scatters
# (foreach_reduce_scatter in torch/distributed/_composable/fsdp/_fsdp_collectives.py of
# pytorch/pytorch at 01d66d21), without which the same row's reserved peak erred by -10.4 %.
KEEPS_LOGITS = "83c879f18763611bda68586c45f0082fd568d646"
_CHECKPOINTING = {"none": "none", "full": "all", "selective_op": "selective"}


class Compared(NamedTuple):
    """One published number and its simulation, in bytes.

    Attributes:
        with_term: simulated with what the first simulation leaves out, where that is known.
    """

    row: str
    kind: Literal["allocated", "active", "reserved"]
    measured: float
    simulated: int | None
    with_term: int | None
    reason: str | None

    @property
    def error(self) -> float | None:
        """Relative to what was measured."""
        return None if self.simulated is None else self.simulated / self.measured - 1

    @property
    def misses(self) -> bool:
        """Whether the error is larger than it may be without an explanation."""
        return abs(self.error or 0.0) > MOST_ERROR

    @property
    def explained(self) -> str | None:
        """Why it misses, or that nothing explains it; None of one that does not miss."""
        term = TERMS.get(self.row)
        return (term.says if term else "Not explained.") if self.misses else None


def question(row: PublishedRow) -> Question:
    """A row as a plan asks it.

    Context parallelism divides the sequence among ranks that hold the same parameters; it is
    simulated as more data-parallel ranks with shorter samples, without what attention sends.
    """
    axes, batch, precision = row.parallelism, row.batch, row.precision
    is_megatron = row.implementation != "torchtitan"  # which is built of torch's own parts
    training = Training.model_validate(
        {
            "sequence": batch.sequence_length // axes.context,
            "microbatch": batch.micro,
            "global_batch": batch.total * axes.context,
            "precision": "bf16-mixed",
            "optimizer": "adam",
            "checkpointing": _CHECKPOINTING[row.recomputation],
            "has_wide_gradients": precision.gradients == "fp32" and precision.parameters != "fp32",
            "is_foreach": row.optimizer == "adamw_foreach",
            "last_unit_stays": axes.last_block_stays,
            "has_fused_attention": row.attention != "unfused",
            "has_fused_norm": is_megatron,
            "has_loss_in_place": is_megatron,
            "keeps_logits": row.source.commit == KEEPS_LOGITS,
            "copies_on_reduce_stream": row.source.commit == KEEPS_LOGITS,
            "has_expandable_segments": row.expandable_segments,
            "dropout": row.dropout,
            "vocabulary": row.padded_vocabulary,
        }
    )
    strategy = Strategy(
        name=row.id,
        data=axes.data * axes.context,
        tensor=axes.tensor,
        pipeline=axes.pipeline,
        sharding=axes.sharding,
        schedule=axes.schedule,
        chunks=axes.chunks,
        has_sequence_parallel=axes.sequence,
        keeps_gathered=not is_megatron,
        layers_of_stages=axes.layers,
    )
    model = Model(name=row.model, architecture=row.architecture)
    return Question(model=model, training=training, strategy=strategy)


def questions(rows: Sequence[PublishedRow] | None = None) -> list[Question]:
    """Of each row, by default of all; after them, of those that have a term."""
    asked = published().rows if rows is None else rows
    return [*map(question, asked), *(_with_term(row) for row in asked if row.id in TERMS)]


def _with_term(row: PublishedRow) -> Question:
    asked = question(row)
    training = asked.training.model_copy(update=TERMS[row.id].training)
    strategy = asked.strategy.model_copy(update={"name": _second(row)})
    return asked.model_copy(update={"training": training, "strategy": strategy})


def _second(row: PublishedRow) -> str:
    return f"{row.id} with its term"


def compared(
    answers: Sequence[Answer], rows: Sequence[PublishedRow] | None = None
) -> list[Compared]:
    """Every published peak beside its simulation.

    Args:
        answers: to the `questions` of `rows`.
        rows: whose peaks are compared; by default those of all.
    """
    by_name = {answer.question.strategy.name: answer for answer in answers}
    found = []
    for row, answer in zip(published().rows if rows is None else rows, answers, strict=False):
        for one in row.measured:
            if one.moment == "peak":
                measured = row.bytes_of(one.kind) or 0.0
                simulated = _simulated(row, answer, one.kind, one.rank)
                second = by_name.get(_second(row))
                with_term = _simulated(row, second, one.kind, one.rank) if second else None
                found.append(
                    Compared(row.id, one.kind, measured, simulated, with_term, answer.reason)
                )
    return found


def document(answers: Sequence[Answer]) -> list[dict[str, object]]:
    """The same, for JSON."""
    return [{**one._asdict(), "error": one.error} for one in compared(answers)]


def _simulated(row: PublishedRow, answer: Answer, kind: str, which: str) -> int | None:
    rank = answer.ranks[-1] if answer.ranks and which == "last" else answer.busiest
    if rank is None:
        return None
    workspace = WORKSPACE_BYTES if row.implementation != "torchtitan" else 0
    kinds = {"reserved": rank.reserved_bytes, "active": rank.active_bytes}
    return workspace + (kinds.get(kind) or rank.allocated_bytes)


def lines(answers: Sequence[Answer]) -> list[str]:
    """A table, and the median error of each kind."""
    found = compared(answers)
    rows = [f"{'row':<44}{'kind':<10}{'measured':>10}{'simulated':>11}{'error':>9}  sizes in GiB"]
    for one in found:
        head = f"{one.row:<44}{one.kind:<10}{one.measured / GIB:10.3f}"
        if one.simulated is None:
            rows.append(f"{head}  not simulated: {one.reason}")
        else:
            rows.append(f"{head}{one.simulated / GIB:11.3f}{one.error or 0.0:+9.1%}")
        if one.explained:
            rows.append(f"    {one.explained}")
        if one.misses and one.with_term is not None:
            error = one.with_term / one.measured - 1
            rows.append(f"{'    with it':<64}{one.with_term / GIB:11.3f}{error:+9.1%}")
    for kinds in (("allocated", "active"), ("reserved",)):
        errors = [abs(one.error) for one in found if one.kind in kinds and one.error is not None]
        if not errors:
            continue
        worst = sum(error > MOST_ERROR for error in errors)
        rows.append(
            f"{' and '.join(kinds)}: median error {median(errors):.1%} over {len(errors)} "
            f"numbers; {worst} of them miss by more than 15 %"
        )
    return rows


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
        made_at=now(),
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
            simulated_bytes=one.simulated,
            explained=one.explained,
            with_term_bytes=one.with_term if one.misses else None,
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
