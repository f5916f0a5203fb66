"""Published measurements of memory beside their simulations, and the file that is committed.

In: the rows of content/planner/published_measurements.yml. Out: for each a `Question`; a table of
measured and simulated bytes, misses included; and planner/published_plans.json. Nothing is fitted
to a row. What a simulation cannot know is a named term: the workspaces of libraries on Megatron's
ranks (`workspace_bytes`). A row that misses because of what a plan leaves out is simulated once
more with it (`TERMS`).
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import NamedTuple

from runners.planning import published_choices
from runners.planning.answer import Answer
from runners.planning.processes import answers_anew
from runners.planning.question import Model, PlanError, Question, Strategy, Training
from runners.planning.table import GIB
from runners.plans.published import Measurement, PublishedRow, published
from runners.traces.digest import ROOT
from runners.traces.plan_grid import made_here
from runners.traces.published_plans import (
    FILE,
    PublishedPeak,
    PublishedPlan,
    PublishedPlans,
    as_trace,
    code_digest,
    run_of,
)
from runners.traces.records import Run
from runners.traces.schema import Setting

PATH = ROOT / "content" / FILE
MOST_ERROR = 0.10  # a row that misses by more has its term here


class Term(NamedTuple):
    """What the simulation of a row leaves out; all were found after the first comparison.

    Attributes:
        says: what it is, and where that is stated.
        training: the fields that add it.
    """

    says: str
    training: dict[str, bool]


_COMPILED_LOSS = Term(
    "torch.compile: Megatron compiles the gradient of this loss (calculate_gradients in "
    "megatron/core/fusions/fused_cross_entropy.py). The compiled function writes to an fp32 "
    "copy of the softmax (tests/runners/test_published.py), the eager one to the softmax.",
    {"has_compiled_loss": True},
)
_LOSS_OF_TORCH = Term(
    "loss_parallel: torch computes the loss of logits that ranks divide with several fp32 copies "
    "of a rank's part (torch/distributed/tensor/parallel/loss.py). The plan computes it in place, "
    "as Megatron-LM does.",
    {"has_loss_of_torch": True},
)
TERMS = {
    "megatron-small-tp2-pp2-ddp-fused-loss": _COMPILED_LOSS,
    "megatron-gb200-tp2-pp2-fused-loss": _COMPILED_LOSS,
    "qwen3-32b-fsdp4-tp8-b16": _LOSS_OF_TORCH,
    "qwen3-32b-fsdp4-tp8-b32": _LOSS_OF_TORCH,
    "qwen3-32b-fsdp8-tp8-b32": _LOSS_OF_TORCH,
    "qwen3-32b-fsdp8-tp4-b16": _LOSS_OF_TORCH,
    "torchtitan-7b-fsdp4-tp2": Term(
        "Tensor.record_stream: what tensor-parallel ranks send stays active until the device comes "
        "to where the program freed it (torchtitan's issue 191; e62573d4 turned it off). The "
        "program is ahead of the device by the length of a CUDA stream's queue.",
        {"records_streams": True},
    ),
}
# At these commits of torchtitan the model ends with `output(h).float()`; train.py names the result
# `pred`, which lives until the next one. Seen after the first comparison, in which the two rows of
# the first commit lacked it: the one with FSDP alone erred by -11.1 % (active), -17.4 % (reserved).
# FSDP of that time also copied gradients on the stream of its reduce-scatters
# (foreach_reduce_scatter in torch/distributed/_composable/fsdp/_fsdp_collectives.py of
# pytorch/pytorch at 01d66d21), without which the same row's reserved peak erred by -10.4 %.
OF_2024 = {
    "83c879f18763611bda68586c45f0082fd568d646",
    "40f8fd007957914bc2dced0bc5c018ec9f3ff30f",
}
_CHECKPOINTING = {"none": "none", "full": "all", "selective_op": "selective"}


def question(row: PublishedRow) -> Question:
    """A row as a plan asks it."""
    axes, batch, precision = row.parallelism, row.batch, row.precision
    is_megatron = row.implementation != "torchtitan"  # which is built of torch's own parts
    training = Training.model_validate(
        {
            "sequence": batch.sequence_length,
            "microbatch": batch.micro,
            "global_batch": batch.total,
            "precision": "bf16-mixed",
            "optimizer": "adam",
            "checkpointing": _CHECKPOINTING[row.recomputation],
            "has_wide_gradients": precision.gradients == "fp32" and precision.parameters != "fp32",
            "is_foreach": row.optimizer == "adamw_foreach",
            "last_unit_stays": axes.last_block_stays,
            "has_fused_attention": row.attention != "unfused",
            "has_fused_norm": is_megatron or "norm-in-one-kernel" in row.details,
            "ends_are_units": axes.ends_are_units,
            "loss_chunks": 8 if row.loss == "chunked" else 1,
            "has_loss_in_place": is_megatron,
            "keeps_logits": row.source.commit in OF_2024,
            "copies_on_reduce_stream": row.source.commit in OF_2024,
            "has_expandable_segments": row.expandable_segments,
            "dropout": row.dropout,
            "vocabulary": row.padded_vocabulary,
        }
    )
    strategy = Strategy(
        name=row.id,
        data=axes.data,
        context=axes.context,
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


def questions(rows: Sequence[PublishedRow]) -> list[Question]:
    """Of each row; after them, of those that have a term."""
    return [*map(question, rows), *(_with_term(row) for row in rows if row.id in TERMS)]


def _with_term(row: PublishedRow) -> Question:
    asked = question(row)
    training = asked.training.model_copy(update=TERMS[row.id].training)
    strategy = asked.strategy.model_copy(update={"name": _second(row)})
    return asked.model_copy(update={"training": training, "strategy": strategy})


def _second(row: PublishedRow) -> str:
    return f"{row.id} with its term"


def again(names: Sequence[str]) -> dict[str, Run]:
    """Rows simulated anew, as runs by their names.

    Raises:
        PlanError: there is no such row any more.
    """
    known = {run_of(row.id): row for row in published().rows}
    gone = [name for name in names if name not in known]
    if gone:
        raise PlanError(f"no published row is called {gone[0]!r} any more")
    rows = [known[name] for name in names]
    found = answers_anew(questions(rows))
    return as_trace(file_of(simulated(found, rows))).runs


def file_of(plans: list[PublishedPlan]) -> PublishedPlans:
    """The file of all rows."""
    made = made_here(plans, code_digest())
    return PublishedPlans(**made, most_error=MOST_ERROR, choices=published_choices.choices())


def simulated(found: Sequence[Answer], rows: Sequence[PublishedRow]) -> list[PublishedPlan]:
    """Every published peak beside its simulation.

    Args:
        found: answers to the `questions` of `rows`; after them those with a term.
        rows: whose peaks are compared.
    """
    by_name = {answer.question.strategy.name: answer for answer in found}
    return [_plan(row, by_name[row.id], by_name.get(_second(row))) for row in rows]


def _plan(row: PublishedRow, answer: Answer, second: Answer | None) -> PublishedPlan:
    source = row.source
    return PublishedPlan(
        id=row.id,
        case=row.case,
        repository=source.repository,
        commit=source.commit,
        path=row.path,
        settings=_settings(row),
        workspace_bytes=row.workspace_bytes,
        peaks=[_peak(row, one, answer, second) for one in row.measured if one.moment == "peak"],
        reason=answer.reason,
        seconds=answer.seconds,
    )


def _peak(
    row: PublishedRow, measured: Measurement, answer: Answer, second: Answer | None
) -> PublishedPeak:
    peak = PublishedPeak(
        kind=measured.kind,
        field=measured.field,
        measured_bytes=row.bytes_of(measured.kind) or 0.0,
        resolution_bytes=row.resolution_of(measured.kind) or 0.0,
        simulated_bytes=_simulated(row, answer, measured),
    )
    if abs(peak.error or 0.0) <= MOST_ERROR:
        return peak
    term = TERMS.get(row.id)
    explained = term.says if term else "Not explained."
    with_term = _simulated(row, second, measured) if second else None
    return peak.model_copy(update={"explained": explained, "with_term_bytes": with_term})


def _simulated(row: PublishedRow, answer: Answer, measured: Measurement) -> int | None:
    is_of_last = answer.ranks and measured.rank == "last"
    rank = answer.ranks[-1] if is_of_last else answer.busiest
    if rank is None:
        return None
    kinds = {"reserved": rank.reserved_bytes, "active": rank.active_bytes}
    return row.workspace_bytes + (kinds.get(measured.kind) or rank.allocated_bytes)


def document(plans: Sequence[PublishedPlan]) -> list[dict[str, object]]:
    """Each peak, for JSON."""
    return [
        {**one.model_dump(mode="json"), "row": row.id, "error": one.error, "reason": row.reason}
        for row in plans
        for one in row.peaks
    ]


def lines(plans: Sequence[PublishedPlan]) -> list[str]:
    """A table, the median error of each kind, and a line for each published choice."""
    rows = [f"{'row':<44}{'kind':<10}{'measured':>10}{'simulated':>11}{'error':>9}  sizes in GiB"]
    errors: dict[str, list[float]] = {"allocated and active": [], "reserved": []}
    for plan in plans:
        for one in plan.peaks:
            head = f"{plan.id:<44}{one.kind:<10}{one.measured_bytes / GIB:10.3f}"
            if one.simulated_bytes is None or one.error is None:
                rows.append(f"{head}  not simulated: {plan.reason}")
                continue
            rows.append(f"{head}{one.simulated_bytes / GIB:11.3f}{one.error:+9.1%}")
            rows += [f"    {one.explained}"] if one.explained else []
            if one.with_term_bytes is not None:
                error = one.with_term_bytes / one.measured_bytes - 1
                rows.append(f"{'    with it':<64}{one.with_term_bytes / GIB:11.3f}{error:+9.1%}")
            kind = "reserved" if one.kind == "reserved" else "allocated and active"
            errors[kind].append(abs(one.error))
    return (
        rows
        + [
            f"{kind}: median error {median(found):.2%} over {len(found)} numbers; "
            f"{sum(error > MOST_ERROR for error in found)} miss by more than {MOST_ERROR:.0%}"
            for kind, found in errors.items()
            if found
        ]
        + ["", *published_choices.lines(published_choices.choices())]
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
