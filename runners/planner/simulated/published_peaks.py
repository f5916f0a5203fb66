"""Published peaks of memory beside their simulations.

In: the rows of `published_measurements.yml`. Out: for each a run with measured and simulated bytes,
misses included. Nothing is fitted to a row. What a simulation cannot know is a named term: the
workspaces of libraries on Megatron's ranks (`workspace_bytes`). A row that misses because of what a
plan leaves out is simulated once more with it (`terms`).
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import cache
from typing import Any

from proofbook.runners.core.trace.machine import num_cores
from proofbook.runners.core.trace.records import Run
from proofbook.runners.core.trace.schema import Setting
from proofbook.runners.planner.answers import published_rows
from proofbook.runners.planner.answers.answer import PlanAnswer
from proofbook.runners.planner.answers.published import MOST_ERROR, run, run_name
from proofbook.runners.planner.answers.published_rows import MEASUREMENTS, Measurement, PublishedRow
from proofbook.runners.planner.answers.question import PlanError, Question
from proofbook.runners.planner.simulated.cache import answers


@cache
def terms() -> dict[str, dict[str, Any]]:
    """By row id, the term that its simulation leaves out, as the file of measurements states it.

    All were found after the first comparison. `implementation` has the fields that add it, where a
    plan can.
    """
    terms = published_rows.read(MEASUREMENTS)["terms"]
    return {row: term for term in terms for row in term["rows"]}


@cache
def rows_by_run() -> dict[str, PublishedRow]:
    """The rows by the names of their runs, but those whose strategy no plan can ask for."""
    by_run = {}
    for row in published_rows.rows(MEASUREMENTS):
        with suppress(PlanError):
            row.question.check_simulation()
            by_run[run_name(row.id)] = row
    return by_run


def workspace_bytes(row: PublishedRow) -> int:
    """Bytes of cuBLAS's and Transformer Engine's workspaces on a rank; 0 under torchtitan.

    A workspace for each of torch's two handles of cuBLAS, that of the main thread and that of
    autograd's (aten/src/ATen/cuda/CublasHandlePool.cpp of pytorch/pytorch at 26a39059: 32 MiB
    on Hopper and by CUBLAS_WORKSPACE_CONFIG :4096:8, else 8.125), and 32 MiB of Transformer
    Engine (`get_cublas_workspace_size_bytes`). What the rows hold between steps exceeds their
    state by so much, and at most 20 MiB more (tests/runners/test_published.py).
    """
    if row.framework == "torchtitan":
        return 0
    settings = {"cublas-workspace", "deterministic"} & {*row.details}
    return round((2 * (32 if "H100" in row.device.name or settings else 8.125) + 32) * 2**20)


def _questions(row: PublishedRow) -> Iterator[Question]:
    """The question of the row; then with its term, where a plan can add that."""
    yield row.question
    if added := terms().get(row.id, {}).get("implementation"):
        yield row.model_copy(update=added).question


def runs(names: Sequence[str] = ()) -> dict[str, Run]:
    """Runs by name, with published and simulated peaks, of all published rows, or those named."""
    known = rows_by_run()
    if gone := [name for name in names if name not in known]:
        raise PlanError(f"no published row is called {gone[0]!r} any more")
    chosen = {name: known[name] for name in names or known}
    asked = [(name, question) for name, row in chosen.items() for question in _questions(row)]
    simulated = answers([question for _, question in asked], num_cores())
    answers_by_name: defaultdict[str, list[PlanAnswer]] = defaultdict(list)
    for (name, _), answer in zip(asked, simulated, strict=True):
        if answer.reason is not None:
            raise PlanError(f"{name}: {answer.reason}")
        answers_by_name[name].append(answer)
    places = {name: place for place, name in enumerate(known)}
    return {name: _run(row, places[name], *answers_by_name[name]) for name, row in chosen.items()}


def _run(
    row: PublishedRow, place: int, answer: PlanAnswer, second: PlanAnswer | None = None
) -> Run:
    axes = {"sharding", "data", "tensor", "pipeline", "context", "expert"}
    settings: dict[str, Setting] = {
        "place": place,
        **row.model_dump(include={"id", "case", "model", "sequence", "microbatch", "global_batch"}),
        **row.strategy.model_dump(include=axes),
        **row.source.model_dump(include={"where", "url"}),
        "checkpointing": row.checkpointing,
        "repository": row.source.title,
        "num_ranks": row.devices,
        "device": row.device.name,
    }
    measures: dict[str, Setting] = {"workspace_bytes": workspace_bytes(row)}
    for peak in row.measured:
        if peak.moment == "peak":
            settings[f"published_{peak.kind}_bytes"] = peak.bytes
            settings[f"field_{peak.kind}"] = peak.field
            measures[f"{peak.kind}_bytes"] = simulated = _simulated(row, answer, peak)
            if abs(simulated / peak.bytes - 1) > MOST_ERROR:
                term = terms().get(row.id, {"says": "Not explained."})
                settings[f"explained_{peak.kind}"] = term["says"]
                if second is not None:
                    measures[f"with_term_{peak.kind}_bytes"] = _simulated(row, second, peak)
    return run(settings, measures, answer.seconds)


def _simulated(row: PublishedRow, answer: PlanAnswer, measured: Measurement) -> int:
    rank = answer.ranks[-1] if measured.rank == "last" else answer.busiest
    assert rank is not None
    is_reserved = measured.kind == "reserved"  # no other stream uses a block after it was freed
    return workspace_bytes(row) + (rank.reserved_bytes if is_reserved else rank.allocated_bytes)
