"""Published measurements of memory beside their simulations.

In: the rows of content/published_measurements.yml. Out: for each a `Question`, and a table of
measured and simulated bytes, misses included. Nothing is fitted to a row. What a simulation cannot
know is a named term: the workspaces of libraries on Megatron's ranks (`WORKSPACE_BYTES`).
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import Literal, NamedTuple

from runners.planning.answer import Answer
from runners.planning.question import Model, Question, Strategy, Training
from runners.planning.table import GIB
from runners.plans.published import PublishedRow, published

# Workspaces on Megatron's ranks: 32 MiB for each of torch's two handles of cuBLAS, that of the main
# thread and that of autograd's (aten/src/ATen/cuda/CublasHandlePool.cpp of pytorch/pytorch at
# 26a39059: a handle a thread; 32 MiB on Hopper, and by CUBLAS_WORKSPACE_CONFIG :4096:8), and 32 MiB
# of Transformer Engine (`get_cublas_workspace_size_bytes`: on Hopper). What these rows hold between
# steps exceeds their state by 96 to 116 MiB (tests/runners/test_published.py).
WORKSPACE_BYTES = 3 * 32 * 2**20
MOST_ERROR = 0.15  # a row that misses by more has its explanation here
EXPLAINED = {
    "megatron-small-tp2-pp2-ddp-fused-loss": (
        "no run explains it; the compiled loss is not simulated, and one more fp32 copy of the "
        "logits would be about as large as what is missing"
    ),
    "torchtitan-7b-fsdp4-tp2": (
        "Tensor.record_stream: NCCL held what tensor-parallel ranks send until its stream had "
        "passed (torchtitan's issue 191; e62573d4 turned it off), the simulation does not"
    ),
}
AT_MOST = {"torchtitan-7b-fsdp4-tp2"}  # rows simulated once more, with streams recorded
# At this commit of torchtitan the model ends with `output(h).float()`; train.py names the result
# `pred`, which lives until the next one. Seen after the first comparison, in which the two rows
# concerned lacked it: the row with FSDP alone erred by -11.1 % (active) and -17.4 % (reserved).
KEEPS_LOGITS = "83c879f18763611bda68586c45f0082fd568d646"
_CHECKPOINTING = {"none": "none", "full": "all", "selective_op": "selective"}


class Compared(NamedTuple):
    """One published number and its simulation, in bytes."""

    row: str
    kind: Literal["allocated", "active", "reserved"]
    measured: float
    simulated: float | None
    reason: str | None

    @property
    def error(self) -> float | None:
        """Relative to what was measured."""
        return None if self.simulated is None else self.simulated / self.measured - 1


def question(row: PublishedRow) -> Question:
    """A row as a plan asks it.

    Context parallelism divides the sequence among ranks that hold the same parameters; it is
    simulated as more data-parallel ranks with shorter samples, without what attention sends.
    """
    axes, batch, precision = row.parallelism, row.batch, row.precision
    is_megatron = row.implementation != "torchtitan"
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
        has_sequence_parallel=axes.sequence,
        layers_of_stages=axes.layers,
    )
    model = Model(name=row.model, architecture=row.architecture)
    return Question(model=model, training=training, strategy=strategy)


def questions() -> list[Question]:
    """Every row's, in the order of the file; after them, the most that streams may hold."""
    rows = published().rows
    return [question(row) for row in rows] + [_most(row) for row in rows if row.id in AT_MOST]


def _most(row: PublishedRow) -> Question:
    asked = question(row)
    training = asked.training.model_copy(update={"records_streams": True})
    strategy = asked.strategy.model_copy(update={"name": f"{row.id} at most"})
    return asked.model_copy(update={"training": training, "strategy": strategy})


def compared(
    answers: Sequence[Answer], rows: Sequence[PublishedRow] | None = None
) -> list[Compared]:
    """Every published peak beside its simulation.

    Args:
        answers: to `questions()`, or to those of `rows`.
        rows: whose peaks are compared; by default those of all.
    """
    found = []
    for row, answer in zip(published().rows if rows is None else rows, answers, strict=False):
        for one in row.measured:
            if one.moment == "peak":
                measured = row.bytes_of(one.kind) or 0.0
                simulated = _simulated(row, answer, one.kind, one.rank)
                found.append(Compared(row.id, one.kind, measured, simulated, answer.reason))
    return found


def document(answers: Sequence[Answer]) -> list[dict[str, object]]:
    """The same, for JSON."""
    return [{**one._asdict(), "error": one.error} for one in compared(answers)]


def _simulated(row: PublishedRow, answer: Answer, kind: str, which: str) -> float | None:
    rank = answer.ranks[-1] if answer.ranks and which == "last" else answer.busiest
    if rank is None:
        return None
    workspace = WORKSPACE_BYTES if row.implementation != "torchtitan" else 0
    return workspace + (rank.reserved_bytes if kind == "reserved" else rank.allocated_bytes)


def explanation(one: Compared, answers: Sequence[Answer]) -> str:
    """Why a row misses by more than it may, or that nothing explains it."""
    return f"{EXPLAINED.get(one.row, 'not explained')}{_at_most(one, answers)}"


def _at_most(one: Compared, answers: Sequence[Answer]) -> str:
    """What a row may have had active or reserved where streams hold blocks to the step's end."""
    names = {answer.question.strategy.name: answer.busiest for answer in answers}
    rank = names.get(f"{one.row} at most")
    if rank is None:
        return ""
    most = rank.reserved_bytes if one.kind == "reserved" else rank.active_bytes or 0
    return f"; held until each step ends, it would be {most / GIB:.3f} GiB"


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
        if abs(one.error or 0.0) > MOST_ERROR:
            rows.append(f"    {explanation(one, answers)}")
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
