"""Published measurements of memory beside their simulations.

In: the rows of content/planner/published_measurements.yml. Out: for each a `Question`, and a run
with measured and simulated bytes; and a table of them, misses included. Nothing is fitted to a row.
What a simulation cannot know is a named term: the workspaces of libraries on Megatron's ranks
(`workspace_bytes`). A row that misses because of what a plan leaves out is simulated once more with
it (`TERMS`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any, NamedTuple

from runners.planning.answer import Answer
from runners.planning.processes import answers_anew
from runners.planning.question import Model, PlanError, Question, Strategy, Training
from runners.planning.table import GIB
from runners.plans.published import Measurement, PublishedRow, published
from runners.traces.published import MOST_ERROR, published_bytes_of, run, run_name
from runners.traces.records import Run
from runners.traces.schema import Setting


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
        PlanError: there is no such row any more, or it cannot be simulated now.
    """
    known = {run_name(row.id): row for row in published()}
    gone = [name for name in names if name not in known]
    if gone:
        raise PlanError(f"no published row is called {gone[0]!r} any more")
    rows = [known[name] for name in names]
    return runs(answers_anew(questions(rows)), rows)


def runs(found: Sequence[Answer], rows: Sequence[PublishedRow]) -> dict[str, Run]:
    """A run for each row: every published peak, and its simulation.

    Args:
        found: answers to the `questions` of `rows`.
        rows: whose peaks are compared.

    Raises:
        PlanError: a row cannot be simulated.
    """
    for one in found:
        if one.reason is not None:
            raise PlanError(f"{one.question.strategy.name}: {one.reason}")
    by_name = {answer.question.strategy.name: answer for answer in found}
    places = {row.id: place for place, row in enumerate(published())}
    return {
        run_name(row.id): _run(row, places[row.id], by_name[row.id], by_name.get(_second(row)))
        for row in rows
    }


def _run(row: PublishedRow, place: int, answer: Answer, second: Answer | None) -> Run:
    settings = {"place": place, **_settings(row)}
    measures: dict[str, Setting] = {"workspace_bytes": row.workspace_bytes}
    for one in row.measured:
        if one.moment != "peak":
            continue
        simulated, published_bytes = _simulated(row, answer, one), row.bytes_of(one.kind)
        assert published_bytes is not None
        settings[f"published_{one.kind}_bytes"] = published_bytes
        settings[f"field_{one.kind}"] = one.field
        measures[f"{one.kind}_bytes"] = simulated
        if abs(simulated / published_bytes - 1) > MOST_ERROR:
            term = TERMS.get(row.id)
            settings[f"explained_{one.kind}"] = term.says if term else "Not explained."
            if second is not None:
                measures[f"with_term_{one.kind}_bytes"] = _simulated(row, second, one)
    return run(settings, measures, answer.seconds)


def _simulated(row: PublishedRow, answer: Answer, measured: Measurement) -> int:
    rank = answer.ranks[-1] if measured.rank == "last" else answer.busiest
    assert rank is not None
    kinds = {"reserved": rank.reserved_bytes, "active": rank.active_bytes}
    return row.workspace_bytes + (kinds.get(measured.kind) or rank.allocated_bytes)


def lines(found: Mapping[str, Run]) -> list[str]:
    """A table, and the median error of each kind."""
    rows = [f"{'row':<44}{'kind':<10}{'measured':>10}{'simulated':>11}{'error':>9}  sizes in GiB"]
    errors: dict[str, list[float]] = {"allocated and active": [], "reserved": []}
    for name, one in found.items():
        measures: dict[str, Any] = one.ranks[0].measures
        for kind, published_bytes in published_bytes_of(one):
            simulated, again = measures[f"{kind}_bytes"], measures.get(f"with_term_{kind}_bytes")
            rows.append(_line(f"{name:<44}{kind:<10}", published_bytes, simulated))
            errors["reserved" if kind == "reserved" else "allocated and active"].append(
                abs(simulated / published_bytes - 1)
            )
            if again:
                rows.append(f"    {one.settings[f'explained_{kind}']}")
                rows.append(_line(f"{'    with it':<54}", published_bytes, again))
    return rows + [
        f"{kind}: median error {median(found):.2%} over {len(found)} numbers; "
        f"{sum(error > MOST_ERROR for error in found)} miss by more than {MOST_ERROR:.0%}"
        for kind, found in errors.items()
        if found
    ]


def _line(head: str, measured: float, simulated: int) -> str:
    return f"{head}{measured / GIB:10.3f}{simulated / GIB:11.3f}{simulated / measured - 1:+9.1%}"


def _settings(row: PublishedRow) -> dict[str, Setting]:
    axes, source = row.parallelism, row.source
    return {
        "id": row.id,
        "case": row.case,
        "repository": source.repository,
        "where": f"{source.repository}, commit {source.commit[:10]}, {row.path}",
        "url": _url(row),
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


def _url(row: PublishedRow) -> str:
    """The file, the pull request or the commit that states a row."""
    place = f"blob/{row.source.commit}/{row.path}"
    if row.path.startswith("pull request "):
        place = f"pull/{row.path.split()[-1]}"
    elif row.path.startswith("the message "):
        place = f"commit/{row.source.commit}"
    return f"https://github.com/{row.source.repository}/{place}"
